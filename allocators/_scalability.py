"""How much faster a job gets with more GPUs when it may choose its batch size for each number of them: the job scalability analyser."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import ceil, floor, isnan
from typing import Final, NamedTuple

import numpy as np

from sim.contract import Floats, Ints, JobId, Shape, Tuning, View

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
        One of `BATCHES`: the best batch size for each number of GPUs, or one that is fixed when the job is submitted: the largest of its range, the smallest,
        or one drawn from the range.

    Notes
    -----
    ``T(k) = thr(Bopt(k), k) / thr(Bopt(1), 1)``, where ``thr(B, k)`` is the believed throughput of total batch ``B`` on ``k`` GPUs and ``Bopt(k)`` the batch
    within the job's range that maximises it. A fixed batch is measured against the same denominator, so that the sums of all variants compare. Where a job
    cannot run on one GPU, our reading is ``thr(Bopt(m), m) / m`` with its smallest feasible number ``m``. A job without a batch range is profiled as it is.

    Jobs of one model, batch range and limits that are equally fast at both ends of the range and in its middle share what is found for a shape.
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
        """Draw for the jobs that have arrived since the last call, in order of arrival, and forget those that are finished."""
        self.forget(view.delta.finished)
        if self._batch == "random":
            # One number for every job, whether it has a batch size or not: the draw of a job depends on nothing but how many came before it.
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
        """Return the speed-ups, of shape (jobs, shapes), and remember the batch sizes for `tuning`."""
        grouped: dict[Range | None, list[int]] = {}
        for row, job in enumerate(ids.tolist()):
            grouped.setdefault(_range(view, job), []).append(row)
        if grouped:
            self.has_choice = bool(self.has_choice) or any(limits is not None and limits[0] < limits[1] for limits in grouped)
        speedups = np.zeros((len(ids), len(shapes)))
        sizes = tuple(shapes)
        for limits, rows in grouped.items() if sizes else ():
            if limits is None:
                speedups[rows] = self._as_they_are(view, ids[rows], sizes)
            else:
                for row, curve in zip(rows, self._tuned(view, ids[rows], sizes, limits), strict=True):
                    speedups[row] = curve.speedups
                    batches = self._batches.setdefault(int(ids[row]), {})
                    batches |= {(_type(shape), sum(shape.gpus)): batch for shape, batch in zip(sizes, curve.batches, strict=True)}
        return speedups

    def tuning(self, job: JobId, size: int, type_at: int) -> Tuning:
        """Return the batch size for a number of GPUs of a type; none for a job without a batch range."""
        batch = self._batches.get(job, {}).get((type_at, size), 0)
        return Tuning(batch_size=batch) if batch else Tuning()

    def _as_they_are(self, view: View, ids: Ints, sizes: Sizes) -> Floats:
        tried = _with_one(sizes)
        seen = view.belief.rates(ids, tried)
        units = np.stack([_units(row, tried) for row in seen])
        return _ratio(seen, units)[:, : len(sizes)]

    def _tuned(self, view: View, ids: Ints, sizes: Sizes, limits: Range) -> list[Curve]:
        low, high = limits
        tried, count = _with_one(sizes), len(sizes)
        ends_and_middle = [view.belief.rates(ids, [_with(shape, batch) for shape in tried]) for batch in (low, high, (low + high) // 2)]
        curves = []
        for job, at_low, at_high, at_middle in zip(ids.tolist(), *ends_and_middle, strict=True):
            alike = (*limits, *[view.one(name, job) for name in ("model", "min_gpus", "max_gpus")])
            keys = [(*alike, *key) for key in zip(tried, at_low.tolist(), at_high.tolist(), at_middle.tolist(), strict=True)]
            best = self._best(view, job, dict(zip(keys, tried, strict=True)), limits)
            units = _units(np.array([rate for rate, _ in best]), tried)[:count]
            if self._batch == "elastic":
                rates, batches = zip(*best[:count], strict=True)
                curves.append(Curve(_ratio(np.array(rates), units), batches))
            else:
                batch = self._fixed_batch(job, limits)
                fixed = at_low if batch == low else at_high if batch == high else _at(view, job, tried, batch)
                curves.append(Curve(_ratio(fixed[:count], units), tuple([batch if rate > 0 else 0 for rate in fixed[:count].tolist()])))
        return curves

    def _best(self, view: View, job: JobId, wanted: dict[Key, Shape], limits: Range) -> list[Best]:
        missing = {key: (shape, candidates(sum(shape.gpus), *limits)) for key, shape in wanted.items() if key not in self._known}
        if missing:
            if self._known and len(self._known) + len(wanted) > _KEPT:
                self._known.clear()
                return self._best(view, job, wanted, limits)
            rates = view.belief.rates(np.array([job]), [_with(shape, batch) for shape, batches in missing.values() for batch in batches])[0]
            start = 0
            for key, (_, batches) in missing.items():
                part = rates[start : start + len(batches)]
                start += len(batches)
                at = int(part.argmax())
                self._known[key] = (float(part[at]), batches[at]) if part[at] > 0 else (0.0, 0)
        return [self._known[key] for key in wanted]

    def _fixed_batch(self, job: JobId, limits: Range) -> int:
        low, high = limits
        if self._batch == "random":
            return low + floor(self._drawn[job] * (high - low + 1))
        return high if self._batch == "max" else low


def candidates(gpus: int, low: int, high: int) -> list[int]:
    """Return the total batch sizes worth looking at on so many GPUs, ascending.

    Parameters
    ----------
    gpus : int
        Number of GPUs, at least 1.
    low, high : int
        Range of the total batch size.

    Notes
    -----
    Data-parallel training takes as long per step as its largest share, ``ceil(B / k)`` samples. All ``B`` with the same ``ceil(B / k) = b``, which are
    ``(b - 1) k < B <= b k``, therefore take equally long per step, and fit into memory or not together: the largest of them has the highest throughput. That
    is ``b k``, a multiple of ``k``, or ``high`` if ``b k`` is above it. So the multiples and ``high`` contain a best batch; ``low`` is there for performance
    models that do not count in shares. Beyond `MOST` multiples evenly spaced ones are looked at.
    """
    first, last = -(-low // gpus), high // gpus
    step = max(1, ceil((last - first + 1) / MOST))
    return sorted({low, high, *(share * gpus for share in range(first, last + 1, step))})


def _at(view: View, job: JobId, sizes: Sizes, batch: int) -> Floats:
    rates: Floats = view.belief.rates(np.array([job]), [_with(shape, batch) for shape in sizes])[0]
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
    """Return these shapes, and after them one GPU of each of their types if it is not among them."""
    width = len(sizes[0].gpus)
    ones = [Shape(tuple([int(at == kind) for at in range(width)])) for kind in sorted({_type(shape) for shape in sizes})]
    return tuple(dict.fromkeys([*sizes, *ones]))


def _units(rates: Floats, tried: Sizes) -> Floats:
    """Return for each shape the throughput that counts as 1 on its type: that of one GPU, or the share of one in the fewest that can run the job."""
    unit: dict[int, float] = {}
    for rate, shape in sorted(zip(rates.tolist(), tried, strict=True), key=lambda pair: sum(pair[1].gpus)):
        if rate > 0:
            unit.setdefault(_type(shape), rate / sum(shape.gpus))
    return np.array([unit.get(_type(shape), 0.0) for shape in tried])


def _ratio(rates: Floats, units: Floats) -> Floats:
    return np.divide(rates, units, out=np.zeros_like(rates), where=(rates > 0) & (units > 0))
