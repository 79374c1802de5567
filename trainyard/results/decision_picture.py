"""Pictures of how an allocator decides: a run of six example jobs, drawn on GPUs and cores."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import allocators
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.engine.simulator import Conditions, Simulator
from sim.overheads import Overheads
from sim.params import Spec
from sim.perf import PERF
from sim.result import RunResult
from sim.trace import Trace
from trainyard.formatting import plural, time
from trainyard.store import StoredResult
from trainyard.study import catalog
from trainyard.study.scenario import RIGID

CORES_PER_LANE: Final = 4.0
"""Cores drawn as high as one GPU."""
_MIN: Final = 60.0
_SOON: Final = 1e-6
_JOBS: Final[dict[str, Any]] = {
    "job_id": list("ABCDEF"),
    "submit_time_s": [minutes * _MIN for minutes in (0, 8, 16, 24, 32, 48)],
    "duration_s": [minutes * _MIN for minutes in (90, 50, 40, 20, 30, 12)],
    "start_time_s": [minutes * _MIN for minutes in (0, 8, 108, 96, 48, 148)],
    "user": list("xyxyxy"),
    "vc": list("abbaba"),
    "partition": list("abbaba"),
    "model": ["ResNet-50"] * 6,
}
_GPUS: Final = {
    "num_gpus": [2, 4, 4, 1, 2, 4],
    "min_gpus": 1,
    "max_gpus": [4, 8, 8, 2, 4, 8],
    "scaling_exponent": [0.9, 0.7, 0.8, 0.9, 0.5, 0.8],
}
_ROLES: Final = {
    "num_gpus": [2, 4, 4, 1, 0, 0],
    "workers": [2, 4, 4, 1, 2, 2],
    "servers": 1,
    "worker_cpus": [1, 1, 1, 1, 4, 4],
    "worker_mem_gb": 4,
    "server_cpus": 4,
    "server_mem_gb": 8,
    "batch_size": 64,
    "asynchronous": [0, 0, 0, 0, 1, 1],
}
_TYPES: Final = (GpuType("fast", 2.0, 1.0), GpuType("slow", 1.0, 1.0))
_NODES: Final = (
    NodeGroup(1, 4, "fast", 4.0, 64.0, partitions=("a",)),
    NodeGroup(1, 4, "slow", 4.0, 64.0, partitions=("b",)),
)
_CORES: Final = NodeGroup(1, 0, "", 32.0, 256.0)
_UNTIL_S: Final = 210 * _MIN
_STAFFED_S: Final = 120 * _MIN
_RESTART: Final = Overheads(restart_s=_MIN)
_EXAMPLE_TEXT: Final = (
    "Six jobs, A to F, on 4 fast and 4 slow GPUs, which take twice as long; a job uses GPUs of one"
    " type unless the policy mixes them. A mark at the top shows a submission. A restart"
    " takes a minute. The same jobs for every policy"
)


@dataclass(frozen=True, eq=False)
class DecisionPicture:
    """Result of the example run under one allocator.

    Parameters
    ----------
    bars : DataFrame
        One row per uninterrupted piece of a job: `job` (its letter), `lane` (lowest, from 0),
        `lanes` (height), `t0_s`, `t1_s`, `what` ("2 GPUs, fast").
    jobs : DataFrame
        `job`, `submit_s`, `finish_s`; NaN = never finished.
    rows : tuple of (str, float)
        Name and number of lanes of each node, from the bottom.
    until_s : float, seconds
        End of the time axis; the same for all allocators under the same conditions that do not
        take longer.
    sentence : str
        Mean completion time and number of stops, as text.
    about : str
        Description of the example.
    """

    bars: pd.DataFrame
    jobs: pd.DataFrame
    rows: tuple[tuple[str, float], ...]
    until_s: float
    sentence: str
    about: str

    @property
    def pieces(self) -> pd.DataFrame:
        """The bars by start, as a table with the columns Job, Has, From (s) and To (s)."""
        names = {"job": "Job", "what": "Has", "t0_s": "From (s)", "t1_s": "To (s)"}
        return self.bars.sort_values(["t0_s", "job"], kind="stable")[list(names)].rename(
            columns=names
        )


@lru_cache(maxsize=64)
def run_example(name: str) -> DecisionPicture:
    """Run the example under an allocator with its defaults; the result is cached.

    Parameters
    ----------
    name : str
        Key of the allocator in the registry.

    Raises
    ------
    TrainyardError
        If the allocator cannot run it.

    Notes
    -----
    The allocator's needs decide on the conditions: jobs that scale if it resizes them, jobs with
    parameter servers (two of them on cores only) if it knows servers, otherwise jobs of their
    requested size. A new allocator in the registry therefore needs no setup.
    """
    needs = catalog.allocator(Spec(name)).needs.requires
    staffed = "servers" in needs
    trace = Trace.of(pd.DataFrame({**_JOBS, **(_ROLES if staffed else _GPUS)}), name="example")
    cluster = Cluster((*_NODES, _CORES) if staffed else _NODES, _TYPES)
    perf = (
        catalog.with_servers()
        if staffed
        else (
            next(Spec(key) for key, cls in PERF.items() if cls.scales)
            if "scaling" in needs
            else RIGID
        )
    )
    conditions = Conditions(catalog.instance("perf", perf), overheads=_RESTART)
    result = Simulator(trace, cluster, allocators.make(Spec(name)), conditions).run()
    rows = tuple(
        (
            f"4 {node.gpu_type}" if node.gpus else f"{node.cpus:g} cores",
            node.gpus or node.cpus / CORES_PER_LANE,
        )
        for node in cluster.nodes
    )
    until_s = max(float(result.end_s), _STAFFED_S if staffed else _UNTIL_S)
    about = f"{_EXAMPLE_TEXT}{_STAFFED if staffed else _SCALING if 'scaling' in needs else ''}."
    return DecisionPicture(
        lay_out_bars(result, cluster), _jobs(result), rows, until_s, _sentence(result), about
    )


_SCALING: Final = ", which here may run on fewer or more GPUs than they ask for"
_STAFFED: Final = ", which here are made of workers and parameter servers; E and F run on cores"


def lay_out_bars(result: RunResult, cluster: Cluster) -> pd.DataFrame:
    """Return the bars of a run: its jobs on the GPUs, or cores, of their nodes.

    Parameters
    ----------
    result, cluster : RunResult, Cluster
        A run on few nodes; an overflow node is not drawn.

    Returns
    -------
    DataFrame
        As in `DecisionPicture`. A job that continues on as many GPUs keeps its lanes; others take
        the lowest free ones.
    """
    held = result.placements.merge(
        result.segments[["job", "t0", "t1"]], left_on="segment", right_index=True
    ).sort_values(["t0", "segment"], kind="stable")
    starts = np.cumsum([0, *(node.gpus or node.cpus / CORES_PER_LANE for node in cluster.nodes)])
    rows: list[tuple[str, float, float, float, float, str]] = []
    for number, node in enumerate(cluster.nodes):
        each = 1.0 if node.gpus else 1 / CORES_PER_LANE
        cells = _NodeLanes(int(node.gpus or node.cpus))
        column = "gpus" if node.gpus else "cpus"
        on_node = held[held["node"] == number]
        amounts = (on_node["count"] * on_node[column]).groupby(on_node["segment"], sort=False).sum()
        spans = (
            result.segments.loc[amounts.index, ["job", "t0", "t1"]].to_numpy(np.float64).tolist()
        )
        for (job, t0, t1), amount in zip(
            spans, np.ceil(amounts.to_numpy()).astype(int).tolist(), strict=True
        ):
            what = (
                f"{plural(amount, 'GPU')}, {node.gpu_type}" if node.gpus else plural(amount, "core")
            )
            runs = cells.take(int(job), amount, (t0, t1))
            rows += [
                (
                    str(_JOBS["job_id"][int(job)]),
                    float(starts[number]) + low * each,
                    size * each,
                    t0,
                    t1,
                    what,
                )
                for low, size in runs
            ]
    return pd.DataFrame(rows, columns=["job", "lane", "lanes", "t0_s", "t1_s", "what"])


class _NodeLanes:
    """The GPUs or cores of one node: when each becomes free, and its last job."""

    def __init__(self, count: int) -> None:
        self._until_s: NDArray[np.float64] = np.zeros(count)
        self._last = np.full(count, -1)

    def take(self, job: int, count: int, span_s: tuple[float, float]) -> list[tuple[int, int]]:
        """Assign free units to a job for a time span; return them as (first unit, count) runs.

        Units that the job held last come first. If too few are free, the job gets fewer.
        """
        free = self._until_s <= span_s[0] + _SOON
        order = np.lexsort((np.arange(len(free)), self._last != job, ~free))
        taken = np.sort(order[: min(count, int(free.sum()))])
        self._until_s[taken], self._last[taken] = span_s[1], job
        groups = np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1)
        return [(int(group[0]), len(group)) for group in groups if len(group)]


def _jobs(result: RunResult) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "job": list(_JOBS["job_id"]),
            "submit_s": result.jobs["submit_s"].to_numpy(),
            "finish_s": result.jobs["finish_s"].to_numpy(),
        }
    )


def _sentence(result: RunResult) -> str:
    """Return the sentence on mean completion time, last finish, stops and unfinished jobs."""
    jobs = result.jobs
    completed = jobs[jobs["outcome"] == "completed"]
    mean_s = float((completed["finish_s"] - completed["submit_s"]).mean())
    stopped = int(jobs["preemptions"].sum())
    stops_text = (
        "no job is stopped or moved"
        if not stopped
        else f"jobs are stopped, moved or resized {stopped} time{'' if stopped == 1 else 's'}"
    )
    missing = (
        f"; {plural(len(jobs) - len(completed), 'job')} never ends"
        if len(completed) < len(jobs)
        else ""
    )
    return (
        f"Jobs are done after {time(mean_s)} on average, the last after"
        f" {time(float(completed['finish_s'].max()))}; {stops_text}{missing}."
    )


def decision_time_text(entries: Iterable[StoredResult]) -> str:
    """Return the mean and longest decision time of stored results, as text; "" = unknown."""
    times = [
        (entry.summary.get("decision_ms_mean"), entry.summary.get("decision_ms_max"))
        for entry in entries
    ]
    measured = [
        (mean, longest) for mean, longest in times if mean is not None and longest is not None
    ]
    if not measured:
        return ""
    mean, longest = (
        float(np.mean([mean for mean, _ in measured])),
        max(longest for _, longest in measured),
    )
    return f"Computing time per decision: {_ms(mean)} (max {_ms(longest)})."


def _ms(value: float) -> str:
    return (
        f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms" if value >= 0.1 else "under 0.1 ms"
    )
