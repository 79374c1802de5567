"""Speeds from a table: model, number of GPUs, speed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.contract import Floats, Ints, JobId
from sim.errors import ParameterError
from sim.params import param
from sim.perf.machines import Machines
from sim.perf.profiles import entries, number, plain
from sim.perf.resizable import Resizable, ResizableModel, job_share
from sim.trace import Trace

Row = Mapping[int, float]

MEASURED: Final[Mapping[str, Row]] = {
    "lm": {1: 1.0, 2: 1.07, 4: 1.61, 8: 2.01},
    "resnet18": {1: 1.0, 2: 1.84, 4: 3.36, 8: 5.38},
    "resnet50": {1: 1.0, 2: 1.91, 4: 3.60, 8: 6.57},
    "transformer": {1: 1.0, 2: 1.55, 4: 2.61, 8: 3.92},
}
"""Plain name of a model -> GPUs -> speed relative to one. From the throughputs that Gavel measured
(Narayanan et al., OSDI 2020; stanford-futuredata/gavel, scheduler/simulation_throughputs.json, MIT
licence): P100, consolidated, the median over its batch sizes per GPU. Its V100 figures are not
used, because several GPUs were evidently not measured on the machine of the single one: ResNet-18
is 3.1 times as fast on two GPUs, LM slower on four than on two.
"""
_FORM: Final = "a name and GPUs/speed pairs such as 'bert 1/1 2/1.9 8/6.5'"


@dataclass(frozen=True)
class Table(Resizable):
    """Speed of the job's model at any number of GPUs, interpolated between measurements.

    Beyond the last measurement no job grows.

    Notes
    -----
    Only ratios within a row matter. Rows are keyed by plain model name ("ResNet-50" is "resnet50");
    built in are four models of Gavel [1]_, see `MEASURED`. A job whose model has no row, or that
    requests a number of GPUs outside its row, keeps its size. Rows may fall: more GPUs may be
    slower.

    References
    ----------
    .. [1] D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia,
    "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
       Workloads", OSDI 2020.
    """

    speeds: str = param(
        "",
        title="Speeds by number of GPUs",
        help=(
            "Further or replaced rows: a model, then GPUs/speed pairs; rows are separated by"
            " semicolons: resnet50 1/1 2/1.9 4/3.6; bert 1/1 8/7."
        ),
    )
    stand_in: str = param(
        "",
        title="Stand-in for unknown models",
        help="Model whose row is used for models without one; empty = such jobs keep their size.",
    )

    def __post_init__(self) -> None:
        """Refuse invalid rows, and a `stand_in` without a row."""
        super().__post_init__()
        rows = self.rows()
        if self.stand_in and plain(self.stand_in) not in rows:
            raise ParameterError(
                f"table: stand_in: there is no row '{self.stand_in}'. There are: {', '.join(rows)}."
            )

    def rows(self) -> dict[str, Row]:
        """Return the built-in rows, replaced and extended by the entries of `speeds`."""
        return {
            **MEASURED,
            **{
                plain(name): _parse_row(name, pairs)
                for name, pairs in entries("table, speeds", self.speeds)
            },
        }

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences on assumed sizes and rows, and on the built-in measurements."""
        job_rows = _JobRows(self, trace)
        requested = trace.numbers("num_gpus")
        on_gpus, unknown, outside = (
            requested > 0,
            job_rows.unknown & (requested > 0),
            job_rows.outside & (requested > 0),
        )
        texts = [*self.about_sizes(trace, job_rows.place >= 0)]
        if unknown.any():
            what = (
                f"assumed: the row of '{self.stand_in}'"
                if self.stand_in
                else "they keep the size they asked for"
            )
            texts.append(
                f"{job_share(unknown, on_gpus)} have a model without a row in the table; {what}"
                " (stand_in, speeds)."
            )
        if outside.any():
            texts.append(
                f"{job_share(outside, on_gpus)} ask for a number of GPUs outside of the row of"
                " their model; they keep that size (speeds)."
            )
        if (on_gpus & job_rows.built_in).any():
            used = job_share(on_gpus & job_rows.built_in, on_gpus)
            texts.append(
                f"{used} scale as Gavel measured it on P100 GPUs, the median over batch sizes. "
                "This is an assumption; change the performance model (Trace, --perf)."
            )
        return tuple(texts)

    def curve(self, trace: Trace) -> str:
        """Return a phrase on the source of the speeds."""
        del trace
        return "the speeds of a table; jobs without a row keep their size"

    def bind(self, trace: Trace, cluster: Cluster) -> ResizableModel:
        """Bind the model to jobs and machines; no job leaves the sizes of its row.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's.
        """
        machines = Machines("table", self.spans, trace, cluster)
        job_rows = _JobRows(self, trace)
        requested = trace.numbers("num_gpus")
        low, high = self.sizes(trace, machines.largest)
        scales = job_rows.place >= 0
        low = np.where(scales, np.maximum(low, np.minimum(job_rows.first, requested)), requested)
        high = np.where(scales, np.minimum(high, np.maximum(job_rows.last, requested)), requested)
        return ResizableModel(
            trace, machines, (low, high), _Curves(job_rows, requested, low, high), self
        )


