"""Limits of associations and QOS, reported with the reasons of ``squeue``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

from allocators.sites.slurm.accounts import NO_LIMITS, AssociationLimits, Associations, Qos
from allocators.sites.slurm.config import PartitionEntry
from allocators.sites.slurm.fairshare import ROOT
from allocators.sites.slurm.state import SlurmJob

_NAMES: Final = {"cpu": "Cpu", "mem": "Mem", "node": "Node", "billing": "Billing"}
_WALL: Final = "wall"
Key = tuple[str, ...]
Level = tuple[Key, AssociationLimits, str]
"""Key of the association or QOS, its limits, and "qos" or "assoc"."""
Scope = tuple[Key, float, Mapping[str, float], str, str]
"""Key of the counted usage, limits on running jobs and TRES, prefix and suffix of the reason."""


class _LimitChain(NamedTuple):
    """The limits that apply to the jobs of a user, from specific to general.

    `levels` are all limits, `assoc` those of associations, `scopes` the counted usages, and
    `metered` the levels that limit usage over time.
    """

    levels: tuple[Level, ...]
    assoc: tuple[Level, ...]
    scopes: tuple[Scope, ...]
    metered: tuple[Level, ...]


def _tres_reason(before: str, tres: str, after: str) -> str:
    """Return the ``squeue`` reason for a limit on a TRES, such as QOSMaxGRESPerJob."""
    name = _NAMES.get(tres, "GRES" if tres.startswith("gres/") else "TRES")
    return f"{before}{name}{after}" + ("Limit" if name not in {"GRES", "TRES"} else "")


class UsageLimits:
    """Checks jobs against the limits of associations, QOS and partitions.

    Parameters
    ----------
    associations : Associations
        Limits of accounts, users and qualities of service.
    partitions : sequence of PartitionEntry or None
        Partitions by number; None = without limits of its own.
    enforced : frozenset of str
        Subset of "limits", "qos" and "safe".
    part_limits : {"ALL", "ANY", "NO"}
        EnforcePartLimits: refuse jobs that break limits of all, any or none of their partitions.
    keep : float
        Decay factor of usage per second.
    """

    def __init__(
        self,
        associations: Associations,
        partitions: list[PartitionEntry | None],
        enforced: frozenset[str],
        part_limits: str,
        keep: float,
    ) -> None:
        self._all, self._partitions = associations, partitions
        self._limits, self._safe = "limits" in enforced, "safe" in enforced
        self._qos = self._limits or "qos" in enforced
        self._part_limits, self._keep = part_limits, keep
        self._parents = {one.account: one.parent for one in associations.entries if not one.user}
        self._running: dict[Key, Counter[str]] = {}
        self._submitted: Counter[Key] = Counter()
        self._counted: dict[int, tuple[Key, ...]] = {}
        """Keys that counted each submitted job; it may start in another partition."""
        self._jobs: dict[Key, dict[int, SlurmJob]] = {}
        self._used: dict[Key, dict[str, tuple[float, float]]] = {}
        self._arrays: Counter[str] = Counter()
        self._quality_of = [
            associations.qualities.get(entry.qos) if entry is not None and entry.qos else None
            for entry in partitions
        ]
        self._chains: dict[tuple[str, str, str, int], _LimitChain] = {}

    # -- at submission
    # ----------------------------------------------------------------------------------------------

    def refusal(self, jobs: tuple[SlurmJob, ...]) -> str:
        """Return the reason to refuse a job at submission; "" = accepted.

        In order: limits of its partitions, numbers of queued jobs, limits per job if they refuse
        jobs, and limits that would block it forever.

        Parameters
        ----------
        jobs : tuple of Job
            The entries of the job, one per partition.
        """
        if self._part_limits != "NO":
            broken_limits = [self._partition_reason(entry) for entry in jobs]
            is_refused = all(broken_limits) if self._part_limits == "ANY" else any(broken_limits)
            if is_refused:
                return next(filter(None, broken_limits))
        job = jobs[0]
        reason = self._submit_reason(job) if self._limits else ""
        if not reason and self._is_deny_on_limit(job):
            reason = self._per_job_reason(job)
        permanent_reasons = [self._permanent_reason(entry) for entry in jobs]
        return reason or (permanent_reasons[0] if all(permanent_reasons) else "")

    def _permanent_reason(self, job: SlurmJob) -> str:
        """Return the limit that would block a job forever."""
        return self._own_reason(job) or (self._concurrency_reason(job, {}) if self._qos else "")

    def _submit_reason(self, job: SlurmJob) -> str:
        """Return the limit on queued jobs that a submission would exceed; "" = none."""
        count = self._submitted
        chain = self._limit_chain(job)
        own = next((one.max_submit for _, one, _ in chain.assoc if one.max_submit < inf), inf)
        if chain.assoc and count[chain.assoc[0][0]] >= own:
            return "AssocMaxSubmitJobLimit"
        for key, limits, name in chain.levels:
            if count[key] >= limits.grp_submit:
                return "AssocGrpSubmitJobsLimit" if name == "assoc" else "QOSGrpSubmitJobsLimit"
            if name == "qos" and count[*key, "user", job.user] >= limits.max_submit_pu:
                return "QOSMaxSubmitJobPerUserLimit"
            if name == "qos" and count[*key, "account", job.account] >= limits.max_submit_pa:
                return "QOSMaxSubmitJobPerAccountLimit"
        return ""

    def count_submission(self, job: SlurmJob, sign: int = 1) -> None:
        """Add a submitted job to the counts of its associations and QOS; -1 removes it."""
        if not self._limits:
            return
        if sign > 0:
            self._counted[job.id] = tuple(self._usage_keys(job))
        for key in self._counted[job.id] if sign > 0 else self._counted.pop(job.id, ()):
            self._submitted[key] += sign

    def _is_deny_on_limit(self, job: SlurmJob) -> bool:
        """Return True if a job beyond a limit per job is refused instead of queued.

        By DenyOnLimit of its QOS, or by EnforcePartLimits.
        """
        quality = self._all.qualities.get(job.qos)
        flags = quality.flags if quality is not None else frozenset()
        return "denyonlimit" in flags or self._part_limits != "NO"

    def _partition_reason(self, job: SlurmJob) -> str:
        """Return the limit of its partition that a job breaks; "" = none."""
        entry = self._partitions[job.partition]
        if entry is None:
            return ""
        account, qos = job.account.lower(), job.qos
        nodes = job.needed_nodes
        mem_mb = 1024.0 * (job.node_mem_gb + job.mem_gb * (job.per_node or -(-job.tasks // nodes)))
        checks = (
            (job.limit_s > entry.max_time_s, "PartitionTimeLimit"),
            (nodes > entry.max_nodes, "PartitionNodeLimit"),
            (max(job.nodes, nodes) < entry.min_nodes, "PartitionNodeLimit"),
            (mem_mb > entry.max_mem_per_node_mb * (1 + 1e-9), "MaxMemPerLimit"),
            (
                bool(entry.allow_accounts) and account not in entry.allow_accounts,
                "AccountNotAllowed",
            ),
            (account in entry.deny_accounts, "AccountNotAllowed"),
            (bool(entry.allow_qos) and qos not in entry.allow_qos, "QOSNotAllowed"),
            (qos in entry.deny_qos, "QOSNotAllowed"),
        )
        return next((word for broken, word in checks if broken), "")

    # -- before a start
    # ----------------------------------------------------------------------------------------------

    def blocking_reason(self, now_s: float, job: SlurmJob) -> str:
        """Return the limit or rule that blocks a job even with free nodes; "" = none.

        In order: its own size (cached), its array, QOS thresholds, running jobs, usage over time.
        """
        if job.permanent_reason is None:
            job.permanent_reason = self._own_reason(job)
        if job.permanent_reason:
            return job.permanent_reason
        if job.array_most < inf and self._arrays[job.array] >= job.array_most:
            return "JobArrayTaskLimit"
        if not self._qos:
            return ""
        chain = self._limit_chain(job)
        quality = self._all.qualities.get(job.qos)
        reason = _threshold_reason(job, quality) if quality is not None else ""
        if not reason and chain.scopes:
            reason = self._concurrency_reason(job, self._running)
        return reason or (self._metered_reason(now_s, job) if chain.metered else "")

    def _own_reason(self, job: SlurmJob) -> str:
        """Return the limit that a job breaks by its own size, or that its partition is down.

        "" = none. Usage does not count.
        """
        entry = self._partitions[job.partition]
        if entry is not None and not entry.up:
            return "PartitionDown"
        return self._partition_reason(job) or (self._per_job_reason(job) if self._qos else "")

    def _per_job_reason(self, job: SlurmJob) -> str:
        """Return the limit per job that a job breaks; "" = none.

        Of several limits on one amount, the most specific counts.
        """
        nodes, wall_s = float(job.needed_nodes), job.limit_s
        seen: set[tuple[str, str]] = set()
        for _, limits, name in self._limit_chain(job).levels:
            before = "QOS" if name == "qos" else "Assoc"
            for field, after, over, share in (
                ("max_tres", "PerJob", True, 1.0),
                ("max_tres_per_node", "PerNode", True, nodes),
                ("min_tres", "NotMet", False, 1.0),
            ):
                for tres, most in getattr(limits, field).items():
                    if (field, tres) in seen:
                        continue
                    seen.add((field, tres))
                    has = job.tres.get(tres, 0.0) / share
                    if has > most if over else has < most:
                        return _tres_reason(f"{before}{'Max' if over else 'Min'}", tres, after)
            for tres, most in limits.max_tres_mins.items():
                if ("mins", tres) not in seen and job.tres.get(tres, 0.0) * wall_s / 60 > most:
                    return _tres_reason(f"{before}Max", tres, "MinutesPerJob")
                seen.add(("mins", tres))
            if limits.max_wall_s < inf and ("wall", "") not in seen:
                seen.add(("wall", ""))
                if wall_s > limits.max_wall_s:
                    return f"{before}MaxWallDurationPerJobLimit"
        return ""

    def _concurrency_reason(self, job: SlurmJob, used: Mapping[Key, Mapping[str, float]]) -> str:
        """Return the limit on running jobs or TRES that a job would exceed; "" = none.

        `used` are the running jobs (``jobs``) and TRES amounts by key.
        """
        for scope, max_jobs, most, word, after in self._limit_chain(job).scopes:
            running = used.get(scope, _NOTHING)
            if running["jobs"] >= max_jobs:
                return f"{word}Jobs{after}Limit"
            for tres, amount in most.items():
                if running[tres] + job.tres.get(tres, 0.0) > amount + 1e-9:
                    return _tres_reason(word, tres, after)
        return ""

    def _metered_reason(self, now_s: float, job: SlurmJob) -> str:
        """Return the group limit on TRES-minutes or wall time that blocks a job; "" = none.

        GrpTRESRunMins limits what running jobs and this job may still use until their time limits.
        GrpTRESMins limits usage so far, plus that amount if "safe" is enforced. GrpWall limits wall
        time so far.
        """
        minutes = job.limit_s / 60
        for key, limits, name in self._limit_chain(job).metered:
            before = "QOS" if name == "qos" else "Assoc"
            for tres, most in limits.grp_tres_run_mins.items():
                ahead = self._committed_min(now_s, key, tres) + job.tres.get(tres, 0.0) * minutes
                if ahead > most:
                    return _tres_reason(f"{before}Grp", tres, "RunMinutes")
            for tres, most in limits.grp_tres_mins.items():
                used = self._used_min(now_s, key, tres)
                if self._safe:
                    used += (
                        self._committed_min(now_s, key, tres) + job.tres.get(tres, 0.0) * minutes
                    )
                if used > most or (not self._safe and used >= most):
                    return _tres_reason(f"{before}Grp", tres, "Minutes")
            if limits.grp_wall_s < inf:
                used = self._used_min(now_s, key, _WALL) * 60
                if used >= limits.grp_wall_s:
                    return f"{before}GrpWallLimit"
        return ""

    def _committed_min(self, now_s: float, key: Key, tres: str) -> float:
        """Return the TRES-minutes left to the running jobs of a key until their limits."""
        jobs = self._jobs.get(key, {}).values()
        return sum(
            [
                max(one.start_s + one.limit_s - now_s, 0.0) / 60 * one.tres.get(tres, 0.0)
                for one in jobs
            ]
        )

    def _used_min(self, now_s: float, key: Key, tres: str) -> float:
        """Return the decayed usage of a key in TRES-minutes, running jobs included.

        For "wall", in minutes of run time.
        """
        used, at_s = self._used.get(key, {}).get(tres, (0.0, now_s))
        used *= self._decay_factor(key, now_s - at_s)
        running = self._jobs.get(key, {}).values()
        return used + sum(
            [
                (now_s - one.start_s) / 60 * (1.0 if tres == _WALL else one.tres.get(tres, 0.0))
                for one in running
            ]
        )

    def _decay_factor(self, key: Key, elapsed_s: float) -> float:
        """Return the share of usage left after some time; 1 for QOS with NoDecay."""
        quality = self._all.qualities.get(key[1]) if key[0] == "qos" else None
        if quality is not None and "nodecay" in quality.flags:
            return 1.0
        return float(self._keep**elapsed_s)

    # -- running jobs
    # ----------------------------------------------------------------------------------------------

    def count_start(self, job: SlurmJob) -> None:
        """Add a starting job to the running jobs and TRES of its keys and its array."""
        if job.array_most < inf:
            self._arrays[job.array] += 1
        if self._qos:
            for key in self._usage_keys(job):
                counts = self._running.setdefault(key, Counter())
                counts["jobs"] += 1
                for tres, amount in job.tres.items():
                    counts[tres] += amount  # type: ignore[assignment]  # counts hold fractions, too
                self._jobs.setdefault(key, {})[job.id] = job

    def count_end(self, now_s: float, job: SlurmJob) -> None:
        """Remove an ended job from the running jobs, and book its usage by key."""
        if job.array_most < inf:
            self._arrays[job.array] -= 1
        if not self._qos:
            return
        minutes = (now_s - job.start_s) / 60
        for key in self._usage_keys(job):
            counts = self._running[key]
            counts["jobs"] -= 1
            del self._jobs[key][job.id]
            book = self._used.setdefault(key, {})
            for tres, amount in (*job.tres.items(), (_WALL, 1.0)):
                if tres != _WALL:
                    counts[tres] -= amount  # type: ignore[assignment]
                used, at_s = book.get(tres, (0.0, now_s))
                used = used * self._decay_factor(key, now_s - at_s)
                book[tres] = used + minutes * amount, now_s

    def reset(self) -> None:
        """Reset the usage of ended jobs to 0."""
        self._used.clear()

    # -- limits that apply
    # ----------------------------------------------------------------------------------------------

    def _usage_keys(self, job: SlurmJob) -> Iterator[Key]:
        """Yield the keys of a job's usage: its associations and QOS, and by user in a QOS."""
        for key, _, name in self._limit_chain(job).levels:
            yield key
            if name == "qos":
                yield (*key, "user", job.user)
                yield (*key, "account", job.account)

    def _limit_chain(self, job: SlurmJob) -> _LimitChain:
        """Return the limits that apply to a job, most specific first (cached)."""
        key = (job.account, job.user, job.qos, job.partition)
        chain = self._chains.get(key)
        if chain is None:
            levels = tuple(self._levels(*key))
            chain = self._chains[key] = _LimitChain(
                levels,
                tuple([level for level in levels if level[2] == "assoc"]),
                tuple(_scopes(levels, job.user, job.account)),
                tuple([level for level in levels if _is_metered(level[1])]),
            )
        return chain

    def _levels(self, account: str, user: str, qos: str, partition: int) -> Iterator[Level]:
        """Yield the limits of QOS, partition QOS, user and accounts, most specific first.

        Limits that the site does not enforce are left out.
        """
        quality, of_part = self._all.qualities.get(qos), self._quality_of[partition]
        order: list[Qos | None] = [of_part, quality]
        if quality is not None and "overpartqos" in quality.flags:
            order.reverse()
        for one in {one.name: one for one in order if one is not None}.values():
            if self._qos:
                yield ("qos", one.name), one.limits, "qos"
        if not self._limits:
            return
        factor = quality.limit_factor if quality is not None else 1.0
        entry = self._partitions[partition]
        key: Key = ("assoc", account, user)
        in_part = (account, user, entry.name.lower() if entry is not None else "")
        own = self._all.in_partition.get(in_part)
        if own is not None:
            # It replaces the limits of the user, and its usage is counted separately.
            key = ("assoc", *in_part)
        else:
            own = self._all.limits.get((account, user), NO_LIMITS)
        yield key, _scale_limits(own, factor), "assoc"
        ancestor, seen = account, set[str]()
        while ancestor and ancestor not in seen:
            seen.add(ancestor)
            own = self._all.limits.get((ancestor, ""), NO_LIMITS)
            yield ("assoc", ancestor, ""), _scale_limits(own, factor), "assoc"
            ancestor = self._parents.get(ancestor, "" if ancestor == ROOT else ROOT)


