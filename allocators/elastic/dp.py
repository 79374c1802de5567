"""Elastic scaling with batch sizes: every so often a dynamic program gives each job the GPUs, and
with them the batch size, that speed all up the most.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isnan
from typing import Final, NamedTuple

import numpy as np

from allocators.elastic.knapsack import knapsack
from allocators.elastic.scaling import Choices, Market, Menu, SizeOptions, jobs_were
from allocators.nesting import is_tick, next_tick
from allocators.placement import Placer, placement_param, types_param
from allocators.reasons import next_decision, room
from sim.contract import (
    EMPTY,
    Allocator,
    Cadence,
    Card,
    Decided,
    Floats,
    Grant,
    Ints,
    JobId,
    Needs,
    Plan,
    Reason,
    Shape,
    Tuning,
    View,
    param,
)

BATCHES: Final = ("elastic", "max", "min", "random")
MOST: Final = 4096
"""Most batch sizes that are looked at for one number of GPUs."""
_KEPT: Final = 20_000  # best batches remembered; dropping them costs time, never changes a result

Range = tuple[int, int]
Sizes = tuple[Shape, ...]
Key = tuple[Hashable, ...]
Best = tuple[float, int]  # throughput and batch size; 0 and 0 where the job cannot run


class Curve(NamedTuple):
    """The profile of a job on some shapes.

    Parameters
    ----------
    speedups : array of shape (shapes,)
        Throughput relative to one GPU at its best batch size; 0 where the job cannot run.
    batches : tuple of int
        Total batch size on each shape; 0 where the job cannot run.
    """

    speedups: Floats
    batches: tuple[int, ...]


class Scalability:
    """Speed-up of every job on every number of GPUs, and the batch size that gives it.

    Parameters
    ----------
    batch : str
        One of `BATCHES`: the best batch size for each number of GPUs, or one that is fixed when the
        job is submitted: the largest of its range, the smallest, or one drawn from the range.

    Notes
    -----
    ``T(k) = thr(Bopt(k), k) / thr(Bopt(1), 1)``, where ``thr(B, k)`` is the estimated throughput of
    total batch ``B`` on ``k`` GPUs and ``Bopt(k)`` the batch within the job's range that maximises
    it. A fixed batch is measured against the same denominator, so that the sums of all variants
    compare. Where a job cannot run on one GPU, our reading is ``thr(Bopt(m), m) / m`` with its
    smallest feasible number ``m``. A job without a batch range is profiled as it is.

    Jobs of one model, batch range and limits that are equally fast at both ends of the range, in
    its middle, and at the batch size found for the first of them share that batch size.
    """

    def __init__(self, batch: str) -> None:
        self._batch = batch
        self._drawn: dict[JobId, float] = {}
        self._known: dict[Key, Best] = {}
        self._batches: dict[JobId, dict[tuple[int, int], int]] = {}
        self._begun = False
        self.has_choice: bool | None = None
        """Whether any job seen so far has a choice of batch sizes; None before the first job."""

    def feed(self, view: View) -> None:
        """Draw a batch size for each job that has arrived since the last call, in order of arrival,
        and drop finished jobs.
        """
        self.forget(view.delta.finished)
        if self._batch == "random":
            # One number for every job, whether it has a batch size or not: the draw of a job
            # depends on nothing but how many came before it.
            newcomers = view.delta.arrived if self._begun else view.active.ids.tolist()
            for job in newcomers:
                self._drawn[job] = float(view.rng.random())
        self._begun = True

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Drop what is known of jobs that are gone."""
        for job in jobs:
            self._drawn.pop(job, None)
            self._batches.pop(job, None)

    def __call__(self, view: View, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the speed-ups, of shape (jobs, shapes), and remember the batch sizes for
        `tuning`.
        """
        grouped: dict[Range | None, list[int]] = {}
        for row, job in enumerate(ids.tolist()):
            grouped.setdefault(_range(view, job), []).append(row)
        if grouped:
            self.has_choice = bool(self.has_choice) or any(
                limits is not None and limits[0] < limits[1] for limits in grouped
            )
        speedups = np.zeros((len(ids), len(shapes)))
        sizes = tuple(shapes)
        for limits, rows in grouped.items() if sizes else ():
            if limits is None:
                speedups[rows] = self._as_they_are(view, ids[rows], sizes)
            else:
                for row, curve in zip(
                    rows, self._tuned(view, ids[rows], sizes, limits), strict=True
                ):
                    speedups[row] = curve.speedups
                    batches = self._batches.setdefault(int(ids[row]), {})
                    batches |= {
                        (_type(shape), sum(shape.gpus)): batch
                        for shape, batch in zip(sizes, curve.batches, strict=True)
                    }
        return speedups

    def tuning(self, job: JobId, size: int, type_at: int) -> Tuning:
        """Return the batch size for a number of GPUs of a type; none for a job without a batch
        range.
        """
        batch = self._batches.get(job, {}).get((type_at, size), 0)
        return Tuning(batch_size=batch) if batch else Tuning()

    def _as_they_are(self, view: View, ids: Ints, sizes: Sizes) -> Floats:
        tried = _with_one(sizes)
        seen = view.estimates.rates(ids, tried)
        units = np.stack([_units(row, tried) for row in seen])
        return _ratio(seen, units)[:, : len(sizes)]

    def _tuned(self, view: View, ids: Ints, sizes: Sizes, limits: Range) -> list[Curve]:
        low, high = limits
        tried, count = _with_one(sizes), len(sizes)
        ends_and_middle = [
            view.estimates.rates(ids, [_with(shape, batch) for shape in tried])
            for batch in (low, high, (low + high) // 2)
        ]
        curves = []
        for job, at_low, at_high, at_middle in zip(ids.tolist(), *ends_and_middle, strict=True):
            alike = (*limits, *[view.one(name, job) for name in ("model", "min_gpus", "max_gpus")])
            keys = [
                (*alike, *key)
                for key in zip(
                    tried, at_low.tolist(), at_high.tolist(), at_middle.tolist(), strict=True
                )
            ]
            best = self._best(view, job, dict(zip(keys, tried, strict=True)), limits)
            units = _units(np.array([rate for rate, _ in best]), tried)[:count]
            if self._batch == "elastic":
                rates, batches = zip(*best[:count], strict=True)
                curves.append(Curve(_ratio(np.array(rates), units), batches))
            else:
                batch = self._fixed_batch(job, limits)
                fixed = (
                    at_low
                    if batch == low
                    else at_high
                    if batch == high
                    else _at(view, job, tried, batch)
                )
                curves.append(
                    Curve(
                        _ratio(fixed[:count], units),
                        tuple([batch if rate > 0 else 0 for rate in fixed[:count].tolist()]),
                    )
                )
        return curves

    def _best(
        self, view: View, job: JobId, wanted: Mapping[Key, Shape], limits: Range
    ) -> list[Best]:
        if self._known and len(self._known) + len(wanted) > _KEPT:
            self._known.clear()
        found = self._found(view, job, wanted)
        missing = {
            key: (shape, candidates(sum(shape.gpus), *limits))
            for key, shape in wanted.items()
            if key not in found
        }
        if missing:
            rates = view.estimates.rates(
                np.array([job]),
                [_with(shape, batch) for shape, batches in missing.values() for batch in batches],
            )[0]
            start = 0
            for key, (_, batches) in missing.items():
                part = rates[start : start + len(batches)]
                start += len(batches)
                at = int(part.argmax())
                found[key] = (float(part[at]), batches[at]) if part[at] > 0 else (0.0, 0)
            self._known |= found
        return [found[key] for key in wanted]

    def _found(self, view: View, job: JobId, wanted: Mapping[Key, Shape]) -> dict[Key, Best]:
        """Return what is known of these shapes and holds for this job: the best batch size of
        another may not fit into the memory of this one.
        """
        known = {key: best for key in wanted if (best := self._known.get(key)) is not None}
        tuned = [_with(wanted[key], batch) for key, (_, batch) in known.items() if batch]
        rates = iter(view.estimates.rates(np.array([job]), tuned)[0].tolist() if tuned else ())
        return {key: best for key, best in known.items() if not best[1] or best[0] == next(rates)}

    def _fixed_batch(self, job: JobId, limits: Range) -> int:
        low, high = limits
        if self._batch == "random":
            return low + floor(self._drawn[job] * (high - low + 1))
        return high if self._batch == "max" else low


def candidates(gpus: int, low: int, high: int) -> list[int]:
    """Return the total batch sizes to consider on this number of GPUs, ascending.

    Parameters
    ----------
    gpus : int
        Number of GPUs, at least 1.
    low, high : int
        Range of the total batch size.

    Notes
    -----
    Data-parallel training takes as long per step as its largest share, ``ceil(B / k)`` samples. All
    ``B`` with the same ``ceil(B / k) = b``, which are ``(b - 1) k < B <= b k``, therefore take
    equally long per step, and fit into memory or not together: the largest of them has the highest
    throughput. That is ``b k``, a multiple of ``k``, or ``high`` if ``b k`` is above it. So the
    multiples and ``high`` contain a best batch; ``low`` is there for performance models that do not
    count in shares. Beyond `MOST` multiples evenly spaced ones are looked at.
    """
    first, last = -(-low // gpus), high // gpus
    step = max(1, ceil((last - first + 1) / MOST))
    return sorted({low, high, *(share * gpus for share in range(first, last + 1, step))})


def _at(view: View, job: JobId, sizes: Sizes, batch: int) -> Floats:
    rates: Floats = view.estimates.rates(np.array([job]), [_with(shape, batch) for shape in sizes])[
        0
    ]
    return rates


def _range(view: View, job: JobId) -> Range | None:
    low, high = view.one("min_batch", job), view.one("max_batch", job)
    if isnan(low) or isnan(high):
        return None
    # A range without a whole number in it has one batch size, its upper end.
    return min(ceil(low), floor(high)), floor(high)


def _with(shape: Shape, batch: int) -> Shape:
    return shape._replace(tuning=Tuning(batch_size=batch))


def _type(shape: Shape) -> int:
    return next(at for at, gpus in enumerate(shape.gpus) if gpus)


def _with_one(sizes: Sizes) -> Sizes:
    """Return these shapes, and after them one GPU of each of their types if it is not among
    them.
    """
    width = len(sizes[0].gpus)
    ones = [
        Shape(tuple([int(at == kind) for at in range(width)]))
        for kind in sorted({_type(shape) for shape in sizes})
    ]
    return tuple(dict.fromkeys([*sizes, *ones]))


def _units(rates: Floats, tried: Sizes) -> Floats:
    """Return for each shape the throughput that counts as 1 on its type: that of one GPU, or the
    share of one in the fewest that can run the job.
    """
    unit: dict[int, float] = {}
    for rate, shape in sorted(
        zip(rates.tolist(), tried, strict=True), key=lambda pair: sum(pair[1].gpus)
    ):
        if rate > 0:
            unit.setdefault(_type(shape), rate / sum(shape.gpus))
    return np.array([unit.get(_type(shape), 0.0) for shape in tried])


def _ratio(rates: Floats, units: Floats) -> Floats:
    return np.divide(rates, units, out=np.zeros_like(rates), where=(rates > 0) & (units > 0))


@dataclass
class DpElastic(Allocator):
    """Give every admitted job a number of GPUs and a batch size so that the sum of all speed-ups is
    the greatest.

    Notes
    -----
    At every tick at which something has changed: the jobs that run, and those that wait as long as
    the smallest sizes of all fit together, in order of submission, are given ``k_j`` GPUs such that
    ``sum T_j(k_j)`` is the greatest with ``sum k_j <= K`` and ``k_j >= 1`` [1]_ [2]_. ``T_j(k)`` is
    the speed-up on ``k`` GPUs with the best batch size for that number, see `Scalability`; it need
    not rise with ``k``, and GPUs may stay idle. A running job changes its size and batch but is
    never stopped.

    Our reading of the details: ``mode=queue`` stops at the first job that does not fit;
    ``mode=drop`` turns away what does not fit at its first decision, but not a job that was
    admitted once: one that an outage stopped, or that fragments kept from a seat, waits at its
    place in order of submission and is passed by others. In both modes a job that no size up to
    ``most_gpus`` admits on any type, even of the empty cluster, is turned away, since it would hold
    up the queue for ever. A job whose minimum is above ``most_gpus`` gets its minimum. On a cluster
    of several GPU types each type is divided for itself, in the order of ``types``; who is not
    admitted on one is a candidate on the next.

    References
    ----------
    .. [1] V. Saxena, K. R. Jayaram, S. Basu, Y. Sabharwal, A. Verma, "Effective Elastic Scaling of
    Deep Learning Workloads", MASCOTS 2020, arXiv 2006.13878. .. [2] The same authors, "Elastic
    scaling of deep learning jobs", US patent 11,586,475.
    """

    every_s: float = param(
        600.0,
        title="Time between decisions",
        unit="s",
        low=1,
        high=86400,
        help="Time between decisions: the interval of the autoscaler.",
    )
    most_gpus: int = param(
        10,
        title="Most GPUs per job",
        low=1,
        high=1024,
        help="Most GPUs for one job; a job that needs more gets its minimum.",
    )
    mode: str = param(
        "queue",
        title="A job that does not fit",
        choices=("queue", "drop"),
        labels={"queue": "Wait", "drop": "Reject"},
        help=(
            "Whether a job that does not fit at its first decision waits (queue) or is"
            " rejected (drop)."
        ),
    )
    batch: str = param(
        "elastic",
        title="Batch size",
        choices=BATCHES,
        labels={
            "elastic": "Best for each size",
            "max": "Largest",
            "min": "Smallest",
            "random": "Random",
        },
        help=(
            "elastic: best batch size per number of GPUs. max, min, random: largest,"
            " smallest or random total batch size of the job's range, fixed at"
            " submission."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    _jsa: Scalability = field(init=False, repr=False)
    _menu: Menu = field(init=False, repr=False)
    _type: dict[JobId, int] = field(init=False, repr=False, default_factory=dict)
    _misses: int = field(init=False, repr=False, default=0)
    _turned_away: int = field(init=False, repr=False, default=0)
    _choices: Choices = field(init=False, repr=False, default_factory=Choices)

    needs = Needs(frozenset({"rates"}), frozenset({"scaling"}))
    card = Card(
        title="IBM elastic DP",
        brief="best split of GPUs every few minutes",
        what=("Every few minutes chooses GPUs and batch sizes to maximize the sum of speed-ups."),
        cost=("Every change of size or batch restarts the job; jobs that scale badly stay small."),
        limits=(
            "Counts speed-ups, not remaining work. Assumes that batch sizes within the"
            " range do not change accuracy."
        ),
        source=(
            "Saxena et al., Effective Elastic Scaling of Deep Learning Workloads, MASCOTS 2020; US"
            " patent 11,586,475"
        ),
        certainty=(
            "our reading: the optimizer follows the patent's claims and an independent"
            " implementation (Apache-2.0); estimates of speed-ups, outages and several"
            " GPU types are ours"
        ),
        goals=("elastic", "short waits"),
        how=(
            "Sizes are chosen again at every interval in which something has changed.",
            (
                "Waiting jobs are admitted in order of submission as long as the smallest sizes of"
                " all fit together."
            ),
            "For each job and number of GPUs, the batch size that runs fastest is looked up.",
            "A dynamic program assigns GPUs to maximise the sum of all speed-ups.",
            ("A running job may change its size and batch, but is never stopped for another job."),
        ),
    )

    def __post_init__(self) -> None:
        """Prepare the analyser and the menu of sizes."""
        self._jsa = Scalability(self.batch)
        self._menu = Menu(
            Placer(self.placement, self.types, False),
            granularity="gpu",
            sizes="all",
            most=self.most_gpus,
            profile=self._jsa,
        )

    @property
    def cadence(self) -> Cadence:
        """Every interval, and only then."""
        return Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=self.every_s)

    def remarks(self) -> tuple[str, ...]:
        """Tell how many jobs have no size that could ever run, and whether a choice of batch sizes
        came to nothing.
        """
        said = []
        if self._turned_away:
            most = f"{self.most_gpus} GPU{'s' if self.most_gpus > 1 else ''}"
            said.append(
                f"{jobs_were(self._turned_away)} turned away: no size of up to {most} is possible"
                " here; raise most_gpus, or let the batch size vary if it is fixed."
            )
        if self._jsa.has_choice is False:
            said.append(
                f"No job here has a choice of batch sizes, so batch={self.batch} changes nothing."
            )
        said += self._choices.remark(
            "dp_elastic", "it only admitted them in order of submission, at its own instants"
        )
        return tuple(said)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """State when sizes are chosen next, or what the sizes chosen left for a job."""
        now_s = decided.view.now_s
        if not decided.wants(job):
            return room(decided, job)
        if not is_tick(now_s, self.every_s):
            return next_decision(next_tick(now_s, self.every_s), "sizes were chosen again")
        return self._menu.explain(
            decided,
            job,
            "jobs are admitted in order of submission while the smallest sizes of all fit",
        )

    def allocate(self, view: View, /) -> Plan:
        """Admit, divide, and seat."""
        self._jsa.feed(view)
        self._choices.jobs += len(view.delta.arrived)
        for job in view.delta.finished:
            self._type.pop(job, None)
        if not (self._menu.feed(view) or self._misses):
            return EMPTY
        turn = _Division(view, self._choices, drop=self.mode == "drop")
        sizes = self._menu.divide(view, turn.choose)
        self._type |= turn.type_of
        changes = self._menu.seat(view, sizes, self._tuning)
        # What fragments kept from its size is tried again at the next tick if the changes of this
        # one have moved anything.
        self._misses = _misses(view, sizes, changes) if changes else 0
        refused = self._refused(view, sizes)
        return Plan(
            changes, refused, notes=turn.notes | {"refused": len(refused), "unseated": self._misses}
        )

    def _refused(self, view: View, sizes: Mapping[JobId, int]) -> frozenset[JobId]:
        refused = self._menu.hopeless
        self._turned_away += len(refused)
        if self.mode == "drop":
            # Who has held GPUs before was admitted before: another policy may have stopped it.
            arrived = [
                job
                for job in view.delta.arrived
                if job not in sizes and view.demand(job).gpus and not view.one("served_gpu_s", job)
            ]
            refused = refused.union(arrived)
        self._jsa.forget(refused)
        return refused

    def _tuning(self, job: JobId, size: int) -> Tuning:
        return self._jsa.tuning(job, size, self._type[job])


class _Division:
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
        admitted = self._admit(
            market.waiting, market.capacity - sum([option.sizes[0] for option in market.running])
        )
        options = [*market.running, *admitted]
        best = knapsack(
            [option.sizes for option in options],
            [option.rates for option in options],
            [False] * len(options),
            market.capacity,
        )
        assert best is not None, "the smallest sizes fit together"
        self._note(best.objective, options, len(admitted))
        kind = self._view.room.pools[market.pools[0]].type_at
        self.type_of |= {option.job: kind for option in options}
        return {option.job: option.sizes[at] for option, at in zip(options, best.at, strict=True)}

    def _admit(self, waiting: Sequence[SizeOptions], free: int) -> list[SizeOptions]:
        admitted = []
        for option in waiting:
            if option.sizes[0] <= free:
                free -= option.sizes[0]
                admitted.append(option)
            elif not self._drop:
                break
        return admitted

    def _note(self, objective: float, options: list[SizeOptions], admitted: int) -> None:
        self.notes["objective"] += objective
        self.notes["least_gpus"] += sum([option.sizes[0] for option in options])
        self.notes["admitted"] += admitted


def _misses(view: View, sizes: Mapping[JobId, int], changes: Mapping[JobId, Grant | None]) -> int:
    held = view.grants
    return sum([size != _gpus(changes.get(job, held.get(job))) for job, size in sizes.items()])


def _gpus(grant: Grant | None) -> int:
    return (
        sum([sum(gang.workers.count) * gang.workers.gpus for gang in grant.gangs]) if grant else 0
    )
