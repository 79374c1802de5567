"""Associations and qualities of service, read from ``sacctmgr`` dumps and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from allocators.sites.slurm.config import UNLIMITED, ConfigLine, logical_lines, parse_time_s
from allocators.sites.slurm.fairshare import ROOT, Association
from allocators.sites.slurm.keys import (
    COUNTS,
    HOLDERS,
    IDLE_OF_ACCOUNTS,
    LISTS,
    MISSED,
    MISSED_OF_ACCOUNTS,
    NOT_LIMITS,
    NUMBERS_OF_QOS,
    ONE_TRES,
    TRES,
    WALLS,
    Finding,
)
from sim.contract import ParameterError

_PAIR: Final = re.compile(r"([\w.]+)\s*(\+?=|-=)\s*(\"[^\"]*\"|'[^']*'|\S+)")
_DUMPED: Final = re.compile(r"([A-Z]\w*)=('[^']*'|[^:]*?(?::[^:]+?)*?)(?=:[A-Z]\w*=|\s*$)")
"""A setting of a dump; its value may hold colons, as in ``gres/gpu:a100=4``."""
_SIZES: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


@dataclass(frozen=True)
class AssociationLimits:
    """Limits of an association or QOS; inf, or a resource left out, is no limit.

    Resources are named as in TRES lists (``cpu``, ``mem`` in MB, ``node``, ``gres/gpu``); times
    are in seconds, TRES-minutes in minutes. `unread` holds settings that are not simulated, as
    written, their keys in lower case.
    """

    grp_tres: Mapping[str, float] = field(default_factory=dict)
    grp_tres_mins: Mapping[str, float] = field(default_factory=dict)
    grp_tres_run_mins: Mapping[str, float] = field(default_factory=dict)
    grp_jobs: float = inf
    grp_submit: float = inf
    grp_wall_s: float = inf
    max_tres: Mapping[str, float] = field(default_factory=dict)
    max_tres_per_node: Mapping[str, float] = field(default_factory=dict)
    min_tres: Mapping[str, float] = field(default_factory=dict)
    max_tres_mins: Mapping[str, float] = field(default_factory=dict)
    max_tres_pu: Mapping[str, float] = field(default_factory=dict)
    max_tres_pa: Mapping[str, float] = field(default_factory=dict)
    max_jobs: float = inf
    max_jobs_pu: float = inf
    max_jobs_pa: float = inf
    max_submit: float = inf
    max_submit_pu: float = inf
    max_submit_pa: float = inf
    max_wall_s: float = inf
    unread: Mapping[str, str] = field(default_factory=dict)


NO_LIMITS: Final = AssociationLimits()


@dataclass(frozen=True)
class Qos:
    """A quality of service.

    Attributes
    ----------
    name : str
        In lower case.
    priority : int
        Divided by the largest priority of all QOS to get a factor.
    limits : AssociationLimits
        Limits on its jobs, together and per job.
    usage_factor : float
        Multiplier of usage in fair share.
    limit_factor, min_priority, usage_threshold : float
        Multiplier of association limits; minimum priority of a job; minimum fair-share factor.
    flags, preempts : frozenset of str
        In lower case: flags, and the QOS whose jobs it may preempt.
    preempt_mode : str
        PreemptMode of its jobs in capitals; "" = that of the cluster.
    exempt_s : float, seconds
        PreemptExemptTime of its jobs; below 0 = that of the cluster.
    grace_s : float, seconds
        GraceTime: time that its preempted jobs still run.
    """

    name: str
    priority: int = 0
    limits: AssociationLimits = NO_LIMITS
    usage_factor: float = 1.0
    limit_factor: float = 1.0
    min_priority: float = 0.0
    usage_threshold: float = 0.0
    flags: frozenset[str] = frozenset()
    preempts: frozenset[str] = frozenset()
    preempt_mode: str = ""
    exempt_s: float = -1.0
    grace_s: float = 0.0


@dataclass(frozen=True)
class Associations:
    """Accounts and users of the cluster with their limits, and all QOS.

    Attributes
    ----------
    entries : tuple of Association
        Accounts and users.
    qos : mapping
        Priority of each QOS, by its name in lower case.
    qualities : mapping
        Each QOS, by its name in lower case.
    limits : mapping
        Limits by (account, user); user "" = those of the account.
    in_partition : mapping
        Limits by (account, user, partition in lower case); they replace those of the user.
    default_qos, priorities : mapping
        Default QOS and priority, by (account, user).
    default_account : mapping
        Default account of each user.
    findings : tuple of Finding
        Settings that change results and are not simulated.
    where : mapping
        Last line about each (account, user), or ("", QOS).
    """

    entries: tuple[Association, ...]
    qos: Mapping[str, int]
    qualities: Mapping[str, Qos] = field(default_factory=dict)
    limits: Mapping[tuple[str, str], AssociationLimits] = field(default_factory=dict)
    in_partition: Mapping[tuple[str, str, str], AssociationLimits] = field(default_factory=dict)
    default_qos: Mapping[tuple[str, str], str] = field(default_factory=dict)
    priorities: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default_account: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    where: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def bare(self) -> Associations:
        """The associations in sorted order, without line numbers and findings."""
        return replace(
            self,
            entries=tuple(sorted(self.entries, key=lambda one: (one.account, one.user))),
            limits={key: own for key, own in self.limits.items() if own != NO_LIMITS},
            findings=(),
            where={},
        )


NOBODY: Final = Associations((), {})


def read_associations(text: str, qos_text: str = "") -> Associations:
    """Parse a ``sacctmgr`` dump or script, and the table of ``sacctmgr show qos -P``.

    Raises
    ------
    ParameterError
        If a parent account is missing, or an account is its own ancestor.
    """
    reader = _AccountsReader()
    for line in logical_lines(text):
        head, _, rest = line.text.partition(" - ")
        if rest and head.strip().lower() in {"cluster", "parent", "account", "user", "qos"}:
            reader.read_dump_line(head.strip().lower(), rest, line.number)
        else:
            reader.read_command(line.text.split(), line)
    reader.read_qos_table(qos_text)
    entries = tuple(reader.entries.values())
    accounts = {entry.account for entry in entries if not entry.user} | {ROOT}
    for entry in entries:
        if entry.parent not in accounts:
            owner = entry.user or entry.account
            number = reader.where.get((entry.account, entry.user), 0)
            raise ParameterError(
                f"sacctmgr, line {number}: {owner} belongs to the account {entry.parent}, which is"
                " not there."
            )
    _refuse_cycles(entries, reader.where)
    return Associations(
        entries,
        {name: qos.priority for name, qos in reader.qualities.items()},
        reader.qualities,
        reader.limits,
        reader.in_partition,
        reader.default_qos,
        reader.priorities,
        reader.default_account,
        tuple(reader.missed_settings()),
        reader.where,
    )


class _AccountsReader:
    """Collects associations and QOS from the lines of a dump or script."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Association] = {}
        self.qualities: dict[str, Qos] = {}
        self.limits: dict[tuple[str, str], AssociationLimits] = {}
        self.in_partition: dict[tuple[str, str, str], AssociationLimits] = {}
        self.default_qos: dict[tuple[str, str], str] = {}
        self.priorities: dict[tuple[str, str], float] = {}
        self.default_account: dict[str, str] = {}
        self.findings: list[Finding] = []
        self._missed: dict[tuple[str, str], dict[int, None]] = {}
        self.where: dict[tuple[str, str], int] = {}
        self._parent = ROOT

    def read_dump_line(self, kind: str, rest: str, number: int) -> None:
        """Add one line of a dump: a QOS, or an account or user of the last Parent line.

        A Parent line sets the account for the lines that follow.
        """
        name, _, tail = rest.partition(":")
        name = name.strip().strip("'\"")
        pairs = {key.lower(): value.strip("'\"") for key, value in _DUMPED.findall(tail)}
        if kind == "parent":
            self._parent = name
        elif kind == "qos":
            self._set_qos(name, pairs, number)
        elif kind == "account":
            self._add_association(name, "", self._parent, pairs, number)
        elif kind == "user":
            self._add_association(self._parent, name, self._parent, pairs, number)

    def missed_settings(self) -> Iterator[Finding]:
        """Yield a finding per setting that is not simulated, at its first line.

        A QOS list with all QOS is left out.
        """
        yield from self.findings
        for (key, value), numbers in self._missed.items():
            # Without a table of QOS there is at least the default one, normal.
            if key == "qos" and (
                _split_names(value) >= self.qualities.keys()
                if self.qualities
                else value == "normal"
            ):
                continue  # no QOS is excluded
            unknown = "is not a setting that is known here, so it has no effect"
            why = MISSED_OF_ACCOUNTS.get(key, unknown)
            first, more = next(iter(numbers)), len(numbers) - 1
            also = f" (and {more} more of such lines)" if more else ""
            yield Finding("sacctmgr", first, key, value, MISSED, f"{why}{also}")

    def read_command(self, words: list[str], line: ConfigLine) -> None:
        """Apply one ``sacctmgr`` command on QOS, accounts or users; skip other commands."""
        words = words[1:] if words[0].lower() == "sacctmgr" else words
        words = [word for word in words if word not in {"-i", "--immediate"}]
        verb, what = words[0].lower(), words[1].lower() if len(words) > 1 else ""
        key_values = _PAIR.findall(line.text)
        # "+=" adds to a list and "-=" removes from it; the sign stays with the key.
        pairs = {
            _option_key(key.lower(), sign): value.strip("\"'") for key, sign, value in key_values
        }
        if verb not in {"add", "create", "modify", "delete", "remove"} or what not in HOLDERS:
            return
        names = self._target_names(verb, words[1:], pairs, line.number)
        if what == "qos":
            for name in names:
                if verb in {"delete", "remove"}:
                    self.qualities.pop(name.lower(), None)
                else:
                    self._set_qos(name, pairs, line.number)
        elif what in {"account", "accounts"}:
            for name in names:
                parent = pairs.get("parent", ROOT)
                self._apply_verb(verb, (name, ""), parent, pairs, line.number)
        elif what in {"user", "users"}:
            default = pairs.get("account", pairs.get("defaultaccount", ""))
            for name in names:
                associations_of_user = [one for one in self.entries if one[1] == name]
                accounts = (
                    default.split(",")
                    if default
                    else [one[0] for one in associations_of_user] or [ROOT]
                )
                for account in accounts:
                    self._apply_verb(verb, (account, name), account, pairs, line.number)

    def _target_names(
        self, verb: str, words: list[str], pairs: dict[str, str], number: int
    ) -> Sequence[str]:
        """Return the names that a command applies to; remove ``name`` from `pairs`.

        ``modify`` without names applies to all entities of its kind, or to the members of the
        account or parent in its conditions. Other commands without names raise an error.
        """
        plain = [
            word for word in words[1:] if "=" not in word and word.lower() not in {"set", "where"}
        ]
        to_yaml = pairs.pop("name", "") or pairs.pop("names", "") or ",".join(plain)
        if names := [name for name in to_yaml.split(",") if name]:
            return names
        where = _where_clause(words[1:])
        if verb != "modify":
            raise ParameterError(
                f"sacctmgr, line {number}: the command does not say which {words[0]} it is about."
                " Name one."
            )
        # As with -i: all entities, or those below the named account or parent.
        kind = words[0].lower()
        what = kind if kind == "qos" else kind.removesuffix("s")
        by = {"user": "account", "account": "parent"}.get(what, "")
        if unknown := [one for one in where if one not in {by, "cluster", "partition"}]:
            raise ParameterError(
                f"sacctmgr, line {number}: {unknown[0]}={where[unknown[0]]} is not a condition"
                f" that is known here. Name each {what} instead."
            )
        if what == "qos":
            return list(self.qualities)
        held = [
            entry.user or entry.account
            for entry in self.entries.values()
            if bool(entry.user) is (what == "user")
            and (by not in where or entry.parent in where[by].split(","))
        ]
        return list(dict.fromkeys(held))

    def read_qos_table(self, text: str) -> None:
        """Add the QOS of the table that ``sacctmgr show qos -P`` prints.

        A table without a column Name raises an error.
        """
        rows = [line.split("|") for line in text.splitlines() if line.strip()]
        if not rows:
            return
        head = [cell.strip().lower() for cell in rows[0]]
        if "name" not in head:
            raise ParameterError(
                "The table of qualities of service has no column Name. Export it by sacctmgr show"
                " qos -P."
            )
        for number, cells in enumerate(rows[1:], 2):
            row = dict(zip(head, cells, strict=False))
            pairs = {key: cell for key, cell in row.items() if cell.strip()}
            self._set_qos(pairs.pop("name"), pairs, number)

    def _apply_verb(
        self,
        verb: str,
        key: tuple[str, str],
        parent: str,
        pairs: Mapping[str, str],
        number: int,
    ) -> None:
        """Add, change or delete one association, as the verb of a command says.

        ``modify`` skips unknown associations; with a partition it changes only the limits there.
        """
        if verb in {"delete", "remove"}:
            self._delete_association(key, pairs.get("partition", "").lower())
        elif verb != "modify":
            self._add_association(*key, parent, pairs, number)
        elif "partition" in pairs:
            self._set_partition_limits(key, pairs, number, existing_only=True)
        elif key in self.entries:
            entry = self.entries[key]
            shared = {"fairshare", "shares"} & pairs.keys()
            shares = _parse_shares(pairs, number) if shared else entry.shares
            above = pairs.get("parent", entry.parent)
            self.entries[key] = replace(entry, shares=shares, parent=above)
            if pairs.get("defaultaccount") == key[0]:
                self.default_account[key[1]] = key[0]
            self._apply_settings(key, pairs, number)
            for one in self.in_partition:
                if one[:2] == key:
                    own = self.in_partition[one]
                    self.in_partition[one] = _merge_limits(own, pairs, number)  # noted above

    def _delete_association(self, key: tuple[str, str], partition: str) -> None:
        """Delete an association and all below it, or only its limits in a partition."""
        for one in [one for one in self.in_partition if one[:2] == key]:
            if partition in {"", one[2]}:
                del self.in_partition[one]
        if partition:
            return
        for held in (self.entries, self.limits, self.default_qos, self.priorities):
            held.pop(key, None)
        account, user = key
        if not user:
            # Assumption: deleting an account deletes all associations below it.
            below = [key for key, entry in self.entries.items() if entry.parent == account]
            for held_by in below:
                self._delete_association(held_by, "")
        if user and self.default_account.get(user) == account:
            del self.default_account[user]

    def _add_association(
        self, account: str, user: str, parent: str, pairs: Mapping[str, str], number: int
    ) -> None:
        """Add an account or user with its settings.

        A user line with partitions sets limits in these partitions only. The first account of a
        user becomes its default account.
        """
        association = Association(account, user, parent, _parse_shares(pairs, number))
        in_part = user and "partition" in pairs
        if in_part:
            why = "counts for limits; fair share, priority and QOS are the same in all partitions"
            self.findings.append(
                Finding("sacctmgr", number, "Partition", pairs["partition"], MISSED, why)
            )
            self._set_partition_limits((account, user), pairs, number)
            # An association without a partition, which may follow, has precedence.
            self.entries.setdefault((account, user), association)
        else:
            self.entries[account, user] = association
        if user and (user not in self.default_account or pairs.get("defaultaccount") == account):
            self.default_account[user] = account
        if in_part:
            self.where.setdefault((account, user), number)
        else:
            self._apply_settings((account, user), pairs, number)

    def _set_partition_limits(
        self,
        key: tuple[str, str],
        pairs: Mapping[str, str],
        number: int,
        *,
        existing_only: bool = False,
    ) -> None:
        """Change a user's limits in the partitions that a line names.

        With `existing_only`, only in partitions where the user has limits already.
        """
        for part in filter(None, pairs["partition"].lower().split(",")):
            one = (*key, part)
            if one in self.in_partition or not existing_only:
                was = self.in_partition.get(one, NO_LIMITS)
                self.in_partition[one] = self._change_limits(was, pairs, number)

    def _change_limits(
        self, was: AssociationLimits, pairs: Mapping[str, str], number: int
    ) -> AssociationLimits:
        """Return limits with a line applied; record its settings not simulated."""
        changed = _merge_limits(was, pairs, number)
        for key in pairs:
            if key in changed.unread and key not in IDLE_OF_ACCOUNTS:
                self._missed.setdefault((key, pairs[key]), {})[number] = None
        return changed

    def _apply_settings(self, key: tuple[str, str], pairs: Mapping[str, str], number: int) -> None:
        """Apply limits, default QOS and priority to an association; record its line."""
        self.where[key] = number
        self.limits[key] = self._change_limits(self.limits.get(key, NO_LIMITS), pairs, number)
        if "defaultqos" in pairs:
            self.default_qos[key] = pairs["defaultqos"].lower()
            if self.default_qos[key] in UNLIMITED:
                del self.default_qos[key]
        if "priority" in pairs:
            self.priorities[key] = _parse_number("Priority", pairs["priority"], number)
            if self.priorities[key] == inf:
                del self.priorities[key]

    def _set_qos(self, name: str, pairs: Mapping[str, str], number: int) -> None:
        """Create or change a QOS by the settings of a line; record its line."""
        name = name.lower()
        self.where["", name] = number
        was = self.qualities.get(name, Qos(name))
        changed: dict[str, Any] = {"limits": self._change_limits(was.limits, pairs, number)}
        for key, one in NUMBERS_OF_QOS.items():
            if key in pairs:
                changed[one] = _parse_number(key, pairs[key], number)
        for key, one in LISTS.items():
            for sign in ("", "+", "-"):
                if key + sign in pairs:
                    old = changed.get(one, getattr(was, one))
                    named = frozenset(pairs[key + sign].lower().split(",")) - {"", "-1"}
                    added = named | old if sign == "+" else named
                    changed[one] = old - named if sign == "-" else added
        if "preemptmode" in pairs:
            mode = pairs["preemptmode"].upper()
            changed["preempt_mode"] = "" if mode == "CLUSTER" else mode
        if "preemptexempttime" in pairs:
            exempt = pairs["preemptexempttime"].strip()
            is_set = exempt != "-1"
            changed["exempt_s"] = (
                _parse_time_s("PreemptExemptTime", exempt, number) if is_set else -1.0
            )
        if "gracetime" in pairs:
            # sacctmgr takes seconds, -1 for none, and prints them as 00:02:00.
            text = pairs["gracetime"].strip()
            read = _parse_time_s if ":" in text else _parse_number
            given = read("GraceTime", text, number)
            changed["grace_s"] = given if given < inf else 0.0
        if "priority" in changed:
            given = changed["priority"]
            changed["priority"] = int(given) if given < inf else 0
        self.qualities[name] = replace(was, **changed)


