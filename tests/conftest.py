"""Settings of all tests: hypothesis draws the same examples every time, and is not in a hurry."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("trainyard", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trainyard")
