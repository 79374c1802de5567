"""Elastic scaling with batch sizes: every so often a dynamic program gives each job the GPUs, and with them the batch size, that speed all up the most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allocators._idle import Choices
from allocators._knapsack import knapsack
from allocators._scalability import BATCHES, Scalability
from allocators._sizes import Market, Menu, Option, jobs_were
from allocators.placement import Placer, placement_param, types_param
from sim.contract import EMPTY, Cadence, Card, Grant, JobId, Plan, Tuning, View, param


@dataclass
class DpElastic:
    """Give every admitted job a number of GPUs and a batch size so that the sum of all speed-ups is the greatest.

    Notes
    -----
    At every tick at which something has changed: the jobs that run, and those that wait as long as the smallest sizes of all fit together, in order of
    submission, are given ``k_j`` GPUs such that ``sum T_j(k_j)`` is the greatest with ``sum k_j <= K`` and ``k_j >= 1`` [1]_ [2]_. ``T_j(k)`` is the speed-up
    on ``k`` GPUs with the best batch size for that number, see `Scalability`; it need not rise with ``k``, and GPUs may stay idle. A running job changes its
    size and batch but is never stopped.

    Our reading of the details: ``mode=queue`` stops at the first job that does not fit; ``mode=drop`` turns away what does not fit at its first decision, but
    not a job that was admitted once: one that an outage stopped, or that fragments kept from a seat, waits at its place in order of submission and is passed
    by others. In both modes a job that no size up to ``most_gpus`` admits on any type, even of the empty cluster, is turned away, since it would hold up the
    queue for ever. A job whose minimum is above ``most_gpus`` gets its minimum. On a cluster of several GPU types each type is divided for itself, in the
    order of ``types``; who is not admitted on one is a candidate on the next.

    References
    ----------
    .. [1] V. Saxena, K. R. Jayaram, S. Basu, Y. Sabharwal, A. Verma, "Effective Elastic Scaling of Deep Learning Workloads", MASCOTS 2020, arXiv 2006.13878.
    .. [2] The same authors, "Elastic scaling of deep learning jobs", US patent 11,586,475.
    """

    every_s: float = param(600.0, unit="s", low=1, high=86400, help="Time between decisions: the interval of the autoscaler.")
    most_gpus: int = param(10, low=1, high=1024, help="Most GPUs for one job; a job that needs more gets its minimum.")
    mode: str = param(
        "queue", choices=("queue", "drop"), help="What becomes of a job that does not fit when it is looked at first: it waits, or it is refused."
    )
    batch: str = param(
        "elastic",
        choices=BATCHES,
        help="elastic: the best batch size for each number of GPUs. max, min, random: a total batch size fixed at submission, "
        "the largest or smallest of the job's range or one drawn from it.",
    )
    placement: str = placement_param()
    types: str = types_param()
    _jsa: Scalability = field(init=False, repr=False)
    _menu: Menu = field(init=False, repr=False)
    _type: dict[JobId, int] = field(init=False, repr=False, default_factory=dict)
    _misses: int = field(init=False, repr=False, default=0)
    _turned_away: int = field(init=False, repr=False, default=0)
    _choices: Choices = field(init=False, repr=False, default_factory=Choices)

    needs = frozenset({"rates", "scaling"})
    card = Card(
        title="IBM elastic DP",
        what="Every few minutes GPUs and batch sizes are divided anew so that the sum of the jobs' speed-ups is the greatest.",
        cost="Every change of size or batch stops the job for a restart, and a job that scales badly is kept small.",
        limits="Counts speed-ups, not the work left. Presumes that the batch size may be chosen from a range without harm to accuracy.",
        source="Saxena et al., Effective Elastic Scaling of Deep Learning Workloads, MASCOTS 2020; US patent 11,586,475",
        certainty="our reading: the optimizer follows the patent's claims and the description of an independent implementation (Apache-2.0); how speed-ups are "
        "estimated, what happens after outages, and several GPU types are ours",
        goals=("elastic", "short waits"),
        how=(
            "At every interval at which something has changed, sizes are chosen anew.",
            "Waiting jobs are admitted in order of submission as long as the smallest sizes of all fit together.",
            "For each job and number of GPUs, the batch size that runs fastest is looked up.",
            "A dynamic program divides the GPUs so that the sum of all speed-ups is the greatest.",
            "A running job may change its size and batch, but is never stopped for another.",
        ),
    )

    def __post_init__(self) -> None:
        """Prepare the analyser and the menu of sizes."""
        self._jsa = Scalability(self.batch)
        self._menu = Menu(Placer(self.placement, self.types, False), granularity="gpu", sizes="all", most=self.most_gpus, profile=self._jsa)

    @property
    def cadence(self) -> Cadence:
        """Every interval, and only then."""
        return Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=self.every_s)

    def remarks(self) -> tuple[str, ...]:
        """Tell how many jobs have no size that could ever run, and whether a choice of batch sizes came to nothing."""
        said = []
        if self._turned_away:
            most = f"{self.most_gpus} GPU{'s' if self.most_gpus > 1 else ''}"
            said.append(
                f"{jobs_were(self._turned_away)} turned away: no size of up to {most} is possible here; "
                "raise most_gpus, or let the batch size vary if it is fixed."
            )
        if self._jsa.has_choice is False:
            said.append(f"No job here has a choice of batch sizes, so batch={self.batch} changes nothing.")
        said += self._choices.remark("dp_elastic", "it only admitted them in order of submission, at its own instants")
        return tuple(said)

    def allocate(self, view: View, /) -> Plan:
        """Admit, divide, and seat."""
        self._jsa.feed(view)
        self._choices.jobs += len(view.delta.arrived)
        for job in view.delta.finished:
            self._type.pop(job, None)
        if not (self._menu.feed(view) or self._misses):
            return EMPTY
        turn = _Turn(view, self._choices, drop=self.mode == "drop")
        sizes = self._menu.divide(view, turn.choose)
        self._type |= turn.type_of
        changes = self._menu.seat(view, sizes, self._tuning)
        # What fragments kept from its size is tried again at the next tick if the changes of this one have moved anything.
        self._misses = _misses(view, sizes, changes) if changes else 0
        refused = self._refused(view, sizes)
        return Plan(changes, refused, notes=turn.notes | {"refused": len(refused), "unseated": self._misses})

    def _refused(self, view: View, sizes: Mapping[JobId, int]) -> frozenset[JobId]:
        refused = self._menu.hopeless
        self._turned_away += len(refused)
        if self.mode == "drop":
            # Who has held GPUs before was admitted before: another policy may have stopped it.
            arrived = [job for job in view.delta.arrived if job not in sizes and view.demand(job).gpus and not view.one("served_gpu_s", job)]
            refused = refused.union(arrived)
        self._jsa.forget(refused)
        return refused

    def _tuning(self, job: JobId, size: int) -> Tuning:
        return self._jsa.tuning(job, size, self._type[job])


class _Turn:
    """One decision: whom it admits, market by market, and what it divides.

    Parameters
    ----------
    view : View
        The instant.
    choices : Choices
        Takes note of whether anybody has a choice of sizes.
    drop : bool
        Whether those behind one that does not fit are looked at as well.
    """

    def __init__(self, view: View, choices: Choices, *, drop: bool) -> None:
        self._view, self._choices, self._drop = view, choices, drop
        self.type_of: dict[JobId, int] = {}
        self.notes: dict[str, float] = {"objective": 0.0, "least_gpus": 0.0, "admitted": 0.0}

    def choose(self, market: Market) -> Mapping[JobId, int]:
        """Admit, and divide what the market has."""
        self._choices.look((*market.running, *market.waiting))
        admitted = self._admit(market.waiting, market.capacity - sum([option.sizes[0] for option in market.running]))
        options = [*market.running, *admitted]
        best = knapsack([option.sizes for option in options], [option.rates for option in options], [False] * len(options), market.capacity)
        assert best is not None, "the smallest sizes fit together"
        self._note(best.objective, options, len(admitted))
        kind = self._view.room.pools[market.pools[0]].type_at
        self.type_of |= {option.job: kind for option in options}
        return {option.job: option.sizes[at] for option, at in zip(options, best.at, strict=True)}

    def _admit(self, waiting: Sequence[Option], free: int) -> list[Option]:
        admitted = []
        for option in waiting:
            if option.sizes[0] <= free:
                free -= option.sizes[0]
                admitted.append(option)
            elif not self._drop:
                break
        return admitted

    def _note(self, objective: float, options: list[Option], admitted: int) -> None:
        self.notes["objective"] += objective
        self.notes["least_gpus"] += sum([option.sizes[0] for option in options])
        self.notes["admitted"] += admitted


def _misses(view: View, sizes: Mapping[JobId, int], changes: Mapping[JobId, Grant | None]) -> int:
    held = view.grants
    return sum([size != _gpus(changes.get(job, held.get(job))) for job, size in sizes.items()])


def _gpus(grant: Grant | None) -> int:
    return sum([sum(gang.workers.count) * gang.workers.gpus for gang in grant.gangs]) if grant else 0
