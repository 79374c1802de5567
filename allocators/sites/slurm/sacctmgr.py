"""Writes associations and QOS, and their changes, as ``sacctmgr`` commands."""

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
"""``sacctmgr`` option of each attribute of `AssociationLimits`."""
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
"""Value that resets an option, where -1 does not."""
_DEFAULT_ACCOUNT: Final = "DefaultAccount"
_OF_USERS: Final = frozenset({_DEFAULT_ACCOUNT, "Fairshare", "DefaultQOS", "Priority"})
"""Settings of a user that are not limits."""
Terms = dict[tuple[str, str], str]
"""Values of the settings that differ from the default, by (option, TRES or "")."""


class Holder(NamedTuple):
    """The owner of settings: a QOS, an account, a user, or a user in one partition."""

    kind: str
    account: str = ""
    user: str = ""
    partition: str = ""

    @property
    def name(self) -> str:
        """Name of the user, or of the account or QOS."""
        return self.user or self.account

    def where(self, joined: str) -> str:
        """Return the account and partition of a user's command, with `joined` between them.

        Empty for accounts and QOS.
        """
        account = f"account={self.account}" if self.user else ""
        return f"{account}{joined}partition={self.partition}" if self.partition else account


class Command(NamedTuple):
    """A ``sacctmgr`` command, and the previous values of the settings it changes."""

    text: str
    was: str = ""


def sacctmgr_script(people: Associations) -> str:
    """Return the commands that create associations and QOS, one per line."""
    lines = []
    for holder, terms in _terms(people).items():
        if not _is_implied(holder, people):
            lines.append(f"{_add_command(holder, terms, people)}\n")
    return "".join(lines)


def _is_implied(holder: Holder, people: Associations) -> bool:
    """Return True for a user without limits except in single partitions.

    A command for the user itself would admit it to all partitions.
    """
    key = (holder.account, holder.user)
    return (
        not holder.partition
        and key not in people.limits
        and any(one[:2] == key for one in people.in_partition)
    )


def change_commands(before: Associations, after: Associations) -> list[Command]:
    """Return the commands that turn one state of associations and QOS into another.

    First additions and changes, parents first; then deletions, children first.
    """
    old, new = _terms(before), _terms(after)
    changes = []
    for holder, terms in new.items():
        if holder not in old:
            if not _is_implied(holder, after):
                changes.append(Command(_add_command(holder, terms, after)))
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
        changes.append(
            Command(
                f"{text} set "
                f"{_format_terms({key: terms.get(key, _reset_value(key)) for key in keys})}",
                _format_terms({key: was.get(key, "(unset)") for key in keys}),
            )
        )
        if holder.user and not holder.partition:
            limits = {key: terms.get(key) for key in keys if key[0] not in _OF_USERS}
            _change_in_partitions(old, holder, limits)
    for holder in reversed(old):
        unpartitioned = holder._replace(partition="")
        if holder not in new and (holder == unpartitioned or unpartitioned in new):
            changes.append(Command(_delete_command(holder)))
    return changes


def _change_in_partitions(
    old: dict[Holder, Terms], holder: Holder, limits: Mapping[tuple[str, str], str | None]
) -> None:
    """Apply changed limits of a user to its partitions in `old`; None removes a limit.

    A ``modify`` without a partition changes them, too.
    """
    for one, terms in old.items():
        if one[1:3] == holder[1:3] and one.partition:
            merged = {**terms, **limits}
            old[one] = {key: value for key, value in merged.items() if value is not None}


def _add_command(holder: Holder, terms: Terms, people: Associations) -> str:
    """Return the command that creates the owner of some settings."""
    if holder.partition:
        # Fair share is the same in all partitions, so any line may set it.
        terms = {**_user_terms(people, holder.account, holder.user), **terms}
    parts = [f"add {holder.kind} name={holder.name}", holder.where(" "), _format_terms(terms)]
    return " ".join(part for part in parts if part)


def _delete_command(holder: Holder) -> str:
    """Return the command that deletes the owner of some settings."""
    where = holder.where(" ")
    return f"delete {holder.kind} name={holder.name}{' ' if where else ''}{where}"


def _user_terms(people: Associations, account: str, user: str) -> Terms:
    """Return the settings of a user that are the same in all partitions.

    Fair share, and the default account if it is this one.
    """
    entry = next(one for one in people.entries if (one.account, one.user) == (account, user))
    default = people.default_account.get(user) == account
    return _association_terms(entry) | ({(_DEFAULT_ACCOUNT, ""): account} if default else {})


