"""The result of a run: tables of facts from which every metric is derived later."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

RESULTS_VERSION: Final = 5
"""Increased whenever the same scenario may give other numbers; part of every store key."""

OUTCOMES: Final = ("completed", "failed", "refused", "impossible", "unfinished")
CAUSES: Final = ("outage", "interruption", "oom")
ROLES: Final = ("worker", "server")
ENDINGS: Final = ("finished", "changed", "preempted", "evicted", "open")


class Progress(NamedTuple):
    """Progress of a run: settled jobs, all jobs, simulated clock and last submission time."""

    done: int
    jobs: int
    now_s: float
    span_s: float


@dataclass(frozen=True)
class Timing:
    """Cost of the run on this machine; outside the result and its hash.

    Parameters
    ----------
    cpu_s, wall_s : float, seconds
        Of the whole run.
    allocate_s : float, seconds
        Wall time inside `Allocator.allocate`, all decisions together; NaN = not measured.
    longest_s : float, seconds
        The longest single decision; NaN = not measured.
    peak_rss_mb : float, MB
        Highest resident memory of the process so far.
    engine : str
        "kernel" = the general simulator, "fast" = a compiled loop; results of earlier versions
        also "plain" = that loop as plain Python.
    """

    cpu_s: float = 0.0
    wall_s: float = 0.0
    allocate_s: float = 0.0
    longest_s: float = 0.0
    peak_rss_mb: float = 0.0
    engine: str = "kernel"


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of one run.

    Times are seconds since the first submission of the trace.

    Parameters
    ----------
    jobs : DataFrame, one row per job of the trace, in its order
        submit_s, first_start_s (NaN = never), finish_s (NaN = never), gpus, outcome (category of
        `OUTCOMES`), preemptions (stops or changes by a plan), evictions (outage, interruption,
        OOM), relaunches (interruptions of one replica that the job survived), held_s (time with a
        grant), paused_s (part of it without progress), served_gpu_s, work, ideal_s (run time alone
        at its best size on the fastest type, without pauses), believed_s (ideal_s of the first
        estimated work, or of the one that replaced a stand-in; NaN = never estimated), lost_work.
    segments : DataFrame, one row per job and period of constant grant and rate
        job, t0, t1, gpus, rate (work per second after the pause), paused_s, batch (-1 = none),
        ended (category of `ENDINGS`; "evicted" also where a plan ended the job for good, see
        `Plan.ended`: then `failures` has no row).
    placements : DataFrame, the only source of nodes and GPU types
        segment (row of `segments`), gang, role (0 worker, 1 server), node, count, gpus, cpus,
        mem_gb (per replica).
    decisions : DataFrame, one row per call of the allocator
        t, changed, waiting, running (jobs, after the plan).
    notes : DataFrame
        decision (row of `decisions`), name, value: numbers from `Plan.notes`.
    outages : DataFrame
        node, t0, t1 (NaN = to the end), cause ("outage" or "absent").
    failures : DataFrame, one row per eviction or relaunch
        t, job, lost_work, survived (1 = only a replica was relaunched), cause (category of
        `CAUSES`), role (category of `ROLES`) of the replica that was hit.
    usage : DataFrame
        segment (row of `segments`), role (row of `ROLES`), cpus, mem_gb: mean use over the segment
        by all replicas together; only for performance models with resource use.
    end_s : float, seconds
        When the run ended.
    reason : str
        Why the run ended: "drained", "horizon", "measured", or a sentence about the jobs that can
        never start.
    voided : int
        Entries of plans dropped because their job or node changed while the plan was in flight.
    overflow : int or None
        Number of the unpriced overflow node, if the allocator requires one.
    remarks : tuple of str
        The allocator's sentences about the run, e.g. that it used another solver; not part of the
        digest.
    timing : Timing
        Not part of the digest.
    """

    jobs: pd.DataFrame
    segments: pd.DataFrame
    placements: pd.DataFrame
    decisions: pd.DataFrame
    notes: pd.DataFrame
    outages: pd.DataFrame
    failures: pd.DataFrame
    usage: pd.DataFrame
    end_s: float
    reason: str = "drained"
    voided: int = 0
    overflow: int | None = None
    remarks: tuple[str, ...] = ()
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        """Convert `end_s` to float: an integer would give another digest."""
        object.__setattr__(self, "end_s", float(self.end_s))

    def digest(self) -> str:
        """Return a hash of the result: all tables except `timing`, `remarks` and believed_s."""
        mix = hashlib.blake2b(
            repr((self.end_s, self.reason, self.voided, self.overflow)).encode(), digest_size=16
        )
        for frame in (
            self.jobs,
            self.segments,
            self.placements,
            self.decisions,
            self.notes,
            self.outages,
            self.failures,
            self.usage,
        ):
            for column, values in frame.items():
                if column == "believed_s" and frame is self.jobs:
                    continue
                mix.update(f"{column}:{values.dtype}:{len(values)}".encode())
                if isinstance(values.dtype, pd.CategoricalDtype):
                    mix.update("\x1f".join(map(str, values.cat.categories)).encode())
                    mix.update(values.cat.codes.to_numpy().data)
                elif pd.api.types.is_string_dtype(values.dtype):
                    mix.update("\x1f".join(values).encode())
                else:
                    mix.update(np.ascontiguousarray(values.to_numpy()).data)
        return mix.hexdigest()
