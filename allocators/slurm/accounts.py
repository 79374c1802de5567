"""Who may use a cluster and how much of it: associations and qualities of service, as ``sacctmgr``
writes and takes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from allocators.slurm.config import UNLIMITED, Line, lines, seconds
from allocators.slurm.fairshare import ROOT, Association
from allocators.slurm.keys import MISSED, Finding, words
from sim.contract import ParameterError

_PAIR: Final = re.compile(r"([\w.]+)\s*(\+?=|-=)\s*(\"[^\"]*\"|'[^']*'|\S+)")
_DUMPED: Final = re.compile(r"([A-Z]\w*)=('[^']*'|[^:]*?(?::[^:]+?)*?)(?=:[A-Z]\w*=|\s*$)")
"""A setting of a dump; what it says may hold colons, as in ``gres/gpu:a100=4``."""
_SIZES: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


@dataclass(frozen=True)
class Limits:
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


NO_LIMITS: Final = Limits()


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
    limits: Limits = NO_LIMITS
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
    limits: Mapping[tuple[str, str], Limits] = field(default_factory=dict)
    in_partition: Mapping[tuple[str, str, str], Limits] = field(default_factory=dict)
    default_qos: Mapping[tuple[str, str], str] = field(default_factory=dict)
    priorities: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default_account: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    where: Mapping[tuple[str, str], int] = field(default_factory=dict)


NOBODY: Final = Associations((), {})


def read_associations(text: str, qos_text: str = "") -> Associations:
    """Read what ``sacctmgr dump`` writes, or a script of ``sacctmgr`` commands, and what
    ``sacctmgr show qos -P`` prints.

    Raises
    ------
    ParameterError
        If a user or account names an account that is not there, or an account its own child.
    """
    reading = _Reading()
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
        tuple(reading.findings),
        reading.where,
    )


class _Reading:
    """Lines become associations and qualities, one after the other."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], Association] = {}
        self.qualities: dict[str, Qos] = {}
        self.limits: dict[tuple[str, str], Limits] = {}
        self.in_partition: dict[tuple[str, str, str], Limits] = {}
        self.default_qos: dict[tuple[str, str], str] = {}
        self.priorities: dict[tuple[str, str], float] = {}
        self.default_account: dict[str, str] = {}
        self.findings: list[Finding] = []
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

    def command(self, words: list[str], line: Line) -> None:
        """Take a command."""
        words = words[1:] if words[0].lower() == "sacctmgr" else words
        words = [word for word in words if word not in {"-i", "--immediate"}]
        verb, what = words[0].lower(), words[1].lower() if len(words) > 1 else ""
        found = _PAIR.findall(line.text)
        # Of lists "+=" adds and "-=" takes away; the sign stays with the key.
        pairs = {
            key.lower() + (sign[:-1] if key.lower() in _LISTS else ""): value.strip("\"'")
            for key, sign, value in found
        }
        plain = [
            word for word in words[2:] if "=" not in word and word.lower() not in {"set", "where"}
        ]
        names = [
            name
            for name in (pairs.pop("name", "") or pairs.pop("names", "") or ",".join(plain)).split(
                ","
            )
            if name
        ]
        if verb not in {"add", "create", "modify", "delete", "remove"}:
            return
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
                    self.in_partition[one] = _limits(own, pairs, number)

    def _delete(self, key: tuple[str, str], partition: str) -> None:
        for one in [one for one in self.in_partition if one[:2] == key]:
            if partition in {"", one[2]}:
                del self.in_partition[one]
        if partition:
            return
        for held in (self.entries, self.limits, self.default_qos, self.priorities):
            held.pop(key, None)
        account, user = key
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
                self.in_partition[one] = _limits(was, pairs, number)

    def _settings(self, key: tuple[str, str], pairs: Mapping[str, str], number: int) -> None:
        self.where[key] = number
        self.limits[key] = _limits(self.limits.get(key, NO_LIMITS), pairs, number)
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
        changed: dict[str, Any] = {"limits": _limits(was.limits, pairs, number)}
        for key, one in _NUMBERS_OF_QOS.items():
            if key in pairs:
                changed[one] = _number(key, pairs[key], number)
        for key, one in _LISTS.items():
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
            changed["exempt_s"] = -1.0 if exempt == "-1" else seconds(exempt)
        if "gracetime" in pairs:
            # sacctmgr takes seconds, -1 for none, and prints them as 00:02:00.
            text = pairs["gracetime"].strip()
            given = seconds(text) if ":" in text else _number("GraceTime", text, number)
            changed["grace_s"] = given if given < inf else 0.0
        if "priority" in changed:
            given = changed["priority"]
            changed["priority"] = int(given) if given < inf else 0
        self.qualities[name] = replace(was, **changed)


