"""Jobs at measured throughputs by model, batch size, GPUs and type, on one or several servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from sim.cluster import KNOWN_TYPES, Cluster
from sim.contract import Floats, Gang, Grant, Ints, JobId, Shape, Telemetry
from sim.errors import ContractError, ParameterError
from sim.params import param
from sim.perf.copy_cost import Copies
from sim.perf.lookup import (
    KINDS,
    RELATIVE,
    Combination,
    Combinations,
    Finder,
    allowed_types,
    rates_of,
    speeds_of,
    used_types,
)
from sim.perf.machines import ON_CPUS, healthy_telemetry
from sim.perf.measured import BUILT_IN, Measured, ProfileTable, built_in
from sim.perf.model import Limits, Rate
from sim.perf.resizable import job_share
from sim.trace import Trace

STORED: Final = "store:"
"""Prefix of `Profiled.table` for a user's profile, which must be passed as `Profiled.own`."""
_MAX_SHAPES: Final = 20_000


@dataclass(frozen=True)
class Profiled(Copies):
    """Measured iterations per second per model, batch size, number of GPUs and GPU type.

    Notes
    -----
    Work is counted in iterations, summed over the workers of a gang: column ``total_steps``, else
    recorded duration x throughput on the type it was measured on (column ``gpu_type`` if the table
    or a stand-in has it, else ``reference``). ``batch_size`` is per GPU. A job runs on exactly the
    requested GPUs. A gang on one server has the consolidated throughput; on several servers
    `spread` applies. A gang of several GPU types runs at the pace of its slowest worker, or, with
    ``split = speed``, every worker at its own pace on a part of the batch that fits it. A job
    forked into k copies, each a gang of its own, does the sum of their throughputs x ``efficiency``
    ^ (k - 1), less the time for joining the copies once a round; the best gang alone counts for its
    ideal run time. On the overflow node of the recorded schedule a job runs as it was recorded.

    The built-in tables are those of Gavel [1]_, whose simulator never uses the spread figures:
    ``spread = ignore`` reproduces it.

    References
    ----------
    .. [1] D. Narayanan, K. Santhanam, F. Kazhamiaka, A. Phanishayee, M. Zaharia,
    "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
       Workloads", OSDI 2020; stanford-futuredata/gavel, scheduler/simulation_throughputs.json and
       physical_cluster_throughputs.json, MIT licence.
    """

    scales: ClassVar[bool] = False
    staffed: ClassVar[bool] = False

    table: str = param(
        "simulation",
        title="Profile",
        help=(
            "simulation or physical: measurements for Gavel's simulator or on its own "
            "cluster; or the name of an uploaded profile."
        ),
    )
    cleaned: bool = param(
        False,
        title="Smooth oddities",
        help=(
            "Whether oddities of the measurements are smoothed: newer types and larger "
            "gangs are no slower, spread gangs no faster."
        ),
    )
    reference: str = param(
        "v100",
        title="Reference GPU type",
        help=(
            "GPU type that durations without total_steps and without a type of their own were"
            " measured on."
        ),
    )
    stand_in: str = param(
        "",
        title="Stand-in for missing measurements",
        help=(
            "Replacement for combinations that were not measured; empty = such jobs "
            "are refused; relative = nearest batch size, proportional number of GPUs, "
            "relative speed of GPU types; the name of a model = the same, and this model "
            "for unknown ones."
        ),
    )
    spread: str = param(
        "ignore",
        title="Gangs on several servers",
        choices=("ignore", "ratio", "table", "linear"),
        labels={
            "ignore": "As fast as on one",
            "ratio": "Measured ratio",
            "table": "Measured spread speed",
            "linear": "Linear in servers",
        },
        help=(
            "A gang on several servers: as fast as on one; slowed by the measured ratio, at most 1;"
            " at the spread throughput as measured; or the time of an iteration grows linearly from"
            " one server to one server per GPU."
        ),
    )
    split: str = param(
        "even",
        title="Gangs of several GPU types",
        choices=("even", "speed"),
        labels={"even": "Equal parts", "speed": "Parts by speed"},
        help=(
            "A gang of several GPU types: equal parts of the batch, or parts by speed (dynamic"
            " batching)."
        ),
    )
    small_copies: bool = param(
        False,
        title="Fewer GPUs than asked for",
        help=(
            "Whether a copy, or a job, may run on fewer GPUs than the job asked for, at any"
            " measured number."
        ),
    )

    own: ProfileTable | None = field(default=None, repr=False, compare=False)
    """The profile of the user that `table` names; see `sim.perf.measured.read_profile`."""

    def __post_init__(self) -> None:
        """Refuse contradictory parameters, and an unknown table or `stand_in`."""
        super().__post_init__()
        if not self.table.startswith(STORED) or self.own:
            self._finder({})

    def measurements(self) -> ProfileTable:
        """Return the table that is used.

        Raises
        ------
        ParameterError
            If it is not there.
        """
        if self.table.startswith(STORED) and self.own is None:
            raise ParameterError(
                f"profiled: the uploaded profile '{self.table}' is missing. Upload it again, or"
                f" choose one of {', '.join(BUILT_IN)}."
            )
        chosen = self.own or built_in(self.table)
        return chosen.clean() if self.cleaned else chosen

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences on fallbacks for jobs, and on the source of missing iterations."""
        finder, combinations = self._finder({}), Combinations(trace)
        on_gpus = trace.numbers("num_gpus") > 0
        gaps = [
            {finder.gap(one, kind) for kind in finder.table.types} - {"gpu_type"}
            for one in combinations.each
        ]
        gap: NDArray[np.str_] = np.array(
            [
                *(
                    "" if "" in kinds_missing else min(kinds_missing, key=list(KINDS).index)
                    for kinds_missing in gaps
                ),
                "",
            ]
        )[combinations.group]
        stand_in_texts = {
            "model": f"that of '{self.stand_in}'",
            "batch": "the nearest measured",
            "gpus": "the same speed per GPU as on fewer",
        }
        texts = [
            f"{job_share(np.asarray(gap == kind), on_gpus)} have a {KINDS[kind]} that was not"
            f" measured; assumed: {how} (stand_in)."
            for kind, how in stand_in_texts.items()
            if self.stand_in and kind in gap and not (kind == "model" and self.stand_in == RELATIVE)
        ]
        kinds = trace.texts("gpu_type")
        unmeasured = [
            bool(kind) and not self._has_type(str(kind), finder.table) for kind in kinds.categories
        ]
        has_unknown_type = np.asarray(on_gpus & np.array(unmeasured)[kinds.codes], bool)
        if has_unknown_type.any():
            texts.append(
                f"{job_share(has_unknown_type, on_gpus)} were recorded on a GPU type that the table"
                f" lacks; their duration is taken for one on {self.reference}."
            )
        silent = on_gpus & np.isnan(trace.numbers("total_steps"))
        if silent.any():
            texts.append(
                f"{job_share(silent, on_gpus)} do not state their iterations; they follow from the"
                " duration and the throughput on the type it was measured on, else on"
                f" {self.reference}."
            )
        return (*finder.table.notes, *texts)

    def bind(self, trace: Trace, cluster: Cluster) -> ProfiledModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the table or the reference is missing, or jobs were not measured and have no
            stand-in: the message counts them and names the first.
        """
        finder, combinations = self._finder(speeds_of(cluster)), Combinations(trace)
        model = ProfiledModel(self, trace, cluster, finder, combinations)
        self._check(trace, cluster, model, combinations)
        return model

    def _has_type(self, kind: str, table: ProfileTable) -> bool:
        """Return True if the table or a fallback has a GPU type."""
        return kind in table.types or (self.stand_in != "" and kind in KNOWN_TYPES)

    def _finder(self, speeds: dict[str, float]) -> Finder:
        """Return the lookup in the chosen table; refuse an unknown reference type."""
        table = self.measurements()
        if self.reference not in table.types and self.stand_in == "":
            raise ParameterError(
                f"profiled: the table has no GPU type '{self.reference}' as reference. It has:"
                f" {', '.join(table.types)}."
            )
        return Finder(table, self.stand_in, self.reference, speeds)

    def _check(
        self, trace: Trace, cluster: Cluster, model: ProfiledModel, combinations: Combinations
    ) -> None:
        """Refuse jobs with unknown throughput or work, counting them."""
        on_gpus = trace.numbers("num_gpus") > 0
        unknown = np.isnan(model.alone)[combinations.group] & allowed_types(
            trace, [kind.name for kind in cluster.types]
        )
        unknown &= on_gpus[:, None] & np.isin(
            [kind.name for kind in cluster.types], used_types(cluster)
        )
        for bad, where in (
            (np.asarray(unknown.any(axis=1), bool), ""),
            (np.isnan(model.work()), ", where its duration was measured"),
        ):
            if bad.any():
                job = int(np.flatnonzero(bad)[0])
                kinds = [
                    kind.name
                    for kind, is_unknown in zip(cluster.types, unknown[job], strict=True)
                    if is_unknown
                ]
                wanted = combinations.each[combinations.group[job]]
                kind = ", ".join(kinds) or str(trace.texts("gpu_type")[job]) or self.reference
                way = (
                    "a model of the table"
                    if self.stand_in == RELATIVE
                    else f"{RELATIVE} or to a model"
                )
                raise ParameterError(
                    f"profiled: no throughput was measured of {job_share(bad, on_gpus)}; the first"
                    f" is job {trace.frame['job_id'].iloc[job]} ({wanted}) on {kind}{where}. Set"
                    f" stand_in to {way}, leave these jobs out, or bring a profile that has them."
                )


