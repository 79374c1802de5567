"""Builds the rules, partitions and switches of a controller from a site's files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.accounts import NOBODY, Associations, Qos, read_associations
from allocators.sites.slurm.config import (
    PartitionEntry,
    SlurmConfig,
    read_conf,
    read_topology,
    weights_of,
)
from allocators.sites.slurm.config import Switch as ConfiguredSwitch
from allocators.sites.slurm.fairshare import usage_decay_per_s
from allocators.sites.slurm.keys import MISSED, Finding
from allocators.sites.slurm.limits import UsageLimits
from allocators.sites.slurm.node_selection import SwitchNodes
from allocators.sites.slurm.reservations import Reserved, read_reservations
from allocators.sites.slurm.rules import Rules, SlurmPartition
from allocators.sites.slurm.state import Mask
from sim.contract import Node

_NUMBERED: Final = re.compile(r"(.*?)(\d*)")
_REMOVED_IN: Final[Mapping[str, str]] = {
    "cachegroups": "16.05",
    "checkpointtype": "19.05",
    "fastschedule": "20.02",
}
"""Version that removed each key."""
_DEPTH: Final = re.compile(r"The backfill tested ([\d,.]+) jobs a cycle")
_NO_QOS: Final = Qos("")
HOUR_S: Final = 3600.0
MB_PER_GB: Final = 1024.0


def _as_is(value: float) -> float:
    return value


CONFIG_KEYS: Final[Mapping[str, tuple[str, Callable[[float], float]]]] = {
    "weight_age": ("PriorityWeightAge", _as_is),
    "weight_fairshare": ("PriorityWeightFairshare", _as_is),
    "weight_size": ("PriorityWeightJobSize", _as_is),
    "favor_small": ("PriorityFavorSmall", _as_is),
    "max_age_h": ("PriorityMaxAge", lambda hours: hours * HOUR_S),
    "half_life_h": ("PriorityDecayHalfLife", lambda hours: hours * HOUR_S or inf),
    "dampening": ("FairShareDampeningFactor", _as_is),
    "backfill": ("SchedulerType", _as_is),
    "bf_interval_s": ("bf_interval", _as_is),
    "bf_window_h": ("bf_window", lambda hours: hours * HOUR_S),
    "bf_max_job_test": ("bf_max_job_test", _as_is),
    "bf_max_job_user": ("bf_max_job_user", lambda jobs: jobs or inf),
    "queue_depth": ("default_queue_depth", _as_is),
}
"""Key of ``slurm.conf`` for each parameter, and the conversion to its unit."""
RULE_OF: Final = {
    "weight_age": "weight_age",
    "weight_fairshare": "weight_fairshare",
    "weight_size": "weight_size",
    "favor_small": "favor_small",
    "max_age_h": "max_age_s",
    "backfill": "backfill",
    "bf_interval_s": "interval_s",
    "bf_window_h": "window_s",
    "bf_max_job_test": "max_tested",
    "bf_max_job_user": "max_per_user",
    "queue_depth": "depth",
}
"""Attribute of `Rules` for each parameter."""


class SlurmSite(NamedTuple):
    """The parsed configuration files of a site.

    Parameters
    ----------
    config : SlurmConfig or None
        None = no ``slurm.conf``.
    associations : Associations
        Accounts, users and QOS.
    switches : tuple of ConfiguredSwitch
        Switches of ``topology.conf``.
    reserved : tuple of Reserved
        Reservations.
    of_reserved : tuple of Finding
        Findings on the reservations.
    """

    config: SlurmConfig | None = None
    associations: Associations = NOBODY
    switches: tuple[ConfiguredSwitch, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    of_reserved: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings on the settings of all files of the site."""
        own = self.config.findings if self.config is not None else ()
        return (*own, *self.associations.findings, *self.of_reserved)

    @property
    def flags(self) -> frozenset[str]:
        """PriorityFlags of ``slurm.conf`` in lower case."""
        text = self.config.values.get("priorityflags", "") if self.config is not None else ""
        return frozenset(part.strip().lower() for part in text.split(",") if part.strip())

    @property
    def enforced(self) -> frozenset[str]:
        """Enforced limits: "limits", "qos" and "safe" ("safe" and "all" imply "limits").

        From AccountingStorageEnforce; "all" implies all three.
        """
        if self.config is None:
            return frozenset()
        text = self.config.values.get("accountingstorageenforce", "").lower()
        words = {part.strip() for part in text.split(",") if part.strip()}
        if words & {"all", "safe", "limits"}:
            words |= {"limits"}
        if "all" in words:
            words |= {"qos", "safe"}
        return frozenset(words)

    def quality(self, name: str) -> Qos:
        """Return a QOS by name; an undefined QOS has no limits."""
        return self.associations.qualities.get(name, _NO_QOS)


