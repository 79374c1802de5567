"""Seeded look-alike workloads: `generate` makes a trace from published statistics, `PROFILES` holds them."""

from __future__ import annotations

from sim.generate.history import with_history
from sim.generate.profiles import PROFILES, Profile, SizeGroup
from sim.generate.workload import generate

__all__ = ["PROFILES", "Profile", "SizeGroup", "generate", "with_history"]
