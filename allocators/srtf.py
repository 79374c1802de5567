"""Shortest remaining time first: running jobs are stopped for jobs that are believed to need less."""

from __future__ import annotations

from dataclasses import dataclass, field

from allocators._backlog import head_param
from allocators._ladders import TOLERANCE, Key
from allocators._preempt import Contest
from allocators.placement import Placer, alone, mix_param, placement_param, types_param
from sim.contract import EMPTY, Cadence, Card, Demand, Grant, JobId, Plan, View, inf

_PATIENCE_S = 1 / 64  # how long after its believed finish a job that still runs is asked anew
_PAUSE_S = 1.0  # least time from one such question to the next


class Remaining:
    """Order by believed remaining time: `allocators._ladders.Order`.

    Notes
    -----
    Times are counted on a GPU of speed 1, whatever type a job holds or would get: two jobs that want the same GPUs are then compared as they would run on
    them, and a job is not stopped for one that would need longer in its place. On a cluster of one type this is remaining work over believed rate.

    The remaining time of a waiting job is constant, that of a running one falls at a constant pace. So running jobs of one pace stay in order of their
    believed finish, which is their height on the ladder of that pace. Pauses are not foreseen: a job that did not finish when it was believed to is asked anew.
    """

    def __init__(self, place: Placer) -> None:
        self._place = place
        self._whole: dict[int, tuple[Grant, float]] = {}
        self._scale: dict[JobId, float] = {}

    def key(self, view: View, job: JobId) -> Key:
        """Return the believed remaining seconds at the requested size, on a GPU of speed 1."""
        scale = self._scale.get(job)
        if scale is None:
            demand = view.demand(job)
            whole, speed = self._whole.get(id(demand)) or self._requested(view, demand)
            rate = view.belief.rate(job, whole)
            scale = self._scale[job] = speed / rate if rate > 0 else inf
        return (view.one("remaining_work", job) * scale,)

    def rung(self, view: View, job: JobId, grant: Grant, key: Key) -> tuple[float, float]:
        """Return the pace at which the remaining time falls with this grant, and the believed finish."""
        pace = max(round(view.belief.rate(job, grant) * self._scale[job], 9), 1e-9)
        return pace, view.now_s + key[0] / pace

    def limit(self, ladder: float, key: Key, now_s: float) -> float:
        """Return the finish beyond which more time remains than to the waiting job."""
        return now_s + (key[0] + TOLERANCE) / ladder

    def rank(self, ladder: float, height: float, now_s: float) -> tuple[float, ...]:
        """Return the remaining time."""
        return ((height - now_s) * ladder,)

    def outdated(self, view: View, job: JobId, key: Key) -> bool:
        """Tell whether the job has lost work, or has worked on, since it was to be stopped."""
        return abs(view.one("remaining_work", job) * self._scale[job] - key[0]) > TOLERANCE

    def left(self, job: JobId, key: Key) -> None:
        """Do nothing: what is known of a job is kept until it finishes."""

    def forget(self, finished: tuple[JobId, ...]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in finished:
            self._scale.pop(job, None)

    def _requested(self, view: View, demand: Demand) -> tuple[Grant, float]:
        # A gang over several types, left by a policy before this one, may have no way of its own.
        whole = alone(view, demand, self._place.ways(view, demand).groups or (demand.pools,))
        nodes, types = view.cluster.nodes, view.cluster.type_index
        speeds = [view.cluster.types[types[kind]].speed for node in whole.gangs[0].workers.nodes if (kind := nodes[node].gpu_type)]
        self._whole[id(demand)] = found = whole, min(speeds, default=1.0)
        return found


@dataclass
class Srtf:
    """Run the jobs that are believed to need the least time from now, and stop others for them.

    Notes
    -----
    Preemptive. All active jobs are walked by believed remaining time, ties by job id; each gets its gang if it fits beside those before it, and running jobs
    stay where they are. Our reading of the details: a job is stopped only for one with strictly less remaining time that has no room otherwise, the one with
    the most remaining time first, and as few as needed; what they leave over is offered to the next in order. With one GPU this is SRPT, which minimises the
    mean completion time [1]_. A job that outlives its believed size is asked anew; the policy wakes itself up for that while others wait.

    References
    ----------
    .. [1] L. Schrage, "A proof of the optimality of the shortest remaining processing time discipline", Operations Research 16 (1968).
    """

    head: str = head_param("skip")
    placement: str = placement_param()
    types: str = types_param()
    mix: bool = mix_param()
    _order: Remaining = field(init=False, repr=False)
    _contest: Contest = field(init=False, repr=False)

    cadence = Cadence()
    card = Card(
        title="SRTF",
        what="The jobs that need the least time from now run; others are stopped for them.",
        cost="Long jobs are stopped again and again, and wait for as long as short ones keep coming.",
        limits="Believes what it is told of run times. Counts stops as free: what they cost is set under overheads.",
        source="Schrage, Operations Research 16 (1968), for one machine",
        certainty="exact for one GPU; for gangs our reading: worst first, as few as needed",
        goals=("short waits",),
        how=(
            "All jobs, waiting and running, stand in order of the time that they are believed to need from now.",
            "From the front, each gets its GPUs if its whole gang fits beside those before it.",
            "A running job is stopped only for one that needs strictly less time and has no room otherwise.",
            "Those that need most are stopped first, and as few as needed.",
            "What they leave over is offered to the next in order.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare empty queues."""
        place = Placer(self.placement, self.types, self.mix)
        self._order = Remaining(place)
        self._contest = Contest(self._order, place, block=self.head == "block")

    @property
    def needs(self) -> frozenset[str]:
        """Sizes and speeds."""
        return frozenset({"remaining_work", "rates", "mixed"} if self.mix else {"remaining_work", "rates"})

    def allocate(self, view: View, /) -> Plan:
        """Start what is best, and stop what must go for it."""
        contest = self._contest
        contest.feed(view)
        if contest.waiting:
            self._ask_anew(view)
        changes = contest.settle(view)
        if view.delta.finished:
            self._order.forget(view.delta.finished)
        if not contest.waiting:
            return Plan(changes) if changes else EMPTY
        first = min([ladder.rungs[0][0] for ladder in contest.running.all.values()], default=inf)
        return Plan(changes, wake_at_s=max(first + _PATIENCE_S, view.now_s + _PAUSE_S))

    def _ask_anew(self, view: View) -> None:
        now_s, contest = view.now_s, self._contest
        late = [ladder.rungs for ladder in contest.running.all.values() if ladder.rungs[0][0] <= now_s]
        for job in [job for rungs in late for job in _late(rungs, now_s)]:
            seat = contest.running.seats[job]
            rate = view.belief.rate(job, seat.grant)
            left_s = view.one("remaining_work", job) / rate if rate > 0 else inf
            contest.worsen(job, seat.ladder.tag, now_s + max(left_s, TOLERANCE))


def _late(rungs: list[tuple[float, JobId, int]], now_s: float) -> list[JobId]:
    late = []
    for height, job, _ in rungs:
        if height > now_s:
            break
        late.append(job)
    return late