_NUMBERS_OF_QOS: Final = {
    "priority": "priority",
    "usagefactor": "usage_factor",
    "limitfactor": "limit_factor",
    "minpriothreshold": "min_priority",
    "minprioritythreshold": "min_priority",
    "usagethres": "usage_threshold",
    "usagethreshold": "usage_threshold",
}
_TRES: Final = {
    "grptres": "grp_tres",
    "grptresmins": "grp_tres_mins",
    "grptresrunmins": "grp_tres_run_mins",
    "maxtres": "max_tres",
    "maxtresperjob": "max_tres",
    "maxtrespj": "max_tres",
    "maxtrespernode": "max_tres_per_node",
    "maxtrespn": "max_tres_per_node",
    "mintres": "min_tres",
    "mintresperjob": "min_tres",
    "maxtresmins": "max_tres_mins",
    "maxtresminsperjob": "max_tres_mins",
    "maxtrespu": "max_tres_pu",
    "maxtresperuser": "max_tres_pu",
    "maxtrespa": "max_tres_pa",
    "maxtresperaccount": "max_tres_pa",
}
_ONE_TRES: Final = {
    "grpcpus": ("grp_tres", "cpu"),
    "grpnodes": ("grp_tres", "node"),
    "grpmem": ("grp_tres", "mem"),
    "grpcpumins": ("grp_tres_mins", "cpu"),
    "grpcpurunmins": ("grp_tres_run_mins", "cpu"),
    "maxcpus": ("max_tres", "cpu"),
    "maxcpusperjob": ("max_tres", "cpu"),
    "maxnodes": ("max_tres", "node"),
    "maxnodesperjob": ("max_tres", "node"),
    "mincpus": ("min_tres", "cpu"),
    "mincpusperjob": ("min_tres", "cpu"),
    "maxcpumins": ("max_tres_mins", "cpu"),
    "maxcpuminsperjob": ("max_tres_mins", "cpu"),
    "maxcpusperuser": ("max_tres_pu", "cpu"),
    "maxcpuspu": ("max_tres_pu", "cpu"),
    "maxnodesperuser": ("max_tres_pu", "node"),
    "maxnodespu": ("max_tres_pu", "node"),
}
_COUNTS: Final = {
    "grpjobs": "grp_jobs",
    "grpsubmit": "grp_submit",
    "grpsubmitjobs": "grp_submit",
    "maxjobs": "max_jobs",
    "maxjobspu": "max_jobs_pu",
    "maxjobsperuser": "max_jobs_pu",
    "maxjobspa": "max_jobs_pa",
    "maxjobsperaccount": "max_jobs_pa",
    "maxsubmit": "max_submit",
    "maxsubmitjobs": "max_submit",
    "maxsubmitpu": "max_submit_pu",
    "maxsubmitjobspu": "max_submit_pu",
    "maxsubmitjobsperuser": "max_submit_pu",
    "maxsubmitpa": "max_submit_pa",
    "maxsubmitjobspa": "max_submit_pa",
    "maxsubmitjobsperaccount": "max_submit_pa",
}
_WALLS: Final = {
    "grpwall": "grp_wall_s",
    "maxwall": "max_wall_s",
    "maxwalldurationperjob": "max_wall_s",
    "maxwallpj": "max_wall_s",
}


_LISTS: Final = {"flags": "flags", "preempt": "preempts"}
"""Settings of a quality of service that are lists -> their attributes."""
_NO_LIMIT: Final = _NUMBERS_OF_QOS.keys() | words("""
    account accounts adminlevel cluster clusters defaultaccount defaultqos description fairshare
    flags organization parent partition preempt preemptexempttime preemptmode shares
""")
"""Settings that are read as something else, or are words about people."""


def _limits(was: Limits, pairs: Mapping[str, str], number: int) -> Limits:
    changed: dict[str, Any] = {}

    def add(name: str, more: Mapping[str, float]) -> None:
        # A resource that is not named keeps its limit.
        whole = {**changed.get(name, getattr(was, name)), **more}
        changed[name] = {tres: most for tres, most in whole.items() if most < inf}

    for key, text in pairs.items():
        if key in _TRES:
            add(_TRES[key], tres_of(text, number))
        elif key in _ONE_TRES:
            name, what = _ONE_TRES[key]
            add(name, {what: _number(key, text, number)})
        elif key in _COUNTS:
            changed[_COUNTS[key]] = _number(key, text, number)
        elif key in _WALLS:
            changed[_WALLS[key]] = seconds(text)
        elif key.rstrip("+-") not in _NO_LIMIT:
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
