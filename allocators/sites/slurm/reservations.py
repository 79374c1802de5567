"""Nodes that are kept for some users, or for maintenance: ``scontrol show res -o``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from math import inf
from operator import or_
from typing import Final

from allocators.sites.slurm.config import lines, seconds
from allocators.sites.slurm.keys import IDLE, MISSED, USED, Finding
from allocators.sites.slurm.state import Mask, SlurmJob
from sim.contract import ParameterError, hosts_of

FILE: Final = "reservations"
_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_EVERY_S: Final = {"HOURLY": 3600.0, "DAILY": 86_400.0, "WEEKLY": 7 * 86_400.0}
_FLAGS: Final = frozenset({"MAINT", *_EVERY_S})
_IDLE_FLAGS: Final = frozenset({"IGNORE_JOBS", "SPEC_NODES", "ALL_NODES", "OVERLAP"})
_NOBODY: Final = frozenset({"", "(null)", "N/A"})
_NONE: Final = "no reservations in the system"
_MOST_NAMED: Final = 5
_JUST_AFTER_S: Final = 1e-6
"""A job that ends as a reservation begins is not in its way."""


@dataclass(frozen=True)
class Reserved:
    """One reservation.

    Attributes
    ----------
    name : str
        As jobs ask for it.
    begin_s, end_s : float, seconds
        Since 1970, of the first time.
    every_s : float, seconds
        It comes again after so long; inf = once.
    nodes : tuple of str
        Names; () = `count` nodes, the first by name.
    count : int
        How many nodes.
    users, accounts : frozenset of str
        Who may use it; both empty = everybody who asks for it.
    barred_users, barred_accounts : frozenset of str
        Who may not.
    maintenance : bool
        Flag MAINT.
    for_groups : bool
        It names groups. Who is in them is not known, so that for groups alone it admits nobody.
    """

    name: str
    begin_s: float
    end_s: float
    every_s: float = inf
    nodes: tuple[str, ...] = ()
    count: int = 0
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    barred_users: frozenset[str] = frozenset()
    barred_accounts: frozenset[str] = frozenset()
    maintenance: bool = False
    for_groups: bool = False

    def admits(self, user: str, account: str) -> bool:
        """Tell whether jobs of a user may be in it."""
        if user in self.barred_users or account in self.barred_accounts:
            return False
        if not (self.users or self.accounts):
            return not self.for_groups
        return user in self.users or account in self.accounts


def read_reservations(text: str) -> tuple[tuple[Reserved, ...], tuple[Finding, ...]]:
    """Read what ``scontrol show res -o`` prints: one reservation a line.

    Raises
    ------
    ParameterError
        If a line is no reservation, or a time cannot be read.
    """
    made: list[Reserved] = []
    findings: list[Finding] = []
    for line in lines(text):
        if line.text.lower().startswith(_NONE):
            continue
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.text)}
        if "reservationname" not in pairs:
            raise ParameterError(
                f"{FILE}, line {line.number}: ReservationName= is missing; export it by scontrol"
                " show res -o."
            )
        made.append(_reservation(pairs, line.number))
        findings += _findings(pairs, line.number)
    return tuple(made), tuple(findings)


def _reservation(pairs: Mapping[str, str], number: int) -> Reserved:
    begin_s = _date_s(pairs.get("starttime", ""), number)
    if "endtime" in pairs:
        end_s = _date_s(pairs["endtime"], number)
    else:
        end_s = begin_s + _duration_s(pairs.get("duration", "UNLIMITED"), number)
    flags = set(pairs.get("flags", "").upper().split(","))
    listed, where = pairs.get("nodes", ""), f"{FILE}, line {number}"
    users, barred_users = _people(pairs.get("users", ""))
    accounts, barred_accounts = _people(pairs.get("accounts", ""))
    return Reserved(
        pairs["reservationname"],
        begin_s,
        end_s,
        next((span_s for flag, span_s in _EVERY_S.items() if flag in flags), inf),
        () if listed in _NOBODY or listed.upper() == "ALL" else tuple(hosts_of(listed, where)),
        1_000_000 if listed.upper() == "ALL" else _count(pairs.get("nodecnt", ""), number),
        users,
        accounts,
        barred_users,
        barred_accounts,
        "MAINT" in flags,
        pairs.get("groups", "") not in _NOBODY,
    )


def _count(text: str, number: int) -> int:
    if text in _NOBODY:
        return 0
    if not text.isdecimal():
        raise ParameterError(
            f"{FILE}, line {number}: NodeCnt={text:.30} is no number of nodes; write it as 2."
        )
    return int(text)


def _duration_s(text: str, number: int) -> float:
    try:
        return seconds(text)
    except ParameterError as error:
        raise ParameterError(f"{FILE}, line {number}: Duration: {error}") from error


def _people(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return who is named, and who is named with a minus."""
    names = [name for name in text.split(",") if name not in _NOBODY]
    return (
        frozenset(name for name in names if not name.startswith("-")),
        frozenset(name[1:] for name in names if name.startswith("-")),
    )


