"""Edit clusters as tables, import them from files, and find jobs that fit nowhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from jobtraces.generate.profiles import PROFILES
from sim.cluster import Cluster, GpuType, NodeGroup, known_type
from sim.demand import GANG, SERVERS, TOGETHER, WORKERS, Demands, group_into_pools, limit_gpu_types
from sim.errors import ClusterError, ParameterError
from sim.metrics import node_table
from sim.metrics.gpu_seconds import absences, node_gpus, up_s
from sim.perf import PerfSpec
from sim.perf.lookup import used_types
from sim.perf.model import Fitting, Staffed
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.trace import Trace
from trainyard.clusters import cluster_warnings
from trainyard.clusters.kubernetes import (
    is_node_list,
    is_node_yaml,
    parse_node_yaml,
    read_kubernetes,
)
from trainyard.clusters.node_lists import (
    ImportedCluster,
    is_sinfo,
    is_slurm,
    open_machine_table,
    read_node_table,
    read_sinfo,
    read_slurm,
    read_slurm_json,
)
from trainyard.clusters.virtual_clusters import import_virtual_clusters
from trainyard.formatting import gpu_type, job_counts, plural
from trainyard.study import files, gpu_types
from trainyard.study.document import parse_json
from trainyard.study.scenario import TraceSpec
from trainyard.traces.fitting import GUESS_PREFIX, fit_cluster
from trainyard.traces.samples import SAMPLES, SampleInfo
from trainyard.traces.sources import load_source

GROUP_COLUMNS: Final = (
    "name",
    "nodes",
    "gpus_per_node",
    "gpu_type",
    "cores",
    "memory_gb",
    "rack_size",
    "partitions",
    "price_per_node_hour",
)
_MAX_SHOWN_JOBS: Final = 500
_MAX_BYTES: Final = 50_000_000
"""Size limit for cluster files."""
_REQUEST_COLUMNS: Final = (
    "cpus",
    "mem_gb",
    "workers",
    "worker_cpus",
    "worker_mem_gb",
    "servers",
    "server_cpus",
    "server_mem_gb",
)


@dataclass(frozen=True)
class ClusterPreset:
    """A cluster to start from.

    Parameters
    ----------
    name, help : str
        Label and description in a list.
    cluster : Cluster
        The cluster.
    unknown_types : tuple of str
        GPU types of unknown speed; the cluster has placeholders for their figures.
    """

    name: str
    help: str
    cluster: Cluster
    unknown_types: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterTotals:
    """Totals of a cluster.

    Parameters
    ----------
    nodes, gpus : int
        Numbers of nodes and GPUs.
    equivalents : float
        GPUs weighted by the speed of their type relative to the reference type.
    price_per_hour : float, USD
        Price of all nodes.
    groups : tuple of str
        One text per node group, such as "4 × 8 a100".
    """

    nodes: int
    gpus: int
    equivalents: float
    price_per_hour: float
    groups: tuple[str, ...]


def group_table(cluster: Cluster) -> pd.DataFrame:
    """Return one row per node group with `GROUP_COLUMNS`; unlimited resources are empty."""
    rows = [
        {
            "name": group.name,
            "nodes": group.count,
            "gpus_per_node": group.gpus,
            "gpu_type": group.gpu_type,
            "cores": _finite_or_none(group.cpus),
            "memory_gb": _finite_or_none(group.mem_gb),
            "rack_size": group.rack_size or None,
            "partitions": ", ".join(group.partitions),
            "price_per_node_hour": group.price_per_hour,
        }
        for group in cluster.groups
    ]
    table = pd.DataFrame(rows, columns=list(GROUP_COLUMNS))
    numbers = dict.fromkeys(
        ("cores", "memory_gb", "price_per_node_hour"), "float64"
    ) | dict.fromkeys(("nodes", "gpus_per_node", "rack_size"), "Int64")
    return table.astype(numbers)


def type_table(cluster: Cluster) -> pd.DataFrame:
    """Return one row per GPU type: gpu_type, speed, price_per_gpu_hour (NaN = no price)."""
    rows = [
        (kind.name, float(kind.speed), float(kind.price_per_gpu_hour) or math.nan)
        for kind in cluster.types
    ]
    return pd.DataFrame(rows, columns=["gpu_type", "speed", "price_per_gpu_hour"])


def cluster_from_tables(groups: pd.DataFrame, types: pd.DataFrame, before: Cluster) -> Cluster:
    """Return the cluster of two edited tables, named "(edited)" unless it is unchanged.

    Parameters
    ----------
    groups, types : DataFrame
        Edited tables of `group_table` and `type_table`; rows without a number of nodes are skipped.
    before : Cluster
        The cluster before the edit. Its name stays, and its dated changes if the nodes are
        unchanged. For equal tables this object is returned.

    Raises
    ------
    ClusterError
        If a cell is invalid; the message names the row.
    """
    node_groups = tuple(
        _keep_hidden_fields(_parse_group(row, f"Row {number}"), before)
        for number, row in enumerate(_table_rows(groups), 1)
        if not _is_empty(row["nodes"])
    )
    used = {group.gpu_type for group in node_groups}
    kinds = tuple(
        GpuType(
            str(row["gpu_type"]),
            _parse_number(row["speed"], f"GPU type {row['gpu_type']}: the speed"),
            0.0
            if _is_empty(row["price_per_gpu_hour"])
            else _parse_number(row["price_per_gpu_hour"], "the price"),
        )
        for row in _table_rows(types)
        if row["gpu_type"] in used
    )
    changes = (
        before.changes
        if [group.count for group in node_groups] == [group.count for group in before.groups]
        else ()
    )
    cluster = gpu_types.check_types(
        Cluster(node_groups, kinds, changes, before.name, before.switches),
        [kind.name for kind in kinds],
    )
    if cluster.to_json() == before.to_json():
        return before
    return replace(
        cluster, name=before.name if before.name.endswith("(edited)") else f"{before.name} (edited)"
    )


def cluster_presets(trace: Trace | None = None) -> tuple[ClusterPreset, ...]:
    """Return presets: fitted to the trace, if given, of each sample, and one of 128 H100."""
    choices = []
    for name, sample in SAMPLES.items():
        cluster = load_source(TraceSpec(f"sample:{name}")).cluster
        assert cluster is not None, "every sample comes with a cluster"
        choices.append(
            ClusterPreset(
                _sample_cluster_title(sample),
                f"The cluster of the sample “{sample.title}”.",
                cluster,
            )
        )
    if trace is not None:
        try:
            cluster, origin = fit_cluster(trace)
            name = (
                "Guess from the trace"
                if cluster.name.startswith(GUESS_PREFIX)
                else "Each virtual cluster at its recorded peak"
            )
            choices.insert(0, ClusterPreset(name, origin, cluster))
        except ClusterError:
            pass  # the jobs request more than any cluster has: no preset fits
    uniform = Cluster((NodeGroup(16, 8, "h100", rack_size=4),), name="H100")
    return (*choices, ClusterPreset(uniform.name, "16 nodes of 8 H100 in racks of 4.", uniform))


def _sample_cluster_title(sample: SampleInfo) -> str:
    """Return the name of a sample's cluster, with the origin of the workload it imitates."""
    title = PROFILES[sample.recipe.profile].title if sample.recipe is not None else ""
    return title if title.startswith(sample.cluster_name) else sample.cluster_name