class _JobRows:
    """Row of each job: index in `rows` (-1 = none), and the row's first and last size."""

    def __init__(self, spec: Table, trace: Trace) -> None:
        table = spec.rows()
        user_rows = {plain(name) for name, _ in entries("table, speeds", spec.speeds)}
        names = list(table)
        self.rows = [
            (np.array(sorted(row), np.float64), np.array([row[size] for size in sorted(row)]))
            for row in table.values()
        ]
        models = trace.texts("model")
        row_of_model = [
            names.index(plain(str(name))) if plain(str(name)) in table else -1
            for name in models.categories
        ]
        place: Ints = np.array(row_of_model, np.int64)[models.codes]
        self.unknown: NDArray[np.bool_] = place < 0
        if spec.stand_in:
            place = np.where(self.unknown, names.index(plain(spec.stand_in)), place)
        requested = trace.numbers("num_gpus")
        self.first = np.array([sizes[0] for sizes, _ in self.rows])[place]
        self.last = np.array([sizes[-1] for sizes, _ in self.rows])[place]
        self.outside: NDArray[np.bool_] = (place >= 0) & (
            (requested < self.first) | (requested > self.last)
        )
        self.place: Ints = np.where(self.outside, -1, place)
        self.built_in: NDArray[np.bool_] = np.isin(
            self.place, [names.index(name) for name in MEASURED if name not in user_rows]
        )


class _Curves:
    """Speed at a size relative to the requested size, interpolated within a row."""

    def __init__(self, job_rows: _JobRows, requested: Floats, least: Floats, most: Floats) -> None:
        self._rows, self._place = job_rows.rows, job_rows.place
        self._least, self._most = least, most
        self._at_asked = np.ones(len(requested))
        for row, jobs in self._by_row(np.arange(len(requested))):
            self._at_asked[jobs] = np.interp(requested[jobs], *self._rows[row])
        self._place_of: list[int] = job_rows.place.tolist()
        self._requested_speeds: memoryview[float] = memoryview(self._at_asked)  # type: ignore[arg-type]
        self._cache: dict[tuple[int, float], float] = {}

    def one(self, job: JobId, gpus: float) -> float:
        """Return the relative speed of one job at a size; 1 for a job without a row."""
        row = self._place_of[job]
        if row < 0:
            return 1.0
        speed = self._cache.get((row, gpus))
        if speed is None:
            speed = self._cache[row, gpus] = float(np.interp(gpus, *self._rows[row]))
        return speed / self._requested_speeds[job]

    def many(self, ids: Ints, gpus: Floats) -> Floats:
        """Return the relative speed of jobs at sizes; 1 for jobs without a row."""
        speed = np.ones(np.broadcast_shapes((len(ids), 1), gpus.shape))
        sizes = np.broadcast_to(gpus, speed.shape)
        for row, indices in self._by_row(ids):
            speed[indices] = (
                np.interp(sizes[indices], *self._rows[row]) / self._at_asked[ids[indices], None]
            )
        return speed

    def best(self) -> Floats:
        """Return the highest relative speed of each job within its limits; 1 without a row."""
        best = np.ones(len(self._place))
        for row, jobs in self._by_row(np.arange(len(self._place))):
            sizes, speeds = self._rows[row]
            least, most = self._least[jobs, None], self._most[jobs, None]
            inside = np.where((sizes >= least) & (sizes <= most), speeds, 0.0).max(axis=1)
            ends = np.interp(np.hstack([least, most]), sizes, speeds).max(axis=1)
            best[jobs] = np.maximum(inside, ends) / self._at_asked[jobs]
        return best

    def _by_row(self, ids: Ints) -> list[tuple[int, Ints]]:
        """Return (row, indices into `ids`) for each row that occurs."""
        places = self._place[ids]
        return [(int(row), np.flatnonzero(places == row)) for row in np.unique(places) if row >= 0]


def _parse_row(name: str, pairs: Sequence[str]) -> dict[int, float]:
    """Return sizes -> speeds of one entry such as "1/1 2/1.9"; refuse invalid pairs."""
    row: dict[int, float] = {}
    for pair in pairs:
        gpus, slash, speed = pair.partition("/")
        size, value = number(gpus), number(speed)
        if not slash or math.isnan(size) or math.isnan(value):
            raise ParameterError(
                f"table, speeds: '{pair}' of {name} is not of the form GPUs/speed with two numbers."
                f" A row is {_FORM}."
            )
        if size < 1 or size != int(size):
            raise ParameterError(
                f"table, speeds: {name} has a size of {size:g} GPUs. Sizes are whole numbers"
                " from 1."
            )
        if value <= 0:
            raise ParameterError(
                f"table, speeds: {name} has the speed {value:g} at size {size:g}. Speeds must be"
                " above 0; leave out sizes that do not work."
            )
        if int(size) in row:
            raise ParameterError(
                f"table, speeds: {name} has two speeds for {size:g} GPUs. Keep one."
            )
        row[int(size)] = value
    if not row:
        raise ParameterError(f"table, speeds: {name} has no sizes. A row is {_FORM}.")
    return row
