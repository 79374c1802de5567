"""The files of a site become the rules, partitions and switches of a controller."""

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
from allocators.sites.slurm.config import Switch as Named
from allocators.sites.slurm.fairshare import kept_in_a_second
from allocators.sites.slurm.keys import MISSED, Finding
from allocators.sites.slurm.limits import UsageLimits
from allocators.sites.slurm.reservations import Reserved, read_reservations
from allocators.sites.slurm.rules import Rules, SlurmPartition
from allocators.sites.slurm.select import SwitchNodes
from allocators.sites.slurm.state import Mask
from sim.contract import Node

_NUMBERED: Final = re.compile(r"(.*?)(\d*)")
_OLD: Final[Mapping[str, str]] = {
    "cachegroups": "16.05",
    "checkpointtype": "19.05",
    "fastschedule": "20.02",
}
"""Keys that Slurm no longer knows -> from which version on."""
_DEPTH: Final = re.compile(r"The backfill tested ([\d,.]+) jobs a cycle")
_NO_QOS: Final = Qos("")
HOUR_S: Final = 3600.0
MB_PER_GB: Final = 1024.0


def _as_is(value: float) -> float:
    return value


IN_FILE: Final[Mapping[str, tuple[str, Callable[[float], float]]]] = {
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
"""Parameter -> the key of ``slurm.conf`` that says the same, and its value in seconds and jobs."""
RULE_OF: Final = {
    "weight_age": "weight_age",
    "weight_fairshare": "weight_fairshare",
    "weight_size": "weight_size",
    "favor_small": "favor_small",
    "max_age_h": "max_age_s",
    "backfill": "backfill",
    "bf_interval_s": "interval_s",
    "bf_window_h": "window_s",
    "bf_max_job_test": "most_tested",
    "bf_max_job_user": "most_per_user",
    "queue_depth": "depth",
}
"""Parameter -> attribute of `Rules`."""


class SlurmSite(NamedTuple):
    """What its files say.

    Parameters
    ----------
    config : SlurmConfig or None
        None = no ``slurm.conf`` is given.
    associations : Associations
        Users and qualities of service.
    switches : tuple of Named
        Of ``topology.conf``.
    reserved : tuple of Reserved
        Reservations.
    of_reserved : tuple of Finding
        What becomes of each.
    """

    config: SlurmConfig | None = None
    associations: Associations = NOBODY
    switches: tuple[Named, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    of_reserved: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What becomes of each setting."""
        own = self.config.findings if self.config is not None else ()
        return (*own, *self.associations.findings, *self.of_reserved)

    @property
    def flags(self) -> frozenset[str]:
        """PriorityFlags in lower case."""
        text = self.config.values.get("priorityflags", "") if self.config is not None else ""
        return frozenset(part.strip().lower() for part in text.split(",") if part.strip())

    @property
    def enforced(self) -> frozenset[str]:
        """What of the associations is enforced: "limits", "qos", "safe"; the latter two go with
        limits.
        """
        if self.config is None:
            return frozenset()
        text = self.config.values.get("accountingstorageenforce", "").lower()
        found = {part.strip() for part in text.split(",") if part.strip()}
        if found & {"all", "safe", "limits"}:
            found |= {"limits"}
        if "all" in found:
            found |= {"qos", "safe"}
        return frozenset(found)

    def quality(self, name: str) -> Qos:
        """Return a quality of service; one that is not described changes nothing."""
        return self.associations.qualities.get(name, _NO_QOS)


@lru_cache(maxsize=32)
def read_site(
    conf: str, accounts: str, qos: str, topology: str, reservations: str = ""
) -> SlurmSite:
    """Read the texts of the files; "" = not given.

    Raises
    ------
    ParameterError
        If one cannot be read.
    """
    return SlurmSite(
        read_conf(conf) if conf else None,
        read_associations(accounts, qos) if accounts or qos else NOBODY,
        read_topology(topology) if topology else (),
        *(read_reservations(reservations) if reservations else ((), ())),
    )


def name_order(names: Sequence[str]) -> list[int]:
    """Return the places of nodes in the order that Slurm keeps them in: by prefix, then number."""

    def key(at: int) -> tuple[str, int, str]:
        found = _NUMBERED.fullmatch(names[at])
        assert found is not None, "matches any text"
        return found[1], int(found[2] or -1), names[at]

    return sorted(range(len(names)), key=key)


def is_classic(site: SlurmSite, chosen: str) -> tuple[bool, str]:
    """Return whether fair share is the classic one, and what to say of that."""
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
    dampened = config.where.get("fairsharedampeningfactor", 0)
    old = next((key for key in _OLD if key in config.values), "")
    if not dampened or "fair_tree" in flags:
        return False, ""
    if old:
        return True, (
            f"slurm.conf, line {config.where[old]}, has a key that Slurm no longer knows from"
            f" {_OLD[old]} on, so fair share is the classic one of that time (fairshare = auto);"
            " set fairshare = tree if this Slurm is newer."
        )
    return False, (
        f"slurm.conf, line {dampened}: FairShareDampeningFactor has no effect under Fair Tree, the"
        " default from 19.05 on; set fairshare = classic if this Slurm is older."
    )


def rules_of(site: SlurmSite, config: SlurmConfig) -> Rules:
    """Return what a ``slurm.conf`` sets.

    Raises
    ------
    ParameterError
        If a number or a time cannot be read.
    """
    option, number, flags = config.option, config.number, site.flags

    def most(key: str) -> float:
        return option(key, 0) or inf

    def said(key: str) -> bool:
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
        most_tested=option("bf_max_job_test", 500),
        most_per_user=most("bf_max_job_user"),
        most_per_part=most("bf_max_job_part"),
        most_per_user_part=most("bf_max_job_user_part"),
        most_per_account=most("bf_max_job_assoc"),
        most_per_array=option("bf_max_job_array_resv", 20),
        most_plans_part=most("bf_job_part_count_reserve"),
        most_started=most("bf_max_job_start"),
        most_started_pass=most("sched_max_job_start"),
        depth_per_part=most("partition_job_depth"),
        least_age_s=option("bf_min_age_reserve", 0),
        least_priority=option("bf_min_prio_reserve", 0),
        one_plan=said("bf_one_resv_per_job"),
        linear=said("bf_window_linear"),
        defer=said("defer") or said("defer_batch"),
        limit_stops=said("assoc_limit_stop"),
        reset=config.values.get("priorityusageresetperiod", "NONE").upper(),
        never_lowered="incr_only" in flags,
        by_time="small_relative_to_time" in flags,
        accrue_always="accrue_always" in flags,
    )


def partitions_of(
    site: SlurmSite, config: SlurmConfig, names: Sequence[str]
) -> Iterator[SlurmPartition]:
    """Yield the partitions of a ``slurm.conf`` on nodes of these names."""
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
    site: SlurmSite, named: Sequence[str], ordered: Sequence[Node]
) -> list[SlurmPartition]:
    """Return the partitions on these nodes: of ``slurm.conf``, or those that jobs name."""
    names = [node.name for node in ordered]
    found = (
        [SlurmPartition(0, name=name) for name in named]
        if site.config is None
        else list(partitions_of(site, site.config, names))
    )
    # Of a cluster with other names of nodes its own partitions count.
    return [
        part if part.nodes else replace(part, nodes=_members(ordered, part.name)) for part in found
    ]


def _members(ordered: Sequence[Node], name: str) -> Mask:
    return sum(
        [
            1 << at
            for at, node in enumerate(ordered)
            if not node.partitions or not name or name in node.partitions
        ]
    )


def levels_of(switches: Sequence[Named], names: Sequence[str]) -> list[list[SwitchNodes]]:
    """Return the switches of each level, from the leaves up; nodes below none are a leaf of their
    own.
    """
    at = {name: 1 << place for place, name in enumerate(names)}
    by_name = {switch.name: switch for switch in switches}
    leaves: dict[str, tuple[Mask, ...]] = {}
    heights: dict[str, int] = {}

    def look(switch: Named) -> None:
        if switch.name in leaves:
            return
        below = [by_name[name] for name in switch.switches if name in by_name]
        for child in below:
            look(child)
        own = sum([at.get(name, 0) for name in switch.nodes])
        found = [own] if own else []
        leaves[switch.name] = (*found, *(mask for one in below for mask in leaves[one.name]))
        heights[switch.name] = 1 + max([heights[one.name] for one in below], default=-1)

    for switch in switches:
        look(switch)
    levels: list[list[SwitchNodes]] = [[] for _ in range(max(heights.values(), default=-1) + 1)]
    covered = 0
    for switch in switches:
        nodes = 0
        for leaf in leaves[switch.name]:
            nodes |= leaf
        covered |= nodes
        if nodes:
            levels[heights[switch.name]].append(SwitchNodes(nodes, leaves[switch.name]))
    alone = ((1 << len(names)) - 1) & ~covered
    if alone and levels:
        levels[0].append(SwitchNodes(alone, (alone,)))
    return [level for level in levels if level]


def switches_on(ordered: Sequence[Node], above: Sequence[tuple[str, str]]) -> tuple[Named, ...]:
    """Return the switches that nodes of a cluster name, with those above them; () = none does."""
    leaves: dict[str, list[str]] = {}
    for node in ordered:
        if node.switch:
            leaves.setdefault(node.switch, []).append(node.name)
    below: dict[str, list[str]] = {}
    for child, parent in above:
        below.setdefault(parent, []).append(child)
    names = dict.fromkeys([*leaves, *below]) if leaves else {}
    return tuple(
        Named(name, tuple(leaves.get(name, ())), tuple(below.get(name, ()))) for name in names
    )


def levels_on(
    site: SlurmSite, chosen: str, ordered: Sequence[Node], above: Sequence[tuple[str, str]]
) -> list[list[SwitchNodes]]:
    """Return the switches over these nodes: of ``topology.conf``, of the cluster, or its racks.

    Parameters
    ----------
    site : Site
        For its files.
    chosen : str
        "flat" = none, unless a file has them.
    ordered : sequence of Node
        In Slurm's order.
    above : sequence of (str, str)
        Each switch of the cluster with the one above it.
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
    """Return the gate that a site's files set; None = there is no ``slurm.conf``."""
    config = site.config
    if config is None:
        return None
    said = config.values.get("enforcepartlimits", "NO").upper()
    half_life_s = config.time_s("PriorityDecayHalfLife", "7-0")
    return UsageLimits(
        site.associations,
        entries,
        site.enforced,
        {"YES": "ALL"}.get(said, said),
        kept_in_a_second(half_life_s),
    )


def topology_notes(site: SlurmSite, chosen: str) -> list[str]:
    """Return what to say where ``slurm.conf`` and the given topology do not go together."""
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
    """Return which nodes come first, see `Nodes`."""
    if config is None:
        return ""
    text = config.values.get("selecttypeparameters", "").lower()
    if "cr_lln" in text or any(entry.least_loaded for entry in config.partitions):
        return "idle"
    return "busy" if "cr_pack_nodes" in text or "bf_busy_nodes" in config.options else ""


def threads_of(config: SlurmConfig | None, names: Sequence[str]) -> list[int]:
    """Return how many CPUs are given out together on each node: those of a core, or of a socket."""
    text = config.values.get("selecttypeparameters", "CR_Core_Memory").lower() if config else ""
    if config is None or "cr_cpu" in text:
        return [1] * len(names)
    sizes = {
        node.name: node.per_socket if "cr_socket" in text else node.threads for node in config.nodes
    }
    # Of a cluster with other names of nodes all are alike.
    usual = max(sizes.values(), default=1)
    return [sizes.get(name, usual) for name in names]


def tres_weights(config: SlurmConfig) -> dict[str, float]:
    """Return PriorityWeightTRES."""
    return weights_of(config.values.get("priorityweighttres", ""))


def weighed(entry: PartitionEntry, tres: Mapping[str, float], *, largest: bool) -> float | None:
    """Return what TRESBillingWeights make of resources; None = the partition has none.

    `largest` (MAX_TRES) counts the largest of the terms of a node instead of their sum.
    """
    if not entry.billing:
        return None
    terms = {name: weight * tres.get(name, 0.0) for name, weight in entry.billing}
    if not largest:
        return sum(terms.values())
    own = [term for name, term in terms.items() if not name.startswith(("license", "bb/"))]
    return max(own, default=0.0)


def missed(site: SlurmSite) -> tuple[str, ...]:
    """Return what changes results and is not simulated, as sentences."""
    return tuple(dict.fromkeys(one.sentence() for one in site.findings if one.kind == MISSED))


def depth_told(depth: float) -> str:
    """Return the sentence on how many jobs a backfill cycle tests on average."""
    return f"The backfill tested {depth:,.1f} jobs a cycle (Depth Mean of sdiag)."


def depth_in(remarks: Iterable[str]) -> float | None:
    """Return what `depth_told` told among the remarks on a run; None = no cycle had jobs."""
    found = next(filter(None, map(_DEPTH.match, remarks)), None)
    return float(found[1].replace(",", "")) if found else None


def too_large(site: SlurmSite, machines: Sequence[Node]) -> tuple[str, ...]:
    """Return the limits on what may be used at once that are above the cluster, as sentences."""
    totals = {
        "cpu": sum([node.cpus for node in machines]),
        "node": float(len(machines)),
        "mem": sum([node.mem_gb for node in machines]) * MB_PER_GB,
        "gres/gpu": float(sum([node.gpus for node in machines])),
    }
    found, people = [], site.associations
    named = [(f"QOS {name}", ("", name), one.limits) for name, one in people.qualities.items()]
    named += [
        (f"{user or account}", (account, user), own)
        for (account, user), own in people.limits.items()
    ]
    for who, key, limits in named:
        for tres, most in limits.grp_tres.items():
            if most > totals.get(tres, inf):
                found.append(
                    f"sacctmgr, line {people.where.get(key, 0)}: GrpTRES={tres}={most:g} of {who}"
                    f" is above the {totals[tres]:g} of the cluster, so it never holds a job back."
                )
    return tuple(found)


def levels_of_preemption(site: SlurmSite) -> dict[str, int]:
    """Return how many qualities of service are below each, one below the other: jobs of the higher
    come first, as they may displace the others.
    """
    qualities = site.associations.qualities

    def level(name: str, above: frozenset[str]) -> int:
        below = qualities[name].preempts & qualities.keys() - above
        return max([1 + level(one, above | {one}) for one in below], default=0)

    return {name: level(name, frozenset({name})) for name in qualities}