def _findings(pairs: Mapping[str, str], number: int) -> Iterator[Finding]:
    yield Finding(FILE, number, "ReservationName", pairs["reservationname"], USED)
    for flag in pairs.get("flags", "").upper().split(","):
        if flag in _NOBODY:
            continue
        kind = IDLE if flag in _IDLE_FLAGS else USED if flag in _FLAGS else MISSED
        why = "is not simulated" if kind == MISSED else ""
        yield Finding(FILE, number, "Flags", flag, kind, why)
    if pairs.get("groups", "") not in _NOBODY:
        named = _people(pairs.get("users", ""))[0] | _people(pairs.get("accounts", ""))[0]
        who = "only its users and accounts" if named else "nobody"
        why = f"is not simulated: {who} may use it"
        yield Finding(FILE, number, "Groups", pairs["groups"], MISSED, why)
    if pairs.get("nodes", "") not in _NOBODY:
        return
    why = "is not looked at: the first nodes by name are taken"
    for key in ("PartitionName", "Features"):
        if pairs.get(key.lower(), "") not in _NOBODY:
            yield Finding(FILE, number, key, pairs[key.lower()], MISSED, why)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _date_s(text: str, number: int) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ParameterError(
            f"{FILE}, line {number}: {text!r:.30} is no date; write it as 2026-01-31T08:00:00."
        ) from error