def read_cluster(path: Path, epoch: str = "") -> ImportedCluster:
    """Read a cluster file from a path, see `import_cluster`; raise for unknown GPU types.

    For ``slurm.conf``, included files and the ``gres.conf`` in its folder are read too.

    Raises
    ------
    TrainyardError
        If the file cannot be read.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ParameterError(
                f"{path}: the file is too large for a cluster description. Check the path."
            )
        content = path.read_bytes()
    except OSError as error:
        raise ParameterError(
            f"{path}: the cluster description cannot be read ({error.strerror or error}). Check the"
            " path and its permissions."
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except ValueError as error:
        raise ParameterError(
            f"{path}: the cluster description is not a text file. Check the path."
        ) from error
    gres = ""
    if path.suffix == ".conf" or is_slurm(text):
        content = files.expand_includes(text, path, "Include").encode()
        if (gres_path := path.with_name("gres.conf")).exists():
            gres = files.expand_includes(
                files.read_included(gres_path, str(path)), gres_path, "Include"
            )
    imported = import_cluster(path.name, content, epoch, gres=gres)
    if imported.unknown_types:
        raise gpu_types.UnknownGpuTypeError(imported.cluster, imported.unknown_types)
    return imported


def import_cluster(
    name: str, content: bytes, epoch: str = "", *, include_down: bool = False, gres: str = ""
) -> ImportedCluster:
    """Read a cluster file; its format is recognized by content, JSON by its suffix.

    Parameters
    ----------
    name : str
        Name of the file.
    content : bytes
        A cluster in JSON, alone or within a scenario; ``slurm.conf``, or the output of ``scontrol
        show node`` or ``sinfo``, as text or JSON; the output of ``kubectl get nodes`` as JSON or
        YAML; or a table of nodes, of kinds of nodes, or of virtual clusters and their sizes.
    epoch : str
        Instant of second 0 of the trace, for a table of daily sizes; "" = midnight of its first
        day.
    include_down : bool
        Whether to include nodes listed as down, drained, reserved or not ready.
    gres : str
        The text of ``gres.conf``, see `read_slurm`.

    Raises
    ------
    TrainyardError
        If the file cannot be read.
    """
    text = content.decode("utf-8-sig", "replace")
    if name.lower().endswith(".json"):
        return _read_json(parse_json(text, name), name, include_down=include_down)
    if is_node_yaml(text):
        return read_kubernetes(parse_node_yaml(text, name), name, include_down=include_down)
    if is_slurm(text):
        return read_slurm(text, name, include_down=include_down, gres=gres)
    if is_sinfo(text):
        return read_sinfo(text, name, include_down=include_down)
    opened = open_machine_table(content, name)
    return read_node_table(opened) or import_virtual_clusters(opened, epoch)


def _read_json(data: dict[str, Any], name: str, *, include_down: bool) -> ImportedCluster:
    """Read a cluster from JSON of Slurm, Kubernetes or Trainyard, also within a scenario."""
    if isinstance(data.get("nodes"), list):
        return read_slurm_json(data, name, include_down=include_down)
    if is_node_list(data):
        return read_kubernetes(data, name, include_down=include_down)
    is_scenario = "groups" not in data and isinstance(data.get("cluster"), dict)
    return ImportedCluster(gpu_types.from_json(data["cluster"] if is_scenario else data))


def cluster_totals(cluster: Cluster) -> ClusterTotals:
    """Return numbers of nodes and GPUs, price and a text per node group of a cluster."""
    speeds = {kind.name: kind.speed for kind in cluster.types}
    weighted = sum(
        group.count * group.gpus * speeds.get(group.gpu_type, 1.0) for group in cluster.groups
    )
    groups = tuple(
        (
            f"{group.count} × {group.gpus} {group.gpu_type}"
            if group.gpus
            else plural(group.count, "CPU node")
        )
        for group in cluster.groups
    )
    return ClusterTotals(len(cluster.nodes), cluster.gpus, weighted, cluster.price_per_hour, groups)


_OBSTACLE_TEXTS: Final = {
    GANG: "a gang of that size on one GPU type on which it can run",
    WORKERS: "the cores and memory of their GPUs or workers",
    SERVERS: "the cores and memory of their parameter servers",
    TOGETHER: "their workers and parameter servers together",
}


class UnschedulableJobs(NamedTuple):
    """Jobs that even the empty cluster cannot hold.

    Parameters
    ----------
    jobs : int
        Number of jobs that cannot be held at any size at which they may run.
    need_resizing : int
        Number of other jobs that cannot be held at the requested size, only if resized.
    first_jobs : DataFrame
        The first jobs of both kinds, with the request columns of the trace.
    obstacle_counts : mapping of int
        Obstacle, see `sim.demand.Demands.obstacles` -> number of the first kind of jobs.
    mask : array of bool of shape (jobs of the trace,)
        The first kind of jobs.
    type_notes : tuple of str
        Sentences about GPU types of the trace that are absent here or of unknown speed.
    need_mixing : int
        Number of the first kind of jobs that a policy can start on a mix of GPU types.
    doubts : tuple of str
        Sentences on doubts about comparisons, see `trainyard.clusters.cluster_warnings`.
    """

    jobs: int
    need_resizing: int
    first_jobs: pd.DataFrame
    obstacle_counts: Mapping[str, int]
    mask: NDArray[np.bool_]
    type_notes: tuple[str, ...] = ()
    need_mixing: int = 0
    doubts: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """Return sentences on these jobs, on GPU types and on doubts, as warnings before a run."""
        sentences = [
            f"{plural(jobs, 'job')} can never start: even the empty cluster has no room for"
            f" {_OBSTACLE_TEXTS[obstacle]}."
            for obstacle, jobs in self.obstacle_counts.items()
        ]
        if sentences:
            sentences[-1] += (
                " They count as impossible and delay no other job. Add nodes, or keep the jobs."
            )
        if self.need_mixing:
            sentences.append(
                f"Only a policy that mixes GPU types can start {self.need_mixing:,} of them."
            )
        if self.need_resizing:
            subject = "more" if self.jobs else "can never start at the requested size"
            sentences.append(
                f"{plural(self.need_resizing, 'job')} {subject}: only a policy that resizes jobs"
                " can start them, on fewer GPUs."
            )
        return (*sentences, *self.type_notes, *self.doubts)


def find_unschedulable_jobs(
    trace: Trace, cluster: Cluster, perf: PerfSpec | None = None
) -> UnschedulableJobs:
    """Return counts, mask and first rows of jobs that even the empty cluster cannot hold.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    perf : PerfSpec or None
        The performance model; it may exclude GPU types for a job, and give its smallest size.

    Raises
    ------
    TrainyardError
        If the performance model cannot be used with these jobs and machines.

    Notes
    -----
    A gang needs nodes of one GPU type; a policy that mixes types may still start some of the jobs.
    """
    model = perf.bind(trace, cluster) if perf is not None else None
    placeable = (
        limit_gpu_types(trace, cluster, model.fits()) if isinstance(model, Fitting) else trace
    )
    demands = Demands(
        placeable,
        cluster,
        group_into_pools(cluster),
        roles=model.roles() if isinstance(model, Staffed) else None,
    )
    at_request = demands.unschedulable(mixed=False)
    smallest = None if model is None else model.limits().min_gpus
    obstacles = demands.obstacles(smallest, mixed=False)
    columns = [
        name
        for name in ("job_id", "num_gpus", "gpu_types_allowed", *_REQUEST_COLUMNS, "user")
        if name in trace.frame
    ]
    obstacle_counts = {
        obstacle: jobs
        for obstacle in _OBSTACLE_TEXTS
        if (jobs := int(np.count_nonzero(obstacles == obstacle)))
    }
    mask = obstacles != ""
    count = int(np.count_nonzero(mask))
    type_notes = (
        describe_absent_types(trace, cluster)
        if isinstance(perf, Profiled)
        else (
            *describe_absent_types(trace, cluster),
            *_describe_types_without_speed(trace, cluster),
        )
    )
    need_mixing = count - int(np.count_nonzero(demands.obstacles(smallest, mixed=True)))
    return UnschedulableJobs(
        count,
        int(np.count_nonzero(at_request)) - count,
        trace.frame.loc[at_request, columns].head(_MAX_SHOWN_JOBS),
        obstacle_counts,
        mask,
        type_notes,
        need_mixing,
        tuple(
            cluster_warnings.find_doubts(
                trace, cluster, mask, measured=isinstance(perf, Profiled)
            ).values()
        ),
    )


def describe_absent_types(trace: Trace, cluster: Cluster) -> tuple[str, ...]:
    """Return a sentence on requested GPU types that the cluster lacks, () if there are none."""
    requested, cluster_types = trace.texts("gpu_types_allowed"), set(used_types(cluster))
    absent = {
        str(text): int((requested.codes == code).sum())
        for code, text in enumerate(requested.categories)
        if text and not cluster_types & set(str(text).split("|"))
    }
    counts = {text.replace("|", " or "): jobs for text, jobs in absent.items() if jobs}
    if not counts:
        return ()
    return (
        (
            f"The cluster lacks GPU types that jobs request: {job_counts(counts)}. These jobs count"
            " as impossible: add nodes of such a type, or keep the jobs."
        ),
    )


def _describe_types_without_speed(trace: Trace, cluster: Cluster) -> tuple[str, ...]:
    """Return a sentence on recorded GPU types of unknown speed and not in the cluster, or ()."""
    recorded = trace.texts("gpu_type")
    without_speed = {
        str(kind): int((recorded.codes == code).sum())
        for code, kind in enumerate(recorded.categories)
        if kind and kind not in cluster.type_index and known_type(str(kind)) is None
    }
    counts = {kind: jobs for kind, jobs in without_speed.items() if jobs}
    if not counts:
        return ()
    advice = (
        "Their durations count as measured on the reference type. Correct the column gpu_type if"
        " this is wrong."
    )
    unknown = f"Jobs were recorded on GPU types of unknown speed: {job_counts(counts)}."
    return (f"{unknown} {advice}",)


def offered_load(
    trace: Trace, cluster: Cluster, mask: NDArray[np.bool_] | None = None, reference: str = ""
) -> float:
    """Return the GPU time that jobs request over the GPU time of the cluster.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    mask : bool array or None
        Jobs to count; None = all.
    reference : str
        GPU type on which durations without a recorded type were measured; "" = the first one.

    Returns
    -------
    float
        Requested GPU-hours at the speed of the fastest type over the GPU-hours of the cluster, from
        the first to the last submission; inf without such a span. Dated changes of nodes count,
        failures do not.
    """
    span_s = trace.span_s
    present_s = up_s(absences(cluster, span_s), len(cluster.nodes), 0.0, span_s)
    capacity_gpu_s = float(np.dot(node_gpus(cluster), present_s))
    if capacity_gpu_s <= 0:
        return math.inf
    model = Rigid(reference).bind(trace, cluster)
    gpu_s = trace.numbers("num_gpus") * model.work() / model.fastest()
    return float(gpu_s[mask].sum() if mask is not None else gpu_s.sum()) / capacity_gpu_s


def load_basis(cluster: Cluster) -> str:
    """Return what `offered_load` is a share of: GPU time, or that of the fastest type only."""
    used = {group.gpu_type for group in cluster.groups if group.gpus}
    kinds = sorted((kind for kind in cluster.types if kind.name in used), key=lambda one: one.speed)
    if len({kind.speed for kind in kinds}) < 2:
        return "of GPU time"
    return f"if all GPUs were {gpu_type(kinds[-1].name)}"


def node_rows(cluster: Cluster) -> pd.DataFrame:
    """Return one row per node for the rack chart, see `sim.metrics.node_table`."""
    return node_table(cluster)


def _table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as mappings."""
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _finite_or_none(value: float) -> float | None:
    """Return a limit as a cell: None without a limit."""
    return None if math.isinf(value) else float(value)