@lru_cache(maxsize=32)
def read_site(
    conf: str, accounts: str, qos: str, topology: str, reservations: str = ""
) -> SlurmSite:
    """Parse the files of a site (cached); "" = file not given.

    Raises
    ------
    ParameterError
        If a file cannot be read.
    """
    return SlurmSite(
        read_conf(conf) if conf else None,
        read_associations(accounts, qos) if accounts or qos else NOBODY,
        read_topology(topology) if topology else (),
        *(read_reservations(reservations) if reservations else ((), ())),
    )


def name_order(names: Sequence[str]) -> list[int]:
    """Return the node indices in Slurm's order: by name prefix, then by number."""

    def key(at: int) -> tuple[str, int, str]:
        """Return the sort key (name prefix, number or -1, name) of a node."""
        match = _NUMBERED.fullmatch(names[at])
        assert match is not None, "matches any text"
        return match[1], int(match[2] or -1), names[at]

    return sorted(range(len(names)), key=key)


def is_classic(site: SlurmSite, chosen: str) -> tuple[bool, str]:
    """Return (whether fair share is classic instead of Fair Tree, note for the user or "")."""
    if chosen in {"classic", "tree"} or site.config is None:
        return chosen == "classic", ""
    flags, config = site.flags, site.config
    if "depth_oblivious" in flags:
        return True, (
            "slurm.conf: PriorityFlags has DEPTH_OBLIVIOUS, which is not simulated: fair share is"
            " the classic one."
        )
    if "no_fair_tree" in flags:
        return True, ""
    dampening_line = config.where.get("fairsharedampeningfactor", 0)
    old = next((key for key in _REMOVED_IN if key in config.values), "")
    if not dampening_line or "fair_tree" in flags:
        return False, ""
    if old:
        return True, (
            f"slurm.conf, line {config.where[old]}, has a key that Slurm no longer knows from"
            f" {_REMOVED_IN[old]} on, so classic fair share is assumed (fairshare = auto);"
            " set fairshare = tree if this Slurm is newer."
        )
    return False, (
        f"slurm.conf, line {dampening_line}: FairShareDampeningFactor has no effect under Fair"
        " Tree, the default from 19.05 on; set fairshare = classic if this Slurm is older."
    )


