"""Reservations of nodes for users or maintenance, from ``scontrol show res -o``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from math import inf
from operator import or_
from typing import Final

from allocators.sites.slurm.config import logical_lines, parse_time_s
from allocators.sites.slurm.keys import IDLE, MISSED, USED, Finding
from allocators.sites.slurm.state import Mask, SlurmJob
from sim.contract import ParameterError, expand_hosts

FILE: Final = "reservations"
_PAIR: Final = re.compile(r"(\w+)=(\S*)")
_EVERY_S: Final = {"HOURLY": 3600.0, "DAILY": 86_400.0, "WEEKLY": 7 * 86_400.0}
_FLAGS: Final = frozenset({"MAINT", *_EVERY_S})
_IDLE_FLAGS: Final = frozenset({"IGNORE_JOBS", "SPEC_NODES", "ALL_NODES", "OVERLAP"})
_NOBODY: Final = frozenset({"", "(null)", "N/A"})
_NONE: Final = "no reservations in the system"
_MAX_NAMED: Final = 5
_JUST_AFTER_S: Final = 1e-6
"""A job may end at the instant at which a reservation begins."""


@dataclass(frozen=True)
class Reserved:
    """A reservation.

    Attributes
    ----------
    name : str
        Name that jobs request.
    begin_s, end_s : float, seconds
        Seconds since 1970 of the first occurrence.
    every_s : float, seconds
        Period of its repetition; inf = once.
    nodes : tuple of str
        Names of nodes; () = the first `count` nodes by name.
    count : int
        Number of nodes.
    users, accounts : frozenset of str
        Users and accounts that may use it; both empty = all that request it.
    barred_users, barred_accounts : frozenset of str
        Users and accounts that may not use it.
    maintenance : bool
        Flag MAINT.
    for_groups : bool
        It names groups. Their members are unknown, so a reservation for groups alone admits no job.
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
        """Return True if a job of this user and account may use the reservation."""
        if user in self.barred_users or account in self.barred_accounts:
            return False
        if not (self.users or self.accounts):
            return not self.for_groups
        return user in self.users or account in self.accounts


def read_reservations(text: str) -> tuple[tuple[Reserved, ...], tuple[Finding, ...]]:
    """Parse ``scontrol show res -o`` to reservations and findings, one line each.

    Raises
    ------
    ParameterError
        If a line has no ReservationName, or a time cannot be read.
    """
    reservations: list[Reserved] = []
    findings: list[Finding] = []
    for line in logical_lines(text):
        if line.text.lower().startswith(_NONE):
            continue
        pairs = {key.lower(): value for key, value in _PAIR.findall(line.text)}
        if "reservationname" not in pairs:
            raise ParameterError(
                f"{FILE}, line {line.number}: ReservationName= is missing; export it by scontrol"
                " show res -o."
            )
        reservations.append(_parse_reservation(pairs, line.number))
        findings += _reservation_findings(pairs, line.number)
    return tuple(reservations), tuple(findings)


def _parse_reservation(pairs: Mapping[str, str], number: int) -> Reserved:
    """Return the reservation of a line's KEY=VALUE pairs; errors name the line."""
    begin_s = _parse_date_s(pairs.get("starttime", ""), number)
    if "endtime" in pairs:
        end_s = _parse_date_s(pairs["endtime"], number)
    else:
        end_s = begin_s + _parse_duration_s(pairs.get("duration", "UNLIMITED"), number)
    flags = set(pairs.get("flags", "").upper().split(","))
    listed, where = pairs.get("nodes", ""), f"{FILE}, line {number}"
    users, barred_users = _split_names(pairs.get("users", ""))
    accounts, barred_accounts = _split_names(pairs.get("accounts", ""))
    return Reserved(
        pairs["reservationname"],
        begin_s,
        end_s,
        next((span_s for flag, span_s in _EVERY_S.items() if flag in flags), inf),
        () if listed in _NOBODY or listed.upper() == "ALL" else tuple(expand_hosts(listed, where)),
        1_000_000
        if listed.upper() == "ALL"
        else _parse_node_count(pairs.get("nodecnt", ""), number),
        users,
        accounts,
        barred_users,
        barred_accounts,
        "MAINT" in flags,
        pairs.get("groups", "") not in _NOBODY,
    )


def _parse_node_count(text: str, number: int) -> int:
    """Parse NodeCnt, 0 if not given; errors name the line."""
    if text in _NOBODY:
        return 0
    if not text.isdecimal():
        raise ParameterError(
            f"{FILE}, line {number}: NodeCnt={text:.30} is no number of nodes; write it as 2."
        )
    return int(text)


def _parse_duration_s(text: str, number: int) -> float:
    """Parse Duration in seconds; errors name the line."""
    try:
        return parse_time_s(text)
    except ParameterError as error:
        raise ParameterError(f"{FILE}, line {number}: Duration: {error}") from error


