"""Converts the columns of a trace to jobs of the Slurm controller."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, isnan
from typing import Final

from allocators.sites.slurm.accounts import Qos
from allocators.sites.slurm.config import PartitionEntry, SlurmConfig
from allocators.sites.slurm.constraints import Alternative, alternatives
from allocators.sites.slurm.site import (
    MB_PER_GB,
    SlurmSite,
    billing_units,
    qos_preemption_levels,
    tres_weights,
)
from allocators.sites.slurm.state import Mask, SlurmJob
from sim.contract import Demand, JobId, View

_ARRAY: Final = re.compile(r"([^%\s\[]+).*?(?:%(\d+))?\]?")
_ASSUMED: Final = {
    "limit": "time limit",
    "features": "constraint that the cluster has no features for",
}


class Requests:
    """Builds the controller's jobs from the columns of a trace.

    Parameters
    ----------
    site : SlurmSite
        The parsed files.
    view : View
        The view at the first decision, for names and nodes.
    order : sequence of int
        Cluster index of each node of the controller.
    default_limit_s : float, seconds
        Time limit of jobs without one in partitions without a default.
    """

    def __init__(
        self, site: SlurmSite, view: View, order: Sequence[int], default_limit_s: float
    ) -> None:
        self._site, self._default_limit_s = site, default_limit_s
        machines = [view.cluster.nodes[node] for node in order]
        self._places = {node: place for place, node in enumerate(order)}
        self._every = (1 << len(machines)) - 1
        self._machines = machines
        self._names: dict[str, tuple[str, ...]] = {}
        self._features: dict[str, Mask] = {}
        for place, node in enumerate(machines):
            for feature in node.features:
                self._features[feature] = self._features.get(feature, 0) | 1 << place
        self._kinds = {name: 0 for node in machines for name, _ in node.gres}
        self._kinds = {name: at for at, name in enumerate(sorted(self._kinds))}
        self._types = {node.gpu_type for node in machines if node.gpus}
        self._by_type: dict[int, tuple[Mask, ...]] = {}
        self._admitted: dict[str, tuple[Alternative, ...]] = {}
        self.remarks: Counter[str] = Counter()
        """Number of jobs per assumption or omission."""
        self.without_limit = 0
        config = site.config
        self._entries: list[PartitionEntry | None] = (
            [None, *config.partitions]
            if config is not None
            else [None for _ in range(len(view.names("partition")) + 1)]
        )
        self._default_part = next(
            (at for at, entry in enumerate(self._entries) if entry is not None and entry.default), 0
        )
        self._parts = {
            entry.name: at for at, entry in enumerate(self._entries) if entry is not None
        }
        self._priorities = {
            "qos": max(
                [abs(one.priority) for one in site.associations.qualities.values()], default=0
            )
            or 1,
            "assoc": max(site.associations.priorities.values(), default=0) or 1,
        }
        # Under preempt/partition_prio the tier decides the order already.
        by_quality = config is not None and config.values.get("preempttype") == "preempt/qos"
        self._levels = qos_preemption_levels(site) if by_quality else {}
        self._weights = tres_weights(config) if config is not None else {}
        self._totals = (
            [self._partition_totals(entry) for entry in self._entries] if self._weights else []
        )

    @property
    def entries(self) -> list[PartitionEntry | None]:
        """Partitions by number; None = no configuration."""
        return self._entries

    @property
    def gres(self) -> list[list[int]]:
        """Counts of the other generic resources: one list per kind, by node."""
        return [[dict(node.gres).get(name, 0) for node in self._machines] for name in self._kinds]

    def text(self, view: View, column: str, job: JobId) -> str:
        """Return the text of a job in a column; "" = not given."""
        names = self._names.get(column)
        if names is None:
            names = self._names[column] = view.names(column)
        return names[int(view.one(column, job))]

    def job(self, view: View, job: JobId) -> tuple[SlurmJob, ...]:
        """Build the controller's entries of a job, one per partition that it names.

        Raises
        ------
        NotSimulatedError
            If its constraint is not simulated.
        """
        user = self.text(view, "user", job)
        account = self.text(view, "account", job)
        if not account:
            account = self._site.associations.default_account.get(user, "")
        quality = self._job_qos(view, job, account, user)
        entries = []
        for part in self._partition_numbers(view, job):
            entry = self._entry_in(view, job, part, (user, account, quality))
            entries.append(entry)
        return tuple(entries)

    def may_requeue(self, view: View, job: JobId) -> bool:
        """Return True if a job may be requeued after it lost its nodes.

        By column ``requeue``, else by JobRequeue (default: yes).
        """
        requeue = view.one("requeue", job)
        if not isnan(requeue):
            return bool(requeue)
        config = self._site.config
        return config is None or config.number("JobRequeue", 1) != 0

    def _entry_in(self, view: View, job: JobId, part: int, owner: tuple[str, str, Qos]) -> SlurmJob:
        """Build the entry of a job for one partition; `owner` is user, account and QOS."""
        user, account, quality = owner
        demand = view.demand(job)
        entry = self._entries[part] if self._site.config is not None else None
        limit_s = self._limit_s(view, job, entry)
        shape = self._shape(view, job, demand, entry)
        array = _ARRAY.fullmatch(self.text(view, "array", job))
        slurm_job = SlurmJob(
            id=job,
            user=user,
            account=account,
            partition=part,
            limit_s=limit_s,
            since_s=view.now_s,
            # The factor of the site is added, nice is subtracted.
            nice=view.one("nice", job) - view.one("site_priority", job),
            qos=quality.name,
            array=array[1] if array else "",
            array_most=float(array[2]) if array and array[2] else inf,
            reservation=self.text(view, "reservation", job),
            test_only="noreserve" in quality.flags,
            level=self._levels.get(quality.name, 0),
            stays=not view.one("preemptible", job),
            requeue=self.may_requeue(view, job),
            **shape,  # type: ignore[arg-type]
        )
        return self._add_priority_terms(slurm_job, entry, part, quality)

    def _limit_s(self, view: View, job: JobId, entry: PartitionEntry | None) -> float:
        """Return the time limit of a job: its own, the partition's, or the default.

        A default is counted in `without_limit`.
        """
        limit_s = view.one("time_limit_s", job)
        if limit_s < inf:
            return limit_s
        if entry is not None and min(entry.default_time_s, entry.max_time_s) < inf:
            return min(entry.default_time_s, entry.max_time_s)
        self.without_limit += 1
        return self._default_limit_s

    def _partition_numbers(self, view: View, job: JobId) -> tuple[int, ...]:
        """Return the numbers of the partitions that a job names, without duplicates.

        The default partition if it names none; an unknown name is number 0, all nodes, with a
        remark.
        """
        if self._site.config is None:
            return (int(view.one("partition", job)) + 1,)
        text = self.text(view, "partition", job)
        if not text:
            return (self._default_part,)
        numbers = []
        for name in text.split(","):
            if name not in self._parts:
                self.remarks[f"partition {name}, which slurm.conf does not have: all nodes"] += 1
            numbers.append(self._parts.get(name, 0))
        return tuple(dict.fromkeys(numbers))

    def _job_qos(self, view: View, job: JobId, account: str, user: str) -> Qos:
        """Return the QOS of a job: named, the default of its association, or normal.

        A QOS that the site does not define has no limits.
        """
        associations = self._site.associations
        name = self.text(view, "qos", job).lower()
        if not name:
            defaults = associations.default_qos
            name = defaults.get((account, user), defaults.get((account, ""), ""))
        if not name and "normal" in associations.qualities:
            name = "normal"
        qos = self._site.quality(name)
        return qos if qos.name else replace(qos, name=name)

    # -- its shape
    # ----------------------------------------------------------------------------------------------

    def _shape(
        self, view: View, job: JobId, demand: Demand, entry: PartitionEntry | None
    ) -> dict[str, object]:
        """Return tasks, resources, nodes and constraints of a job as `SlurmJob` attributes."""
        tasks = int(view.one("tasks", job))
        shape = (
            self._task_shape(view, job, tasks, demand)
            if tasks and demand.servers is None
            else self._demand_shape(demand)
        )
        nodes = int(view.one("nodes", job))
        if nodes <= shape["tasks"] or tasks:
            shape["nodes"] = nodes
            shape["tasks"] = max(shape["tasks"], nodes)
        self._set_memory(shape, entry)
        text = self.text(view, "exclusive", job).lower()
        linear = self._site.config is not None and "linear" in self._site.config.values.get(
            "selecttype", ""
        )
        shape["alone"] = text == "user" or (entry is not None and entry.one_user)
        whole = text not in {"", "no", "0", "false", "user", "ok"}
        shape["whole"] = whole or linear or (entry is not None and entry.whole_nodes)
        counts, kinds = self._parse_gres(view, job)
        allowed = self._allowed_masks(view, demand)
        if kinds:
            allowed = tuple(mask & kinds for mask in allowed)
        constraint = self.text(view, "constraint", job)
        required_counts: tuple[tuple[Mask, int], ...] = ()
        if constraint:
            allowed, required_counts = self._apply_constraint(constraint, allowed)
            counted = sum([count for _, count in required_counts])
            shape["tasks"] = max(shape["tasks"], counted)
        return {**shape, "gres": counts, "allowed": allowed, "counts": required_counts}

    def _demand_shape(self, demand: Demand) -> dict[str, int | float]:
        # The controller has one kind of task, so servers are divided among the workers.
        """Return the shape of a job without task columns: one task per replica.

        The resources of servers are divided among the tasks.
        """
        servers = demand.servers
        share = servers.replicas / demand.replicas if servers else 0.0
        return {
            "tasks": demand.replicas,
            "gpus": demand.gpus,
            "cpus": demand.cpus + (share * servers.cpus if servers else 0.0),
            "mem_gb": demand.mem_gb + (share * servers.mem_gb if servers else 0.0),
        }

    def _task_shape(
        self, view: View, job: JobId, tasks: int, demand: Demand
    ) -> dict[str, int | float]:
        """Return the shape of a job from its task, GPU and memory columns.

        If its GPUs divide by neither tasks nor nodes, the shape of its demand.
        """
        per_node = int(view.one("tasks_per_node", job))
        each = view.one("cpus_per_task", job)
        cores = view.one("cpus", job)
        nodes = max(int(view.one("nodes", job)), ceil(tasks / per_node) if per_node else 1)
        cpus = each or max(cores / tasks, 1.0)
        shape: dict[str, int | float] = {"tasks": tasks, "per_node": per_node, "cpus": cpus}
        gpus = int(view.one("gpus", job))
        if gpus and "gpu" in self.text(view, "gres", job).lower() and gpus % nodes == 0:
            shape["node_gpus"] = gpus // nodes
        elif gpus % tasks == 0:
            shape["gpus"] = gpus // tasks
        elif gpus % nodes == 0:
            shape["node_gpus"] = gpus // nodes
        else:
            return self._demand_shape(demand)
        per_node_gb, per_cpu_gb = view.one("mem_per_node_gb", job), view.one("mem_per_cpu_gb", job)
        if per_node_gb:
            shape["node_mem_gb"] = per_node_gb
        else:
            shape["mem_gb"] = per_cpu_gb * cpus or demand.mem_gb * demand.replicas / tasks
        return shape

    def _set_memory(self, shape: dict[str, int | float], entry: PartitionEntry | None) -> None:
        """Apply the memory defaults and MaxMemPerCPU of a partition to a shape, in place.

        Memory is 0 if the site does not allocate it.
        """
        config = self._site.config
        if config is None:
            return
        if not consumes_memory(config):
            shape["mem_gb"] = shape["node_mem_gb"] = 0.0
            return
        if not shape.get("mem_gb") and not shape.get("node_mem_gb") and entry is not None:
            shape["mem_gb"] = entry.def_mem_per_cpu_mb / MB_PER_GB * shape["cpus"]
            shape["node_mem_gb"] = entry.def_mem_per_node_mb / MB_PER_GB
        if entry is not None and shape["cpus"] and shape.get("mem_gb"):
            # Slurm adds cores to a job that requests more memory per core than the maximum.
            max_gb = entry.max_mem_per_cpu_mb / MB_PER_GB
            if shape["mem_gb"] > shape["cpus"] * max_gb * (1 + 1e-9):
                shape["cpus"] = float(ceil(shape["mem_gb"] / max_gb - 1e-9))

    def _parse_gres(self, view: View, job: JobId) -> tuple[tuple[tuple[int, int], ...], Mask]:
        """Return a job's other generic resources and the node mask of its GPU types.

        The resources are (kind, count per node) pairs. Mask 0 = any type. Unknown names get a
        remark.
        """
        text = self.text(view, "gres", job).lower()
        if not text:
            return (), 0
        counts: dict[int, int] = {}
        kinds = 0
        for part in re.sub(r"\([^)]*\)", "", text).split(","):
            words = re.split(r"[:=]", part.strip().removeprefix("gres/").removeprefix("gres:"))
            count = int(words.pop()) if len(words) > 1 and words[-1].isdecimal() else 1
            name = ":".join(words)
            if words[0] == "gpu":
                if len(words) > 1 and words[1] in self._types:
                    kinds |= self._type_mask(words[1])
                elif len(words) > 1:
                    self.remarks[f"GPU type {words[1]}, which the cluster lacks: any type"] += 1
            elif name in self._kinds:
                counts[self._kinds[name]] = counts.get(self._kinds[name], 0) + count
            elif name:
                self.remarks[f"resource {name}, which the cluster lacks: not counted"] += 1
        return tuple(sorted(counts.items())), kinds

    def _type_mask(self, kind: str) -> Mask:
        """Return the mask of the nodes with a GPU type."""
        return sum([1 << at for at, node in enumerate(self._machines) if node.gpu_type == kind])

    def _allowed_masks(self, view: View, demand: Demand) -> tuple[Mask, ...]:
        """Return the node masks of a demand, one per GPU type (cached).

        Without GPUs there is one mask.
        """
        cached = self._by_type.get(demand.key)
        if cached is None:
            masks: dict[int, int] = {}
            for at in demand.pools:
                pool = view.room.pools[at]
                kind = pool.type_at if demand.gpus else 0
                masks[kind] = masks.get(kind, 0) | sum(
                    [1 << self._places[node] for node in pool.nodes]
                )
            cached = self._by_type[demand.key] = tuple(masks[kind] for kind in sorted(masks))
        return cached

    def _apply_constraint(
        self, text: str, allowed: tuple[Mask, ...]
    ) -> tuple[tuple[Mask, ...], tuple[tuple[Mask, int], ...]]:
        """Return the node masks that a constraint leaves, and its required counts.

        If the cluster has no features, the constraint is skipped with a remark.
        """
        if not self._features:
            self.remarks["constraint, but the cluster has no features: it is not looked at"] += 1
            return allowed, ()
        admitted = self._admitted.get(text)
        if admitted is None:
            admitted = self._admitted[text] = alternatives(text, self._features, self._every)
        return tuple(mask & one.nodes for one in admitted for mask in allowed), admitted[0].counts

    # -- its priority
    # ----------------------------------------------------------------------------------------------

    def tres(self, job: SlurmJob) -> dict[str, float]:
        """Return the requested amounts of a job by TRES name; memory in MB."""
        nodes = job.needed_nodes
        gpus = job.tasks * job.gpus + nodes * job.node_gpus
        mem_gb = job.tasks * job.mem_gb + nodes * job.node_mem_gb
        amounts = {
            "cpu": job.tasks * job.cpus,
            "mem": mem_gb * MB_PER_GB,
            "node": float(nodes),
            "gres/gpu": float(gpus),
        }
        for kind in self._types if gpus else ():
            if all(not mask & ~self._type_mask(kind) for mask in job.allowed):
                amounts[f"gres/gpu:{kind}"] = float(gpus)
        return amounts

    def _add_priority_terms(
        self, job: SlurmJob, entry: PartitionEntry | None, part: int, quality: Qos
    ) -> SlurmJob:
        """Return a job with its TRES, billing and fixed priority terms.

        Unchanged without ``slurm.conf``.
        """
        config, flags = self._site.config, self._site.flags
        if config is None:
            return job
        tres = self.tres(job)
        name = job.user if self._site.associations.entries else ""
        priority = self._site.associations.priorities.get((job.account, name), 0.0)
        assoc = priority / (1.0 if "no_normal_assoc" in flags else self._priorities["assoc"])
        qos = quality.priority / (1.0 if "no_normal_qos" in flags else self._priorities["qos"])
        term = config.number("PriorityWeightAssoc", 0) * assoc
        term += config.number("PriorityWeightQOS", 0) * qos
        for tres_name, weight in self._weights.items():
            total = 1.0 if "no_normal_tres" in flags else self._totals[part].get(tres_name, 0.0)
            term += weight * tres.get(tres_name, 0.0) / total if total else 0.0
        billed = None
        if entry is not None:
            billed = billing_units(entry, tres, largest="max_tres" in flags)
        if quality.usage_factor != 1.0:
            billed = quality.usage_factor * (job.billing if billed is None else billed)
        if billed is not None:
            tres["billing"] = billed
        return replace(job, term=term, billed=billed, tres=tres)

    def _partition_totals(self, entry: PartitionEntry | None) -> Mapping[str, float]:
        """Return the total of each TRES on a partition's nodes; memory in MB.

        None = all nodes.
        """
        nodes = [node for node in self._machines if entry is None or node.name in set(entry.nodes)]
        totals = {
            "cpu": sum([node.cpus for node in nodes if node.cpus < inf]),
            "mem": sum([node.mem_gb for node in nodes if node.mem_gb < inf]) * MB_PER_GB,
            "node": float(len(nodes)),
            "gres/gpu": float(sum([node.gpus for node in nodes])),
        }
        for node in nodes:
            if node.gpus:
                key = f"gres/gpu:{node.gpu_type}"
                totals[key] = totals.get(key, 0.0) + node.gpus
        return totals


def consumes_memory(config: SlurmConfig) -> bool:
    """Return True if memory is a consumable resource (SelectTypeParameters)."""
    text = config.values.get("selecttypeparameters", "CR_Core_Memory").lower()
    return "_memory" in text