def rules_of(site: SlurmSite, config: SlurmConfig) -> Rules:
    """Return the controller rules that a ``slurm.conf`` sets.

    Raises
    ------
    ParameterError
        If a number or a time cannot be read.
    """
    option, number, flags = config.option, config.number, site.flags

    def limit(key: str) -> float:
        return option(key, 0) or inf

    def is_set(key: str) -> bool:
        return key in config.options

    return Rules(
        weight_age=number("PriorityWeightAge", 0),
        weight_fairshare=number("PriorityWeightFairshare", 0),
        weight_size=number("PriorityWeightJobSize", 0),
        weight_partition=number("PriorityWeightPartition", 0),
        max_age_s=config.time_s("PriorityMaxAge", "7-0"),
        period_s=config.time_s("PriorityCalcPeriod", "5"),
        favor_small=config.values.get("priorityfavorsmall", "NO").upper() == "YES",
        multifactor=config.by_priority,
        delay_s=option("batch_sched_delay", 3),
        main_interval_s=option("sched_interval", 60),
        depth=int(min(option("default_queue_depth", 100), 1e9)),
        backfill=config.values.get("schedulertype", "sched/backfill") != "sched/builtin",
        interval_s=option("bf_interval", 30),
        window_s=60 * option("bf_window", 1440),
        resolution_s=option("bf_resolution", 60),
        max_tested=option("bf_max_job_test", 500),
        max_per_user=limit("bf_max_job_user"),
        max_per_part=limit("bf_max_job_part"),
        max_per_user_part=limit("bf_max_job_user_part"),
        max_per_account=limit("bf_max_job_assoc"),
        max_per_array=option("bf_max_job_array_resv", 20),
        max_plans_part=limit("bf_job_part_count_reserve"),
        max_started=limit("bf_max_job_start"),
        max_started_pass=limit("sched_max_job_start"),
        depth_per_part=limit("partition_job_depth"),
        min_age_s=option("bf_min_age_reserve", 0),
        min_priority=option("bf_min_prio_reserve", 0),
        one_plan=is_set("bf_one_resv_per_job"),
        linear=is_set("bf_window_linear"),
        defer=is_set("defer") or is_set("defer_batch"),
        limit_stops=is_set("assoc_limit_stop"),
        reset=config.values.get("priorityusageresetperiod", "NONE").upper(),
        never_lowered="incr_only" in flags,
        by_time="small_relative_to_time" in flags,
        accrue_always="accrue_always" in flags,
    )


def partitions_of(
    site: SlurmSite, config: SlurmConfig, names: Sequence[str]
) -> Iterator[SlurmPartition]:
    """Yield the partitions of a ``slurm.conf`` as masks over the named nodes.

    Their priority factor is relative to the largest, unless NO_NORMAL_PART is set.
    """
    at = {name: 1 << place for place, name in enumerate(names)}
    largest = max([entry.job_factor for entry in config.partitions], default=1) or 1
    raw = "no_normal_part" in site.flags
    for entry in config.partitions:
        factor = entry.job_factor if raw else entry.job_factor / largest
        yield SlurmPartition(
            sum([at.get(name, 0) for name in entry.nodes]),
            entry.tier,
            factor,
            entry.name,
            entry.up,
        )


def partitions_on(
    site: SlurmSite, job_partitions: Sequence[str], ordered: Sequence[Node]
) -> list[SlurmPartition]:
    """Return the partitions on these nodes, from ``slurm.conf`` or the trace.

    Without nodes of the file, a partition has the nodes that name it in the cluster.
    """
    names = [node.name for node in ordered]
    partitions = (
        [SlurmPartition(0, name=name) for name in job_partitions]
        if site.config is None
        else list(partitions_of(site, site.config, names))
    )
    # If node names differ from slurm.conf, the partitions of the cluster apply.
    return [
        part if part.nodes else replace(part, nodes=_partition_mask(ordered, part.name))
        for part in partitions
    ]


def _partition_mask(ordered: Sequence[Node], name: str) -> Mask:
    """Return the mask of the nodes in a partition of the cluster."""
    return sum(
        [
            1 << at
            for at, node in enumerate(ordered)
            if not node.partitions or not name or name in node.partitions
        ]
    )


def levels_of(
    switches: Sequence[ConfiguredSwitch], names: Sequence[str]
) -> list[list[SwitchNodes]]:
    """Return the switches per level, leaves first; nodes without a switch form a leaf."""
    at = {name: 1 << place for place, name in enumerate(names)}
    by_name = {switch.name: switch for switch in switches}
    leaves: dict[str, tuple[Mask, ...]] = {}
    heights: dict[str, int] = {}

    def collect_leaves(switch: ConfiguredSwitch) -> None:
        """Set the leaf masks and the height of a switch and the switches below it."""
        if switch.name in leaves:
            return
        below = [by_name[name] for name in switch.switches if name in by_name]
        for child in below:
            collect_leaves(child)
        own = sum([at.get(name, 0) for name in switch.nodes])
        own_leaf = [own] if own else []
        leaves[switch.name] = (*own_leaf, *(mask for one in below for mask in leaves[one.name]))
        heights[switch.name] = 1 + max([heights[one.name] for one in below], default=-1)

    for switch in switches:
        collect_leaves(switch)
    levels: list[list[SwitchNodes]] = [[] for _ in range(max(heights.values(), default=-1) + 1)]
    covered = 0
    for switch in switches:
        nodes = 0
        for leaf in leaves[switch.name]:
            nodes |= leaf
        covered |= nodes
        if nodes:
            levels[heights[switch.name]].append(SwitchNodes(nodes, leaves[switch.name]))
    unconnected = ((1 << len(names)) - 1) & ~covered
    if unconnected and levels:
        levels[0].append(SwitchNodes(unconnected, (unconnected,)))
    return [level for level in levels if level]