def _split_names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return (names in a list, names excluded by a minus sign)."""
    names = [name for name in text.split(",") if name not in _NOBODY]
    return (
        frozenset(name for name in names if not name.startswith("-")),
        frozenset(name[1:] for name in names if name.startswith("-")),
    )


def _reservation_findings(pairs: Mapping[str, str], number: int) -> Iterator[Finding]:
    """Yield the findings on the name, flags, groups and node selection of a line."""
    yield Finding(FILE, number, "ReservationName", pairs["reservationname"], USED)
    for flag in pairs.get("flags", "").upper().split(","):
        if flag in _NOBODY:
            continue
        kind = IDLE if flag in _IDLE_FLAGS else USED if flag in _FLAGS else MISSED
        why = "is not simulated" if kind == MISSED else ""
        yield Finding(FILE, number, "Flags", flag, kind, why)
    if pairs.get("groups", "") not in _NOBODY:
        named = _split_names(pairs.get("users", ""))[0] | _split_names(pairs.get("accounts", ""))[0]
        allowed = "only its users and accounts" if named else "no job"
        why = f"is not simulated: {allowed} may use it"
        yield Finding(FILE, number, "Groups", pairs["groups"], MISSED, why)
    if pairs.get("nodes", "") not in _NOBODY:
        return
    why = "is not looked at: the first nodes by name are taken"
    for key in ("PartitionName", "Features"):
        if pairs.get(key.lower(), "") not in _NOBODY:
            yield Finding(FILE, number, key, pairs[key.lower()], MISSED, why)


def _join_names(names: list[str]) -> str:
    """Return the first five names joined by commas, and the number of further names."""
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _parse_date_s(text: str, number: int) -> float:
    """Parse a date as UTC to seconds since 1970; errors name the line."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ParameterError(
            f"{FILE}, line {number}: {text!r:.30} is no date; write it as 2026-01-31T08:00:00."
        ) from error


@dataclass
class Calendar:
    """The reservations of a run, in seconds of the run.

    Parameters
    ----------
    clock_s : float
        Seconds since 1970 at the zero of the trace.
    names : sequence of str
        Names of the nodes, in order.
    reserved : tuple of Reserved
        The reservations; those with a node count take the first nodes.
    """

    clock_s: float
    names: list[str]
    reserved: tuple[Reserved, ...]
    nodes: dict[str, Mask] = field(init=False)
    unknown: tuple[str, ...] = field(init=False)
    """Sentences on reserved nodes that the cluster does not have."""
    _by_name: dict[str, Reserved] = field(init=False)

    def __post_init__(self) -> None:
        """Compute the node mask of each reservation."""
        at = {name: 1 << place for place, name in enumerate(self.names)}
        self.nodes = {
            one.name: reduce(
                or_, [at.get(name, 0) for name in one.nodes or self.names[: one.count]], 0
            )
            for one in self.reserved
        }
        self.unknown = tuple(
            f"reservation {one.name} names {_join_names(names)}, which the cluster does not have."
            for one in self.reserved
            if (names := [name for name in dict.fromkeys(one.nodes) if name not in at])
        )
        self._by_name = {one.name: one for one in self.reserved}

    def refusal(self, job: SlurmJob) -> str:
        """Return the ``squeue`` reason to refuse a job its reservation; "" = accepted."""
        one = self._by_name.get(job.reservation)
        if one is None:
            return "ReservationInvalid"
        return "" if one.admits(job.user, job.account) else "ReservationAccessDenied"

    def spans(self, one: Reserved, from_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """Yield (begin, end) of each occurrence of a reservation that touches a time range."""
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

    def barred_nodes(self, now_s: float, job: SlurmJob) -> Mask:
        """Return the nodes on which a job may not start now; -1 = all nodes.

        These are nodes reserved for others before the job's limit. For a job in a reservation they
        are all other nodes, or all nodes if the reservation ends before the limit.
        """
        end_s = now_s + job.limit_s
        if job.reservation:
            own = self._by_name[job.reservation]
            holds = any(
                begin_s <= now_s and end_s <= last_s
                for begin_s, last_s in self.spans(own, now_s, now_s)
            )
            return ~self.nodes[own.name] if holds else -1
        barred = 0
        for reservation in self.reserved:
            if self._overlaps(reservation, now_s, end_s):
                barred |= self.nodes[reservation.name]
        return barred

    def _overlaps(self, one: Reserved, from_s: float, until_s: float) -> bool:
        """Return True if a reservation holds at some time of a range."""
        return any(
            begin_s < until_s and end_s > from_s
            for begin_s, end_s in self.spans(one, from_s, until_s)
        )

    def reserved_spans(
        self, job: SlurmJob, now_s: float, last_s: float, until_s: float
    ) -> Iterator[tuple[float, float, Mask]]:
        """Yield (begin, end, nodes) for all spans with nodes that a job may not use.

        For a job in a reservation: other nodes always, and its own nodes between occurrences.

        Plans begin at `last_s` at the latest, so that only the first occurrence of a reservation
        after `last_s` matters.
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
        """Return True if the reservation of a job is active now."""
        own = self._by_name.get(job.reservation)
        return own is not None and any(
            begin_s <= now_s < end_s for begin_s, end_s in self.spans(own, now_s, now_s)
        )

    def why(self, now_s: float, job: SlurmJob) -> str:
        """Return the ``squeue`` reason of a job that reservations block.

        Maintenance is named if it falls within the job's limit.
        """
        if job.reservation:
            return "Reservation"
        end_s = now_s + job.limit_s
        for one in self.reserved:
            if one.maintenance and self._overlaps(one, now_s, end_s):
                return "ReqNodeNotAvail, Reserved for maintenance"
        return "ReqNodeNotAvail"

    def next_edge_s(self, now_s: float) -> float:
        """Return the next begin or end of any reservation after now; inf = none."""
        edges = [
            edge_s
            for one in self.reserved
            for span in self.spans(one, now_s, now_s + min(one.every_s, 1e9))
            for edge_s in span
            if edge_s > now_s
        ]
        return min(edges, default=inf)
