"""Preemption between jobs: preempt/partition_prio and preempt/qos."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.node_selection import FreeNodes
from allocators.sites.slurm.rules import SlurmPartition
from allocators.sites.slurm.site import SlurmSite
from allocators.sites.slurm.state import Mask, Placement, SlurmJob, mask_of

CANCEL, REQUEUE, SUSPEND = "CANCEL", "REQUEUE", "SUSPEND"
OFF, WITHIN, GANG = "OFF", "WITHIN", "GANG"
_TYPES: Final = {"preempt/partition_prio": "tier", "preempt/qos": "qos"}


class Victim(NamedTuple):
    """A running job to preempt, its PreemptMode, and its grace time."""

    job: SlurmJob
    mode: str
    grace_s: float = 0.0

    def release(self, nodes: FreeNodes) -> None:
        """Free the job's resources on `nodes`: all, or only cores if it is to be suspended."""
        take = nodes.take_cores if self.mode == SUSPEND else nodes.take
        take(self.job, self.job.held, -1)


@dataclass(frozen=True)
class PreemptionRules:
    """The preemption settings of a site.

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
    site : SlurmSite
        For the PreemptMode of each QOS.
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
        """True if the gang scheduler runs, which suspension needs."""
        return GANG in self.mode.split(",")

    @property
    def by_priority(self) -> bool:
        """True if job priorities may decide a preemption (PreemptMode=WITHIN)."""
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
        """Return the victims that a job may preempt, in the order of preemption.

        Slurm's order: lower tier or lower priority of the QOS first, then fewer nodes; or the
        latest start. Jobs within PreemptExemptTime, started now, or marked to stay are left out.
        """
        tier, preempts = partitions[job.partition].tier, self.site.quality(job.qos).preempts
        ranked: list[tuple[float, Victim]] = []
        for running_job in running:
            if self.by == "tier":
                standing = float(partitions[running_job.partition].tier)
                may, mode = standing < tier, self.modes[running_job.partition] or self.mode
                exempt_s, grace_s = self.exempt_s, self.graces_s[running_job.partition]
            else:
                quality = self.site.quality(running_job.qos)
                standing, mode = quality.priority, quality.preempt_mode or self.mode
                may = running_job.qos in preempts and bool(running_job.qos)
                if WITHIN in mode.split(",") and running_job.qos == job.qos:
                    may = running_job.priority < job.priority
                exempt_s = quality.exempt_s if quality.exempt_s >= 0 else self.exempt_s
                grace_s = quality.grace_s
            # Assumption: jobs started at this instant are not preempted.
            if (
                not may
                or running_job.stays
                or now_s - running_job.start_s < exempt_s
                or running_job.start_s >= now_s
            ):
                continue
            if running_job.suspended_s < inf:
                ranked.append((standing, Victim(running_job, SUSPEND)))
                continue
            words = mode.split(",")
            if CANCEL in words or REQUEUE in words:
                what = REQUEUE if REQUEUE in words and running_job.requeue else CANCEL
                ranked.append((standing, Victim(running_job, what, grace_s)))
            elif SUSPEND in words and self.suspends and running_job.partition != job.partition:
                ranked.append((standing, Victim(running_job, SUSPEND)))
        if self.youngest_first:
            ranked.sort(key=lambda item: (-item[1].job.start_s, item[1].job.id))
        else:
            ranked.sort(key=lambda item: (item[0], item[1].job.on.bit_count(), item[1].job.id))
        return [victim for _, victim in ranked]

    def choose_victims(
        self, job: SlurmJob, available: Mask, nodes: FreeNodes, victims: Sequence[Victim]
    ) -> tuple[Placement, list[Victim]]:
        """Return the placement of a job and the victims on it; ((), []) = it cannot fit.

        Nothing is preempted here.

        Notes
        -----
        As in select/cons_tres, victims are removed one by one until the job fits. The last one is
        moved to the front, the others are sorted by the number of nodes shared with the job
        (unless `strict`), and the search is repeated `reorders` + 1 times. Victims outside the
        chosen nodes keep running. Suspended jobs do not count. Cores are not tracked one by one,
        so that as few jobs as possible are suspended.
        """
        suspended = [one for one in victims if one.job.suspended_s < inf]
        order, tries = [one for one in victims if one.job.suspended_s == inf], 0
        if suspended:
            nodes = nodes.copy()
            for one in suspended:
                one.release(nodes)
            if placement := nodes.select(job, available):
                return placement, []
        while True:
            ahead, removed = nodes.copy(), list[Victim]()
            held: Placement = ()
            for victim in order:
                victim.release(ahead)
                removed.append(victim)
                held = ahead.select(job, available)
                if held:
                    break
            if not held:
                return (), []
            on = mask_of(held)
            if tries > self.reorders or len(order) <= tries + 1:
                return held, [one for one in removed if one.job.on & on]
            tries += 1
            decisive, before = removed[-1], removed[:-1]
            if not self.strict:
                rest = order[len(removed) :]
                before = sorted(before, key=lambda one: -(one.job.on & on).bit_count())
                order = [decisive, *before, *rest]
            else:
                order = [decisive, *[one for one in order if one is not decisive]]


def resumable(
    suspended: Iterable[SlurmJob], nodes: FreeNodes, tiers: Sequence[SlurmPartition]
) -> list[SlurmJob]:
    """Return the suspended jobs with free cores, higher tiers and earlier starts first.

    Each takes its cores from the next.

    Their resources are all booked in `nodes`.
    """
    cores: dict[int, float] = {}
    own = {
        job: [(node, nodes.share(job, node, tasks)[1]) for node, tasks in job.held]
        for job in suspended
    }
    for parts in own.values():
        for node, cpus in parts:
            cores[node] = cores.get(node, 0.0) + cpus
    resumed = []
    for job in sorted(own, key=lambda one: (-tiers[one.partition].tier, one.start_s, one.id)):
        if all(nodes.cpus[node] + cores[node] >= cpus - 1e-9 for node, cpus in own[job]):
            resumed.append(job)
            for node, cpus in own[job]:
                cores[node] -= cpus
    return resumed


def preemption_of(site: SlurmSite) -> PreemptionRules | None:
    """Return the preemption rules of a site's ``slurm.conf``; None = preemption is off."""
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
