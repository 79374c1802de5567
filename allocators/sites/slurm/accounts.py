"""Who may use a cluster and how much of it: associations and qualities of service, as ``sacctmgr``
writes and takes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from allocators.sites.slurm.config import UNLIMITED, ConfigLine, lines, seconds
from allocators.sites.slurm.fairshare import ROOT, Association
from allocators.sites.slurm.keys import (
    COUNTS,
    HOLDERS,
    IDLE_OF_ACCOUNTS,
    LISTS,
    MISSED,
    MISSED_OF_ACCOUNTS,
    NO_LIMIT,
    NUMBERS_OF_QOS,
    ONE_TRES,
    TRES,
    WALLS,
    Finding,
)
from sim.contract import ParameterError

_PAIR: Final = re.compile(r"([\w.]+)\s*(\+?=|-=)\s*(\"[^\"]*\"|'[^']*'|\S+)")
_DUMPED: Final = re.compile(r"([A-Z]\w*)=('[^']*'|[^:]*?(?::[^:]+?)*?)(?=:[A-Z]\w*=|\s*$)")
"""A setting of a dump; what it says may hold colons, as in ``gres/gpu:a100=4``."""
_SIZES: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


@dataclass(frozen=True)
class AssociationLimits:
    """What an association or a quality of service allows; inf, or a resource left out, is no limit.

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
        Over the largest of all it becomes a factor.
    limits : Limits
        What its jobs may use together and one by one.
    usage_factor : float
        What a second counts in fair share.
    limit_factor, min_priority, usage_threshold : float
        Times the limits of associations; below this priority jobs wait; below this fair share jobs
        wait.
    flags, preempts : frozenset of str
        In lower case: flags, and the qualities whose jobs it may displace.
    preempt_mode : str
        What becomes of its displaced jobs, in capitals; "" = as the cluster says.
    exempt_s : float, seconds
        For how long after their start its jobs are not displaced; below 0 = as the cluster says.
    grace_s : float, seconds
        For how long its displaced jobs still run.
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
    """Who may use the cluster, and on what terms.

    Attributes
    ----------
    entries : tuple of Association
        Accounts and users.
    qos : mapping
        Quality of service in lower case -> its priority.
    qualities : mapping
        Quality of service in lower case -> all of it.
    limits : mapping
        (account, user) -> limits, user "" = the account's own.
    in_partition : mapping
        (account, user, partition in lower case) -> limits there, in the place of the user's own.
    default_qos, priorities : mapping
        (account, user) -> quality of service of jobs that name none, and priority.
    default_account : mapping
        User -> account of jobs that name none.
    findings : tuple of Finding
        What changes results and is not simulated.
    where : mapping
        (account, user), or ("", quality of service) -> the line that said something of it last.
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
        """What it says, without where; two states that hold the same are equal."""
        return replace(
            self,
            entries=tuple(sorted(self.entries, key=lambda one: (one.account, one.user))),
            limits={key: own for key, own in self.limits.items() if own != NO_LIMITS},
            findings=(),
            where={},
        )


NOBODY: Final = Associations((), {})


def read_associations(text: str, qos_text: str = "") -> Associations:
    """Read what ``sacctmgr dump`` writes, or a script of ``sacctmgr`` commands, and what
    ``sacctmgr show qos -P`` prints.

    Raises
    ------
    ParameterError
        If a user or account names an account that is not there, or an account its own child.
    """
    reading = _AccountsReader()
    for line in lines(text):
        head, _, rest = line.text.partition(" - ")
        if rest and head.strip().lower() in {"cluster", "parent", "account", "user", "qos"}:
            reading.dumped(head.strip().lower(), rest, line.number)
        else:
            reading.command(line.text.split(), line)
    reading.table(qos_text)
    entries = tuple(reading.entries.values())
    known = {entry.account for entry in entries if not entry.user} | {ROOT}
    for entry in entries:
        if entry.parent not in known:
            named = entry.user or entry.account
            at = reading.where.get((entry.account, entry.user), 0)
            raise ParameterError(
                f"sacctmgr, line {at}: {named} belongs to the account {entry.parent}, which is"
                " not there."
            )
    _refuse_rings(entries, reading.where)
    return Associations(
        entries,
        {name: qos.priority for name, qos in reading.qualities.items()},
        reading.qualities,
        reading.limits,
        reading.in_partition,
        reading.default_qos,
        reading.priorities,
        reading.default_account,
        tuple(reading.found()),
        reading.where,
    )


class _AccountsReader:
    """Lines become associations and qualities, one after the other."""

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

    def dumped(self, kind: str, rest: str, number: int) -> None:
        """Take a line of a dump."""
        name, _, tail = rest.partition(":")
        name = name.strip().strip("'\"")
        pairs = {key.lower(): value.strip("'\"") for key, value in _DUMPED.findall(tail)}
        if kind == "parent":
            self._parent = name
        elif kind == "qos":
            self._set_quality(name, pairs, number)
        elif kind == "account":
            self._add(name, "", self._parent, pairs, number)
        elif kind == "user":
            self._add(self._parent, name, self._parent, pairs, number)

    def found(self) -> Iterator[Finding]:
        """Return what changes results and is not simulated, each setting once."""
        yield from self.findings
        for (key, value), numbers in self._missed.items():
            # Where none is listed, there is the usual one at least.
            if key == "qos" and (
                _named(value) >= self.qualities.keys() if self.qualities else value == "normal"
            ):
                continue  # nobody is kept from any
            unknown = "is not a setting that is known here, so it has no effect"
            why = MISSED_OF_ACCOUNTS.get(key, unknown)
            first, more = next(iter(numbers)), len(numbers) - 1
            also = f" (and {more} more of such lines)" if more else ""
            yield Finding("sacctmgr", first, key, value, MISSED, f"{why}{also}")

    def command(self, words: list[str], line: ConfigLine) -> None:
        """Take a command."""
        words = words[1:] if words[0].lower() == "sacctmgr" else words
        words = [word for word in words if word not in {"-i", "--immediate"}]
        verb, what = words[0].lower(), words[1].lower() if len(words) > 1 else ""
        found = _PAIR.findall(line.text)
        # Of lists "+=" adds and "-=" takes away; the sign stays with the key.
        pairs = {_key(key.lower(), sign): value.strip("\"'") for key, sign, value in found}
        if verb not in {"add", "create", "modify", "delete", "remove"} or what not in HOLDERS:
            return
        names = self._names(verb, words[1:], pairs, line.number)
        if what == "qos":
            for name in names:
                if verb in {"delete", "remove"}:
                    self.qualities.pop(name.lower(), None)
                else:
                    self._set_quality(name, pairs, line.number)
        elif what in {"account", "accounts"}:
            for name in names:
                parent = pairs.get("parent", ROOT)
                self._command_on(verb, (name, ""), parent, pairs, line.number)
        elif what in {"user", "users"}:
            default = pairs.get("account", pairs.get("defaultaccount", ""))
            for name in names:
                held = [one for one in self.entries if one[1] == name]
                accounts = default.split(",") if default else [one[0] for one in held] or [ROOT]
                for account in accounts:
                    self._command_on(verb, (account, name), account, pairs, line.number)

    def _names(
        self, verb: str, words: list[str], pairs: dict[str, str], number: int
    ) -> Sequence[str]:
        """Return whom a command is about."""
        plain = [
            word for word in words[1:] if "=" not in word and word.lower() not in {"set", "where"}
        ]
        written = pairs.pop("name", "") or pairs.pop("names", "") or ",".join(plain)
        if names := [name for name in written.split(",") if name]:
            return names
        where = _conditions(words[1:])
        if verb != "modify":
            raise ParameterError(
                f"sacctmgr, line {number}: the command does not say which {words[0]} it is about."
                " Name one."
            )
        # As with -i: all of them, of the account or parent that is named.
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

    def table(self, text: str) -> None:
        """Take what ``sacctmgr show qos -P`` prints."""
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
            self._set_quality(pairs.pop("name"), pairs, number)

    def _command_on(
        self,
        verb: str,
        key: tuple[str, str],
        parent: str,
        pairs: Mapping[str, str],
        number: int,
    ) -> None:
        if verb in {"delete", "remove"}:
            self._delete(key, pairs.get("partition", "").lower())
        elif verb != "modify":
            self._add(*key, parent, pairs, number)
        elif "partition" in pairs:
            self._in_partitions(key, pairs, number, known=True)
        elif key in self.entries:
            entry = self.entries[key]
            shared = {"fairshare", "shares"} & pairs.keys()
            shares = _shares(pairs, number) if shared else entry.shares
            above = pairs.get("parent", entry.parent)
            self.entries[key] = replace(entry, shares=shares, parent=above)
            if pairs.get("defaultaccount") == key[0]:
                self.default_account[key[1]] = key[0]
            self._settings(key, pairs, number)
            for one in self.in_partition:
                if one[:2] == key:
                    own = self.in_partition[one]
                    self.in_partition[one] = _limits(own, pairs, number)  # noted above

    def _delete(self, key: tuple[str, str], partition: str) -> None:
        for one in [one for one in self.in_partition if one[:2] == key]:
            if partition in {"", one[2]}:
                del self.in_partition[one]
        if partition:
            return
        for held in (self.entries, self.limits, self.default_qos, self.priorities):
            held.pop(key, None)
        account, user = key
        if not user:
            # Our reading: all that is below an account goes with it.
            below = [key for key, entry in self.entries.items() if entry.parent == account]
            for held_by in below:
                self._delete(held_by, "")
        if user and self.default_account.get(user) == account:
            del self.default_account[user]

    def _add(
        self, account: str, user: str, parent: str, pairs: Mapping[str, str], number: int
    ) -> None:
        made = Association(account, user, parent, _shares(pairs, number))
        in_part = user and "partition" in pairs
        if in_part:
            why = "counts for limits; fair share, priority and QOS are the same in all partitions"
            self.findings.append(
                Finding("sacctmgr", number, "Partition", pairs["partition"], MISSED, why)
            )
            self._in_partitions((account, user), pairs, number)
            # The user's own, which may follow, goes before.
            self.entries.setdefault((account, user), made)
        else:
            self.entries[account, user] = made
        if user and (user not in self.default_account or pairs.get("defaultaccount") == account):
            self.default_account[user] = account
        if in_part:
            self.where.setdefault((account, user), number)
        else:
            self._settings((account, user), pairs, number)

    def _in_partitions(
        self, key: tuple[str, str], pairs: Mapping[str, str], number: int, *, known: bool = False
    ) -> None:
        """Set limits in partitions, with `known` only where there were some."""
        for part in filter(None, pairs["partition"].lower().split(",")):
            one = (*key, part)
            if one in self.in_partition or not known:
                was = self.in_partition.get(one, NO_LIMITS)
                self.in_partition[one] = self._limits(was, pairs, number)

    def _limits(
        self, was: AssociationLimits, pairs: Mapping[str, str], number: int
    ) -> AssociationLimits:
        """Return limits with changes; what is not simulated is noted with its line."""
        made = _limits(was, pairs, number)
        for key in pairs:
            if key in made.unread and key not in IDLE_OF_ACCOUNTS:
                self._missed.setdefault((key, pairs[key]), {})[number] = None
        return made

    def _settings(self, key: tuple[str, str], pairs: Mapping[str, str], number: int) -> None:
        self.where[key] = number
        self.limits[key] = self._limits(self.limits.get(key, NO_LIMITS), pairs, number)
        if "defaultqos" in pairs:
            self.default_qos[key] = pairs["defaultqos"].lower()
            if self.default_qos[key] in UNLIMITED:
                del self.default_qos[key]
        if "priority" in pairs:
            self.priorities[key] = _number("Priority", pairs["priority"], number)
            if self.priorities[key] == inf:
                del self.priorities[key]

    def _set_quality(self, name: str, pairs: Mapping[str, str], number: int) -> None:
        name = name.lower()
        self.where["", name] = number
        was = self.qualities.get(name, Qos(name))
        changed: dict[str, Any] = {"limits": self._limits(was.limits, pairs, number)}
        for key, one in NUMBERS_OF_QOS.items():
            if key in pairs:
                changed[one] = _number(key, pairs[key], number)
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
            known = exempt != "-1"
            changed["exempt_s"] = _time("PreemptExemptTime", exempt, number) if known else -1.0
        if "gracetime" in pairs:
            # sacctmgr takes seconds, -1 for none, and prints them as 00:02:00.
            text = pairs["gracetime"].strip()
            read = _time if ":" in text else _number
            given = read("GraceTime", text, number)
            changed["grace_s"] = given if given < inf else 0.0
        if "priority" in changed:
            given = changed["priority"]
            changed["priority"] = int(given) if given < inf else 0
        self.qualities[name] = replace(was, **changed)


def _limits(was: AssociationLimits, pairs: Mapping[str, str], number: int) -> AssociationLimits:
    changed: dict[str, Any] = {}

    def add(name: str, more: Mapping[str, float]) -> None:
        # A resource that is not named keeps its limit.
        whole = {**changed.get(name, getattr(was, name)), **more}
        changed[name] = {tres: most for tres, most in whole.items() if most < inf}

    for key, text in pairs.items():
        if key in TRES:
            add(TRES[key], tres_of(text, number))
        elif key in ONE_TRES:
            name, what = ONE_TRES[key]
            add(name, {what: _number(key, text, number)})
        elif key in COUNTS:
            changed[COUNTS[key]] = _number(key, text, number)
        elif key in WALLS:
            changed[WALLS[key]] = _time(key, text, number)
        elif key.rstrip("+-") not in NO_LIMIT:
            left = {**changed.get("unread", was.unread), key: text}
            changed["unread"] = {one: value for one, value in left.items() if value != "-1"}
    return replace(was, **changed) if changed else was


def tres_of(text: str, number: int = 0) -> dict[str, float]:
    """Return a list such as ``cpu=100,mem=200G,gres/gpu=8``, memory in MB; inf = no limit.

    Raises
    ------
    ParameterError
        If an amount is no number.
    """
    found: dict[str, float] = {}
    for part in filter(None, text.strip().split(",")):
        name, _, amount = part.partition("=")
        scale = _SIZES.get(amount[-1:].upper()) if name.lower() == "mem" else None
        found[name.strip().lower()] = _number(
            name, amount[:-1] if scale is not None else amount, number
        ) * (scale or 1.0)
    return found


def _key(key: str, sign: str) -> str:
    return f"{key}{sign[:-1]}" if key in LISTS else {"accounts": "account"}.get(key, key)


def _conditions(words: Sequence[str]) -> dict[str, str]:
    """Return what a command says before the word set, or after where."""
    found, is_set = {}, False
    for word in words:
        key, sign, value = word.partition("=")
        if sign and not is_set:
            found[_key(key.lower(), "=")] = value.strip("\"'")
        elif word.lower() in {"set", "where"}:
            is_set = word.lower() == "set"
    return found


def _named(value: str) -> frozenset[str]:
    return frozenset(value.lower().split(","))


def _time(key: str, text: str, number: int) -> float:
    try:
        return seconds(text)
    except ParameterError as error:
        raise ParameterError(f"sacctmgr, line {number}: {key}: {error}") from error


def _number(key: str, text: str, number: int) -> float:
    if text.strip().lower() in UNLIMITED:
        return inf
    try:
        return float(text)
    except ValueError as error:
        raise ParameterError(
            f"sacctmgr, line {number}: {key}={text!r:.30} is no number."
        ) from error


def _shares(pairs: Mapping[str, str], number: int) -> int | None:
    text = pairs.get("fairshare", pairs.get("shares", "1"))
    if text.lower() == "parent":
        return None
    if not text.isdigit():
        raise ParameterError(f"sacctmgr, line {number}: Fairshare={text!r:.30} is no number.")
    return int(text)


def _refuse_rings(entries: tuple[Association, ...], where: Mapping[tuple[str, str], int]) -> None:
    above = {entry.account: entry.parent for entry in entries if not entry.user}
    for account, parent in above.items():
        seen, at = {account}, parent
        while at in above:
            if at in seen:
                line = where.get((at, ""), 0)
                raise ParameterError(f"sacctmgr, line {line}: the account {at} is its own parent.")
            seen.add(at)
            at = above[at]
