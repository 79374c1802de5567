"""Associations and qualities of service as commands of ``sacctmgr``: those that make them, and
those that make others of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import inf
from typing import Any, Final, NamedTuple

from allocators.sites.slurm.accounts import NO_LIMITS, AssociationLimits, Associations, Qos
from allocators.sites.slurm.fairshare import ROOT, Association

_KEYS: Final[Mapping[str, str]] = {
    "grp_tres": "GrpTRES",
    "grp_tres_mins": "GrpTRESMins",
    "grp_tres_run_mins": "GrpTRESRunMins",
    "grp_jobs": "GrpJobs",
    "grp_submit": "GrpSubmitJobs",
    "grp_wall_s": "GrpWall",
    "max_tres": "MaxTRES",
    "max_tres_per_node": "MaxTRESPerNode",
    "min_tres": "MinTRES",
    "max_tres_mins": "MaxTRESMins",
    "max_tres_pu": "MaxTRESPerUser",
    "max_tres_pa": "MaxTRESPerAccount",
    "max_jobs": "MaxJobs",
    "max_jobs_pu": "MaxJobsPerUser",
    "max_jobs_pa": "MaxJobsPerAccount",
    "max_submit": "MaxSubmitJobs",
    "max_submit_pu": "MaxSubmitJobsPerUser",
    "max_submit_pa": "MaxSubmitJobsPerAccount",
    "max_wall_s": "MaxWall",
}
"""Attribute of `AssociationLimits` -> its option."""
_OFF: Final[Mapping[str, str]] = {
    "Fairshare": "1",
    "Parent": ROOT,
    "Preempt": "''",
    "PreemptMode": "cluster",
    "UsageFactor": "1",
    "LimitFactor": "1",
    "MinPrioThreshold": "0",
    "UsageThreshold": "0",
}
"""Option -> what takes a setting back where -1 does not."""
_DEFAULT_ACCOUNT: Final = "DefaultAccount"
_OF_USERS: Final = frozenset({_DEFAULT_ACCOUNT, "Fairshare", "DefaultQOS", "Priority"})
"""Settings of a user that are no limits."""
Terms = dict[tuple[str, str], str]
"""(option, resource or "") -> value of the settings that are not as usual."""


class Holder(NamedTuple):
    """What settings belong to: a quality of service, an account, a user of an account, or that user
    in one partition; "" where it is none of these.
    """

    kind: str
    account: str = ""
    user: str = ""
    partition: str = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.user or self.account

    def where(self, joined: str) -> str:
        """Return account and partition of a user."""
        found = f"account={self.account}" if self.user else ""
        return f"{found}{joined}partition={self.partition}" if self.partition else found


class Command(NamedTuple):
    """A command without the word sacctmgr, and the settings before it ("" = none)."""

    text: str
    was: str = ""


def script(people: Associations) -> str:
    """Return the commands that make associations and qualities of service, a line each."""
    lines = []
    for holder, terms in _terms(people).items():
        if not _is_implied(holder, people):
            lines.append(f"{_added(holder, terms, people)}\n")
    return "".join(lines)


def _is_implied(holder: Holder, people: Associations) -> bool:
    """Tell whether a user is in single partitions only: then there is no association besides, and
    to make one would let the user into all partitions.
    """
    key = (holder.account, holder.user)
    return (
        not holder.partition
        and key not in people.limits
        and any(one[:2] == key for one in people.in_partition)
    )


def commands(before: Associations, after: Associations) -> list[Command]:
    """Return what makes one state of associations and qualities of service another one, in the
    order in which it has to be run.
    """
    old, new = _terms(before), _terms(after)
    found = []
    for holder, terms in new.items():
        if holder not in old:
            if not _is_implied(holder, after):
                found.append(Command(_added(holder, terms, after)))
            continue
        was = old[holder]
        keys = [key for key in {**was, **terms} if was.get(key) != terms.get(key)]
        if holder.user:
            # The default account goes with the user to another one.
            keys = [key for key in keys if key[0] != _DEFAULT_ACCOUNT or key in terms]
        if not keys:
            continue
        text = f"modify {holder.kind} {holder.name}"
        text += f" where {holder.where(' ')}" if holder.user else ""
        found.append(
            Command(
                f"{text} set {_written({key: terms.get(key, _off(key)) for key in keys})}",
                _written({key: was.get(key, "(unset)") for key in keys}),
            )
        )
        if holder.user and not holder.partition:
            limits = {key: terms.get(key) for key in keys if key[0] not in _OF_USERS}
            _change_in_partitions(old, holder, limits)
    for holder in reversed(old):
        whole = holder._replace(partition="")
        if holder not in new and (holder == whole or whole in new):
            found.append(Command(_deleted(holder)))
    return found


def _change_in_partitions(
    old: dict[Holder, Terms], holder: Holder, limits: Mapping[tuple[str, str], str | None]
) -> None:
    """Note that limits of a user were changed, which counts in each of its partitions, too."""
    for one, terms in old.items():
        if one[1:3] == holder[1:3] and one.partition:
            merged = {**terms, **limits}
            old[one] = {key: value for key, value in merged.items() if value is not None}


def _added(holder: Holder, terms: Terms, people: Associations) -> str:
    if holder.partition:
        # Fair share is one in all partitions; which line says it does not matter.
        terms = {**_of_user(people, holder.account, holder.user), **terms}
    parts = [f"add {holder.kind} name={holder.name}", holder.where(" "), _written(terms)]
    return " ".join(part for part in parts if part)


def _deleted(holder: Holder) -> str:
    where = holder.where(" ")
    return f"delete {holder.kind} name={holder.name}{' ' if where else ''}{where}"


def _of_user(people: Associations, account: str, user: str) -> Terms:
    """Return what is the same in all partitions."""
    entry = next(one for one in people.entries if (one.account, one.user) == (account, user))
    default = people.default_account.get(user) == account
    return _of_entry(entry) | ({(_DEFAULT_ACCOUNT, ""): account} if default else {})


def _terms(people: Associations) -> dict[Holder, Terms]:
    """Return all settings: qualities, accounts below their parents, users, users in partitions."""
    found = {Holder("qos", name): _of_quality(one) for name, one in people.qualities.items()}
    above = {entry.account: entry.parent for entry in people.entries if not entry.user}

    def depth(entry: Association) -> tuple[bool, int]:
        levels, at = 0, entry.account
        while at in above:
            levels, at = levels + 1, above[at]
        return bool(entry.user), levels

    for entry in sorted(people.entries, key=depth):
        key = (entry.account, entry.user)
        terms = _of_user(people, *key) if entry.user else _of_entry(entry)
        terms |= dict(_of_limits(people.limits.get(key, NO_LIMITS)))
        if key in people.default_qos:
            terms["DefaultQOS", ""] = people.default_qos[key]
        if key in people.priorities:
            terms["Priority", ""] = _number(people.priorities[key])
        found[Holder("user" if entry.user else "account", *key)] = terms
    for (account, user, partition), limits in people.in_partition.items():
        found[Holder("user", account, user, partition)] = dict(_of_limits(limits))
    return found


def _of_entry(entry: Association) -> Terms:
    terms: Terms = {}
    if entry.shares != 1:
        terms["Fairshare", ""] = "parent" if entry.shares is None else str(entry.shares)
    if not entry.user and entry.parent != ROOT:
        terms["Parent", ""] = entry.parent
    return terms


def _of_quality(quality: Qos) -> Terms:
    usual = Qos("")
    # A priority of 0 is taken back by no -1.
    terms: Terms = {("Priority", ""): _number(quality.priority)}
    for option, name in (
        ("UsageFactor", "usage_factor"),
        ("LimitFactor", "limit_factor"),
        ("MinPrioThreshold", "min_priority"),
        ("UsageThreshold", "usage_threshold"),
    ):
        if getattr(quality, name) != getattr(usual, name):
            terms[option, ""] = _number(getattr(quality, name))
    for option, names in (("Flags", quality.flags), ("Preempt", quality.preempts)):
        if names:
            terms[option, ""] = ",".join(sorted(names))
    if quality.preempt_mode:
        terms["PreemptMode", ""] = quality.preempt_mode.lower()
    if quality.grace_s:
        terms["GraceTime", ""] = _number(quality.grace_s)
    if quality.exempt_s >= 0:
        terms["PreemptExemptTime", ""] = _time(quality.exempt_s)
    return terms | dict(_of_limits(quality.limits))


def _of_limits(limits: AssociationLimits) -> Iterator[tuple[tuple[str, str], str]]:
    for item in fields(AssociationLimits):
        value: Any = getattr(limits, item.name)
        if item.name == "unread":
            yield from (((key, ""), text) for key, text in value.items())
        elif isinstance(value, Mapping):
            yield from (((_KEYS[item.name], tres), _number(most)) for tres, most in value.items())
        elif value < inf:
            write = _time if item.name.endswith("_s") else _number
            yield (_KEYS[item.name], ""), write(value)


def _written(terms: Mapping[tuple[str, str], str]) -> str:
    """Return settings as options, the resources of one in one list."""
    lists: dict[str, list[str]] = {}
    for (option, tres), value in terms.items():
        lists.setdefault(option, []).append(f"{tres}={value}" if tres else _quoted(value))
    return " ".join(f"{option}={','.join(values)}" for option, values in lists.items())


def _quoted(value: str) -> str:
    return f'"{value}"' if " " in value else value


def _off(key: tuple[str, str]) -> str:
    return _OFF.get(key[0], "-1")


def _number(value: float) -> str:
    if value == inf:
        return "-1"
    return str(int(value)) if value == int(value) else repr(float(value))


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{rest:02}"
