"""Whose nodes a job may take: preempt/partition_prio and preempt/qos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.rules import SlurmPartition
from allocators.sites.slurm.select import FreeNodes
from allocators.sites.slurm.site import SlurmSite
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of

CANCEL, REQUEUE, SUSPEND = "CANCEL", "REQUEUE", "SUSPEND"
OFF, WITHIN, GANG = "OFF", "WITHIN", "GANG"
_TYPES: Final = {"preempt/partition_prio": "tier", "preempt/qos": "qos"}


class Victim(NamedTuple):
    """A running job that may be displaced, what becomes of it, and how many seconds later."""

    job: SlurmJob
    mode: str
    grace_s: float = 0.0

    def leave(self, nodes: FreeNodes) -> None:
        """Free what it holds: all of it, or its cores where it is suspended."""
        give = nodes.take_cores if self.mode == SUSPEND else nodes.take
        give(self.job, self.job.held, -1)


@dataclass(frozen=True)
class PreemptionRules:
    """Who may displace whom, and what becomes of the displaced.

    Parameters
    ----------
    by : {"tier", "qos"}
        PreemptType.
    mode : str
        PreemptMode of the cluster.
    exempt_s : float, seconds
        PreemptExemptTime.
    youngest_first : bool
        preempt_youngest_first.
    site : Site
        For the modes of qualities of service.
    modes, graces_s : tuple
        PreemptMode ("" = that of the cluster) and GraceTime of each partition, by number.
    reorders : int
        preempt_reorder_count.
    strict : bool
        preempt_strict_order.
    """

    by: str
    mode: str
    exempt_s: float
    youngest_first: bool
    site: SlurmSite
    modes: tuple[str, ...]
    graces_s: tuple[float, ...]
    reorders: int = 1
    strict: bool = False

    @property
    def suspends(self) -> bool:
        """Whether the gang scheduler runs, without which nobody is suspended."""
        return GANG in self.mode.split(",")

    @property
    def by_priority(self) -> bool:
        """Whether the priorities of jobs may decide who displaces whom."""
        qualities = self.site.associations.qualities.values()
        modes = [self.mode, *[quality.preempt_mode for quality in qualities]]
        return any(WITHIN in mode for mode in modes)

    def victims(
        self,
        now_s: float,
        job: SlurmJob,
        running: Iterable[SlurmJob],
        partitions: Sequence[SlurmPartition],
    ) -> list[Victim]:
        """Return the jobs that a job may displace, those to go first at the beginning.

        Notes
        -----
        Slurm's order: the lower tier, or the lower priority of the quality of service, first, then
        those on fewer nodes.
        """
        tier, preempts = partitions[job.partition].tier, self.site.quality(job.qos).preempts
        found: list[tuple[float, Victim]] = []
        for one in running:
            if self.by == "tier":
                above = float(partitions[one.partition].tier)
                may, mode = above < tier, self.modes[one.partition] or self.mode
                exempt_s, grace_s = self.exempt_s, self.graces_s[one.partition]
            else:
                quality = self.site.quality(one.qos)
                above, mode = quality.priority, quality.preempt_mode or self.mode
                may = one.qos in preempts and bool(one.qos)
                if WITHIN in mode.split(",") and one.qos == job.qos:
                    may = one.priority < job.priority
                exempt_s = quality.exempt_s if quality.exempt_s >= 0 else self.exempt_s
                grace_s = quality.grace_s
            # Ours: who started at this very instant stays for now.
            if not may or one.stays or now_s - one.start_s < exempt_s or one.start_s >= now_s:
                continue
            if one.suspended_s < inf:
                found.append((above, Victim(one, SUSPEND)))
                continue
            words = mode.split(",")
            if CANCEL in words or REQUEUE in words:
                what = REQUEUE if REQUEUE in words and one.requeue else CANCEL
                found.append((above, Victim(one, what, grace_s)))
            elif SUSPEND in words and self.suspends and one.partition != job.partition:
                found.append((above, Victim(one, SUSPEND)))
        if self.youngest_first:
            found.sort(key=lambda item: (-item[1].job.start_s, item[1].job.id))
        else:
            found.sort(key=lambda item: (item[0], item[1].job.on.bit_count(), item[1].job.id))
        return [victim for _, victim in found]

    def chosen(
        self, job: SlurmJob, available: Mask, nodes: FreeNodes, victims: Sequence[Victim]
    ) -> tuple[Placement, list[Victim]]:
        """Return where a job goes in the place of others, and which of them leave; () = it does not
        fit even without all of them.

        Notes
        -----
        As select/cons_tres does: victims leave one by one until the job fits. Whose leaving made
        room is moved to the front, those before it go by the number of nodes that they share with
        the job (`strict`: stay as they are), and it begins anew, once more than `reorders` says.
        Whoever has left and is on none of the chosen nodes stays. Those that are suspended already
        do not count. Which cores a job has is not known here: ours is to suspend as few.
        """
        suspended = [one for one in victims if one.job.suspended_s < inf]
        order, tries = [one for one in victims if one.job.suspended_s == inf], 0
        if suspended:
            nodes = nodes.copy()
            for one in suspended:
                one.leave(nodes)
            if found := nodes.select(job, available):
                return found, []
        while True:
            ahead, gone = nodes.copy(), list[Victim]()
            held: Placement = ()
            for victim in order:
                victim.leave(ahead)
                gone.append(victim)
                held = ahead.select(job, available)
                if held:
                    break
            if not held:
                return (), []
            on = mask_of(held)
            if tries > self.reorders or len(order) <= tries + 1:
                return held, [one for one in gone if one.job.on & on]
            tries += 1
            last, before = gone[-1], gone[:-1]
            if not self.strict:
                rest = order[len(gone) :]
                before = sorted(before, key=lambda one: -(one.job.on & on).bit_count())
                order = [last, *before, *rest]
            else:
                order = [last, *[one for one in order if one is not last]]


def resumable(
    suspended: Iterable[SlurmJob], nodes: FreeNodes, tiers: Sequence[SlurmPartition]
) -> list[SlurmJob]:
    """Return the suspended jobs whose cores nobody uses, the higher tier and those that started
    first at the beginning. All that they hold is booked in `nodes`.
    """
    cores: dict[int, float] = {}
    own = {
        job: [(node, nodes.share(job, node, tasks)[1]) for node, tasks in job.held]
        for job in suspended
    }
    for parts in own.values():
        for node, cpus in parts:
            cores[node] = cores.get(node, 0.0) + cpus
    found = []
    for job in sorted(own, key=lambda one: (-tiers[one.partition].tier, one.start_s, one.id)):
        if all(nodes.cpus[node] + cores[node] >= cpus - 1e-9 for node, cpus in own[job]):
            found.append(job)
            for node, cpus in own[job]:
                cores[node] -= cpus
    return found


def preemption_of(site: SlurmSite) -> PreemptionRules | None:
    """Return the preemption that a ``slurm.conf`` sets; None = none."""
    config = site.config
    if config is None:
        return None
    by = _TYPES.get(config.values.get("preempttype", "preempt/none").lower())
    if by is None:
        return None
    return PreemptionRules(
        by,
        config.values.get("preemptmode", OFF).upper(),
        config.time_s("PreemptExemptTime", "0"),
        "preempt_youngest_first" in config.options,
        site,
        ("", *(entry.preempt_mode for entry in config.partitions)),
        (0.0, *(entry.grace_s for entry in config.partitions)),
        int(config.option("preempt_reorder_count", 1)),
        "preempt_strict_order" in config.options,
    )
