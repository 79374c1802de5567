"""Settings of all tests: hypothesis draws the same examples in every run, without a deadline.

Exploration selects the profile "explore" instead, with `--hypothesis-profile` and a seed.
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
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    settings.get_profile("trainyard"),
    derandomize=False,
    database=None,
    print_blob=True,
    max_examples=int(os.environ.get("TRAINYARD_EXAMPLES", "600")),
)
settings.load_profile("trainyard")
