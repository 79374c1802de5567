"""Common tasks in a few calls, for notebooks, scripts and CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.metrics.registry import COLUMNS
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.labs.backtests.report import BacktestReport
from trainyard.labs.backtests.run import BacktestRun
from trainyard.results import outcomes, simplest_model
from trainyard.results.outcomes import ComparisonReport, StudyResults
from trainyard.runs.run import run_missing
from trainyard.store import Store, StoredResult
from trainyard.study import catalog, files, gpu_types
from trainyard.study.check import Check
from trainyard.study.scenario import NEW_COSTS, RIGID, Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import bundle, fitting, likeness
from trainyard.traces.sources import Source, apply_changes, load_frame, load_source, load_trace
from trainyard.views import registry
from trainyard.views.compared_runs import ComparedRuns, compare_runs
from trainyard.views.markup import text
from trainyard.views.report.page import offline_html
from trainyard.what_if import explore, reasons, tables


def read_trace(
    source: str | Path | pd.DataFrame, fmt: str = "", *, anonymise: bool = False, **reading: Any
) -> Source:
    """Read the jobs of a file, a sample, a generated workload, or a table.

    Parameters
    ----------
    source : str, Path or DataFrame
        A file, ``sample:NAME``, ``made:NAME``, or a table. A table is read like a Parquet file: it
        may have dates, `timedelta` durations and any column names.
    fmt : str
        Name of the format; "" = detected from the content.
    anonymise : bool
        Whether to replace ids, users, job names, accounts, virtual clusters and partitions by
        numbers.
    **reading
        Choices of `jobtraces.ReadOptions`, e.g. ``time_unit="ms"``, ``cpu_jobs="keep"`` or
        ``mapping={"num_gpus": "GPUs"}``.

    Returns
    -------
    Source
        With ``.summary()``, ``.issues`` and ``.to_frame()``.

    Raises
    ------
    TrainyardError
        If the source cannot be found or read, or a choice is unknown.
    """
    if isinstance(source, pd.DataFrame):
        loaded = load_frame(source, fmt, reading)
    else:
        loaded = load_source(TraceSpec.of(str(source), fmt=fmt, read=reading))
    if not anonymise:
        return loaded
    # The reading report quotes cells of the file, so it is dropped.
    return Source(apply_changes(loaded.trace, TraceSpec(anonymise=True)), {}, loaded.cluster)


def look_alike(
    trace: Source | Trace | str | Path | pd.DataFrame,
    *,
    load: float = 1.0,
    seed: int = 0,
    cluster: Cluster | None = None,
) -> str:
    """Fit a generator to a trace and return it as text without names, ids and dates.

    Parameters
    ----------
    trace : Source, Trace, str, Path or DataFrame
        At least 50 jobs, in any form that `read_trace` takes or returns.
    load : float
        Factor on the number of jobs in the same time.
    seed : int
        Seed of the generated jobs.
    cluster : Cluster, optional
        The machines for the jobs; None = those of the trace, or a fitted cluster.

    Returns
    -------
    str
        ``made:like:...``, a source for `read_trace` and `compare`.

    Raises
    ------
    TrainyardError
        If the trace cannot be read, has too few jobs, or the load is out of bounds.
    """
    if isinstance(trace, Trace):
        trace = Source(trace, {})
    source = trace if isinstance(trace, Source) else read_trace(trace)
    nodes = cluster or fit_cluster(source)
    return likeness.fit_look_alike(source.trace, load=load, seed=seed, cluster=nodes).source


def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a file: JSON, a table of nodes, ``slurm.conf`` or ``scontrol`` output.

    Raises
    ------
    TrainyardError
        If the file cannot be read.
    """
    return machines.read_cluster(Path(path)).cluster


def fit_cluster(trace: Source | Trace, load: float | None = None) -> Cluster:
    """Return a cluster on which these jobs have a given load.

    Parameters
    ----------
    trace : Source or Trace
        The jobs.
    load : float or None
        Requested over available GPU time, up to 1. None = the machines that come with the jobs,
        else the most that were used at once in the record, else a cluster that the jobs fill on
        their busiest day.

    Raises
    ------
    ParameterError
        If the load is not above 0 and at most 1.
    """
    return fitting.fit_cluster(trace, load).cluster


