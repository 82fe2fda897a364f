"""Tests in a real vLLM. `make test-vllm` installs it; nothing here is collected without it."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = ["test_*.py"] if find_spec("vllm") is None else []
