"""Settings of all tests: hypothesis draws the same examples every time, and is not in a hurry."""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

# Some fifty processes of the app start: what the first of them compiles is for all, also where the environment asks to keep nothing.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

settings.register_profile("trainyard", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trainyard")
