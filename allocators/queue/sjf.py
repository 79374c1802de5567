"""Shortest job first: the waiting job with the least estimated run time, or GPU time, goes
first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators.placement import (
    RUN_TIME,
    Patience,
    Placer,
    mix_param,
    placement_param,
    types_param,
    wait_for_type_param,
)
from allocators.reasons import in_line
from allocators.toolkit import Backlog, Key, Lanes, backfill_param, backlog, queue_rule
from sim.contract import (
    EMPTY,
    Allocator,
    Card,
    Decided,
    JobId,
    Needs,
    Plan,
    QueueRule,
    Reason,
    View,
    param,
)


@dataclass
class Sjf(Allocator):
    """Start waiting jobs in order of their estimated run time or GPU time; ties go to the earlier
    submission.

    Notes
    -----
    Non-preemptive. The run time is the estimated work left over the estimated rate at the requested
    size, on the type that ``types`` prefers; it is asked when a job begins to wait, so an evicted
    job queues with what it has left. With exact estimates and rigid jobs it is the recorded
    duration.

    Under an estimator that predicts, these are the rivals of A-SRPT [1]_: SPJF is ``size=time``,
    SPWF ``size=gpu_time``, and with ``backfill=first_fit`` they conserve work (WCS-Duration and
    WCS-Workload; WCS by submission time is FIFO with ``backfill=first_fit``).

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload
    Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    size: str = param(
        "time",
        title="Size of a job",
        choices=("time", "gpu_time"),
        labels={"time": "Run time (SPJF)", "gpu_time": "GPUs × run time (SPWF)"},
        help=(
            "Size of a job. time: estimated run time (SPJF). gpu_time: run time times"
            " GPUs (SPWF; CPU jobs: one GPU)."
        ),
    )
    backfill: str = backfill_param(locked=True)
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _queue: Backlog | Lanes = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)

    card = Card(
        title="SJF",
        brief="shortest job first, never stopped",
        what="The job with the shortest estimated run time goes first.",
        cost="Long jobs wait for as long as enough short jobs arrive.",
        limits="As good as the estimates of run times; never stops a job.",
        source=(
            "W. E. Smith, Various optimizers for single-stage production, 1956. By"
            " size, with predicted run times, SPJF and SPWF of the paper on A-SRPT; with"
            " backfill = first_fit its WCS-Duration and WCS-Workload"
        ),
        certainty="exact; our reading: the meaning of those four names",
        goals=("short waits", "baseline"),
        how=(
            "Waiting jobs are sorted by their estimated run time, the shortest first.",
            (
                "The run time is estimated once, when a job begins to wait, for the size that"
                " it asks for."
            ),
            (
                "From the front, each job starts if its whole gang has room; the first without room"
                " holds up the rest."
            ),
            "A running job is never stopped, however short a newcomer is.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare an empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._queue = backlog(
            self.backfill, self._key, Patience.of(self._place, self.wait_for_type)
        )

    @property
    def needs(self) -> Needs:
        """The estimated run time."""
        return Needs(RUN_TIME, mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Start what has room, shortest first."""
        self._queue.feed(view)
        started = self._queue.start(view, self._place)
        if self.wait_for_type:
            return Plan(started, wake_at_s=self._queue.wake_at_s)
        return Plan(started) if started else EMPTY

    def rule(self) -> QueueRule | None:
        """Return the order by size, then submission, unless jobs wait for a type."""
        if self.wait_for_type:
            return None
        size = "gpu_time_s" if self.size == "gpu_time" else "run_time_s"
        return queue_rule((size, "arrival_s"), self, backfill=self.backfill)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State how many jobs were ahead, and what the first of them waited for."""
        order = "by GPU time" if self.size == "gpu_time" else "by run time"
        return in_line(
            decided, job, self._queue.ahead(job), order, blocks=self.backfill != "first_fit"
        )

    def _key(self, view: View, job: JobId) -> Key:
        time_s = self._place.run_time_s(view, job)
        return (
            time_s * max(view.one("gpus", job), 1.0) if self.size == "gpu_time" else time_s,
            view.one("arrival_s", job),
        )