def _merge_limits(
    was: AssociationLimits, pairs: Mapping[str, str], number: int
) -> AssociationLimits:
    """Return limits with the settings of a line applied.

    Unlimited resources are removed; settings that are not known here are kept in ``unread``.
    """
    changed: dict[str, Any] = {}

    def add(name: str, more: Mapping[str, float]) -> None:
        # A resource that is not named keeps its limit.
        """Merge amounts by resource into the changed limit `name`; drop unlimited ones."""
        merged = {**changed.get(name, getattr(was, name)), **more}
        changed[name] = {tres: most for tres, most in merged.items() if most < inf}

    for key, text in pairs.items():
        if key in TRES:
            add(TRES[key], tres_of(text, number))
        elif key in ONE_TRES:
            name, resource = ONE_TRES[key]
            add(name, {resource: _parse_number(key, text, number)})
        elif key in COUNTS:
            changed[COUNTS[key]] = _parse_number(key, text, number)
        elif key in WALLS:
            changed[WALLS[key]] = _parse_time_s(key, text, number)
        elif key.rstrip("+-") not in NOT_LIMITS:
            unread = {**changed.get("unread", was.unread), key: text}
            changed["unread"] = {one: value for one, value in unread.items() if value != "-1"}
    return replace(was, **changed) if changed else was


