"""What a job asks for, in the terms of the controller."""

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
    levels_of_preemption,
    tres_weights,
    weighed,
)
from allocators.sites.slurm.state import Mask, SlurmJob
from sim.contract import Demand, JobId, View

_ARRAY: Final = re.compile(r"([^%\s\[]+).*?(?:%(\d+))?\]?")
_ASSUMED: Final = {
    "limit": "time limit",
    "features": "constraint that the cluster has no features for",
}


class Requests:
    """Builds the jobs of a controller from the columns of a trace.

    Parameters
    ----------
    site : Site
        What the files say.
    view : View
        At the first decision: names, nodes.
    order : sequence of int
        Place among the controller's nodes -> number of the node in the cluster.
    default_limit_s : float, seconds
        Of jobs without a limit in partitions without one.
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
        """What was assumed or left out -> jobs."""
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
        # By tier those of the higher come first anyway.
        by_quality = config is not None and config.values.get("preempttype") == "preempt/qos"
        self._levels = levels_of_preemption(site) if by_quality else {}
        self._weights = tres_weights(config) if config is not None else {}
        self._totals = [self._total(entry) for entry in self._entries] if self._weights else []

    @property
    def entries(self) -> list[PartitionEntry | None]:
        """Partitions by their numbers; None = nothing is said of it."""
        return self._entries

    @property
    def gres(self) -> list[list[int]]:
        """Of each kind of resource other than GPUs the number on each node."""
        return [[dict(node.gres).get(name, 0) for node in self._machines] for name in self._kinds]

    def text(self, view: View, column: str, job: JobId) -> str:
        """Return a text column of a job; "" = not given."""
        names = self._names.get(column)
        if names is None:
            names = self._names[column] = view.names(column)
        return names[int(view.one(column, job))]

    def job(self, view: View, job: JobId) -> tuple[SlurmJob, ...]:
        """Return a job: once for each of its partitions.

        Raises
        ------
        NotSimulatedError
            If its constraint is not simulated.
        """
        user = self.text(view, "user", job)
        account = self.text(view, "account", job)
        if not account:
            account = self._site.associations.default_account.get(user, "")
        quality = self._quality(view, job, account, user)
        made = []
        for part in self._partitions(view, job):
            one = self._in(view, job, part, (user, account, quality))
            made.append(one)
        return tuple(made)

    def may_requeue(self, view: View, job: JobId) -> bool:
        """Tell whether a job may queue again after it lost its nodes."""
        said = view.one("requeue", job)
        if not isnan(said):
            return bool(said)
        config = self._site.config
        return config is None or config.number("JobRequeue", 1) != 0

    def _in(self, view: View, job: JobId, part: int, who: tuple[str, str, Qos]) -> SlurmJob:
        user, account, quality = who
        demand = view.demand(job)
        entry = self._entries[part] if self._site.config is not None else None
        limit_s = self._limit_s(view, job, entry)
        shape = self._shape(view, job, demand, entry)
        array = _ARRAY.fullmatch(self.text(view, "array", job))
        made = SlurmJob(
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
        return self._valued(made, entry, part, quality)

    def _limit_s(self, view: View, job: JobId, entry: PartitionEntry | None) -> float:
        limit_s = view.one("time_limit_s", job)
        if limit_s < inf:
            return limit_s
        if entry is not None and min(entry.default_time_s, entry.max_time_s) < inf:
            return min(entry.default_time_s, entry.max_time_s)
        self.without_limit += 1
        return self._default_limit_s

    def _partitions(self, view: View, job: JobId) -> tuple[int, ...]:
        if self._site.config is None:
            return (int(view.one("partition", job)) + 1,)
        text = self.text(view, "partition", job)
        if not text:
            return (self._default_part,)
        found = []
        for name in text.split(","):
            if name not in self._parts:
                self.remarks[f"partition {name}, which slurm.conf does not have: all nodes"] += 1
            found.append(self._parts.get(name, 0))
        return tuple(dict.fromkeys(found))

    def _quality(self, view: View, job: JobId, account: str, user: str) -> Qos:
        associations = self._site.associations
        name = self.text(view, "qos", job).lower()
        if not name:
            defaults = associations.default_qos
            name = defaults.get((account, user), defaults.get((account, ""), ""))
        if not name and "normal" in associations.qualities:
            name = "normal"
        found = self._site.quality(name)
        return found if found.name else replace(found, name=name)

    # -- its shape
    # ----------------------------------------------------------------------------------------------

    def _shape(
        self, view: View, job: JobId, demand: Demand, entry: PartitionEntry | None
    ) -> dict[str, object]:
        tasks = int(view.one("tasks", job))
        shape = (
            self._of_tasks(view, job, tasks, demand)
            if tasks and demand.servers is None
            else self._of_demand(demand)
        )
        nodes = int(view.one("nodes", job))
        if nodes <= shape["tasks"] or tasks:
            shape["nodes"] = nodes
            shape["tasks"] = max(shape["tasks"], nodes)
        self._memory(shape, entry)
        text = self.text(view, "exclusive", job).lower()
        linear = self._site.config is not None and "linear" in self._site.config.values.get(
            "selecttype", ""
        )
        shape["alone"] = text == "user" or (entry is not None and entry.one_user)
        whole = text not in {"", "no", "0", "false", "user", "ok"}
        shape["whole"] = whole or linear or (entry is not None and entry.whole_nodes)
        counts, kinds = self._gres_of(view, job)
        allowed = self._allowed(view, demand)
        if kinds:
            allowed = tuple(mask & kinds for mask in allowed)
        constraint = self.text(view, "constraint", job)
        asked: tuple[tuple[Mask, int], ...] = ()
        if constraint:
            allowed, asked = self._constrained(constraint, allowed)
            counted = sum([count for _, count in asked])
            shape["tasks"] = max(shape["tasks"], counted)
        return {**shape, "gres": counts, "allowed": allowed, "counts": asked}

    def _of_demand(self, demand: Demand) -> dict[str, int | float]:
        # The controller knows one kind of task: servers are divided among the workers.
        servers = demand.servers
        share = servers.replicas / demand.replicas if servers else 0.0
        return {
            "tasks": demand.replicas,
            "gpus": demand.gpus,
            "cpus": demand.cpus + (share * servers.cpus if servers else 0.0),
            "mem_gb": demand.mem_gb + (share * servers.mem_gb if servers else 0.0),
        }

    def _of_tasks(
        self, view: View, job: JobId, tasks: int, demand: Demand
    ) -> dict[str, int | float]:
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
            return self._of_demand(demand)
        per_node_gb, per_cpu_gb = view.one("mem_per_node_gb", job), view.one("mem_per_cpu_gb", job)
        if per_node_gb:
            shape["node_mem_gb"] = per_node_gb
        else:
            shape["mem_gb"] = per_cpu_gb * cpus or demand.mem_gb * demand.replicas / tasks
        return shape

    def _memory(self, shape: dict[str, int | float], entry: PartitionEntry | None) -> None:
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
            # Slurm gives more cores where a job asks for more memory per core than there may be.
            most_gb = entry.max_mem_per_cpu_mb / MB_PER_GB
            if shape["mem_gb"] > shape["cpus"] * most_gb * (1 + 1e-9):
                shape["cpus"] = float(ceil(shape["mem_gb"] / most_gb - 1e-9))

    def _gres_of(self, view: View, job: JobId) -> tuple[tuple[tuple[int, int], ...], Mask]:
        """Return the resources other than GPUs on each node, and the nodes with GPUs of the type
        that is asked for; 0 = any.
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
                    kinds |= self._with_type(words[1])
                elif len(words) > 1:
                    self.remarks[f"GPU type {words[1]}, which the cluster lacks: any type"] += 1
            elif name in self._kinds:
                counts[self._kinds[name]] = counts.get(self._kinds[name], 0) + count
            elif name:
                self.remarks[f"resource {name}, which the cluster lacks: not counted"] += 1
        return tuple(sorted(counts.items())), kinds

    def _with_type(self, kind: str) -> Mask:
        return sum([1 << at for at, node in enumerate(self._machines) if node.gpu_type == kind])

    def _allowed(self, view: View, demand: Demand) -> tuple[Mask, ...]:
        known = self._by_type.get(demand.key)
        if known is None:
            masks: dict[int, int] = {}
            for at in demand.pools:
                pool = view.room.pools[at]
                kind = pool.type_at if demand.gpus else 0
                masks[kind] = masks.get(kind, 0) | sum(
                    [1 << self._places[node] for node in pool.nodes]
                )
            known = self._by_type[demand.key] = tuple(masks[kind] for kind in sorted(masks))
        return known

    def _constrained(
        self, text: str, allowed: tuple[Mask, ...]
    ) -> tuple[tuple[Mask, ...], tuple[tuple[Mask, int], ...]]:
        """Return the nodes that a constraint leaves, and how many of which it asks for."""
        if not self._features:
            self.remarks["constraint, but the cluster has no features: it is not looked at"] += 1
            return allowed, ()
        found = self._admitted.get(text)
        if found is None:
            found = self._admitted[text] = alternatives(text, self._features, self._every)
        return tuple(mask & one.nodes for one in found for mask in allowed), found[0].counts

    # -- its priority
    # ----------------------------------------------------------------------------------------------

    def tres(self, job: SlurmJob) -> dict[str, float]:
        """Return what a job asks for by the names of TRES; memory in MB."""
        nodes = job.needed_nodes
        gpus = job.tasks * job.gpus + nodes * job.node_gpus
        mem_gb = job.tasks * job.mem_gb + nodes * job.node_mem_gb
        found = {
            "cpu": job.tasks * job.cpus,
            "mem": mem_gb * MB_PER_GB,
            "node": float(nodes),
            "gres/gpu": float(gpus),
        }
        for kind in self._types if gpus else ():
            if all(not mask & ~self._with_type(kind) for mask in job.allowed):
                found[f"gres/gpu:{kind}"] = float(gpus)
        return found

    def _valued(
        self, job: SlurmJob, entry: PartitionEntry | None, part: int, quality: Qos
    ) -> SlurmJob:
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
        for what, weight in self._weights.items():
            total = 1.0 if "no_normal_tres" in flags else self._totals[part].get(what, 0.0)
            term += weight * tres.get(what, 0.0) / total if total else 0.0
        billed = None
        if entry is not None:
            billed = weighed(entry, tres, largest="max_tres" in flags)
        if quality.usage_factor != 1.0:
            billed = quality.usage_factor * (job.billing if billed is None else billed)
        if billed is not None:
            tres["billing"] = billed
        return replace(job, term=term, billed=billed, tres=tres)

    def _total(self, entry: PartitionEntry | None) -> Mapping[str, float]:
        nodes = [node for node in self._machines if entry is None or node.name in set(entry.nodes)]
        found = {
            "cpu": sum([node.cpus for node in nodes if node.cpus < inf]),
            "mem": sum([node.mem_gb for node in nodes if node.mem_gb < inf]) * MB_PER_GB,
            "node": float(len(nodes)),
            "gres/gpu": float(sum([node.gpus for node in nodes])),
        }
        for node in nodes:
            if node.gpus:
                key = f"gres/gpu:{node.gpu_type}"
                found[key] = found.get(key, 0.0) + node.gpus
        return found


def consumes_memory(config: SlurmConfig) -> bool:
    """Tell whether memory is given out to jobs."""
    text = config.values.get("selecttypeparameters", "CR_Core_Memory").lower()
    return "_memory" in text
