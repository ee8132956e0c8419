"""For all tests: helpers of pytest's own, the loopback server, and properties that may take their time."""

from __future__ import annotations

import hypothesis

pytest_plugins = ["pytester", "tests.loopback.fixtures"]

# No test looks at a clock: on a busy machine an example takes as long as it takes.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")
