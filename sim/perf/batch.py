"""Jobs with a variable batch size: step time from samples per GPU and the weight exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.contract import Floats, Grant, Ints, JobId, Shape, Telemetry
from sim.errors import ContractError, ParameterError
from sim.params import param
from sim.perf.machines import ON_CPUS, Machines, Spans, healthy_telemetry
from sim.perf.model import Limits, Rate
from sim.perf.profiles import EXAMPLES, ModelProfile, plain, with_profiles
from sim.perf.resizable import Sizing, job_share
from sim.trace import Trace

_BLOCK: Final = 1_000_000
BYTES_PER_WEIGHT: Final = 4


@dataclass(frozen=True)
class Batch(Sizing):
    """Samples per second from the batch size, the GPUs and the network.

    Notes
    -----
    A step with total batch B on k GPUs takes ``t_proc(ceil(B/k)) / speed + t_comm(k)`` [1]_ with
    ``t_proc(b) = fixed + sample * b`` and, for a ring all-reduce of w weights, ``t_comm(k) = 2
    (k-1)/k * 4 w / bandwidth + (k-1) * latency``. Both forms are our reading. A batch is admissible
    from the job's smallest to its largest, with at least one sample on every GPU and no more than
    fit there. Work is counted in samples: recorded duration x throughput at the size asked for, on
    the type it was measured on, with the column ``batch_size`` where the trace has it and else the
    best batch. A grant without a batch size runs with the recorded batch. Columns ``min_batch``
    and ``max_batch`` override the profile of the model. The GPU type changes only the processing
    time.

    References
    ----------
    .. [1] V. Saxena, K. R. Jayaram, S. Basu, Y. Sabharwal, A. Verma, "Effective Elastic Scaling of
    Deep Learning Workloads", MASCOTS 2020, arXiv 2006.13878.
    """

    bandwidth_gb_per_s: float = param(
        1.25,
        title="Bandwidth between GPUs",
        unit="GB/s",
        low=0.001,
        high=10_000,
        help="Bandwidth between any two GPUs of a job; 1.25 GB/s are 10 Gbit/s.",
    )
    latency_ms: float = param(
        0.3,
        title="Network latency",
        unit="ms",
        low=0,
        high=1000,
        help="Latency of every step of the exchange; a job on k GPUs takes k - 1 steps.",
    )
    stand_in: str = param(
        "balanced",
        title="Stand-in for unknown models",
        help=(
            "Profile of jobs whose model has none: compute, comm, balanced, non-scalable "
            "or one of profiles; empty = such jobs are refused."
        ),
    )
    profiles: str = param(
        "",
        title="Further profiles",
        help=(
            "Further or replaced profiles: name, fixed ms and ms per sample of a step, million"
            " weights, most samples on one GPU, smallest and largest batch; e.g. bert 12 3.1 110 32"
            " 32 512; mynet 5 1 20 128 64 1024."
        ),
    )

    def __post_init__(self) -> None:
        """Refuse invalid profiles and an unknown `stand_in`."""
        super().__post_init__()
        table = with_profiles("batch, profiles", self.profiles)
        if self.stand_in and _find_profile(table, self.stand_in) is None:
            raise ParameterError(
                f"batch: stand_in: there is no profile '{self.stand_in}'. There are:"
                f" {', '.join(table)}."
            )

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences on assumed sizes, profiles, batch sizes and network."""
        jobs = _JobBatches(self, trace)
        on_gpus = jobs.requested > 0
        profiles = (
            f"{job_share(jobs.by_stand_in, on_gpus)} have a model without a profile; assumed: that"
            f" of '{self.stand_in}' (stand_in, profiles)."
        )
        moved_text = (
            f"{job_share(jobs.has_moved_batch, on_gpus)} record a batch_size that is not admissible"
            " at the size they asked for; assumed: the nearest that is."
        )
        network = (
            "Step times are computed, not measured: profiles of our own,"
            f" {self.bandwidth_gb_per_s:g} GB/s and {self.latency_ms:g} ms between GPUs. This is an"
            " assumption; change the performance model (Trace, --perf)."
        )
        texts = [*self.about_sizes(trace)]
        texts += [profiles] if jobs.by_stand_in.any() else []
        texts += [moved_text] if jobs.has_moved_batch.any() else []
        return (*texts, network) if on_gpus.any() else ()

    def bind(self, trace: Trace, cluster: Cluster) -> BatchModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's, or a job has no profile or cannot run
            on its requested GPUs.
        """
        machines = Machines("batch", Spans(self.reference), trace, cluster)
        jobs = _JobBatches(self, trace)
        jobs.check(trace)
        return BatchModel(self, trace, machines, jobs)


class _ProfileRows(NamedTuple):
    """Columns of profiles, one row per job or group of jobs; times in seconds."""

    fixed_s: Floats
    sample_s: Floats
    ring_s: Floats  # 2 x bytes / bandwidth
    cap: Floats
    low: Floats
    high: Floats
    recorded: Floats  # recorded batch; 0 = use the best one

    def as_columns(self, places: Ints | NDArray[np.intp]) -> _ProfileRows:
        """Return some rows as columns that broadcast against sizes."""
        return _ProfileRows(*[column[places, None] for column in self])


class _JobBatches:
    """Batch sizes and profile of every job, before binding to machines."""

    def __init__(self, spec: Batch, trace: Trace) -> None:
        table = with_profiles("batch, profiles", spec.profiles)
        self.requested = trace.numbers("num_gpus")
        self.models = trace.texts("model")
        on_gpus = self.requested > 0
        profiles = [_find_profile(table, str(name)) for name in self.models.categories]
        self.by_stand_in = (
            on_gpus & np.array([profile is None for profile in profiles])[self.models.codes]
        )
        self.lacking = self.by_stand_in & (not spec.stand_in)
        stand_in = _find_profile(table, spec.stand_in) or ModelProfile(1, 1, 1, 1, 1, 1)
        self.rows = _job_rows(
            spec, trace, [profile or stand_in for profile in profiles], self.models.codes
        )
        low, high = self.admissible(self.requested)
        recorded = np.round(trace.numbers("batch_size", 0.0))
        self.has_moved_batch = on_gpus & (recorded > 0) & ((recorded < low) | (recorded > high))
        self.rows = self.rows._replace(
            recorded=np.where(recorded > 0, np.clip(recorded, low, np.maximum(low, high)), 0.0)
        )

    def admissible(self, gpus: Floats) -> tuple[Floats, Floats]:
        """Return smallest and largest batch on some GPUs; smallest > largest = none."""
        return np.maximum(self.rows.low, gpus), np.minimum(self.rows.high, gpus * self.rows.cap)

    def check(self, trace: Trace) -> None:
        """Raise an error for jobs without a batch profile, or with GPUs that do not fit it.

        Raises
        ------
        ParameterError
            If there is such a job; the message names the first.
        """
        rows, requested = self.rows, self.requested
        for wrong, what in (
            (
                self.lacking,
                (
                    "has no profile, and stand_in is empty. Add its model to profiles, or name a"
                    " stand_in"
                ),
            ),
            (
                rows.low > rows.high,
                (
                    "has batch sizes from {low:g} to {high:g}. Give both min_batch and max_batch in"
                    " the trace"
                ),
            ),
            (
                requested > rows.high,
                (
                    "asks for {requested:g} GPUs but has at most {high:g} samples in a batch. Raise"
                    " its max_batch, or choose another stand_in or profile"
                ),
            ),
            (
                requested * rows.cap < rows.low,
                (
                    "asks for {requested:g} GPUs of {cap:g} samples each but has at least {low:g}"
                    " in a batch. Lower its min_batch, or give its profile a larger cap"
                ),
            ),
        ):
            is_affected = wrong & (requested > 0)
            if is_affected.any():
                job = int(np.flatnonzero(is_affected)[0])
                model = self.models[job] or "none"
                why = what.format(
                    requested=requested[job],
                    low=rows.low[job],
                    high=rows.high[job],
                    cap=rows.cap[job],
                )
                raise ParameterError(
                    f"batch: job {trace.frame['job_id'].iloc[job]} (model {model}) {why}; the same"
                    f" holds for {job_share(is_affected, requested > 0)}."
                )


class BatchModel:
    """`Batch`, bound to one trace and one cluster."""

    def __init__(self, spec: Batch, trace: Trace, machines: Machines, jobs: _JobBatches) -> None:
        self._machines, self._price = machines, spec
        self._latency_s = spec.latency_ms / 1000
        requested, duration, rows = jobs.requested, trace.numbers("duration_s"), jobs.rows
        self._on_gpus = requested > 0
        low, high = spec.sizes(trace, machines.largest)
        smallest = np.where(self._on_gpus, np.maximum(low, np.ceil(rows.low / rows.cap)), 0.0)
        largest = np.where(self._on_gpus, np.minimum(high, rows.high), 0.0)
        gang_size = np.maximum(requested, 1.0)
        measured = throughput(
            rows,
            gang_size,
            _default_batch(rows, gang_size, machines.measured, self._latency_s),
            machines.measured,
            self._latency_s,
        )
        self._work: Floats = duration * np.where(self._on_gpus, measured, 1.0)
        self._limits = Limits(
            smallest,
            largest,
            np.where(self._on_gpus, rows.low, nan),
            np.where(self._on_gpus, rows.high, nan),
        )
        for values in self._limits:
            values.flags.writeable = False
        # Many jobs share all values that determine their speed: one row per group.
        distinct, group = np.unique(
            np.stack([*rows, smallest, largest], axis=1), axis=0, return_inverse=True
        )
        columns = list(distinct.T)
        self._job_rows, self._least, self._most = (
            _ProfileRows(*columns[:-2]),
            columns[-2],
            columns[-1],
        )
        self._group: Ints = group.reshape(-1).astype(np.int64)
        self._group_of: list[int] = self._group.tolist()
        self._rates: dict[tuple[int, int, int, float], Rate] = {}

    def work(self) -> Floats:
        """Return samples, of shape (jobs,); seconds for CPU jobs."""
        return self._work

    def limits(self) -> Limits:
        """Return size and total batch limits."""
        return self._limits

    def fastest(self) -> Floats:
        """Return samples per second at the best size and batch on the fastest type.

        1 for CPU jobs.
        """
        rows = self._job_rows._replace(recorded=np.zeros_like(self._job_rows.recorded))
        best = np.zeros(len(self._least))
        count, step = int(self._most.max()), max(1, _BLOCK // len(best))
        for first in range(1, count + 1, step):
            sizes = np.arange(first, min(first + step, count + 1), dtype=np.float64)
            best = np.maximum(
                best,
                self._group_throughput(
                    rows, np.arange(len(best)), sizes, np.zeros(len(sizes)), self._machines.fastest
                ).max(axis=1),
            )
        return np.where(self._on_gpus, best[self._group], 1.0)

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the samples per second under a grant and its batch size.

        GPUs beyond the largest size do not help.

        Raises
        ------
        ContractError
            If a gang is smaller than the smallest size, or the batch is not admissible on it.
        """
        del done, now_s
        group, batch = self._group_of[job], grant.tuning.batch_size or 0
        if not self._most[group]:
            return ON_CPUS
        parts = []
        for gang in grant.gangs:
            key = (
                group,
                sum(gang.workers.count) * gang.workers.gpus,
                batch,
                self._machines.gang_speed(job, gang),
            )
            rate = self._rates.get(key)
            if rate is None:
                rate = self._rates[key] = self._gang_rate(job, *key)
            parts.append(rate)
        return (
            parts[0]
            if len(parts) == 1
            else Rate(sum([part.work_per_s for part in parts]) * self._price.worth(len(parts)))
        )

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return samples per second before placement; 0 = too few GPUs or invalid batch."""
        gpus, speeds = self._machines.shapes(shapes)
        batches = np.array([shape.tuning.batch_size or 0 for shape in shapes], np.float64)
        groups, group_index = np.unique(self._group[ids], return_inverse=True)
        rates = self._group_throughput(self._job_rows, groups, gpus, batches, speeds)
        rates[self._most[groups] == 0] = np.where(gpus == 0, 1.0, 0.0)
        every: Floats = rates[group_index.reshape(-1)]
        return every

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return telemetry of healthy workers that use their request."""
        del job, done, now_s
        return healthy_telemetry(grant)

    def _gang_rate(self, job: JobId, group: int, gpus: int, batch: int, speed: float) -> Rate:
        """Return the rate of one gang; refuse too few GPUs or an invalid batch."""
        value = float(
            self._group_throughput(
                self._job_rows,
                np.array([group]),
                np.array([float(gpus)]),
                np.array([float(batch)]),
                speed,
            )[0, 0]
        )
        if value > 0:
            return Rate(value)
        if gpus < self._least[group]:
            raise ContractError(
                f"job {job} runs on {self._least[group]:g} GPUs or more and cannot run on {gpus}"
            )
        rows = self._job_rows
        what = (
            f"job {job} cannot run on {gpus} GPUs with a batch of {batch or rows.recorded[group]:g}"
        )
        raise ContractError(
            f"{what}: it takes {rows.low[group]:g} to {rows.high[group]:g} samples, 1 to"
            f" {rows.cap[group]:g} on each GPU"
        )

    def _group_throughput(
        self,
        rows: _ProfileRows,
        groups: Ints | NDArray[np.intp],
        gpus: Floats,
        batches: Floats,
        speeds: Floats | float,
    ) -> Floats:
        """Return samples per second of shape (groups, sizes); 0 = too few GPUs or bad batch.

        A batch of 0 is the default one; GPUs beyond the largest size are not used.
        """
        group_rows, least, most = (
            rows.as_columns(groups),
            self._least[groups, None],
            self._most[groups, None],
        )
        used = np.clip(gpus[None, :], 1.0, np.maximum(most, 1.0))
        batch = (
            batches
            if batches.all()
            else np.where(
                batches > 0, batches, _default_batch(group_rows, used, speeds, self._latency_s)
            )
        )
        admissible = (
            (gpus >= least)
            & (batch >= np.maximum(group_rows.low, used))
            & (batch <= np.minimum(group_rows.high, used * group_rows.cap))
        )
        return np.where(
            admissible, throughput(group_rows, used, batch, speeds, self._latency_s), 0.0
        )