def tres_of(text: str, number: int = 0) -> dict[str, float]:
    """Parse a TRES list such as ``cpu=100,mem=200G,gres/gpu=8`` to a dict; memory in MB.

    Raises
    ------
    ParameterError
        If an amount is no number.
    """
    amounts: dict[str, float] = {}
    for part in filter(None, text.strip().split(",")):
        name, _, amount = part.partition("=")
        scale = _SIZES.get(amount[-1:].upper()) if name.lower() == "mem" else None
        amounts[name.strip().lower()] = _parse_number(
            name, amount[:-1] if scale is not None else amount, number
        ) * (scale or 1.0)
    return amounts


def _option_key(key: str, sign: str) -> str:
    """Return the canonical key of an option; list options keep the sign of += and -=."""
    return f"{key}{sign[:-1]}" if key in LISTS else {"accounts": "account"}.get(key, key)


def _where_clause(words: Sequence[str]) -> dict[str, str]:
    """Return the conditions of a command: options before ``set``, or after ``where``."""
    conditions, is_set = {}, False
    for word in words:
        key, sign, value = word.partition("=")
        if sign and not is_set:
            conditions[_option_key(key.lower(), "=")] = value.strip("\"'")
        elif word.lower() in {"set", "where"}:
            is_set = word.lower() == "set"
    return conditions


