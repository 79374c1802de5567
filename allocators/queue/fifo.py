"""First in, first out: jobs start in order of submission, or of priority."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators.placement import Patience, Placer, mix_param, placement_param, types_param, wait_for_type_param
from allocators.toolkit import Backlog, Key, Lanes, backlog, head_param
from sim.contract import EMPTY, Cadence, Card, JobId, Plan, View, param


@dataclass
class Fifo:
    """Start waiting jobs in order; with ``head=block`` the first that has no room holds up all behind it.

    Notes
    -----
    Non-preemptive. An evicted job queues at its original place. The rule of thumb of every cluster; "YARN-CS" of the literature is this with ``head=block``,
    "WCS-SubTime", work-conserving scheduling by submission time, with ``head=skip``.
    """

    order: str = param("submit", choices=("submit", "priority"), help="Order of the queue: submission, or priority first and submission within it.")
    head: str = head_param()
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    wait_for_type: float = wait_for_type_param()
    _queue: Backlog | Lanes = field(init=False, repr=False)
    _place: Placer = field(init=False, repr=False)

    cadence = Cadence()
    card = Card(
        title="FIFO",
        what="First come, first served.",
        cost="One large job at the head holds up everybody behind it.",
        limits="Knows nothing of run times; never stops a job.",
        source="Folklore; YARN-CS of papers, and WCS-SubTime with head = skip",
        certainty="exact",
        goals=("baseline",),
        how=(
            "Jobs queue in the order in which they were submitted.",
            "The first of the queue is looked at whenever a job arrives or ends, or nodes come back.",
            "If its whole gang has room it starts, and the next one is looked at.",
            "If not, all behind it wait too, even those that would fit; head = skip lets them pass.",
            "A running job is never stopped.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare an empty queue."""
        self._place = Placer(self.placement, self.types, self.mix)
        key = _by_priority if self.order == "priority" else _by_submission
        self._queue = backlog(self.head, key, Patience.of(self._place, self.wait_for_type))

    @property
    def needs(self) -> frozenset[str]:
        """Nothing but the public columns."""
        return frozenset({"mixed"}) if self.mix else frozenset()

    def allocate(self, view: View, /) -> Plan:
        """Start what has room, in order."""
        self._queue.feed(view)
        started = self._queue.start(view, self._place)
        if self.wait_for_type:
            return Plan(started, wake_at_s=self._queue.wake_at_s)
        return Plan(started) if started else EMPTY


def _by_submission(view: View, job: JobId) -> Key:
    # Job ids are in order of submission.
    del view, job
    return ()


def _by_priority(view: View, job: JobId) -> Key:
    return (-view.one("priority", job),)
