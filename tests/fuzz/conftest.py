"""How long the readers are tried: a moment in the suite, `FUZZ_EXAMPLES` for each test in `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "20"))
PROFILE = "hostile"
settings.register_profile(
    PROFILE,
    max_examples=EXAMPLES,
    deadline=60_000,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