def _is_empty(value: Any) -> bool:
    """Return True if a cell of an edited table is empty."""
    return (
        value is None
        or value is pd.NA
        or (isinstance(value, float) and math.isnan(value))
        or value == ""
    )


def _parse_group(row: Mapping[str, Any], where: str) -> NodeGroup:
    """Return the node group of a row of the edited table; raise for an invalid cell.

    `where` names the row in messages.
    """

    def parse_integer(column: str, what: str) -> int:
        """Return a cell as a whole number, 0 if empty; raise if it is a fraction."""
        value = 0.0 if _is_empty(row[column]) else _parse_number(row[column], f"{where}: {what}")
        if value != int(value):
            raise ClusterError(f"{where} of the cluster: {what} is {value:g}; use a whole number.")
        return int(value)

    def parse_limit(column: str, what: str) -> float:
        return (
            math.inf if _is_empty(row[column]) else _parse_number(row[column], f"{where}: {what}")
        )

    price = (
        None
        if _is_empty(row["price_per_node_hour"])
        else _parse_number(row["price_per_node_hour"], f"{where}: the price")
    )
    kind = "" if _is_empty(row["gpu_type"]) else str(row["gpu_type"]).strip().lower()
    name = "" if _is_empty(row["name"]) else str(row["name"]).strip()
    return NodeGroup(
        parse_integer("nodes", "the number of nodes"),
        parse_integer("gpus_per_node", "the number of GPUs"),
        kind,
        parse_limit("cores", "the number of cores"),
        parse_limit("memory_gb", "the memory"),
        parse_integer("rack_size", "the rack size"),
        _split_names(row["partitions"]),
        price,
        name,
    )


def _keep_hidden_fields(group: NodeGroup, before: Cluster) -> NodeGroup:
    """Return a group with fields that the table lacks, from the earlier group of its name.

    Host names stay only if the number of nodes is unchanged.
    """
    earlier = next((other for other in before.groups if other.name == group.name), None)
    if earlier is None:
        return group
    hosts = earlier.hosts if earlier.count == group.count else ""
    return replace(
        group,
        features=earlier.features,
        weight=earlier.weight,
        switch=earlier.switch,
        gres=earlier.gres,
        hosts=hosts,
    )


def _split_names(cell: Any) -> tuple[str, ...]:
    """Return the distinct names in a comma-separated cell, in order; () if it is empty."""
    parts: Sequence[str] = () if _is_empty(cell) else str(cell).split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _parse_number(value: Any, what: str) -> float:
    """Return a cell as a number of at least 0, or raise; `what` names it in messages."""
    try:
        number = math.nan if _is_empty(value) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ClusterError(
            f"{what} is {value}, which is not a number. Correct the cell."
        ) from error
    if not 0 <= number < math.inf:
        raise ClusterError(
            f"{what} is {value}; it must be a number of at least 0. Correct the cell."
        )
    return number
