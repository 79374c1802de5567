"""FIFO: jobs start in order of submission or priority."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators.placement import (
    Placer,
    TypeWait,
    mix_param,
    placement_param,
    types_param,
    wait_for_type_param,
)
from allocators.queue.backfill import order_param
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
)


@dataclass
class Fifo(Allocator):
    """Start waiting jobs in order; the first without room blocks the others or is skipped.

    Notes
    -----
    Non-preemptive. An evicted job queues at its original place. "YARN-CS" in the literature is this
    with ``backfill=none``; "WCS-SubTime", work-conserving scheduling by submission time, is this
    with ``backfill=first_fit``.
    """

    order: str = order_param()
    backfill: str = backfill_param()
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _queue: BlockingQueue | SkippingQueue = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)

    card = Card(
        title="FIFO",
        brief="first come, first served",
        what="First come, first served.",
        cost="One large job at the head of the queue blocks all jobs behind it.",
        limits="Ignores run times. Never preempts jobs.",
        source="the usual baseline, YARN-CS in papers; with backfill WCS-SubTime (A-SRPT)",
        certainty="exact",
        goals=("baseline",),
        how=(
            "Jobs queue in order of submission.",
            (
                "The first job of the queue is tried whenever a job arrives or ends, or nodes"
                " return."
            ),
            "If its whole gang has room it starts, and the next job is tried.",
            (
                "If not, all jobs behind it wait too; with backfill = first_fit, those that fit"
                " start."
            ),
            "A running job is never stopped.",
        ),
    )

    def __post_init__(self) -> None:
        """Create the empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        key = _priority_key if self.order == "priority" else _submission_key
        self._queue = make_queue(
            self.backfill, key, TypeWait.create(self._place, self.wait_for_type)
        )

    @property
    def needs(self) -> Needs:
        """Need only public columns."""
        return Needs(mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Start the waiting jobs that fit, in order; the first misfit may block others."""
        self._queue.feed(view)
        started = self._queue.start(view, self._place)
        if self.wait_for_type:
            return Plan(started, wake_at_s=self._queue.wake_at_s)
        return Plan(started) if started else EMPTY

    def rule(self) -> QueueRule | None:
        """Return the queue rule by submission or priority; None if jobs wait for a type."""
        if self.wait_for_type:
            return None
        key = ("priority",) if self.order == "priority" else ()
        return queue_rule(key, self, backfill=self.backfill)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the number of jobs ahead and, if it blocks, the first of them."""
        order = "by priority" if self.order == "priority" else "by submission"
        return queue_reason(
            decided, job, self._queue.ahead(job), order, blocks=self.backfill == "none"
        )


def _submission_key(view: View, job: JobId) -> Key:
    """Return an empty key: ties go to the lower job id, which is the earlier submission."""
    del view, job
    return ()


def _priority_key(view: View, job: JobId) -> Key:
    """Return the negated priority of a job as its key."""
    return (-view.one("priority", job),)
