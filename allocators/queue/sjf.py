"""Shortest job first: the waiting job with the least believed run time, or GPU time, goes first."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators.placement import Patience, Placer, mix_param, placement_param, types_param, wait_for_type_param
from allocators.toolkit import Backlog, Key, Lanes, backlog, head_param
from sim.contract import EMPTY, Cadence, Card, JobId, Plan, View, param


@dataclass
class Sjf:
    """Start waiting jobs in order of their believed run time or GPU time; ties go to the earlier submission.

    Notes
    -----
    Non-preemptive. The run time is the believed work left over the believed rate at the requested size, on the type that ``types`` prefers; it is asked
    when a job begins to wait, so an evicted job queues with what it has left. With exact beliefs and rigid jobs it is the recorded duration.

    Under a belief that predicts, these are the rivals of A-SRPT [1]_: SPJF is ``size=time``, SPWF ``size=gpu_time``, and with ``head=skip`` they conserve work
    (WCS-Duration and WCS-Workload; WCS by submission time is FIFO with ``head=skip``).

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    size: str = param(
        "time",
        choices=("time", "gpu_time"),
        help="What makes a job short: its believed run time (SPJF), or that times its GPUs (SPWF; a CPU job counts as one GPU).",
    )
    head: str = head_param()
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _queue: Backlog | Lanes = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)

    cadence = Cadence()
    card = Card(
        title="SJF",
        what="The job with the shortest believed run time goes first.",
        cost="Long jobs wait, without end while enough short ones arrive.",
        limits="As good as its belief of run times; never stops a job.",
        source="W. E. Smith, Various optimizers for single-stage production, 1956 (shortest processing time). With predicted run times these are SPJF and SPWF "
        "of the paper on A-SRPT, by size, and with head = skip its WCS-Duration and WCS-Workload",
        certainty="exact; which rules those four names stand for is our reading",
        goals=("short waits", "baseline"),
        how=(
            "Waiting jobs stand in order of their believed run time, the shortest first.",
            "The run time is asked when a job begins to wait, at the size that it asks for.",
            "From the front, each job starts if its whole gang has room; the first without room holds up the rest.",
            "A running job is never stopped, however short a newcomer is.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare an empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        self._queue = backlog(self.head, self._key, Patience.of(self._place, self.wait_for_type))

    @property
    def needs(self) -> frozenset[str]:
        """The believed run time."""
        return frozenset({"remaining_work", "rates", "mixed"} if self.mix else {"remaining_work", "rates"})

    def allocate(self, view: View, /) -> Plan:
        """Start what has room, shortest first."""
        self._queue.feed(view)
        started = self._queue.start(view, self._place)
        if self.wait_for_type:
            return Plan(started, wake_at_s=self._queue.wake_at_s)
        return Plan(started) if started else EMPTY

    def _key(self, view: View, job: JobId) -> Key:
        time_s = self._place.run_time_s(view, job)
        return (time_s * max(view.one("gpus", job), 1.0) if self.size == "gpu_time" else time_s, view.one("arrival_s", job))
