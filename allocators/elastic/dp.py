"""DP elastic: a dynamic program chooses GPUs and batch sizes with the greatest speed-up."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isnan
from typing import Final, NamedTuple

import numpy as np

from allocators.elastic.knapsack import knapsack
from allocators.elastic.scaling import Choices, Market, Menu, SizeOptions, jobs_were
from allocators.inner_policies import is_tick, next_tick
from allocators.placement import Placer, placement_param, types_param
from allocators.reasons import next_decision_reason, room_reason
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
MAX_BATCHES: Final = 4096
"""Most batch sizes tried for one number of GPUs."""
_MAX_CACHED: Final = 20_000  # cached best batches; clearing them costs time, never changes a result

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
    """Speed-up and best batch size of every job on every number of GPUs.

    Parameters
    ----------
    batch : str
        One of `BATCHES`: the best batch size for each number of GPUs, or one fixed at submission:
        the largest or smallest of the job's range, or one drawn from it.

    Notes
    -----
    ``T(k) = thr(Bopt(k), k) / thr(Bopt(1), 1)``, where ``thr(B, k)`` is the estimated throughput of
    total batch ``B`` on ``k`` GPUs and ``Bopt(k)`` the batch within the job's range that maximizes
    it. A fixed batch has the same denominator, so that all variants compare. If a job cannot run on
    one GPU, our reading is ``thr(Bopt(m), m) / m`` with its smallest feasible number ``m``. A job
    without a batch range is profiled with its own batch size.

    Jobs of one model, batch range and limits share the best batch size of the first of them if they
    are equally fast with it, at both ends of the range, and in its middle.
    """

    def __init__(self, batch: str) -> None:
        self._batch = batch
        self._drawn: dict[JobId, float] = {}
        self._cached_bests: dict[Key, Best] = {}
        self._batches: dict[JobId, dict[tuple[int, int], int]] = {}
        self._begun = False
        self.has_choice: bool | None = None
        """Whether any job seen so far has a choice of batch sizes; None before the first job."""

    def feed(self, view: View) -> None:
        """Delete finished jobs; if batches are random, draw a number in [0, 1) per new job.

        At the first call every active job is new.
        """
        self.forget(view.delta.finished)
        if self._batch == "random":
            # One number for every job, with or without a batch range, so that the draw of a job
            # depends only on the number of earlier jobs.
            newcomers = view.delta.arrived if self._begun else view.active.ids.tolist()
            for job in newcomers:
                self._drawn[job] = float(view.rng.random())
        self._begun = True

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Delete the records of finished or refused jobs."""
        for job in jobs:
            self._drawn.pop(job, None)
            self._batches.pop(job, None)

    def __call__(self, view: View, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the speed-ups, shape (jobs, shapes), and store batch sizes for `tuning`."""
        grouped: dict[Range | None, list[int]] = {}
        for row, job in enumerate(ids.tolist()):
            grouped.setdefault(_batch_range(view, job), []).append(row)
        if grouped:
            self.has_choice = bool(self.has_choice) or any(
                limits is not None and limits[0] < limits[1] for limits in grouped
            )
        speedups = np.zeros((len(ids), len(shapes)))
        sizes = tuple(shapes)
        for limits, rows in grouped.items() if sizes else ():
            if limits is None:
                speedups[rows] = self._plain_speedups(view, ids[rows], sizes)
            else:
                for row, curve in zip(
                    rows, self._best_curves(view, ids[rows], sizes, limits), strict=True
                ):
                    speedups[row] = curve.speedups
                    batches = self._batches.setdefault(int(ids[row]), {})
                    batches |= {
                        (_gpu_type_index(shape), sum(shape.gpus)): batch
                        for shape, batch in zip(sizes, curve.batches, strict=True)
                    }
        return speedups

    def tuning(self, job: JobId, size: int, type_at: int) -> Tuning:
        """Return the batch size stored at the last call for a number of GPUs; plain without one."""
        batch = self._batches.get(job, {}).get((type_at, size), 0)
        return Tuning(batch_size=batch) if batch else Tuning()

    def _plain_speedups(self, view: View, ids: Ints, sizes: Sizes) -> Floats:
        """Return the speed-ups, shape (jobs, sizes), over one GPU of jobs without a batch range."""
        tried = _with_single_gpus(sizes)
        seen = view.estimates.rates(ids, tried)
        units = np.stack([_unit_rates(row, tried) for row in seen])
        return _relative_rates(seen, units)[:, : len(sizes)]

    def _best_curves(self, view: View, ids: Ints, sizes: Sizes, limits: Range) -> list[Curve]:
        """Return one curve per job with this batch range: speed-up and batch size on each shape.

        Shapes have their best batch sizes if batches are elastic, otherwise the job's fixed one.
        The speed-up is always over one GPU at its best batch size.
        """
        low, high = limits
        tried, count = _with_single_gpus(sizes), len(sizes)
        ends_and_middle = [
            view.estimates.rates(ids, [_with_batch(shape, batch) for shape in tried])
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
            best = self._best_batches(view, job, dict(zip(keys, tried, strict=True)), limits)
            units = _unit_rates(np.array([rate for rate, _ in best]), tried)[:count]
            if self._batch == "elastic":
                rates, batches = zip(*best[:count], strict=True)
                curves.append(Curve(_relative_rates(np.array(rates), units), batches))
            else:
                batch = self._fixed_batch(job, limits)
                fixed = (
                    at_low
                    if batch == low
                    else at_high
                    if batch == high
                    else _rates_at_batch(view, job, tried, batch)
                )
                curves.append(
                    Curve(
                        _relative_rates(fixed[:count], units),
                        tuple([batch if rate > 0 else 0 for rate in fixed[:count].tolist()]),
                    )
                )
        return curves

    def _best_batches(
        self, view: View, job: JobId, shape_of: Mapping[Key, Shape], limits: Range
    ) -> list[Best]:
        """Return (rate, batch size) of the best batch on each shape; (0, 0) if it cannot run.

        Jobs with equal keys share cached results. A full cache is cleared first.
        """
        if self._cached_bests and len(self._cached_bests) + len(shape_of) > _MAX_CACHED:
            self._cached_bests.clear()
        bests = self._valid_cached(view, job, shape_of)
        missing = {
            key: (shape, candidates(sum(shape.gpus), *limits))
            for key, shape in shape_of.items()
            if key not in bests
        }
        if missing:
            rates = view.estimates.rates(
                np.array([job]),
                [
                    _with_batch(shape, batch)
                    for shape, batches in missing.values()
                    for batch in batches
                ],
            )[0]
            start = 0
            for key, (_, batches) in missing.items():
                part = rates[start : start + len(batches)]
                start += len(batches)
                at = int(part.argmax())
                bests[key] = (float(part[at]), batches[at]) if part[at] > 0 else (0.0, 0)
            self._cached_bests |= bests
        return [bests[key] for key in shape_of]

    def _valid_cached(
        self, view: View, job: JobId, shape_of: Mapping[Key, Shape]
    ) -> dict[Key, Best]:
        """Return the cached best batch sizes that hold for this job too.

        These are those with exactly the same rate for this job, and those where no batch works. The
        best batch size of another job may not fit into the memory of this one.
        """
        cached = {
            key: best for key in shape_of if (best := self._cached_bests.get(key)) is not None
        }
        tuned = [_with_batch(shape_of[key], batch) for key, (_, batch) in cached.items() if batch]
        rates = iter(view.estimates.rates(np.array([job]), tuned)[0].tolist() if tuned else ())
        return {key: best for key, best in cached.items() if not best[1] or best[0] == next(rates)}

    def _fixed_batch(self, job: JobId, limits: Range) -> int:
        """Return the lowest, highest or randomly drawn batch size of the range, as `batch` says."""
        low, high = limits
        if self._batch == "random":
            return low + floor(self._drawn[job] * (high - low + 1))
        return high if self._batch == "max" else low


def candidates(gpus: int, low: int, high: int) -> list[int]:
    """Return the total batch sizes to try on a number of GPUs, ascending.

    Parameters
    ----------
    gpus : int
        Number of GPUs, at least 1.
    low, high : int
        Range of the total batch size.

    Notes
    -----
    A step of data-parallel training takes as long as its largest share, ``ceil(B / k)`` samples.
    All ``B`` with the same ``ceil(B / k) = b`` therefore take equally long and need the same
    memory: the largest of them, ``b k`` or ``high`` if that is smaller, has the highest throughput.
    So the multiples of ``k`` and ``high`` contain a best batch; ``low`` is added for performance
    models that do not count in shares. Beyond `MAX_BATCHES` multiples evenly spaced ones are tried.
    """
    first, last = -(-low // gpus), high // gpus
    step = max(1, ceil((last - first + 1) / MAX_BATCHES))
    return sorted({low, high, *(share * gpus for share in range(first, last + 1, step))})


def _rates_at_batch(view: View, job: JobId, sizes: Sizes, batch: int) -> Floats:
    """Return the estimated rate of a job on each shape, all with one batch size."""
    rates: Floats = view.estimates.rates(
        np.array([job]), [_with_batch(shape, batch) for shape in sizes]
    )[0]
    return rates


def _batch_range(view: View, job: JobId) -> Range | None:
    """Return the (low, high) batch sizes of a job, rounded inward; None if either is missing."""
    low, high = view.one("min_batch", job), view.one("max_batch", job)
    if isnan(low) or isnan(high):
        return None
    # A range without a whole number in it has one batch size, its upper end.
    return min(ceil(low), floor(high)), floor(high)


def _with_batch(shape: Shape, batch: int) -> Shape:
    """Return a shape with a batch size."""
    return shape._replace(tuning=Tuning(batch_size=batch))


def _gpu_type_index(shape: Shape) -> int:
    """Return the index of the first GPU type of which a shape has GPUs."""
    return next(at for at, gpus in enumerate(shape.gpus) if gpus)


def _with_single_gpus(sizes: Sizes) -> Sizes:
    """Return the shapes, followed by one GPU of each of their types if missing."""
    width = len(sizes[0].gpus)
    ones = [
        Shape(tuple([int(at == kind) for at in range(width)]))
        for kind in sorted({_gpu_type_index(shape) for shape in sizes})
    ]
    return tuple(dict.fromkeys([*sizes, *ones]))


def _unit_rates(rates: Floats, tried: Sizes) -> Floats:
    """Return the throughput that counts as 1 on the GPU type of each shape.

    That is the throughput of one GPU, or the share of one in the fewest that can run the job.
    """
    unit: dict[int, float] = {}
    for rate, shape in sorted(
        zip(rates.tolist(), tried, strict=True), key=lambda pair: sum(pair[1].gpus)
    ):
        if rate > 0:
            unit.setdefault(_gpu_type_index(shape), rate / sum(shape.gpus))
    return np.array([unit.get(_gpu_type_index(shape), 0.0) for shape in tried])


def _relative_rates(rates: Floats, units: Floats) -> Floats:
    """Return rates divided by the unit rates; 0 where a job cannot run."""
    return np.divide(rates, units, out=np.zeros_like(rates), where=(rates > 0) & (units > 0))


@dataclass
class DpElastic(Allocator):
    """Choose GPUs and batch sizes of all admitted jobs to maximize the sum of speed-ups.

    Notes
    -----
    At every tick after a change, running jobs and, in order of submission, waiting jobs while the
    smallest sizes of all fit together get ``k_j`` GPUs such that ``sum T_j(k_j)`` is the greatest
    with ``sum k_j <= K`` and ``k_j >= 1`` [1]_ [2]_. ``T_j(k)`` is the speed-up on ``k`` GPUs with
    the best batch size for that number, see `Scalability`; it need not rise with ``k``, and GPUs
    may stay idle. A running job changes its size and batch but is never stopped.

    Our reading of the details: ``mode=queue`` stops at the first job that does not fit;
    ``mode=drop`` rejects jobs that do not fit at their first decision, but not a job that was
    admitted before: after an outage, or without a place because of fragmentation, it waits in order
    of submission and others pass it. In both modes a job without a possible size up to
    ``most_gpus`` on any type is rejected, since it would block the queue forever. A job whose
    minimum is above ``most_gpus`` gets its minimum. Each GPU type is divided separately, in the
    order of ``types``; a job that is not admitted on one is a candidate on the next.

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
        help="Time between decisions (interval of the autoscaler).",
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
        help="Whether a job that does not fit at its first decision waits or is rejected.",
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
            "elastic: best batch size per number of GPUs. max, min, random: total batch size"
            " of the job's range, fixed at submission."
        ),
    )
    placement: str = placement_param()
    types: str = types_param()
    _jsa: Scalability = field(init=False, repr=False)
    _menu: Menu = field(init=False, repr=False)
    _gpu_type_index: dict[JobId, int] = field(init=False, repr=False, default_factory=dict)
    _count_misses: int = field(init=False, repr=False, default=0)
    _turned_away: int = field(init=False, repr=False, default=0)
    _choices: Choices = field(init=False, repr=False, default_factory=Choices)

    needs = Needs(frozenset({"rates"}), frozenset({"scaling"}))
    card = Card(
        title="IBM elastic",
        brief="dynamic program splits the GPUs every few minutes",
        what=("Every few minutes chooses GPUs and batch sizes to maximize the sum of speed-ups."),
        cost=("Every change of size or batch restarts the job; jobs that scale badly stay small."),
        limits=(
            "Counts speed-ups, not remaining work. Assumes that batch sizes in the range do"
            " not change accuracy."
        ),
        source=(
            "Saxena et al., Effective Elastic Scaling of Deep Learning Workloads, MASCOTS 2020; US"
            " patent 11,586,475"
        ),
        certainty=(
            "our reading: optimizer by the patent's claims and an independent implementation"
            " (Apache-2.0); estimates of speed-ups, outages and several GPU types are ours"
        ),
        goals=("elastic", "short waits"),
        how=(
            "Sizes are chosen again at every interval after a change.",
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
        """Create the speed-up model and the menu of sizes."""
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
        """Decide every `every_s`, and not at arrivals, finishes or changes of capacity."""
        return Cadence(on_arrival=False, on_finish=False, on_capacity=False, every_s=self.every_s)

    def remarks(self) -> tuple[str, ...]:
        """Return notes on rejected jobs, and if no job had a choice of sizes or batches."""
        notes = []
        if self._turned_away:
            most = f"{self.most_gpus} GPU{'s' if self.most_gpus > 1 else ''}"
            notes.append(
                f"{jobs_were(self._turned_away)} turned away: no size of up to {most} is possible"
                " here; raise most_gpus, or let the batch size vary if it is fixed."
            )
        if self._jsa.has_choice is False:
            notes.append(
                f"No job here has a choice of batch sizes, so batch={self.batch} changes nothing."
            )
        notes += self._choices.remark(
            "dp_elastic", "it only admitted them in order of submission, at its own instants"
        )
        return tuple(notes)

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the next decision or the sizes chosen; without GPUs by room."""
        now_s = decided.view.now_s
        if not decided.wants(job):
            return room_reason(decided, job)
        if not is_tick(now_s, self.every_s):
            return next_decision_reason(next_tick(now_s, self.every_s), "sizes were chosen again")
        return self._menu.explain(
            decided,
            job,
            "jobs are admitted in order of submission while the smallest sizes of all fit",
        )

    def allocate(self, view: View, /) -> Plan:
        """Admit jobs, choose their sizes and batch sizes, place them, and reject some.

        Returns an empty plan unless jobs or nodes changed, or a job missed its size last time.
        """
        self._jsa.feed(view)
        self._choices.jobs += len(view.delta.arrived)
        for job in view.delta.finished:
            self._gpu_type_index.pop(job, None)
        if not (self._menu.feed(view) or self._count_misses):
            return EMPTY
        turn = _Admission(view, self._choices, drop=self.mode == "drop")
        sizes = self._menu.divide(view, turn.choose)
        self._gpu_type_index |= turn.type_of
        changes = self._menu.make_grants(view, sizes, self._tuning)
        # Jobs below their chosen size because of fragmentation are tried again at the next tick if
        # this one changed any grant.
        self._count_misses = _count_misses(view, sizes, changes) if changes else 0
        refused = self._reject_jobs(view, sizes)
        return Plan(
            changes,
            refused,
            notes=turn.notes | {"refused": len(refused), "unseated": self._count_misses},
        )

    def _reject_jobs(self, view: View, sizes: Mapping[JobId, int]) -> frozenset[JobId]:
        """Return and forget jobs to reject: impossible ones, and with ``drop`` unadmitted ones.

        Only impossible jobs count in the remark on jobs turned away.
        """
        refused = self._menu.impossible_jobs
        self._turned_away += len(refused)
        if self.mode == "drop":
            # A job that has held GPUs was admitted before; another policy may have stopped it.
            arrived = [
                job
                for job in view.delta.arrived
                if job not in sizes and view.demand(job).gpus and not view.one("served_gpu_s", job)
            ]
            refused = refused.union(arrived)
        self._jsa.forget(refused)
        return refused

    def _tuning(self, job: JobId, size: int) -> Tuning:
        """Return the tuning with a job's batch size at a number of GPUs of its GPU type."""
        return self._jsa.tuning(job, size, self._gpu_type_index[job])


class _Admission:
    """Admission and division of GPUs in one decision, market by market.

    Parameters
    ----------
    view : View
        The instant.
    choices : Choices
        Records whether any job has a choice of sizes.
    drop : bool
        Whether jobs behind one that does not fit are considered too.
    """

    def __init__(self, view: View, choices: Choices, *, drop: bool) -> None:
        self._view, self._choices, self._drop = view, choices, drop
        self.type_of: dict[JobId, int] = {}
        self.notes: dict[str, float] = {"objective": 0.0, "least_gpus": 0.0, "admitted": 0.0}

    def choose(self, market: Market) -> Mapping[JobId, int]:
        """Admit waiting jobs; return the units per job that maximize the sum of speed-ups.

        Running jobs always keep at least their smallest size. Also adds to the notes and records
        the GPU type of each job.
        """
        self._choices.note_options((*market.running, *market.waiting))
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
        self._add_to_notes(best.objective, options, len(admitted))
        kind = self._view.room.pools[market.pools[0]].type_at
        self.type_of |= {option.job: kind for option in options}
        return {option.job: option.sizes[at] for option, at in zip(options, best.at, strict=True)}

    def _admit(self, waiting: Sequence[SizeOptions], free: int) -> list[SizeOptions]:
        """Return waiting jobs while their smallest sizes fit together into the free units.

        Stops at the first that does not fit, or with ``drop`` skips it.
        """
        admitted = []
        for option in waiting:
            if option.sizes[0] <= free:
                free -= option.sizes[0]
                admitted.append(option)
            elif not self._drop:
                break
        return admitted

    def _add_to_notes(self, objective: float, options: list[SizeOptions], admitted: int) -> None:
        """Add a market's objective, smallest sizes and number of admitted jobs to the notes."""
        self.notes["objective"] += objective
        self.notes["least_gpus"] += sum([option.sizes[0] for option in options])
        self.notes["admitted"] += admitted


def _count_misses(
    view: View, sizes: Mapping[JobId, int], changes: Mapping[JobId, Grant | None]
) -> int:
    """Return the number of jobs with other worker GPUs than their chosen size.

    A job without a change counts with the grant it holds.
    """
    held = view.grants
    return sum(
        [size != _worker_gpus(changes.get(job, held.get(job))) for job, size in sizes.items()]
    )


def _worker_gpus(grant: Grant | None) -> int:
    """Return the worker GPUs of a grant; 0 without one."""
    return (
        sum([sum(gang.workers.count) * gang.workers.gpus for gang in grant.gangs]) if grant else 0
    )
