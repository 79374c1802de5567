"""SJF: the waiting job with the least estimated run time or GPU time starts first."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators.placement import (
    RUN_TIME_NEEDS,
    Placer,
    TypeWait,
    mix_param,
    placement_param,
    types_param,
    wait_for_type_param,
)
from allocators.reasons import queue_reason
from allocators.toolkit import (
    BlockingQueue,
    Key,
    SkippingQueue,
    backfill_param,
    make_queue,
    queue_rule,
)
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
    """Start waiting jobs in order of their estimated run time or GPU time.

    Notes
    -----
    Non-preemptive; ties go to the earlier submission. The run time is the remaining work over the
    estimated rate at the requested size, on the type that ``types`` prefers. It is estimated when a
    job begins to wait, so an evicted job queues with its remaining time. With exact estimates and
    rigid jobs it is the recorded duration.

    With predicted run times these are the policies that A-SRPT is compared with [1]_: SPJF is
    ``size=time``, SPWF ``size=gpu_time``; with ``backfill=first_fit`` they conserve work
    (WCS-Duration and WCS-Workload; WCS by submission time is FIFO with ``backfill=first_fit``).

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
        help=("Estimated run time (SPJF), or run time times GPUs (SPWF; CPU jobs: one GPU)."),
    )
    backfill: str = backfill_param(locked=True)
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _queue: BlockingQueue | SkippingQueue = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)

    card = Card(
        title="SJF",
        brief="shortest job first, never preempts",
        what="The job with the shortest estimated run time goes first.",
        cost="Long jobs wait for as long as enough short jobs arrive.",
        limits="Depends on the accuracy of run-time estimates. Never preempts jobs.",
        source=(
            "W. E. Smith, Various optimizers for single-stage production, 1956. By"
            " size, with predicted run times, SPJF and SPWF of the paper on A-SRPT; with"
            " backfill = first_fit its WCS-Duration and WCS-Workload"
        ),
        certainty="exact; our reading: the meaning of those four names",
        goals=("short waits",),
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
        """Create the empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._queue = make_queue(
            self.backfill, self._key, TypeWait.create(self._place, self.wait_for_type)
        )

    @property
    def needs(self) -> Needs:
        """Need the estimated run time of waiting jobs."""
        return Needs(RUN_TIME_NEEDS, mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Start the waiting jobs that fit, shortest first; the first misfit may block others."""
        self._queue.feed(view)
        started = self._queue.start(view, self._place)
        if self.wait_for_type:
            return Plan(started, wake_at_s=self._queue.wake_at_s)
        return Plan(started) if started else EMPTY

    def rule(self) -> QueueRule | None:
        """Return the queue rule by size, then submission; None if jobs wait for a type."""
        if self.wait_for_type:
            return None
        size = "gpu_time_s" if self.size == "gpu_time" else "run_time_s"
        return queue_rule((size, "arrival_s"), self, backfill=self.backfill)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the number of jobs ahead and, if it blocks, the first of them."""
        order = "by GPU time" if self.size == "gpu_time" else "by run time"
        return queue_reason(
            decided, job, self._queue.ahead(job), order, blocks=self.backfill != "first_fit"
        )

    def _key(self, view: View, job: JobId) -> Key:
        """Return (estimated run time or GPU time, submission) of a job."""
        time_s = self._place.run_time_s(view, job)
        return (
            time_s * max(view.one("gpus", job), 1.0) if self.size == "gpu_time" else time_s,
            view.one("arrival_s", job),
        )
