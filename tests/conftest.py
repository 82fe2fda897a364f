"""Before torch is loaded: its threads wait without spinning, so that two cores are enough for tests with threads."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
