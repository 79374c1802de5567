"""First in, first out: jobs start in order of submission, or of priority."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators.placement import (
    Patience,
    Placer,
    mix_param,
    placement_param,
    types_param,
    wait_for_type_param,
)
from allocators.queue.backfill import order_param
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
)


@dataclass
class Fifo(Allocator):
    """Start waiting jobs in order; with ``backfill=none`` the first without room holds up all
    behind it.

    Notes
    -----
    Non-preemptive. An evicted job queues at its original place. The rule of thumb of every cluster;
    "YARN-CS" of the literature is this with ``backfill=none``, "WCS-SubTime", work-conserving
    scheduling by submission time, with ``backfill=first_fit``.
    """

    order: str = order_param()
    backfill: str = backfill_param()
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _queue: Backlog | Lanes = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)

    card = Card(
        title="FIFO",
        brief="first come, first served",
        what="First come, first served.",
        cost="One large job at the head of the queue blocks all jobs behind it.",
        limits="Uses no run times; never stops a job.",
        source="Folklore; YARN-CS of papers, and WCS-SubTime with backfill = first_fit",
        certainty="exact",
        goals=("baseline",),
        how=(
            "Jobs queue in the order in which they were submitted.",
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
        """Prepare an empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        key = _by_priority if self.order == "priority" else _by_submission
        self._queue = backlog(self.backfill, key, Patience.of(self._place, self.wait_for_type))

    @property
    def needs(self) -> Needs:
        """Nothing but the public columns."""
        return Needs(mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Start what has room, in order."""
        self._queue.feed(view)
        started = self._queue.start(view, self._place)
        if self.wait_for_type:
            return Plan(started, wake_at_s=self._queue.wake_at_s)
        return Plan(started) if started else EMPTY

    def rule(self) -> QueueRule | None:
        """Return the order by submission or priority, unless jobs wait for a type."""
        if self.wait_for_type:
            return None
        key = ("priority",) if self.order == "priority" else ()
        return queue_rule(key, self, backfill=self.backfill)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State how many jobs were ahead, and what the first of them waited for."""
        order = "by priority" if self.order == "priority" else "by submission"
        return in_line(decided, job, self._queue.ahead(job), order, blocks=self.backfill == "none")


def _by_submission(view: View, job: JobId) -> Key:
    # Job ids are in order of submission.
    del view, job
    return ()


def _by_priority(view: View, job: JobId) -> Key:
    return (-view.one("priority", job),)