def switches_on(
    ordered: Sequence[Node], above: Sequence[tuple[str, str]]
) -> tuple[ConfiguredSwitch, ...]:
    """Return the switches that the cluster's nodes name, and their parents; () if none."""
    leaves: dict[str, list[str]] = {}
    for node in ordered:
        if node.switch:
            leaves.setdefault(node.switch, []).append(node.name)
    below: dict[str, list[str]] = {}
    for child, parent in above:
        below.setdefault(parent, []).append(child)
    names = dict.fromkeys([*leaves, *below]) if leaves else {}
    return tuple(
        ConfiguredSwitch(name, tuple(leaves.get(name, ())), tuple(below.get(name, ())))
        for name in names
    )


def levels_on(
    site: SlurmSite, chosen: str, ordered: Sequence[Node], above: Sequence[tuple[str, str]]
) -> list[list[SwitchNodes]]:
    """Return the switches per level, leaves first; [] = placement ignores switches.

    From ``topology.conf``, else the cluster's switches, else its racks.

    Parameters
    ----------
    site : Site
        The parsed files.
    chosen : str
        "flat" = no switches, unless a file defines them.
    ordered : sequence of Node
        In Slurm's order.
    above : sequence of (str, str)
        (switch, parent switch) pairs of the cluster.
    """
    config, names = site.config, [node.name for node in ordered]
    if site.switches:
        by_switches = config is None or config.by_switches
        return levels_of(site.switches, names) if by_switches else []
    if chosen == "flat":
        return []
    if named := switches_on(ordered, above):
        return levels_of(named, names)
    racks: dict[str, int] = {}
    for at, node in enumerate(ordered):
        racks[node.rack] = racks.get(node.rack, 0) | 1 << at
    if len(racks) < 2:
        return []
    leaves = [SwitchNodes(nodes, (nodes,)) for nodes in racks.values()]
    return [leaves, [SwitchNodes(sum(racks.values()), tuple(racks.values()))]]


def gate_of(site: SlurmSite, entries: list[PartitionEntry | None]) -> UsageLimits | None:
    """Return the usage limits of a site's files; None = no ``slurm.conf``."""
    config = site.config
    if config is None:
        return None
    part_limits = config.values.get("enforcepartlimits", "NO").upper()
    half_life_s = config.time_s("PriorityDecayHalfLife", "7-0")
    return UsageLimits(
        site.associations,
        entries,
        site.enforced,
        {"YES": "ALL"}.get(part_limits, part_limits),
        usage_decay_per_s(half_life_s),
    )


def topology_notes(site: SlurmSite, chosen: str) -> list[str]:
    """Return a note if ``slurm.conf`` and the given topology do not match, else []."""
    config = site.config
    if config is None:
        return []
    if config.by_switches and chosen == "flat":
        return [
            "slurm.conf asks for topology/tree, but no topology.conf is given (topology=): nodes"
            " are chosen by runs of neighbours."
        ]
    if site.switches and not config.by_switches:
        return [
            "A topology.conf is given, but slurm.conf does not set TopologyPlugin=topology/tree:"
            " nodes are chosen by runs of neighbours."
        ]
    return []