def policies(trace: Source | Trace | None = None) -> pd.DataFrame:
    """Return a table of all policies, indexed by name; with a trace also why some cannot run.

    Columns: title, what (description) and reason ("" = can run, or no trace was given).
    """
    jobs = trace.trace if isinstance(trace, Source) else trace
    rows = [
        {"policy": one.name, "title": one.title, "what": one.help, "reason": one.reason}
        for one in catalog.allocator_choices(jobs)
    ]
    return pd.DataFrame(rows).set_index("policy")


def compare(  # noqa: PLR0913 - parts of a comparison; all but the first three are keywords
    trace: Source | Trace | str | Path | pd.DataFrame,
    cluster: Cluster | str | None,
    allocators: Sequence[str | Spec],
    *,
    repeats: int = 1,
    seed: int = 0,
    perf: str | Spec = "",
    store: Store | str | Path | None = None,
    engine: str = "",
    **scenario: Any,
) -> Comparison:
    """Simulate the same jobs on the same cluster under each policy.

    The jobs and results are stored; equal runs are taken from the store.

    Parameters
    ----------
    trace : Source, Trace, str, Path or DataFrame
        The jobs, in any form that `read_trace` takes or returns.
    cluster : Cluster, str or None
        The machines, e.g. ``"16x8:a100,4x4:t4"``; None = those of the trace, or a fitted
        cluster.
    allocators : sequence of str or Spec
        The policies, e.g. ``["fifo", "las:thresholds=3600"]``; the first is the baseline.
    repeats : int
        Runs per policy, with seeds `seed`, ``seed + 1``, ...; 3 or more give intervals.
    seed : int
        The first seed.
    perf : str or Spec
        The performance model; "" = the simplest that all these policies support.
    store : Store, str or Path, optional
        Store of the results; None = the store of the app.
    engine : str
        Engine of runs that are not stored: "auto" = the fast engine if possible, "kernel" or
        "fast"; "" = TRAINYARD_ENGINE, else "auto". Results are equal.
    **scenario
        Further settings of `trainyard.study.scenario.Scenario`, e.g. `horizon_s`.

    Raises
    ------
    TrainyardError
        If no policy can run, or an argument is invalid.
    """
    at = store if isinstance(store, Store) else Store(store)
    source, nodes = _load_inputs(trace, cluster)
    jobs = source.trace
    specs = tuple(
        files.read_file_parameters(Spec.parse(one) if isinstance(one, str) else one)
        for one in allocators
    )
    if not specs:
        raise ParameterError("No policy is named. Name at least one, e.g. 'fifo'.")
    model = Spec.parse(perf) if isinstance(perf, str) and perf else perf
    given: dict[str, Any] = {"overheads": NEW_COSTS, "seed": seed} | scenario
    where = TraceSpec(f"store:{at.put_trace(jobs, source.account)}")
    base = Scenario(where, nodes, specs[0], model or RIGID, **given)
    study = Study(base, specs, repeats=repeats)
    if not model:
        chosen = simplest_model.simplest_for_all(specs, jobs, nodes)
        study = replace(study, base=replace(study.base, perf=chosen))
    _, skipped = run_missing(study, at, engine=engine)
    return Comparison(study, at, skipped)


