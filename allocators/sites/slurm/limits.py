"""What associations and qualities of service allow, in the words in which ``squeue`` says why a job
waits.
"""

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
"""Whose limits, the limits, and "qos" or "assoc"."""
Scope = tuple[Key, float, Mapping[str, float], str, str]
"""Whose use is counted; jobs and resources that may run at once; and how the word begins and ends.
"""


class _Chain(NamedTuple):
    """Whose limits hold for jobs of a user: all levels, those of associations, what is counted, and
    the levels that limit use over time.
    """

    levels: tuple[Level, ...]
    assoc: tuple[Level, ...]
    scopes: tuple[Scope, ...]
    metered: tuple[Level, ...]


def _word(before: str, tres: str, after: str) -> str:
    name = _NAMES.get(tres, "GRES" if tres.startswith("gres/") else "TRES")
    return f"{before}{name}{after}" + ("Limit" if name not in {"GRES", "TRES"} else "")


class UsageLimits:
    """Counts what jobs use, and tells which may start.

    Parameters
    ----------
    associations : Associations
        Limits of accounts, users and qualities of service.
    partitions : sequence of PartitionEntry or None
        By number, for what a partition itself allows; None = anything.
    enforced : frozenset of str
        Of "limits", "qos" and "safe".
    part_limits : {"ALL", "ANY", "NO"}
        EnforcePartLimits: whether a job that breaks limits of its partitions is refused.
    keep : float
        What is left of a second's use after another second.
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
        """Job -> where it was counted at its submission; it may start in another partition."""
        self._jobs: dict[Key, dict[int, SlurmJob]] = {}
        self._used: dict[Key, dict[str, tuple[float, float]]] = {}
        self._arrays: Counter[str] = Counter()
        self._quality_of = [
            associations.qualities.get(entry.qos) if entry is not None and entry.qos else None
            for entry in partitions
        ]
        self._chains: dict[tuple[str, str, str, int], _Chain] = {}

    # -- at submission
    # ----------------------------------------------------------------------------------------------

    def refusal(self, jobs: tuple[SlurmJob, ...]) -> str:
        """Return why a job is refused at its submission; "" = it is not.

        Parameters
        ----------
        jobs : tuple of Job
            The job, once for each of its partitions.
        """
        if self._part_limits != "NO":
            broken = [self._of_partition(one) for one in jobs]
            every = all(broken) if self._part_limits == "ANY" else any(broken)
            if every:
                return next(filter(None, broken))
        job = jobs[0]
        word = self._too_many(job) if self._limits else ""
        if not word and self._denies(job):
            word = self._per_job(job)
        never = [self._never(one) for one in jobs]
        return word or (never[0] if all(never) else "")

    def _never(self, job: SlurmJob) -> str:
        """Return what would keep a job waiting for ever."""
        return self._of_itself(job) or (self._by_count(job, {}) if self._qos else "")

    def _too_many(self, job: SlurmJob) -> str:
        """Return which limit of jobs in the queue a submission would exceed."""
        count = self._submitted
        chain = self._chain(job)
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

    def submitted(self, job: SlurmJob, sign: int = 1) -> None:
        """Count a job that was submitted; `sign` -1 = it is gone."""
        if not self._limits:
            return
        if sign > 0:
            self._counted[job.id] = tuple(self._keys(job))
        for key in self._counted[job.id] if sign > 0 else self._counted.pop(job.id, ()):
            self._submitted[key] += sign

    def _denies(self, job: SlurmJob) -> bool:
        quality = self._all.qualities.get(job.qos)
        flags = quality.flags if quality is not None else frozenset()
        return "denyonlimit" in flags or self._part_limits != "NO"

    def _of_partition(self, job: SlurmJob) -> str:
        """Return what of its partition a job breaks."""
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

    def waits(self, now_s: float, job: SlurmJob) -> str:
        """Return why a job may not start whatever is free; "" = it may."""
        if job.barred is None:
            job.barred = self._of_itself(job)
        if job.barred:
            return job.barred
        if job.array_most < inf and self._arrays[job.array] >= job.array_most:
            return "JobArrayTaskLimit"
        if not self._qos:
            return ""
        chain = self._chain(job)
        quality = self._all.qualities.get(job.qos)
        word = _below(job, quality) if quality is not None else ""
        if not word and chain.scopes:
            word = self._by_count(job, self._running)
        return word or (self._by_use(now_s, job) if chain.metered else "")

    def _of_itself(self, job: SlurmJob) -> str:
        """Return what keeps a job waiting for ever, whoever runs beside it."""
        entry = self._partitions[job.partition]
        if entry is not None and not entry.up:
            return "PartitionDown"
        return self._of_partition(job) or (self._per_job(job) if self._qos else "")

    def _per_job(self, job: SlurmJob) -> str:
        nodes, wall_s = float(job.needed_nodes), job.limit_s
        seen: set[tuple[str, str]] = set()
        for _, limits, name in self._chain(job).levels:
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
                        return _word(f"{before}{'Max' if over else 'Min'}", tres, after)
            for tres, most in limits.max_tres_mins.items():
                if ("mins", tres) not in seen and job.tres.get(tres, 0.0) * wall_s / 60 > most:
                    return _word(f"{before}Max", tres, "MinutesPerJob")
                seen.add(("mins", tres))
            if limits.max_wall_s < inf and ("wall", "") not in seen:
                seen.add(("wall", ""))
                if wall_s > limits.max_wall_s:
                    return f"{before}MaxWallDurationPerJobLimit"
        return ""

    def _by_count(self, job: SlurmJob, used: Mapping[Key, Mapping[str, float]]) -> str:
        for scope, most_jobs, most, word, after in self._chain(job).scopes:
            running = used.get(scope, _NOTHING)
            if running["jobs"] >= most_jobs:
                return f"{word}Jobs{after}Limit"
            for tres, amount in most.items():
                if running[tres] + job.tres.get(tres, 0.0) > amount + 1e-9:
                    return _word(word, tres, after)
        return ""

    def _by_use(self, now_s: float, job: SlurmJob) -> str:
        minutes = job.limit_s / 60
        for key, limits, name in self._chain(job).metered:
            before = "QOS" if name == "qos" else "Assoc"
            for tres, most in limits.grp_tres_run_mins.items():
                ahead = self._ahead(now_s, key, tres) + job.tres.get(tres, 0.0) * minutes
                if ahead > most:
                    return _word(f"{before}Grp", tres, "RunMinutes")
            for tres, most in limits.grp_tres_mins.items():
                used = self._used_min(now_s, key, tres)
                if self._safe:
                    used += self._ahead(now_s, key, tres) + job.tres.get(tres, 0.0) * minutes
                if used > most or (not self._safe and used >= most):
                    return _word(f"{before}Grp", tres, "Minutes")
            if limits.grp_wall_s < inf:
                used = self._used_min(now_s, key, _WALL) * 60
                if used >= limits.grp_wall_s:
                    return f"{before}GrpWallLimit"
        return ""

    def _ahead(self, now_s: float, key: Key, tres: str) -> float:
        """Return what the running jobs of a scope may still use, at their limits."""
        jobs = self._jobs.get(key, {}).values()
        return sum(
            [
                max(one.start_s + one.limit_s - now_s, 0.0) / 60 * one.tres.get(tres, 0.0)
                for one in jobs
            ]
        )

    def _used_min(self, now_s: float, key: Key, tres: str) -> float:
        used, at_s = self._used.get(key, {}).get(tres, (0.0, now_s))
        used *= self._decayed(key, now_s - at_s)
        running = self._jobs.get(key, {}).values()
        return used + sum(
            [
                (now_s - one.start_s) / 60 * (1.0 if tres == _WALL else one.tres.get(tres, 0.0))
                for one in running
            ]
        )

    def _decayed(self, key: Key, elapsed_s: float) -> float:
        quality = self._all.qualities.get(key[1]) if key[0] == "qos" else None
        if quality is not None and "nodecay" in quality.flags:
            return 1.0
        return float(self._keep**elapsed_s)

    # -- what runs
    # ----------------------------------------------------------------------------------------------

    def started(self, job: SlurmJob) -> None:
        """Count a job that starts."""
        if job.array_most < inf:
            self._arrays[job.array] += 1
        if self._qos:
            for key in self._keys(job):
                counts = self._running.setdefault(key, Counter())
                counts["jobs"] += 1
                for tres, amount in job.tres.items():
                    counts[tres] += amount  # type: ignore[assignment]  # counts hold fractions, too
                self._jobs.setdefault(key, {})[job.id] = job

    def ended(self, now_s: float, job: SlurmJob) -> None:
        """Count a job that runs no longer."""
        if job.array_most < inf:
            self._arrays[job.array] -= 1
        if not self._qos:
            return
        minutes = (now_s - job.start_s) / 60
        for key in self._keys(job):
            counts = self._running[key]
            counts["jobs"] -= 1
            del self._jobs[key][job.id]
            book = self._used.setdefault(key, {})
            for tres, amount in (*job.tres.items(), (_WALL, 1.0)):
                if tres != _WALL:
                    counts[tres] -= amount  # type: ignore[assignment]
                used, at_s = book.get(tres, (0.0, now_s))
                used = used * self._decayed(key, now_s - at_s)
                book[tres] = used + minutes * amount, now_s

    def reset(self) -> None:
        """Forget what was used by jobs that have ended."""
        self._used.clear()

    # -- who counts
    # ----------------------------------------------------------------------------------------------

    def _keys(self, job: SlurmJob) -> Iterator[Key]:
        for key, _, name in self._chain(job).levels:
            yield key
            if name == "qos":
                yield (*key, "user", job.user)
                yield (*key, "account", job.account)

    def _chain(self, job: SlurmJob) -> _Chain:
        """Return whose limits hold for a job, the first to be asked first."""
        who = (job.account, job.user, job.qos, job.partition)
        known = self._chains.get(who)
        if known is None:
            levels = tuple(self._levels(*who))
            known = self._chains[who] = _Chain(
                levels,
                tuple([level for level in levels if level[2] == "assoc"]),
                tuple(_scopes(levels, job.user, job.account)),
                tuple([level for level in levels if _is_metered(level[1])]),
            )
        return known

    def _levels(self, account: str, user: str, qos: str, partition: int) -> Iterator[Level]:
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
            # It stands in the place of the user's own, and counts for itself.
            key = ("assoc", *in_part)
        else:
            own = self._all.limits.get((account, user), NO_LIMITS)
        yield key, _times(own, factor), "assoc"
        at, seen = account, set[str]()
        while at and at not in seen:
            seen.add(at)
            own = self._all.limits.get((at, ""), NO_LIMITS)
            yield ("assoc", at, ""), _times(own, factor), "assoc"
            at = self._parents.get(at, "" if at == ROOT else ROOT)


_NOTHING: Final[Mapping[str, float]] = Counter()


def _times(limits: AssociationLimits, factor: float) -> AssociationLimits:
    if factor == 1.0:
        return limits
    changed = {
        name: {tres: amount * factor for tres, amount in value.items()}
        for name, value in vars(limits).items()
        if isinstance(value, Mapping)
    }
    return AssociationLimits(**{**vars(limits), **changed})


def _below(job: SlurmJob, quality: Qos) -> str:
    if job.priority < quality.min_priority:
        return "QOSMinPrioThreshold"
    return "QOSUsageThreshold" if job.share.factor < quality.usage_threshold else ""


def _is_metered(limits: AssociationLimits) -> bool:
    return bool(limits.grp_tres_mins or limits.grp_tres_run_mins or limits.grp_wall_s < inf)


def _scopes(levels: tuple[Level, ...], user: str, account: str) -> Iterator[Scope]:
    """Yield what is counted: limits of groups at every level, those of single users and accounts
    at the first level that has them.
    """
    seen: set[tuple[str, str]] = set()
    own = next((key for key, _, name in levels if name == "assoc"), ())

    def first(kind: str, jobs: float, tres: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        most = {name: amount for name, amount in tres.items() if (kind, name) not in seen}
        jobs = inf if (kind, "") in seen else jobs
        seen.update((kind, name) for name in (*most, *([""] if jobs < inf else [])))
        return jobs, most

    for key, limits, name in levels:
        found: list[Scope] = []
        if name == "qos":
            found.append((key, limits.grp_jobs, limits.grp_tres, "QOSGrp", ""))
            jobs, most = first("user", limits.max_jobs_pu, limits.max_tres_pu)
            found.append(((*key, "user", user), jobs, most, "QOSMax", "PerUser"))
            jobs, most = first("account", limits.max_jobs_pa, limits.max_tres_pa)
            found.append(((*key, "account", account), jobs, most, "QOSMax", "PerAccount"))
        else:
            found.append((key, limits.grp_jobs, limits.grp_tres, "AssocGrp", ""))
            # An account's own is that of each of its users who has none.
            jobs, most = first("jobs", limits.max_jobs, {})
            found.append((own, jobs, most, "AssocMax", ""))
        for scope in found:
            if scope[1] < inf or scope[2]:
                yield scope
