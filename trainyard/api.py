"""The commonest work in a few calls, for notebooks, scripts and CI."""

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
from trainyard.results import outcomes, plainest
from trainyard.results.outcomes import ComparisonReport, Shown
from trainyard.runs.run import complete
from trainyard.store import Store, StoredResult
from trainyard.study import catalog, files, gpu_types
from trainyard.study.check import Check
from trainyard.study.scenario import NEW_COSTS, RIGID, Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import bundle, fitting, likeness
from trainyard.traces.sources import Source, changed, load_frame, load_source, load_trace
from trainyard.views import registry
from trainyard.views.compared import ComparedRuns, compare_runs
from trainyard.views.markup import text
from trainyard.views.report.page import offline_html
from trainyard.what_if import explore, reasons, tables


def read_trace(
    source: str | Path | pd.DataFrame, fmt: str = "", *, anonymise: bool = False, **reading: Any
) -> Source:
    """Read the jobs of a file, a sample, a made workload, or a table.

    Parameters
    ----------
    source : str, Path or DataFrame
        A file, ``sample:NAME``, ``made:NAME``, or rows, which are read as a Parquet file of them
        is: dates, `timedelta` durations, any column names.
    fmt : str
        Name of the format; "" = recognised by the content.
    anonymise : bool
        Whether ids, users, names of jobs, accounts, virtual clusters and partitions become numbers.
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
        If it cannot be found or read, or there is no such choice; the sentence says what to do.
    """
    if isinstance(source, pd.DataFrame):
        found = load_frame(source, fmt, reading)
    else:
        found = load_source(TraceSpec.of(str(source), fmt=fmt, read=reading))
    if not anonymise:
        return found
    # The account of the file quotes its cells.
    return Source(changed(found.trace, TraceSpec(anonymise=True)), {}, found.cluster)


def look_alike(
    trace: Source | Trace | str | Path | pd.DataFrame,
    *,
    load: float = 1.0,
    seed: int = 0,
    cluster: Cluster | None = None,
) -> str:
    """Fit a generator to a trace and return it as text that holds no name, id or date.

    Parameters
    ----------
    trace : Source, Trace, str, Path or DataFrame
        The jobs, at least 50, as `read_trace` takes or returns them.
    load : float
        How many times the jobs in the same time.
    seed : int
        Seed of the jobs that are made.
    cluster : Cluster, optional
        The machines that the jobs come with; None = those of the trace, or ones that fit it.

    Returns
    -------
    str
        ``made:like:...``, which `read_trace` and `compare` take as any other source.

    Raises
    ------
    TrainyardError
        If the trace cannot be read, has too few jobs, or the load is out of its bounds.
    """
    if isinstance(trace, Trace):
        trace = Source(trace, {})
    source = trace if isinstance(trace, Source) else read_trace(trace)
    machines_of = cluster or fit_cluster(source)
    return likeness.look_alike(source.trace, load=load, seed=seed, cluster=machines_of).source


def read_cluster(path: str | Path) -> Cluster:
    """Read a cluster from a file: JSON, a table of nodes, ``slurm.conf`` or ``scontrol`` output.

    Raises
    ------
    TrainyardError
        If it cannot be read.
    """
    return machines.read_cluster(Path(path)).cluster


def fit_cluster(trace: Source | Trace, load: float | None = None) -> Cluster:
    """Return a cluster for these jobs.

    Parameters
    ----------
    trace : Source or Trace
        The jobs.
    load : float or None
        GPU time asked for over their span, over GPU time there is, up to 1. None = the machines
        that come with the jobs, else as many as the recording used at once, else a guess: the jobs
        fill them on their busiest day.

    Raises
    ------
    ParameterError
        If the load is not above 0 and up to 1.
    """
    return fitting.cluster_for(trace, load).cluster


def policies(trace: Source | Trace | None = None) -> pd.DataFrame:
    """List all policies; with a trace also why one cannot run on it under the plainest model."""
    jobs = trace.trace if isinstance(trace, Source) else trace
    rows = [
        {"policy": one.name, "title": one.title, "what": one.help, "reason": one.reason}
        for one in catalog.allocator_choices(jobs)
    ]
    return pd.DataFrame(rows).set_index("policy")