def backtest(  # noqa: PLR0913 - parts of a backtest; all but the first three are keywords
    trace: Source | Trace | str | Path | pd.DataFrame,
    cluster: Cluster | str | None,
    allocator: str | Spec,
    *,
    repeats: int = 5,
    warm_up_h: float | None = None,
    judge_days: float | None = None,
    anyway: bool = False,
    use: Sequence[str] = (),
    fit: bool = False,
    perf: str | Spec = "",
    store: Store | str | Path | None = None,
    **scenario: Any,
) -> BacktestReport:
    """Measure how well a simulated policy reproduces the recorded waits.

    Parameters
    ----------
    trace : Source, Trace, str, Path or DataFrame
        The jobs with their recorded starts.
    cluster : Cluster, str or None
        The machines of the recorded period; None = as for `compare`.
    allocator : str or Spec
        The policy that made the recorded schedule.
    repeats : int
        Runs with different seeds; 1 if seeds have no effect.
    warm_up_h : float, hours, optional
        Hours simulated before measuring; None = the longest of a day, the half-life of
        usage, and the 95th percentile of the recorded waits.
    judge_days : float, days, optional
        Days at the end to compare; None = 7, or half of the record if that is less.
    anyway : bool
        Whether to accept a record that cannot serve as a yardstick.
    use : sequence of str
        Ids of ``.proposals`` of an earlier backtest to apply.
    fit : bool
        Whether to fit open settings to the part before the judged days.
    perf, store, **scenario
        As for `compare`.

    Returns
    -------
    BacktestReport
        With ``.headline``, ``.comparable``, ``.judged``, ``.floor``, ``.rivals`` and
        ``.to_json()``. Later comparisons with the recorded schedule in this store use it.

    Raises
    ------
    TrainyardError
        If the policy cannot run, or an argument is invalid.
    """
    at = store if isinstance(store, Store) else Store(store)
    source, nodes = _load_inputs(trace, cluster)
    policy = files.read_file_parameters(
        Spec.parse(allocator) if isinstance(allocator, str) else allocator
    )
    model = Spec.parse(perf) if isinstance(perf, str) and perf else perf
    given: dict[str, Any] = {"overheads": NEW_COSTS} | scenario
    where = TraceSpec(f"store:{at.put_trace(source.trace, source.account)}")
    chosen = model or simplest_model.simplest_for_all((policy,), source.trace, nodes)
    run = BacktestRun(
        Check(
            Scenario(where, nodes, policy, chosen, **given),
            repeats,
            None if warm_up_h is None else 3600.0 * warm_up_h,
            None if judge_days is None else 86_400.0 * judge_days,
            anyway,
            tuple(use),
            fit,
        ),
        at,
        "inline",
    )
    run.run()
    if run.report is None:
        raise ParameterError(run.error)
    return run.report


def _load_inputs(
    trace: Source | Trace | str | Path | pd.DataFrame, cluster: Cluster | str | None
) -> tuple[Source, Cluster]:
    """Return jobs and machines from any accepted form, by default a cluster for the jobs."""
    if isinstance(trace, Trace):
        trace = Source(trace, {})
    source = trace if isinstance(trace, Source) else read_trace(trace)
    if isinstance(cluster, str):
        cluster = gpu_types.parse_cluster(cluster)
    return source, cluster or fit_cluster(source)