def throughput(
    rows: _ProfileRows, gpus: Floats, batch: Floats, speed: Floats | float, latency_s: float
) -> Floats:
    """Return samples per second of total batches on numbers of GPUs, broadcast together.

    Does not check whether a batch is admissible.
    """
    step = (
        (rows.fixed_s + rows.sample_s * np.ceil(batch / gpus)) / speed
        + rows.ring_s * (gpus - 1) / gpus
        + latency_s * (gpus - 1)
    )
    per_s: Floats = batch / step
    return per_s


class SpeedupPoint(NamedTuple):
    """A point of a speed-up curve: throughput relative to one GPU at its best batch.

    NaN = the model cannot run there.
    """

    model: str
    gpus: int
    speedup: float
    batch: float


def speedups(
    spec: Batch, models: Sequence[str], most_gpus: int, batch: str = "elastic"
) -> tuple[SpeedupPoint, ...]:
    """Return the speed-up curves of models on the reference type, for charts.

    Parameters
    ----------
    spec : Batch
        Network and profiles.
    models : sequence of str
        Classes or models of the table.
    most_gpus : int
        Largest number of GPUs.
    batch : {"elastic", "max", "min"}
        Best total batch for each size, or one end of the batch range for all sizes.

    Raises
    ------
    ParameterError
        If a model has no profile.
    """
    points = []
    sizes = np.arange(1.0, most_gpus + 1)
    for model in models:
        profile = _find_profile(with_profiles("batch, profiles", spec.profiles), model)
        if profile is None:
            raise ParameterError(f"batch: there is no profile '{model}'. Add it to profiles.")
        rows = _ProfileRows(
            *[np.array([value]) for value in (*_step_times(spec, profile), *profile[3:], 0.0)]
        )
        fixed = {"max": profile.max_batch, "min": profile.min_batch}.get(batch, 0.0)
        best = _default_batch(rows, sizes, 1.0, spec.latency_ms / 1000)
        chosen = np.full(len(sizes), fixed) if fixed else best
        fits = (chosen >= np.maximum(rows.low, sizes)) & (
            chosen <= np.minimum(rows.high, sizes * rows.cap)
        )
        # If not even the smallest batch fits on one GPU, one GPU runs the largest that does.
        alone = throughput(
            rows, sizes[:1], np.minimum(best[:1], rows.cap), 1.0, spec.latency_ms / 1000
        )
        curve = np.where(
            fits, throughput(rows, sizes, chosen, 1.0, spec.latency_ms / 1000) / alone, nan
        )
        points += [
            SpeedupPoint(model, int(gpus), float(speedup), float(batch_size) if ok else nan)
            for gpus, speedup, batch_size, ok in zip(sizes, curve, chosen, fits, strict=True)
        ]
    return tuple(points)


