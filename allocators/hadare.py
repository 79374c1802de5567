"""HadarE: jobs are forked into copies that train at the same time on nodes of their own, so that no node is idle while there is a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allocators._clock import USUAL_ROUND_S, round_param
from allocators._copies import Deal, Forking, grant_of, kept_in_place
from allocators._slots import Free, Jobs, Rounds, spots_of
from sim.contract import Cadence, Card, Floats, Grant, JobId, Plan, View, param


@dataclass
class HadarE:
    """Give out the nodes anew every round, the fastest first, each to the job with the most time left; a job may get several, with a copy on each.

    Notes
    -----
    Our reading of [1]_, of which only the abstract was at hand. Every job may be forked into as many copies as there are nodes, a copy runs on one node, and
    no two copies of a job on the same. Nodes are dealt out one by one: to the unfinished job with the largest remaining time, believed work left over the sum
    of the speeds given to it so far, which is without end for a job that has none yet; so every job has a node before any has two. How the steps of a round
    are split among copies and what joining them costs is the performance model's business: rates of copies add up, and every model takes off the time
    for joining once a round (``consolidate_s``, ``round_s``) and what steps lose by being made apart (``efficiency``).

    Ours: the fastest type is the one on which the jobs run at the largest part of their best speed on average; among jobs without a node the one with the
    most time left on its best type goes first. On a node of several GPUs a copy takes as many as the job asks for, or the largest smaller number that the
    performance model admits, and the rest goes on to the next job. A job that no node can hold runs as one copy on the fewest nodes of one type. Equal nodes
    are exchanged so that copies stay where they are. Rounds as in Hadar: one after the other as long as something runs, then from the next arrival. CPU jobs
    start when there is room and are never stopped.

    Found with it: with about as many jobs as nodes nearly all of the gain over Hadar comes from dealing by time left, which makes jobs end together, and little
    from forking; ``max_copies = 1`` shows how much. Forking itself pays with fewer jobs than nodes.

    References
    ----------
    .. [1] A. Sultana, N. Pakka, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "Resource Heterogeneity-Aware and Utilization-Enhanced Scheduling for Deep Learning
       Clusters", arXiv 2503.10918.
    """

    max_copies: int = param(0, low=0, high=100_000, help="Most copies of one job; 0 = one on every node.")
    fill: bool = param(True, help="Whether idle GPUs get a further copy of a job even if that makes it no faster, for the sake of utilisation.")
    round_s: float = round_param()
    _rounds: Rounds = field(init=False, repr=False)
    _dealt: int = field(init=False, repr=False, default=0)
    _forked: int = field(init=False, repr=False, default=0)

    cadence = Cadence(on_finish=False)
    card = Card(
        title="HadarE",
        what="Every job is forked into copies that train at the same time on nodes of their own, so that no node is idle while there is a job.",
        cost="Joining the copies takes time every round, and a step made apart may be worth less than one made together.",
        limits="Presumes that averaging the weights of copies once a round loses nothing; how much it loses is a parameter of the performance model.",
        source="Sultana et al., arXiv 2503.10918",
        certainty="our reading of how nodes are given to jobs, since only the abstract was at hand; gangs of several GPUs and ties are ours",
        goals=("heterogeneous",),
        how=(
            "Time is cut into rounds; in each, the nodes are dealt out anew, the fastest type first.",
            "A node goes to the job that has the most time left at the speed it has been given so far.",
            "So every job has a node before any has two; each further node holds a copy of the job.",
            "Copies train at the same time and are joined once a round.",
        ),
    )

    @property
    def needs(self) -> frozenset[str]:
        """Sizes and speeds and, unless a job has one copy only, several gangs for a job."""
        return frozenset({"rates", "remaining_work"} | ({"forks"} if self.max_copies != 1 else set()))

    def __post_init__(self) -> None:
        """Prepare the rounds."""
        self._rounds = Rounds(self.round_s)

    def remarks(self) -> tuple[str, ...]:
        """Say that the performance model has rounds of its own, and whether no job was ever forked."""
        said = []
        if self.round_s != USUAL_ROUND_S:
            joined = "Joining copies is charged once per round_s of the performance model (How fast jobs run), which should be as long."
            said.append(f"Rounds are {self.round_s:g} s long. {joined}")
        if self._dealt and not self._forked:
            said.append(f"hadare forked nothing: in {self._dealt:,} round{'s' if self._dealt > 1 else ''} no job had a second copy.")
        return tuple(said)

    def allocate(self, view: View, /) -> Plan:
        """Deal out the nodes for the round that begins now."""
        return self._rounds.plan(view, self._decide)

    def _decide(self, view: View, jobs: Jobs, paces: Floats, free: Free) -> tuple[dict[JobId, Grant], Mapping[str, float]]:
        dealt = Deal(view, jobs, paces, free.copy(), self._rounds.sites, Forking(self.max_copies, self.fill)).run()
        held = {job: _copies(grant) for job in jobs.ids.tolist() if (grant := view.grants.get(job)) is not None}
        forked = sum([len(copies) > 1 for copies in dealt.values()])
        self._dealt, self._forked = self._dealt + 1, self._forked + forked
        target = {}
        for job, copies in kept_in_place(view, dealt, held, free).items():
            grant = grant_of(view.demand(job), copies)
            now = view.grants.get(job)
            target[job] = now if now is not None and now.gangs == grant.gangs else grant
        return target, {"copies": sum([len(copies) for copies in dealt.values()]), "forked": forked}


def _copies(grant: Grant) -> Sequence[tuple[tuple[int, int], ...]]:
    return [spots_of(gang) for gang in grant.gangs]