_NOTHING: Final[Mapping[str, float]] = Counter()


def _scale_limits(limits: AssociationLimits, factor: float) -> AssociationLimits:
    """Return limits with all TRES amounts multiplied by a factor."""
    if factor == 1.0:
        return limits
    changed = {
        name: {tres: amount * factor for tres, amount in value.items()}
        for name, value in vars(limits).items()
        if isinstance(value, Mapping) and name != "unread"
    }
    return AssociationLimits(**{**vars(limits), **changed})


def _threshold_reason(job: SlurmJob, quality: Qos) -> str:
    """Return the QOS threshold that a job's priority or fair share is below; "" = none."""
    if job.priority < quality.min_priority:
        return "QOSMinPrioThreshold"
    return "QOSUsageThreshold" if job.share.factor < quality.usage_threshold else ""


def _is_metered(limits: AssociationLimits) -> bool:
    """Return True if limits restrict usage over time."""
    return bool(limits.grp_tres_mins or limits.grp_tres_run_mins or limits.grp_wall_s < inf)


def _scopes(levels: tuple[Level, ...], user: str, account: str) -> Iterator[Scope]:
    """Yield the limits on running jobs and TRES with the key of the usage they count.

    Group limits at every level; limits per user, account or association where first set. Levels
    without any are left out.
    """
    seen: set[tuple[str, str]] = set()
    own = next((key for key, _, name in levels if name == "assoc"), ())

    def unseen_limits(
        kind: str, jobs: float, tres: Mapping[str, float]
    ) -> tuple[float, dict[str, float]]:
        """Return the limits of a kind not set by a more specific level; mark them as set."""
        most = {name: amount for name, amount in tres.items() if (kind, name) not in seen}
        jobs = inf if (kind, "") in seen else jobs
        seen.update((kind, name) for name in (*most, *([""] if jobs < inf else [])))
        return jobs, most

    for key, limits, name in levels:
        scopes: list[Scope] = []
        if name == "qos":
            scopes.append((key, limits.grp_jobs, limits.grp_tres, "QOSGrp", ""))
            jobs, most = unseen_limits("user", limits.max_jobs_pu, limits.max_tres_pu)
            scopes.append(((*key, "user", user), jobs, most, "QOSMax", "PerUser"))
            jobs, most = unseen_limits("account", limits.max_jobs_pa, limits.max_tres_pa)
            scopes.append(((*key, "account", account), jobs, most, "QOSMax", "PerAccount"))
        else:
            scopes.append((key, limits.grp_jobs, limits.grp_tres, "AssocGrp", ""))
            # The limit of an account applies to each of its users without one.
            jobs, most = unseen_limits("jobs", limits.max_jobs, {})
            scopes.append((own, jobs, most, "AssocMax", ""))
        for scope in scopes:
            if scope[1] < inf or scope[2]:
                yield scope