@dataclass
class Calendar:
    """The reservations of a run, on its clock.

    Parameters
    ----------
    clock_s : float
        Seconds since 1970 at the zero of the trace.
    names : sequence of str
        Of the nodes, in order.
    reserved : tuple of Reserved
        What is reserved; those with a number of nodes take the first of `nodes`.
    """

    clock_s: float
    names: list[str]
    reserved: tuple[Reserved, ...]
    nodes: dict[str, Mask] = field(init=False)
    unknown: tuple[str, ...] = field(init=False)
    """Which names of nodes the cluster does not have, as sentences."""
    _by_name: dict[str, Reserved] = field(init=False)

    def __post_init__(self) -> None:
        """Find the nodes of each."""
        at = {name: 1 << place for place, name in enumerate(self.names)}
        self.nodes = {
            one.name: reduce(
                or_, [at.get(name, 0) for name in one.nodes or self.names[: one.count]], 0
            )
            for one in self.reserved
        }
        self.unknown = tuple(
            f"reservation {one.name} names {_listed(names)}, which the cluster does not have."
            for one in self.reserved
            if (names := [name for name in dict.fromkeys(one.nodes) if name not in at])
        )
        self._by_name = {one.name: one for one in self.reserved}

    def refusal(self, job: SlurmJob) -> str:
        """Return why a job may not ask for its reservation; "" = it may."""
        one = self._by_name.get(job.reservation)
        if one is None:
            return "ReservationInvalid"
        return "" if one.admits(job.user, job.account) else "ReservationAccessDenied"

    def spans(self, one: Reserved, from_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """Yield from when until when it holds, where that touches a span, in seconds of the run."""
        begin_s, end_s = one.begin_s - self.clock_s, one.end_s - self.clock_s
        if one.every_s < inf and end_s < from_s:
            behind = (from_s - end_s) // one.every_s
            begin_s, end_s = begin_s + behind * one.every_s, end_s + behind * one.every_s
        while begin_s <= until_s:
            if end_s >= from_s:
                yield begin_s, end_s
            if one.every_s == inf:
                return
            begin_s, end_s = begin_s + one.every_s, end_s + one.every_s

    def barred(self, now_s: float, job: SlurmJob) -> Mask:
        """Return the nodes on which a job may not start now, as it would be there when they are
        reserved for others; -1 = all nodes, as its own reservation does not hold long enough.
        """
        end_s = now_s + job.limit_s
        if job.reservation:
            own = self._by_name[job.reservation]
            holds = any(
                begin_s <= now_s and end_s <= last_s
                for begin_s, last_s in self.spans(own, now_s, now_s)
            )
            return ~self.nodes[own.name] if holds else -1
        found = 0
        for one in self.reserved:
            if self._overlaps(one, now_s, end_s):
                found |= self.nodes[one.name]
        return found

    def _overlaps(self, one: Reserved, from_s: float, until_s: float) -> bool:
        """Tell whether a reservation holds at some instant of a span."""
        return any(
            begin_s < until_s and end_s > from_s
            for begin_s, end_s in self.spans(one, from_s, until_s)
        )

    def kept(
        self, job: SlurmJob, now_s: float, last_s: float, until_s: float
    ) -> Iterator[tuple[float, float, Mask]]:
        """Yield from when until when which nodes are not for a job.

        Plans begin at `last_s` at the latest: a job there at a later time of a reservation
        meets the first one behind `last_s` too, so those that follow are left out.
        """
        if not job.reservation:
            for one in self.reserved:
                for begin_s, end_s in self.spans(one, now_s, until_s):
                    yield begin_s + _JUST_AFTER_S, min(end_s, until_s), self.nodes[one.name]
                    if begin_s > last_s:
                        break
            return
        own = self._by_name[job.reservation]
        every = (1 << len(self.names)) - 1
        yield now_s, until_s, every & ~self.nodes[own.name]
        at_s = now_s
        for begin_s, end_s in self.spans(own, now_s, until_s):
            if begin_s > at_s:
                yield at_s, begin_s, self.nodes[own.name]
                if at_s > last_s:
                    return
            at_s = max(at_s, end_s + _JUST_AFTER_S)
        if at_s < until_s:
            yield at_s, until_s, self.nodes[own.name]

    def holds(self, job: SlurmJob, now_s: float) -> bool:
        """Tell whether the reservation of a job holds now."""
        own = self._by_name.get(job.reservation)
        return own is not None and any(
            begin_s <= now_s < end_s for begin_s, end_s in self.spans(own, now_s, now_s)
        )

    def why(self, now_s: float, job: SlurmJob) -> str:
        """Return why a job waits that its nodes are kept from, as ``squeue`` says it."""
        if job.reservation:
            return "Reservation"
        end_s = now_s + job.limit_s
        for one in self.reserved:
            if one.maintenance and self._overlaps(one, now_s, end_s):
                return "ReqNodeNotAvail, Reserved for maintenance"
        return "ReqNodeNotAvail"

    def edge_s(self, now_s: float) -> float:
        """Return when a reservation begins or ends next; inf = never again."""
        found = [
            at_s
            for one in self.reserved
            for span in self.spans(one, now_s, now_s + min(one.every_s, 1e9))
            for at_s in span
            if at_s > now_s
        ]
        return min(found, default=inf)