@dataclass(frozen=True)
class Comparison:
    """Results of policies on the same jobs and machines.

    Parameters
    ----------
    study : Study
        The compared policies and their scenario.
    store : Store
        Store of the results.
    skipped : mapping of str
        Policy -> reason why it could not run.
    """

    study: Study
    store: Store
    skipped: Mapping[Spec, str]

    @cached_property
    def _runs(self) -> StudyResults:
        """Stored results of all runs."""
        return outcomes.gather(self.study, self.store)

    @cached_property
    def _compared(self) -> ComparedRuns:
        """All runs, prepared for tables and figures; ParameterError if they were deleted."""
        compared = compare_runs(self._runs, self.store)
        if compared is None:
            raise ParameterError("The results were deleted. Compare again.")
        return compared

    @property
    def _report(self) -> ComparisonReport:
        return self._compared.report

    @property
    def headline(self) -> str:
        """Main result of the comparison, or why there is none."""
        return self._report.headline

    @property
    def assumptions(self) -> str:
        """Assumptions that affect these results."""
        return self._report.assumed

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the available figures."""
        return tuple(one.name for one in registry.views(self._compared))

    @property
    def engines(self) -> dict[str, str]:
        """Policy -> the engine that made its first run: "kernel" or "fast"."""
        shown = zip(self._runs.titles, self._runs.entries, strict=True)
        return {title: entries[0].engine for title, entries in shown if entries}

    def table(self) -> pd.DataFrame:
        """Return one row per policy with all metrics, and 95 % intervals if repeated.

        Returns
        -------
        DataFrame
            Index: title of the policy. Columns: (metric, "value" | "change" | "low" | "high").
            The change is relative to the baseline; times are in seconds.
        """
        long = self._report.table
        wide = long.pivot_table(
            index="label",
            columns="metric",
            values=["value", "change", "low", "high"],
            sort=False,
            dropna=True,
        )
        metrics = [name for name in COLUMNS if name in long["metric"].unique()]
        order = [
            (metric, part)
            for metric in metrics
            for part in ("value", "change", "low", "high")
            if (part, metric) in wide.columns
        ]
        return wide.swaplevel(axis=1)[order].reindex(list(self._report.labels))

    def figure(self, name: str = "queue") -> Any:
        """Return a Plotly figure.

        Parameters
        ----------
        name : str
            One of `names`, e.g. ``"queue"`` or ``"jct_cdf"``, or a metric of `table`, e.g.
            ``"wait_max_s"``: one bar per policy.

        Raises
        ------
        ParameterError
            If there is no such figure.
        """
        return registry.view(self._compared, name).figure

    def jobs(self, policy: str | Spec) -> pd.DataFrame:
        """Return one row per job with its outcome under a policy, in the first repeat.

        Raises
        ------
        ParameterError
            If the policy was not compared, or could not run.
        """
        return self._entry(policy)[1].jobs()

    def why(self, policy: str | Spec, job: str) -> tuple[str, ...]:
        """Return the longest parts of a job's waits, with reason and duration.

        Simulates the first repeat again until the job has started; empty if it did not wait.

        Parameters
        ----------
        policy : str or Spec
            One of those compared.
        job : str
            Id of the job in the trace.

        Raises
        ------
        TrainyardError
            If the policy was not compared or could not run, or there is no such job.
        """
        title, entry = self._entry(policy)
        trace = load_trace(self.study.base.trace, self.store)
        row = tables.job_row(trace, job)
        if row is None:
            raise ParameterError(f"There is no job {job} in this trace. Use a value of its job_id.")
        book = explore.open_run(entry, trace, self.study.base.cluster, title, self.store)
        recorded_reasons = reasons.replay_statements(book, row, self.store)
        return tuple(
            one.full_sentence for one in reasons.stated_reasons(book, row, recorded_reasons)
        )

    def _entry(self, policy: str | Spec) -> tuple[str, StoredResult]:
        """Return the title and the first stored result of a policy, named by spec or title.

        Raises ParameterError if the policy was not compared or has no result.
        """
        specs = self.study.allocators
        # By text form or title; else parsed as given, where files are still paths.
        names = {str(spec): index for index, spec in enumerate(specs)}
        names |= {title: index for index, title in enumerate(self.study.titles)}
        index = names.get(str(policy))
        if index is None:
            named = files.read_file_parameters(
                Spec.parse(policy) if isinstance(policy, str) else policy
            )
            spec = catalog.canonical("allocator", named)
            if spec not in specs:
                available = ", ".join(str(one) for one in specs)
                raise ParameterError(f"{policy} was not compared. Choose one of {available}.")
            index = specs.index(spec)
        if not self._runs.entries[index]:
            raise ParameterError(
                f"{policy} has no result: {self.skipped.get(specs[index], 'run it again')}"
            )
        return self._runs.titles[index], self._runs.entries[index][0]

    def report(self, path: str | Path) -> Path:
        """Write all results into one HTML file that opens without a network; return its path."""
        target = Path(path)
        page = offline_html(self._runs, self.store, created=datetime.now(UTC))
        target.write_text(page, encoding="utf-8", newline="")
        return target

    def save(self, path: str | Path) -> Path:
        """Write the scenario and its jobs to a ZIP archive that the app opens; return its path."""
        target = Path(path)
        target.write_bytes(bundle.scenario_archive(self.study, self.store))
        return target

    def _repr_html_(self) -> str:
        """Return the headline and the table of values as HTML, for notebooks."""
        values = self.table().xs("value", axis=1, level=1)
        return f"<p><b>{text(self.headline)}</b></p>{values.to_html()}"