class ProfiledModel:
    """`Profiled`, bound to one trace and one cluster.

    Attributes
    ----------
    alone : array of shape (combinations + 1, types)
        Iterations per second of complete gangs on one server, GPU types in the order of the
        cluster; NaN = unknown. The last row is for CPU jobs.
    """

    def __init__(
        self,
        spec: Profiled,
        trace: Trace,
        cluster: Cluster,
        finder: Finder,
        combinations: Combinations,
    ) -> None:
        self._spec, self._finder, self._each = spec, finder, combinations.each
        self._group = combinations.group
        self._types = [kind.name for kind in cluster.types]
        self._node_type = [cluster.type_index.get(node.gpu_type, 0) for node in cluster.nodes]
        self._requested = trace.numbers("num_gpus")
        self._requested_gpus = np.array([*(one.gpus for one in self._each), 0])
        self._sizes: dict[int, tuple[Floats, Floats]] = {}
        self._columns: dict[tuple[tuple[int, ...], int], Floats] = {}
        together, spread = rates_of(finder, self._each, self._types)
        self.alone = np.vstack([together, np.ones((1, len(self._types)))])
        self._spread = np.vstack([spread, np.ones((1, len(self._types)))])
        used = [cluster.type_index[kind] for kind in used_types(cluster)]
        self._best = np.nan_to_num(self.alone[:, used]).max(axis=1, initial=0.0)
        self._work = self._in_iterations(trace)
        self._recorded = self._work / trace.numbers("duration_s")
        nothing = np.full(len(trace), np.nan)
        self._limits = Limits(self._requested, self._requested, nothing, nothing)
        self._rate_cache: dict[tuple[Any, ...], Rate] = {}
        self._group_of: list[int] = self._group.tolist()

    def work(self) -> Floats:
        """Return iterations, of shape (jobs,); seconds for CPU jobs."""
        return self._work

    def limits(self) -> Limits:
        """Return the requested size of each job as minimum and maximum."""
        return self._limits

    def fastest(self) -> Floats:
        """Return iterations per second of a complete gang on the best type.

        1 for CPU jobs, NaN for jobs that fit on no type.
        """
        best = np.where(self._best > 0, self._best, np.nan)
        return np.where(self._requested > 0, best[self._group], 1.0)

    def fits(self) -> NDArray[np.bool_]:
        """Return whether each job has a throughput above 0 on each type, of shape (jobs, types)."""
        return np.asarray(np.nan_to_num(self.alone)[self._group] > 0, bool)

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the iterations per second under a grant.

        Raises
        ------
        ContractError
            If a gang has a size that is not allowed, or does not fit on its GPU type.
        """
        del done, now_s
        group, gangs = self._group_of[job], grant.gangs
        if group == len(self._each):
            return ON_CPUS
        if len(gangs) > 1:
            return Rate(
                sum([self._gang_throughput(job, group, gang) for gang in gangs])
                * self._spec.worth(len(gangs))
            )
        nodes, count, gpus, _, _ = gangs[0].workers
        if nodes[0] == len(self._node_type):
            return Rate(self._gang_throughput(job, group, gangs[0]))
        # Single nodes of a type are equal; gangs on several nodes reuse a few sets of nodes.
        key = (
            (group, self._node_type[nodes[0]], count[0] * gpus)
            if len(nodes) == 1
            else (group, nodes, count, gpus)
        )
        rate = self._rate_cache.get(key)
        if rate is None:
            if len(self._rate_cache) >= _MAX_SHAPES:
                self._rate_cache.clear()
            rate = self._rate_cache[key] = Rate(self._gang_throughput(job, group, gangs[0]))
        return rate

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return the iterations per second before placement; 0 = the job cannot run."""
        if not shapes:
            return np.zeros((len(ids), 0))
        return np.stack([self._column(shape.gpus, shape.nodes) for shape in shapes], axis=1)[
            self._group[ids]
        ]

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return telemetry of healthy workers that use their request."""
        del job, done, now_s
        return healthy_telemetry(grant)

    def _in_iterations(self, trace: Trace) -> Floats:
        """Return the work of each job in iterations; seconds for CPU jobs."""
        steps, duration = trace.numbers("total_steps"), trace.numbers("duration_s")
        kinds = trace.texts("gpu_type")
        table, relative = self._finder.table, self._finder.speeds if self._finder.stand_in else {}
        names = [
            str(kind) if kind in table.types or kind in relative else self._finder.reference
            for kind in kinds.categories
        ]
        distinct = list(dict.fromkeys(names))
        measured = np.vstack(
            [rates_of(self._finder, self._each, distinct)[0], np.ones((1, len(distinct)))]
        )
        column = np.array([distinct.index(name) for name in names])[kinds.codes]
        throughput = measured[self._group, column]
        # A throughput of 0 cannot have been measured: no job runs there.
        return np.where(
            self._requested > 0,
            np.where(
                np.isnan(steps), duration * np.where(throughput > 0, throughput, np.nan), steps
            ),
            duration,
        )

    def _gang_throughput(self, job: JobId, group: int, gang: Gang) -> float:
        """Return the iterations per second of one gang; refuse sizes and types that do not run."""
        nodes, count, gpus, _, _ = gang.workers
        if nodes[0] == len(self._node_type):
            return float(self._recorded[job])
        held = [0] * len(self._types)
        for node, replicas in zip(nodes, count, strict=True):
            held[self._node_type[node]] += replicas * gpus
        value = float(self._column(tuple(held), len(nodes))[group])
        if value:
            return value
        combination = self._each[group]
        if sum(held) != combination.gpus and not (
            self._spec.small_copies and sum(held) < combination.gpus
        ):
            raise ContractError(
                f"job {job} asked for {combination.gpus} GPUs and cannot run on {sum(held)}; choose"
                " a performance model that scales"
            )
        where = " + ".join(
            f"{number} {kind}" for number, kind in zip(held, self._types, strict=True) if number
        )
        raise ContractError(
            f"job {job} ({combination}) does not run on"
            f" {where}{' over several nodes' if len(nodes) > 1 else ''}: its measured throughput"
            " there is 0"
        )

    def _column(self, gpus: tuple[int, ...], nodes: int) -> Floats:
        """Return the iterations per second of all combinations on given GPUs, from a cache.

        `gpus` per type, on `nodes` servers; 0 = a combination cannot run there.
        """
        key = gpus, min(nodes, 2) if self._spec.spread != "linear" else nodes
        column = self._columns.get(key)
        if column is None:
            if len(self._columns) >= _MAX_SHAPES:
                self._columns.clear()
            column = self._columns[key] = self._compute_column(gpus, nodes)
        return column

    def _compute_column(self, gpus: tuple[int, ...], nodes: int) -> Floats:
        """Compute the iterations per second of all combinations on given GPUs.

        Several types: the pace of the slowest, or the mean over GPUs with ``split = speed``.
        """
        total = sum(gpus)
        if not total:
            return np.where(self._requested_gpus == 0, 1.0, 0.0)
        counts = np.array(gpus)
        used = np.flatnonzero(counts)
        speeds = self._one_type_throughput(total, nodes)[:, used]
        paced = speeds.min(axis=1)
        value = (
            np.where(paced > 0, speeds @ counts[used] / total, 0.0)
            if self._spec.split == "speed"
            else paced
        )
        return np.where(self._requested_gpus > 0, value, 0.0)

    def _one_type_throughput(self, size: int, nodes: int) -> Floats:
        """Return the throughput of gangs of one type, of shape (combinations + 1, types).

        0 = the gang cannot have this size. Over several servers as `spread` states.
        """
        together, apart = self._throughput_of_size(size)
        if nodes == 1 or size == 1 or self._spec.spread == "ignore":
            return together
        apart = np.where(np.isnan(apart), together, apart)
        if self._spec.spread == "table":
            return np.where(together > 0, apart, 0.0)
        slower = np.minimum(together, apart)
        if self._spec.spread == "ratio":
            return slower
        share = (min(nodes, size) - 1) / (size - 1)
        positive = np.where(slower > 0, slower, 1.0)
        return np.where(
            slower > 0, 1 / ((1 - share) / np.maximum(together, positive) + share / positive), 0.0
        )

    def _throughput_of_size(self, size: int) -> tuple[Floats, Floats]:
        """Return throughputs on one server and on several at a gang size, from a cache."""
        throughputs = self._sizes.get(size)
        if throughputs is None:
            together, apart = np.zeros_like(self.alone), np.full_like(self.alone, np.nan)
            complete = self._requested_gpus == size
            together[complete], apart[complete] = (
                np.nan_to_num(self.alone[complete]),
                self._spread[complete],
            )
            if self._spec.small_copies:
                larger = np.flatnonzero(self._requested_gpus > size)
                smaller = [
                    self._smaller_gangs(self._each[combination_index], size)
                    for combination_index in larger
                ]
                if smaller:
                    together[larger], apart[larger] = np.array(smaller).transpose(2, 0, 1)
            throughputs = self._sizes[size] = together, apart
        return throughputs

    def _smaller_gangs(self, wanted: Combination, size: int) -> list[Measured]:
        """Return the throughputs of a combination at a smaller size, per type.

        0 on one server where that size was not measured.
        """
        lookups = [self._finder.find(wanted._replace(gpus=size), kind) for kind in self._types]
        return [
            (
                Measured(0.0, np.nan)
                if "gpus" in one.assumed or np.isnan(one.measured.together)
                else one.measured
            )
            for one in lookups
        ]
