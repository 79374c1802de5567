"""A cluster as the tables a page edits: node groups and GPU types, with totals, presets and the
jobs that fit nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster, GpuType, NodeGroup, known_type
from sim.demand import GANG, SERVERS, TOGETHER, WORKERS, Demands, group_into_pools, limit_gpu_types
from sim.errors import ClusterError, ParameterError
from sim.metrics import node_table
from sim.metrics.usage import absences, node_gpus, up_s
from sim.perf import PerfSpec
from sim.perf.lookup import used_types
from sim.perf.model import Fitting, Staffed
from sim.perf.profiled import Profiled
from sim.perf.rigid import Rigid
from sim.trace import Trace
from trainyard.clusters import doubts
from trainyard.clusters.homes import from_homes
from trainyard.clusters.kubernetes import from_kubernetes, from_yaml, is_nodes, is_yaml
from trainyard.clusters.node_lists import (
    Imported,
    from_sinfo,
    from_slurm,
    from_slurm_json,
    from_table,
    is_sinfo,
    is_slurm,
    open_machines,
)
from trainyard.study import files, gpu_types
from trainyard.study.document import parse_json
from trainyard.study.scenario import TraceSpec
from trainyard.text import job_counts, plural
from trainyard.traces.fitting import cluster_for
from trainyard.traces.samples import SAMPLES
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
_SHOWN_JOBS: Final = 500
_MOST_BYTES: Final = 50_000_000
"""Of a cluster's file."""
_ASKED: Final = (
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
        What a list shows.
    cluster : Cluster
        The machines.
    unknown : tuple of str
        GPU types of which no speed is known; the cluster has placeholders for their figures.
    """

    name: str
    help: str
    cluster: Cluster
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Totals:
    """What a cluster amounts to.

    Parameters
    ----------
    nodes, gpus : int
        All of them.
    equivalents : float
        GPUs weighted by the speed of their type against the reference type.
    price_per_hour : float, USD
        All nodes.
    by_type : tuple of str
        One text per node group, e.g. "4 x 8 a100".
    """

    nodes: int
    gpus: int
    equivalents: float
    price_per_hour: float
    by_type: tuple[str, ...]


def group_table(cluster: Cluster) -> pd.DataFrame:
    """Return one row per node group with the columns of `GROUP_COLUMNS`; what is not modelled is
    empty.
    """
    rows = [
        {
            "name": group.name,
            "nodes": group.count,
            "gpus_per_node": group.gpus,
            "gpu_type": group.gpu_type,
            "cores": _open(group.cpus),
            "memory_gb": _open(group.mem_gb),
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
    """Return one row per GPU type: gpu_type, speed, price_per_gpu_hour (empty = none)."""
    rows = [
        (kind.name, float(kind.speed), float(kind.price_per_gpu_hour) or math.nan)
        for kind in cluster.types
    ]
    return pd.DataFrame(rows, columns=["gpu_type", "speed", "price_per_gpu_hour"])


def cluster_from_tables(groups: pd.DataFrame, types: pd.DataFrame, before: Cluster) -> Cluster:
    """Return the cluster that two edited tables describe.

    Parameters
    ----------
    groups, types : DataFrame
        As `group_table` and `type_table` made them, edited; rows without a number of nodes are not
        there yet and are left out.
    before : Cluster
        Where the name, and the dated changes if the nodes are the same, come from. Equal tables
        return this very object.

    Raises
    ------
    ClusterError
        If a cell cannot be used; names the row.
    """
    made = tuple(
        _described(_group(row, at), before)
        for at, row in enumerate(_records(groups), 1)
        if not _missing(row["nodes"])
    )
    used = {group.gpu_type for group in made}
    kinds = tuple(
        GpuType(
            str(row["gpu_type"]),
            _number(row["speed"], f"GPU type {row['gpu_type']}: the speed"),
            0.0
            if _missing(row["price_per_gpu_hour"])
            else _number(row["price_per_gpu_hour"], "the price"),
        )
        for row in _records(types)
        if row["gpu_type"] in used
    )
    kept = (
        before.changes
        if [group.count for group in made] == [group.count for group in before.groups]
        else ()
    )
    cluster = gpu_types.check_types(
        Cluster(made, kinds, kept, before.name, before.switches), [kind.name for kind in kinds]
    )
    if cluster.to_json() == before.to_json():
        return before
    return replace(
        cluster, name=before.name if before.name.endswith("(edited)") else f"{before.name} (edited)"
    )


def presets(trace: Trace | None = None) -> tuple[ClusterPreset, ...]:
    """Return the clusters to start from: those of the samples, one built from the trace, and a
    large uniform one.
    """
    found = []
    for name, sample in SAMPLES.items():
        cluster = load_source(TraceSpec(f"sample:{name}")).cluster
        assert cluster is not None, "every sample comes with a cluster"
        found.append(
            ClusterPreset(
                sample.cluster_name, f"The cluster of the sample “{sample.title}”.", cluster
            )
        )
    if trace is not None:
        try:
            cluster, how = cluster_for(trace)
            found.insert(0, ClusterPreset("From the trace", how, cluster))
        except ClusterError:
            pass  # a trace that asks for more than any cluster has leads to none to start from
    uniform = Cluster((NodeGroup(16, 8, "h100", rack_size=4),), name="128 x H100")
    return (*found, ClusterPreset(uniform.name, "16 nodes of 8 H100 in racks of 4.", uniform))


def read_cluster(path: Path, epoch: str = "") -> Imported:
    """Read a cluster from a file on the disk, of Slurm with what it includes and the ``gres.conf``
    beside it; otherwise as `import_cluster`.

    Raises
    ------
    TrainyardError
        If it cannot be read.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ParameterError(
                f"{path}: this file is too large to be a cluster description. Check the path."
            )
        content = path.read_bytes()
    except OSError as error:
        raise ParameterError(
            f"{path}: a cluster description cannot be read ({error.strerror or error}). Check the"
            " path and the rights."
        ) from error
    try:
        text = content.decode("utf-8-sig")
    except ValueError as error:
        raise ParameterError(
            f"{path}: this is not a cluster description, but something that is no text. Check the"
            " path."
        ) from error
    gres = ""
    if path.suffix == ".conf" or is_slurm(text):
        content = files.expand_includes(text, path, "Include").encode()
        if (beside := path.with_name("gres.conf")).exists():
            gres = files.expand_includes(files.read_included(beside, str(path)), beside, "Include")
    found = import_cluster(path.name, content, epoch, gres=gres)
    if found.unknown:
        raise gpu_types.UnknownGpuTypeError(found.cluster, found.unknown)
    return found


def import_cluster(
    name: str, content: bytes, epoch: str = "", *, away: bool = False, gres: str = ""
) -> Imported:
    """Read a cluster file of any kind that is known; its content decides, but that the suffix
    ``.json`` tells JSON from text.

    Parameters
    ----------
    name : str
        Of the file.
    content : bytes
        A description of ours, alone or within a scenario; Slurm's slurm.conf, or what ``scontrol
        show node`` or ``sinfo`` prints, as text or JSON; ``kubectl get nodes`` as JSON or YAML; or
        a table: of nodes one by one or of kinds of nodes, or of virtual clusters and their sizes.
    epoch : str
        Instant of second 0 of the trace, for a table of daily sizes; "" = midnight of its first
        day.
    away : bool
        Whether nodes count that their own list calls down, drained, reserved or not ready.
    gres : str
        Beside a slurm.conf the text of ``gres.conf``, see `from_slurm`.

    Raises
    ------
    TrainyardError
        If it cannot be read.
    """
    text = content.decode("utf-8-sig", "replace")
    if name.lower().endswith(".json"):
        return _from_json(parse_json(text, name), name, away=away)
    if is_yaml(text):
        return from_kubernetes(from_yaml(text, name), name, away=away)
    if is_slurm(text):
        return from_slurm(text, name, away=away, gres=gres)
    if is_sinfo(text):
        return from_sinfo(text, name, away=away)
    opened = open_machines(content, name)
    return from_table(opened) or from_homes(opened, epoch)


def _from_json(data: dict[str, Any], name: str, *, away: bool) -> Imported:
    if isinstance(data.get("nodes"), list):
        return from_slurm_json(data, name, away=away)
    if is_nodes(data):
        return from_kubernetes(data, name, away=away)
    inside = "groups" not in data and isinstance(data.get("cluster"), dict)
    return Imported(gpu_types.from_json(data["cluster"] if inside else data))


def totals(cluster: Cluster) -> Totals:
    """Return what a cluster amounts to."""
    speeds = {kind.name: kind.speed for kind in cluster.types}
    weighted = sum(
        group.count * group.gpus * speeds.get(group.gpu_type, 1.0) for group in cluster.groups
    )
    shapes = tuple(
        (
            f"{group.count} × {group.gpus} {group.gpu_type}"
            if group.gpus
            else plural(group.count, "CPU node")
        )
        for group in cluster.groups
    )
    return Totals(len(cluster.nodes), cluster.gpus, weighted, cluster.price_per_hour, shapes)


_LACKS: Final = {
    GANG: "a gang of that size on GPUs of one type on which it runs",
    WORKERS: "the cores and memory that come with their GPUs or workers",
    SERVERS: "the cores and memory of their parameter servers",
    TOGETHER: "their workers and parameter servers together",
}


class Hopeless(NamedTuple):
    """Jobs that even the empty cluster cannot hold.

    Parameters
    ----------
    jobs : int
        At any size at which they may run.
    unless_resized : int
        More of them at the size they ask for: only a policy that resizes can start those.
    first : DataFrame
        The first of both, their demands in the columns of the trace.
    causes : mapping of int
        Why the former cannot be held, see `sim.demand.Demands.obstacles` -> how many of them.
    never : array of bool of shape (jobs of the trace,)
        Who they are.
    types : tuple of str
        What is to be said of GPU types of the trace that mean nothing here.
    unless_mixed : int
        Of `jobs` those that a policy can start which lets a gang span GPU types.
    doubts : tuple of str
        What makes comparisons doubtful, see `trainyard.clusters.doubts`.
    """

    jobs: int
    unless_resized: int
    first: pd.DataFrame
    causes: Mapping[str, int]
    never: NDArray[np.bool_]
    types: tuple[str, ...] = ()
    unless_mixed: int = 0
    doubts: tuple[str, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """Return it in words, for before a run."""
        sentences = [
            f"{plural(jobs, 'job')} can never start: even the empty cluster has no room for"
            f" {_LACKS[why]}."
            for why, jobs in self.causes.items()
        ]
        if sentences:
            sentences[-1] += (
                " They count as impossible and delay no other job; add nodes, or keep them as"
                " they are."
            )
        if self.unless_mixed:
            sentences.append(
                f"Only a policy that mixes GPU types can start {self.unless_mixed:,} of them."
            )
        if self.unless_resized:
            more = "more" if self.jobs else "can never start at the size asked for"
            sentences.append(
                f"{plural(self.unless_resized, 'job')} {more}: only a policy that resizes jobs can"
                " start them, on fewer GPUs."
            )
        return (*sentences, *self.types, *self.doubts)


def unschedulable(trace: Trace, cluster: Cluster, perf: PerfSpec | None = None) -> Hopeless:
    """Return which jobs even the empty cluster cannot hold.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    perf : PerfSpec or None
        A model under which some jobs do not fit on some GPU types narrows where they may run; one
        that scales says how small they may be.

    Raises
    ------
    TrainyardError
        If the performance model does not work with these jobs and machines.

    Notes
    -----
    A gang is held by nodes of one GPU type; a policy that mixes types may still start some of
    these.
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
    asked = demands.unschedulable(mixed=False)
    smallest = None if model is None else model.limits().min_gpus
    why = demands.obstacles(smallest, mixed=False)
    columns = [
        name
        for name in ("job_id", "num_gpus", "gpu_types_allowed", *_ASKED, "user")
        if name in trace.frame
    ]
    causes = {cause: jobs for cause in _LACKS if (jobs := int(np.count_nonzero(why == cause)))}
    never = why != ""
    count = int(np.count_nonzero(never))
    types = (
        absent_types(trace, cluster)
        if isinstance(perf, Profiled)
        else (*absent_types(trace, cluster), *_types_without_speed(trace, cluster))
    )
    mixing = count - int(np.count_nonzero(demands.obstacles(smallest, mixed=True)))
    return Hopeless(
        count,
        int(np.count_nonzero(asked)) - count,
        trace.frame.loc[asked, columns].head(_SHOWN_JOBS),
        causes,
        never,
        types,
        mixing,
        tuple(doubts.found(trace, cluster, never, measured=isinstance(perf, Profiled)).values()),
    )


def absent_types(trace: Trace, cluster: Cluster) -> tuple[str, ...]:
    """Name the GPU types that jobs insist on and that a cluster does not have, with their jobs; one
    sentence, or none.
    """
    wanted, there = trace.texts("gpu_types_allowed"), set(used_types(cluster))
    absent = {
        str(text): int((wanted.codes == at).sum())
        for at, text in enumerate(wanted.categories)
        if text and not there & set(str(text).split("|"))
    }
    counts = {text.replace("|", " or "): jobs for text, jobs in absent.items() if jobs}
    if not counts:
        return ()
    return (
        (
            f"The cluster has no GPU of the types that jobs ask for: {job_counts(counts)}. They"
            " count as impossible; add nodes of such a type, or keep them as they are."
        ),
    )


def _types_without_speed(trace: Trace, cluster: Cluster) -> tuple[str, ...]:
    recorded = trace.texts("gpu_type")
    strange = {
        str(kind): int((recorded.codes == at).sum())
        for at, kind in enumerate(recorded.categories)
        if kind and kind not in cluster.type_index and known_type(str(kind)) is None
    }
    counts = {kind: jobs for kind, jobs in strange.items() if jobs}
    if not counts:
        return ()
    way = (
        "Their durations count as if measured on the reference type; correct the column gpu_type if"
        " that is wrong."
    )
    unknown = f"Jobs were recorded on GPU types of which no speed is known: {job_counts(counts)}."
    return (f"{unknown} {way}",)


def offered_load(
    trace: Trace, cluster: Cluster, among: NDArray[np.bool_] | None = None, reference: str = ""
) -> float:
    """Return how much jobs ask of a cluster while they come.

    Parameters
    ----------
    trace, cluster : Trace, Cluster
        Jobs and machines.
    among : bool array or None
        Jobs that count; None = all.
    reference : str
        GPU type that durations without a type of their own were measured on; "" = the first one.

    Returns
    -------
    float
        GPU-hours asked for, at the speed of the fastest type there, over the GPU-hours of the
        cluster from the first to the last submission; inf without such a span. Nodes count while
        the dated list of changes has them there; failures are not foreseen.
    """
    span_s = trace.span_s
    there = up_s(absences(cluster, span_s), len(cluster.nodes), 0.0, span_s)
    room = float(np.dot(node_gpus(cluster), there))
    if room <= 0:
        return math.inf
    model = Rigid(reference).bind(trace, cluster)
    asked = trace.numbers("num_gpus") * model.work() / model.fastest()
    return float(asked[among].sum() if among is not None else asked.sum()) / room


def nodes(cluster: Cluster) -> pd.DataFrame:
    """Return one row per node for the drawing of racks, see `sim.metrics.node_table`."""
    return node_table(cluster)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _open(value: float) -> float | None:
    return None if math.isinf(value) else float(value)


def _missing(value: Any) -> bool:
    return (
        value is None
        or value is pd.NA
        or (isinstance(value, float) and math.isnan(value))
        or value == ""
    )


def _group(row: Mapping[str, Any], at: int) -> NodeGroup:
    def whole(column: str, what: str) -> int:
        value = 0.0 if _missing(row[column]) else _number(row[column], f"Row {at}: {what}")
        if value != int(value):
            raise ClusterError(f"Row {at} of the cluster: {what} is {value:g}; use a whole number.")
        return int(value)

    def limit(column: str, what: str) -> float:
        return math.inf if _missing(row[column]) else _number(row[column], f"Row {at}: {what}")

    price = (
        None
        if _missing(row["price_per_node_hour"])
        else _number(row["price_per_node_hour"], f"Row {at}: the price")
    )
    kind = "" if _missing(row["gpu_type"]) else str(row["gpu_type"]).strip().lower()
    name = "" if _missing(row["name"]) else str(row["name"]).strip()
    return NodeGroup(
        whole("nodes", "the number of nodes"),
        whole("gpus_per_node", "the number of GPUs"),
        kind,
        limit("cores", "the number of cores"),
        limit("memory_gb", "the memory"),
        whole("rack_size", "the rack size"),
        _names(row["partitions"]),
        price,
        name,
    )


def _described(group: NodeGroup, before: Cluster) -> NodeGroup:
    """Keep what the table does not show, from the group of that name."""
    was = next((one for one in before.groups if one.name == group.name), None)
    if was is None:
        return group
    hosts = was.hosts if was.count == group.count else ""
    return replace(
        group,
        features=was.features,
        weight=was.weight,
        switch=was.switch,
        gres=was.gres,
        hosts=hosts,
    )


def _names(cell: Any) -> tuple[str, ...]:
    parts: Sequence[str] = () if _missing(cell) else str(cell).split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _number(value: Any, what: str) -> float:
    try:
        made = math.nan if _missing(value) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ClusterError(
            f"{what} is {value}, which is not a number. Correct the cell."
        ) from error
    if not 0 <= made < math.inf:
        raise ClusterError(
            f"{what} is {value}; it must be a number that is not negative. Correct the cell."
        )
    return made
