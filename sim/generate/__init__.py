"""Seeded look-alike workloads: `generate` makes a trace from published statistics, `PROFILES` holds them; `WORKLOADS` makes small ones from a text."""

from __future__ import annotations

from sim.generate.history import with_history
from sim.generate.made import WORKLOADS, Workload, canonical, workload
from sim.generate.profiles import PROFILES, Profile, SizeGroup
from sim.generate.workload import generate

__all__ = ["PROFILES", "WORKLOADS", "Profile", "SizeGroup", "Workload", "canonical", "generate", "with_history", "workload"]
