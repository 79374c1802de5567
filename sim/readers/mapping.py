"""Which column of an unknown table probably means what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sim.readers.sniff import plain
from sim.trace import COLUMNS, REQUIRED

# Names seen in public traces and exports, the most telling first.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "job_id": ("job_id", "jobid", "id", "job", "job_name", "uuid", "jobidraw"),
    "submit_time_s": (
        "submit_time_s",
        "submit_time",
        "submission_time",
        "submitted_time",
        "submitted",
        "submitted_at",
        "queued_at",
        "created_at",
        "submit",
        "arrival_time",
        "arrival_s",
        "arrival",
        "timestamp",
        "time",
    ),
    "num_gpus": (
        "num_gpus",
        "num_gpu",
        "gpu_num",
        "gpus",
        "gpu_count",
        "n_gpus",
        "ngpus",
        "gpu",
        "num_replicas",
    ),
    "duration_s": (
        "duration_s",
        "duration",
        "run_time",
        "runtime",
        "service_sec",
        "service_time",
        "elapsed",
        "elapsedraw",
        "run_time_s",
        "runtime_s",
        "took",
    ),
    "start_time_s": ("start_time_s", "start_time", "start", "started_at", "started"),
    "end_time_s": (
        "end_time_s",
        "end_time",
        "end",
        "finish_time",
        "finished_at",
        "finished",
        "ended_at",
        "ended",
        "completed_at",
    ),
    "status": ("status", "state", "new_status"),
    "user": ("user", "user_id", "username", "user_name", "id_user", "account", "owner", "who"),
    "vc": ("vc", "virtual_cluster", "cluster", "queue", "tenant", "organization"),
    "name": ("name", "jobname", "job_title"),
    "model": ("model", "model_name", "application"),
    "batch_size": ("batch_size", "batchsize"),
    "total_steps": ("total_steps",),
    "gpu_type": ("gpu_type", "gpu_model"),
    "gpu_types_allowed": ("gpu_types_allowed",),
    "min_gpus": ("min_gpus", "min_num_gpus"),
    "max_gpus": ("max_gpus", "max_num_gpus"),
    "min_batch": ("min_batch", "min_batch_size", "min_bsz"),
    "max_batch": ("max_batch", "max_batch_size", "max_bsz"),
    "scaling_exponent": ("scaling_exponent",),
    "serial_fraction": ("serial_fraction",),
    "spread_slowdown": ("spread_slowdown",),
    "cpus": ("cpus", "num_cpus", "cpu_num", "ncpus", "num_cpu"),
    "mem_gb": ("mem_gb", "memory_gb"),
    "workers": ("workers",),
    "servers": ("servers",),
    "worker_cpus": ("worker_cpus",),
    "worker_mem_gb": ("worker_mem_gb",),
    "server_cpus": ("server_cpus",),
    "server_mem_gb": ("server_mem_gb",),
    "asynchronous": ("asynchronous",),
    "worker_mem_need_gb": ("worker_mem_need_gb",),
    "server_mem_need_gb": ("server_mem_need_gb",),
    "server_mem_growth_gb": ("server_mem_growth_gb",),
    "predictable_after": ("predictable_after",),
    "time_limit_s": ("time_limit_s", "time_limit", "wall_time", "walltime"),
    "deadline_s": ("deadline_s", "deadline", "ddl"),
    "priority": ("priority",),
    "partition": ("partition",),
    "preemptible": ("preemptible",),
    "nodes": ("nodes", "num_nodes", "node_num", "nnodes", "reqnodes"),
    "tasks": ("tasks", "ntasks"),
    "tasks_per_node": ("tasks_per_node", "ntasks_per_node"),
    "cpus_per_task": ("cpus_per_task",),
    "mem_per_node_gb": ("mem_per_node_gb",),
    "mem_per_cpu_gb": ("mem_per_cpu_gb",),
    "gpu_fraction": ("gpu_fraction",),
    "gpu_mem_gb": ("gpu_mem_gb", "gpu_memory_gb"),
    "begin_s": ("begin_s", "begin_time"),
    "nice": ("nice",),
    "requeue": ("requeue",),
    "requeues": ("requeues", "restarts", "restart_cnt"),
    "account": ("account",),
    "qos": ("qos",),
    "constraint": ("constraint", "constraints", "features"),
    "gres": ("gres", "tres_per_node"),
    "exclusive": ("exclusive",),
    "reservation": ("reservation",),
    "dependency": ("dependency", "dependencies"),
    "array": ("array", "array_job_id"),
    "durations_by_type": ("durations_by_type",),
    "node_list": ("node_list", "nodelist"),
}


def guess_mapping(
    columns: Iterable[str], chosen: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Guess which column means what.

    Parameters
    ----------
    columns : iterable of str
        Names of the table, as written or plain.
    chosen : mapping or None
        Native -> source, as the user set it; kept, and its sources are not guessed for anything
        else. "" = leave this one out.

    Returns
    -------
    dict
        Native column -> plain source column; no source occurs twice.
    """
    present = list(dict.fromkeys(plain(str(column)) for column in columns))
    fixed = {native: plain(source) for native, source in (chosen or {}).items()}
    taken = set(fixed.values())
    mapping = {native: source for native, source in fixed.items() if source}
    for native in COLUMNS:
        if native in fixed:
            continue
        found = next(
            (alias for alias in ALIASES[native] if alias in present and alias not in taken), None
        )
        if found:
            mapping[native] = found
            taken.add(found)
    return mapping


def missing(mapping: Mapping[str, str]) -> tuple[str, ...]:
    """Return the required columns that a mapping of native to source columns does not give.

    A start and an end together give the duration, and an id is not needed.
    """
    spans = mapping.get("start_time_s") and mapping.get("end_time_s")
    return tuple(
        native
        for native in REQUIRED[1:]
        if not mapping.get(native) and not (native == "duration_s" and spans)
    )