def _split_names(value: str) -> frozenset[str]:
    """Split a comma-separated list into names in lower case."""
    return frozenset(value.lower().split(","))


def _parse_time_s(key: str, text: str, number: int) -> float:
    """Parse a time in seconds; errors name the line and the option."""
    try:
        return parse_time_s(text)
    except ParameterError as error:
        raise ParameterError(f"sacctmgr, line {number}: {key}: {error}") from error


def _parse_number(key: str, text: str, number: int) -> float:
    """Parse a number, unlimited = inf; errors name the line and the option."""
    if text.strip().lower() in UNLIMITED:
        return inf
    try:
        return float(text)
    except ValueError as error:
        raise ParameterError(
            f"sacctmgr, line {number}: {key}={text!r:.30} is no number."
        ) from error


def _parse_shares(pairs: Mapping[str, str], number: int) -> int | None:
    """Return the shares of an association; default 1, None = Fairshare=parent."""
    text = pairs.get("fairshare", pairs.get("shares", "1"))
    if text.lower() == "parent":
        return None
    if not text.isdigit():
        raise ParameterError(f"sacctmgr, line {number}: Fairshare={text!r:.30} is no number.")
    return int(text)


def _refuse_cycles(entries: tuple[Association, ...], where: Mapping[tuple[str, str], int]) -> None:
    """Raise an error if an account is its own ancestor."""
    above = {entry.account: entry.parent for entry in entries if not entry.user}
    for account, parent in above.items():
        seen, at = {account}, parent
        while at in above:
            if at in seen:
                line = where.get((at, ""), 0)
                raise ParameterError(f"sacctmgr, line {line}: the account {at} is its own parent.")
            seen.add(at)
            at = above[at]