def _default_batch(
    rows: _ProfileRows, gpus: Floats, speed: Floats | float, latency_s: float
) -> Floats:
    """Return the recorded batch if there is one, else the batch with the highest throughput.

    Batches with equal ceil(B/k) take equal time, so the largest of them is the fastest; throughput
    grows with ceil(B/k). So the best is the largest admissible batch, or the largest multiple of k
    below it.
    """
    high = np.minimum(rows.high, gpus * rows.cap)
    even = np.floor(high / gpus) * gpus
    is_even = (even >= np.maximum(rows.low, gpus)) & (
        throughput(rows, gpus, even, speed, latency_s)
        >= throughput(rows, gpus, high, speed, latency_s)
    )
    return np.where(rows.recorded > 0, rows.recorded, np.where(is_even, even, high))


def _find_profile(table: dict[str, ModelProfile], name: str) -> ModelProfile | None:
    """Return the profile of a model name or of its example class, or None."""
    return table.get(plain(name)) or table.get(EXAMPLES.get(plain(name), ""))


def _step_times(spec: Batch, profile: ModelProfile) -> tuple[float, float, float]:
    """Return fixed, per-sample and ring exchange time of a profile in seconds."""
    ring_s = 2 * BYTES_PER_WEIGHT * profile.weights_m * 1e6 / (spec.bandwidth_gb_per_s * 1e9)
    return profile.fixed_ms / 1000, profile.sample_ms / 1000, ring_s


def _job_rows(
    spec: Batch, trace: Trace, profiles: Sequence[ModelProfile], codes: NDArray[np.integer]
) -> _ProfileRows:
    """Return profile columns per job, with the trace's batch limits taking precedence."""
    columns = np.array([(*_step_times(spec, profile), *profile[3:]) for profile in profiles])[
        codes
    ].T
    low, high = np.ceil(trace.numbers("min_batch")), np.floor(trace.numbers("max_batch"))
    fixed, sample, ring, cap, least, most = columns
    return _ProfileRows(
        fixed,
        sample,
        ring,
        cap,
        np.where(np.isnan(low), least, low),
        np.where(np.isnan(high), most, high),
        np.zeros(len(trace)),
    )
