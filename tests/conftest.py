"""Settings of all tests: hypothesis is not in a hurry, and draws the same examples every time.

With TRAINYARD_RANDOM=1 it draws others in each run, and prints how to do a failing one again.
"""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

# Some fifty processes of the app start: what the first of them compiles is for all, also where the
# environment asks to keep nothing.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Nothing is compiled but where a test asks for it: that takes some ten seconds of CPU once, and a
# third of one in each process.
os.environ.setdefault("TRAINYARD_PLAIN", "1")

settings.register_profile(
    "trainyard",
    derandomize=True,
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "random", settings.get_profile("trainyard"), derandomize=False, print_blob=True
)
settings.load_profile("random" if os.environ.get("TRAINYARD_RANDOM") else "trainyard")