def preference(config: SlurmConfig | None) -> str:
    """Return the node order of ``slurm.conf``: "busy", "idle" or "", see `FreeNodes`."""
    if config is None:
        return ""
    text = config.values.get("selecttypeparameters", "").lower()
    if "cr_lln" in text or any(entry.least_loaded for entry in config.partitions):
        return "idle"
    return "busy" if "cr_pack_nodes" in text or "bf_busy_nodes" in config.options else ""


def threads_of(config: SlurmConfig | None, names: Sequence[str]) -> list[int]:
    """Return the CPUs per allocation unit of each node: a core's, a socket's, or 1."""
    text = config.values.get("selecttypeparameters", "CR_Core_Memory").lower() if config else ""
    if config is None or "cr_cpu" in text:
        return [1] * len(names)
    sizes = {
        node.name: node.per_socket if "cr_socket" in text else node.threads for node in config.nodes
    }
    # If node names differ from slurm.conf, all nodes get the same unit.
    usual = max(sizes.values(), default=1)
    return [sizes.get(name, usual) for name in names]


def tres_weights(config: SlurmConfig) -> dict[str, float]:
    """Return PriorityWeightTRES as weight per TRES."""
    return weights_of(config.values.get("priorityweighttres", ""))


def billing_units(
    entry: PartitionEntry, tres: Mapping[str, float], *, largest: bool
) -> float | None:
    """Return the billing units of resources by TRESBillingWeights; None without weights.

    `largest` (MAX_TRES) takes the largest term instead of the sum.
    """
    if not entry.billing:
        return None
    terms = {name: weight * tres.get(name, 0.0) for name, weight in entry.billing}
    if not largest:
        return sum(terms.values())
    own = [term for name, term in terms.items() if not name.startswith(("license", "bb/"))]
    return max(own, default=0.0)


def missed_sentences(site: SlurmSite) -> tuple[str, ...]:
    """Return one sentence per setting that changes results and is not simulated."""
    return tuple(dict.fromkeys(one.sentence() for one in site.findings if one.kind == MISSED))


def depth_note(depth: float) -> str:
    """Return the sentence on the average number of jobs tested per backfill cycle."""
    return f"The backfill tested {depth:,.1f} jobs a cycle (Depth Mean of sdiag)."


def find_backfill_depth(remarks: Iterable[str]) -> float | None:
    """Extract the average backfill depth from the notes of a run; None = no cycles."""
    match = next(filter(None, map(_DEPTH.match, remarks)), None)
    return float(match[1].replace(",", "")) if match else None


def limits_above_cluster(site: SlurmSite, machines: Sequence[Node]) -> tuple[str, ...]:
    """Return a sentence per group TRES limit (GrpTRES) above the cluster's total."""
    totals = {
        "cpu": sum([node.cpus for node in machines]),
        "node": float(len(machines)),
        "mem": sum([node.mem_gb for node in machines]) * MB_PER_GB,
        "gres/gpu": float(sum([node.gpus for node in machines])),
    }
    sentences, people = [], site.associations
    limits_of = [(f"QOS {name}", ("", name), one.limits) for name, one in people.qualities.items()]
    limits_of += [
        (f"{user or account}", (account, user), own)
        for (account, user), own in people.limits.items()
    ]
    for who, key, limits in limits_of:
        for tres, limit in limits.grp_tres.items():
            if limit > totals.get(tres, inf):
                sentences.append(
                    f"sacctmgr, line {people.where.get(key, 0)}: GrpTRES={tres}={limit:g} of {who}"
                    f" is above the {totals[tres]:g} of the cluster, so it never holds a job back."
                )
    return tuple(sentences)


def qos_preemption_levels(site: SlurmSite) -> dict[str, int]:
    """Return by QOS the length of its longest chain of QOS to preempt; 0 = none."""
    qualities = site.associations.qualities

    def level(name: str, above: frozenset[str]) -> int:
        """Return the longest chain below a QOS that avoids the QOS `above`."""
        below = qualities[name].preempts & qualities.keys() - above
        return max([1 + level(one, above | {one}) for one in below], default=0)

    return {name: level(name, frozenset({name})) for name in qualities}