def _terms(people: Associations) -> dict[Holder, Terms]:
    """Return the settings of all QOS, accounts and users by owner, in order of creation.

    Accounts come after their parents, then users, then users in partitions. Only settings that
    differ from the default are given.
    """
    terms_of = {Holder("qos", name): _qos_terms(one) for name, one in people.qualities.items()}
    above = {entry.account: entry.parent for entry in people.entries if not entry.user}

    def depth(entry: Association) -> tuple[bool, int]:
        """Return the sort key: accounts by depth below the root, then users."""
        levels, at = 0, entry.account
        while at in above:
            levels, at = levels + 1, above[at]
        return bool(entry.user), levels

    for entry in sorted(people.entries, key=depth):
        key = (entry.account, entry.user)
        terms = _user_terms(people, *key) if entry.user else _association_terms(entry)
        terms |= dict(_limit_terms(people.limits.get(key, NO_LIMITS)))
        if key in people.default_qos:
            terms["DefaultQOS", ""] = people.default_qos[key]
        if key in people.priorities:
            terms["Priority", ""] = _format_number(people.priorities[key])
        terms_of[Holder("user" if entry.user else "account", *key)] = terms
    for (account, user, partition), limits in people.in_partition.items():
        terms_of[Holder("user", account, user, partition)] = dict(_limit_terms(limits))
    return terms_of


def _association_terms(entry: Association) -> Terms:
    """Return the fair share and parent of an association if not the default."""
    terms: Terms = {}
    if entry.shares != 1:
        terms["Fairshare", ""] = "parent" if entry.shares is None else str(entry.shares)
    if not entry.user and entry.parent != ROOT:
        terms["Parent", ""] = entry.parent
    return terms


def _qos_terms(quality: Qos) -> Terms:
    """Return the settings of a QOS that differ from the default, and its priority."""
    usual = Qos("")
    # A priority of 0 must be written: -1 does not reset it.
    terms: Terms = {("Priority", ""): _format_number(quality.priority)}
    for option, name in (
        ("UsageFactor", "usage_factor"),
        ("LimitFactor", "limit_factor"),
        ("MinPrioThreshold", "min_priority"),
        ("UsageThreshold", "usage_threshold"),
    ):
        if getattr(quality, name) != getattr(usual, name):
            terms[option, ""] = _format_number(getattr(quality, name))
    for option, names in (("Flags", quality.flags), ("Preempt", quality.preempts)):
        if names:
            terms[option, ""] = ",".join(sorted(names))
    if quality.preempt_mode:
        terms["PreemptMode", ""] = quality.preempt_mode.lower()
    if quality.grace_s:
        terms["GraceTime", ""] = _format_number(quality.grace_s)
    if quality.exempt_s >= 0:
        terms["PreemptExemptTime", ""] = _format_time(quality.exempt_s)
    return terms | dict(_limit_terms(quality.limits))


def _limit_terms(limits: AssociationLimits) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the limits that are set: ((option, TRES or ""), value)."""
    for item in fields(AssociationLimits):
        value: Any = getattr(limits, item.name)
        if item.name == "unread":
            yield from (((key, ""), text) for key, text in value.items())
        elif isinstance(value, Mapping):
            yield from (
                ((_KEYS[item.name], tres), _format_number(most)) for tres, most in value.items()
            )
        elif value < inf:
            write = _format_time if item.name.endswith("_s") else _format_number
            yield (_KEYS[item.name], ""), write(value)


def _format_terms(terms: Mapping[tuple[str, str], str]) -> str:
    """Return settings as OPTION=VALUE text; the TRES of one option form one list."""
    lists: dict[str, list[str]] = {}
    for (option, tres), value in terms.items():
        lists.setdefault(option, []).append(f"{tres}={value}" if tres else _quote(value))
    return " ".join(f"{option}={','.join(values)}" for option, values in lists.items())


def _quote(value: str) -> str:
    """Quote a value with spaces."""
    return f'"{value}"' if " " in value else value


def _reset_value(key: tuple[str, str]) -> str:
    """Return the value that resets a setting."""
    return _OFF.get(key[0], "-1")


def _format_number(value: float) -> str:
    """Return a number as text; unlimited is -1."""
    if value == inf:
        return "-1"
    return str(int(value)) if value == int(value) else repr(float(value))


def _format_time(seconds: float) -> str:
    """Return a time as D-HH:MM:SS."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{rest:02}"