def compare(  # noqa: PLR0913 - what a comparison is made of, all but the first three by name
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
    """Simulate what each policy would have done with the same jobs on the same cluster.

    Parameters
    ----------
    trace : Source, Trace, str, Path or DataFrame
        The jobs, as `read_trace` takes or returns them.
    cluster : Cluster, str or None
        The machines, e.g. ``"16x8:a100,4x4:t4"``; None = those that came with the trace, or ones
        that fit it.
    allocators : sequence of str or Spec
        The policies, e.g. ``["fifo", "las:thresholds=3600"]``; the first is the baseline.
    repeats : int
        Runs per policy, with seeds `seed`, ``seed + 1``, ...; 3 or more give intervals.
    seed : int
        The first seed.
    perf : str or Spec
        The performance model; "" = the plainest under which all of these policies can run.
    store : Store, str or Path, optional
        Where results are kept and found again; None = where the app keeps its own.
    engine : str
        What makes runs that are not kept yet: "auto" = the fast engine where it can, "kernel" or
        "fast"; "" = what TRAINYARD_ENGINE names, else "auto". Results are the same.
    **scenario
        Further settings of `trainyard.study.scenario.Scenario`, e.g. `horizon_s`.

    Raises
    ------
    TrainyardError
        If no policy can run, or something cannot be used; the sentence says what to do.
    """
    at = store if isinstance(store, Store) else Store(store)
    source, nodes = _given(trace, cluster)
    jobs = source.trace
    specs = tuple(
        files.with_texts(Spec.parse(one) if isinstance(one, str) else one) for one in allocators
    )
    if not specs:
        raise ParameterError("No policy is named. Name at least one, e.g. 'fifo'.")
    model = Spec.parse(perf) if isinstance(perf, str) and perf else perf
    given: dict[str, Any] = {"overheads": NEW_COSTS, "seed": seed} | scenario
    where = TraceSpec(f"store:{at.put_trace(jobs, source.account)}")
    base = Scenario(where, nodes, specs[0], model or RIGID, **given)
    study = Study(base, specs, repeats=repeats)
    if not model:
        chosen = plainest.for_all(specs, jobs, nodes)
        study = replace(study, base=replace(study.base, perf=chosen))
    _, skipped = complete(study, at, engine=engine)
    return Comparison(study, at, skipped)


def backtest(  # noqa: PLR0913 - what a check is made of, all but the first three by name
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
    """Check how far a simulated policy reproduces the waits that were recorded.

    Parameters
    ----------
    trace : Source, Trace, str, Path or DataFrame
        The jobs with their recorded starts.
    cluster : Cluster, str or None
        The machines as they were; None = as for `compare`.
    allocator : str or Spec
        The policy that was in force.
    repeats : int
        Runs with other seeds; one, if seeds change nothing.
    warm_up_h : float, hours, optional
        What is simulated first and not measured; None = the longest of a day, the half-life of
        usage, and the 95th percentile of the recorded waits.
    judge_days : float, days, optional
        The last part, which is judged; None = 7, or half of the record if that is less.
    anyway : bool
        Whether a record that is no yardstick is checked all the same.
    use : sequence of str
        Ids of ``.proposals`` of an earlier check that are applied.
    fit : bool
        Whether open settings are fitted to the part before the judged one.
    perf, store, **scenario
        As for `compare`.

    Returns
    -------
    BacktestReport
        With ``.headline``, ``.comparable``, ``.judged``, ``.floor``, ``.rivals`` and
        ``.to_json()``. Later comparisons with the recorded schedule in this store heed it.

    Raises
    ------
    TrainyardError
        If the policy cannot run, or something cannot be used.
    """
    at = store if isinstance(store, Store) else Store(store)
    source, nodes = _given(trace, cluster)
    policy = files.with_texts(Spec.parse(allocator) if isinstance(allocator, str) else allocator)
    model = Spec.parse(perf) if isinstance(perf, str) and perf else perf
    given: dict[str, Any] = {"overheads": NEW_COSTS} | scenario
    where = TraceSpec(f"store:{at.put_trace(source.trace, source.account)}")
    chosen = model or plainest.for_all((policy,), source.trace, nodes)
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


def _given(
    trace: Source | Trace | str | Path | pd.DataFrame, cluster: Cluster | str | None
) -> tuple[Source, Cluster]:
    """Return jobs and machines in whatever form they are given."""
    if isinstance(trace, Trace):
        trace = Source(trace, {})
    source = trace if isinstance(trace, Source) else read_trace(trace)
    if isinstance(cluster, str):
        cluster = gpu_types.parse_cluster(cluster)
    return source, cluster or fit_cluster(source)


@dataclass(frozen=True)
class Comparison:
    """Policies side by side on the same jobs and machines, and what their results say.

    Parameters
    ----------
    study : Study
        What was compared.
    store : Store
        Where the results are.
    skipped : mapping of str
        Policy -> why it could not run.
    """

    study: Study
    store: Store
    skipped: Mapping[Spec, str]

    @cached_property
    def _runs(self) -> Shown:
        return outcomes.gather(self.study, self.store)

    @cached_property
    def _compared(self) -> ComparedRuns:
        found = compare_runs(self._runs, self.store)
        if found is None:
            raise ParameterError("The results are not kept any more. Compare again.")
        return found

    @property
    def _report(self) -> ComparisonReport:
        return self._compared.report

    @property
    def headline(self) -> str:
        """What the comparison says, or why it says nothing."""
        return self._report.headline

    @property
    def assumptions(self) -> str:
        """What is assumed and moves these results."""
        return self._report.assumed

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The figures that there are."""
        return tuple(one.name for one in registry.views(self._compared))

    @property
    def engines(self) -> dict[str, str]:
        """Policy -> what made its first run: "kernel", "fast", or "plain" = "fast" uncompiled."""
        shown = zip(self._runs.titles, self._runs.entries, strict=True)
        return {title: entries[0].engine for title, entries in shown if entries}

    def table(self) -> pd.DataFrame:
        """Return one row per policy; with repeats, half the width of 95 % intervals beside it.

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
        known = [name for name in COLUMNS if name in long["metric"].unique()]
        order = [
            (metric, part)
            for metric in known
            for part in ("value", "change", "low", "high")
            if (part, metric) in wide.columns
        ]
        return wide.swaplevel(axis=1)[order].reindex(list(self._report.labels))

    def figure(self, name: str = "queue") -> Any:
        """Return a Plotly figure.

        Parameters
        ----------
        name : str
            One of `names`, e.g. ``"queue"``, ``"gpus"`` or ``"jct_cdf"``.

        Raises
        ------
        ParameterError
            If there is none of that name.
        """
        return registry.view(self._compared, name).figure

    def jobs(self, policy: str | Spec) -> pd.DataFrame:
        """Return what came of every job under a policy, one row each, of the first repeat.

        Raises
        ------
        ParameterError
            If the policy was not compared, or could not run.
        """
        return self._entry(policy)[1].jobs()

    def why(self, policy: str | Spec, job: str) -> tuple[str, ...]:
        """Return the longest spans of a job's waits, each with the policy's reason and duration.

        The first repeat is run again as far as the job waits; empty if it did not wait.

        Parameters
        ----------
        policy : str or Spec
            One of those compared.
        job : str
            As the trace names it.

        Raises
        ------
        TrainyardError
            If the policy was not compared, could not run, or there is no such job.
        """
        title, entry = self._entry(policy)
        trace = load_trace(self.study.base.trace, self.store)
        row = tables.job_row(trace, job)
        if row is None:
            raise ParameterError(f"There is no job {job} in this trace. Name one of its job_id.")
        book = explore.opened(entry, trace, self.study.base.cluster, title, self.store)
        said = reasons.replayed(book, row, self.store)
        return tuple(one.told for one in reasons.why(book, row, said))

    def _entry(self, policy: str | Spec) -> tuple[str, StoredResult]:
        known = self.study.allocators
        # As messages and tables call them, where a file is its digest, or as it was asked for.
        names = {str(spec): at for at, spec in enumerate(known)}
        names |= {title: at for at, title in enumerate(self.study.titles)}
        at = names.get(str(policy))
        if at is None:
            asked = files.with_texts(Spec.parse(policy) if isinstance(policy, str) else policy)
            spec = catalog.canonical("allocator", asked)
            if spec not in known:
                there = ", ".join(str(one) for one in known)
                raise ParameterError(f"{policy} was not compared. There are {there}.")
            at = known.index(spec)
        if not self._runs.entries[at]:
            raise ParameterError(
                f"{policy} has no result: {self.skipped.get(known[at], 'run it again')}"
            )
        return self._runs.titles[at], self._runs.entries[at][0]

    def report(self, path: str | Path) -> Path:
        """Write everything into one HTML file that opens without a network."""
        target = Path(path)
        page = offline_html(self._runs, self.store, created=datetime.now(UTC))
        target.write_text(page, encoding="utf-8", newline="")
        return target

    def save(self, path: str | Path) -> Path:
        """Write the scenario and its jobs into a ZIP archive, which the app opens on Start."""
        target = Path(path)
        target.write_bytes(bundle.archive(self.study, self.store))
        return target

    def _repr_html_(self) -> str:
        # In a notebook the headline comes first, then the table.
        values = self.table().xs("value", axis=1, level=1)
        return f"<p><b>{text(self.headline)}</b></p>{values.to_html()}"
