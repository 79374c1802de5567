"""Quotas of teams: how they are written down, and how what is left over is divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, isfinite
from typing import Final, NamedTuple, Protocol, runtime_checkable

from sim.contract import ParameterError

CATCH_ALL: Final = "without quota"
"""Where the jobs of teams without a row are."""

_ROUNDING: Final = 1e-9
"""A share so little below a whole unit is the whole unit: sums of weights are not exact."""


class Ask(NamedTuple):
    """What one queue has, asks for and may get of a resource, in units of it.

    Parameters
    ----------
    deserved : float
        Its quota; inf = as much as there is.
    weight : float
        Its part of what is left over, relative to its siblings.
    request : float
        What its jobs hold and wait for.
    limit : float
        The most it may have; inf = no maximum.
    priority : int
        Queues of higher priority are served first with what is left over.
    usage : float
        Part of the cluster that it held in the past, 0 to 1.
    """

    deserved: float
    weight: float
    request: float
    limit: float = inf
    priority: int = 0
    usage: float = 0.0

    @property
    def wanted(self) -> float:
        """What it may ask for."""
        return min(self.request, self.limit)


def fair_shares(total: float, asks: Sequence[Ask], k: float = 0.0) -> list[float]:
    """Return the fair share of each queue, the oldest queue first.

    Parameters
    ----------
    total : float
        What there is to divide.
    asks : sequence of Ask
        The queues, in the order in which they were made.
    k : float
        How much past usage counts against a queue; 0 = weights alone.

    Notes
    -----
    Every queue first gets its quota as far as it asks for it, even where the quotas exceed the
    total. The rest goes by weight, priority by priority, in whole units; what rounding leaves goes
    unit by unit to the largest remainders, older queues first. Source: KAI Scheduler, resource
    division of the proportion plugin.

    Ours: no queue gets more than it asks for, also by the last unit.
    """
    shares = [min(total if ask.deserved == inf else ask.deserved, ask.wanted) for ask in asks]
    left = total - sum(shares)
    if left <= 0:
        return shares
    by_priority: dict[int, list[int]] = {}
    for at, ask in enumerate(asks):
        by_priority.setdefault(ask.priority, []).append(at)
    levels = [by_priority[priority] for priority in sorted(by_priority, reverse=True)]
    remainders: list[dict[int, float]] = []
    for level in levels:
        left, rests = _by_weight(left, asks, level, shares, k)
        remainders.append(rests)
    for rests in remainders:
        for at in sorted(rests, key=lambda at: (-rests[at], at)):
            given = max(0.0, min(1.0, left, asks[at].wanted - shares[at]))
            shares[at] += given
            left -= given
    return shares


def _by_weight(
    left: float, asks: Sequence[Ask], level: Sequence[int], shares: list[float], k: float
) -> tuple[float, dict[int, float]]:
    """Give the queues of one priority their parts of what is left; return what then is, and the
    fractions that were not given.
    """
    rests: dict[int, float] = {}
    while left > 0:
        open_ = [at for at in level if asks[at].wanted > shares[at]]
        whole = sum([asks[at].weight for at in open_])
        if whole <= 0:
            break
        norms = {at: asks[at].weight / whole for at in open_}
        weights = {at: max(0.0, norms[at] + k * (norms[at] - asks[at].usage)) for at in open_}
        parts = sum(weights.values())
        if parts <= 0:
            break
        amount, again = left, False
        for at in open_:
            if not asks[at].weight:
                continue
            fair = amount * weights[at] / parts
            need = asks[at].wanted - shares[at]
            if need <= fair:
                given = need
                rests.pop(at, None)
                again = again or need < fair
            else:
                given = float(floor(fair + _ROUNDING))
                if fair > given:
                    rests[at] = fair - given
            shares[at] += given
            left -= given
        if not again:
            break
    return left, rests


@dataclass(frozen=True, slots=True)
class Quota:
    """One row of a table of quotas, in GPUs.

    Parameters
    ----------
    name : str
        The team, as the trace names it, or a group of teams.
    deserved : float
        What it is entitled to.
    maximum : float
        The most that it may hold, borrowed GPUs included; inf = no maximum.
    weight : float
        Its part of what others leave, relative to its siblings.
    priority : int
        Rows of higher priority are served first with what others leave.
    parent : str
        The group that it belongs to; "" = none.
    """

    name: str
    deserved: float
    maximum: float = inf
    weight: float = 1.0
    priority: int = 0
    parent: str = ""


@runtime_checkable
class HasQuotas(Protocol):
    """A policy that was given quotas."""

    def quotas(self) -> tuple[Quota, ...]:
        """Return its rows, parents before their children; none = it was given none."""
        ...


_WORDS: Final = ("max", "weight", "priority", "under")


def read_quotas(text: str) -> tuple[Quota, ...]:
    """Read rows such as ``research: 12; a: 8 max 12 weight 2 priority 1 under research``, parents
    before their children.

    Raises
    ------
    ParameterError
        If a row is not of this form, a name comes twice, a parent is no row, or a row is its own
        ancestor.
    """
    rows: dict[str, Quota] = {}
    for line in text.replace("\n", ";").split(";"):
        if not line.strip():
            continue
        row = _row(line.strip())
        if row.name in rows:
            raise ParameterError(f"The quotas name {row.name} twice. Keep one row of the two.")
        rows[row.name] = row
    return ordered(rows.values())


def ordered(quotas: Iterable[Quota]) -> tuple[Quota, ...]:
    """Return quotas, parents before their children.

    Raises
    ------
    ParameterError
        If a parent is no row, or a row is its own ancestor.
    """
    rows = {quota.name: quota for quota in quotas}
    order = parents_first(
        {name: row.parent for name, row in rows.items()},
        "The quota of {} is under {}, which has no row. Add one, or leave out 'under'.",
        "Quotas",
    )
    return tuple(rows[name] for name in order)


def parents_first(parent_of: Mapping[str, str], missing: str, what: str) -> list[str]:
    """Return names of a tree, parents before their children, others as they were.

    Parameters
    ----------
    parent_of : mapping of str to str
        Name -> that of its parent; "" = it has none.
    missing : str
        The sentence on a name and its parent that is not there, with two places for them.
    what : str
        What the names are of, for the sentence on a ring.

    Raises
    ------
    ParameterError
        If a parent is not there, or a name is its own ancestor.
    """
    depth: dict[str, int] = {}
    for name in parent_of:
        path = [name]
        while parent := parent_of[path[-1]]:
            if parent not in parent_of:
                raise ParameterError(missing.format(path[-1], parent))
            if parent in path:
                ring = " under ".join([*path[path.index(parent) :], parent])
                raise ParameterError(f"{what} are under one another in a ring: {ring}.")
            path.append(parent)
        depth[name] = len(path)
    return sorted(depth, key=depth.__getitem__)


def _row(line: str) -> Quota:
    name, colon, rest = line.rpartition(":")
    name, words = name.strip(), rest.split()
    form = "Write NAME: GPUS, then max GPUS, weight W, priority P or under PARENT as needed."
    if not colon or not name or not words:
        raise ParameterError(f"'{line:.60}' is no quota. {form}")
    values: dict[str, float] = {}
    parent, at = "", 1
    while at < len(words):
        word = words[at]
        if word not in _WORDS or at + 1 == len(words) or word in values:
            raise ParameterError(f"The quota of {name} cannot be read at '{word:.40}'. {form}")
        if word == "under":
            parent = " ".join(words[at + 1 :])
            break
        values[word] = _number(name, word, words[at + 1])
        at += 2
    return Quota(
        name,
        _number(name, "quota", words[0]),
        values.get("max", inf),
        values.get("weight", 1.0),
        int(values.get("priority", 0)),
        parent,
    )


def _number(name: str, word: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise ParameterError(f"The {word} of {name} is '{text:.40}'; it must be a number from 0.")
    return value


def write_quotas(quotas: Iterable[Quota]) -> str:
    """Return the text that `read_quotas` reads as the same rows."""
    lines = []
    for row in quotas:
        line = f"{row.name}: {row.deserved:g}"
        if row.maximum < inf:
            line += f" max {row.maximum:g}"
        if row.weight != 1:
            line += f" weight {row.weight:g}"
        if row.priority:
            line += f" priority {row.priority}"
        lines.append(line + (f" under {row.parent}" if row.parent else ""))
    return "; ".join(lines)


def with_catch_all(quotas: tuple[Quota, ...]) -> tuple[Quota, ...]:
    """Add the row of teams that have none, with a quota of 0."""
    known = any(row.name == CATCH_ALL for row in quotas)
    return quotas if known else (*quotas, Quota(CATCH_ALL, 0.0))


class QuotaTree:
    """The rows of a table, of which the leaves hold jobs.

    Attributes
    ----------
    rows : tuple of Quota
        Parents before their children; all lists of this class are in this order.
    above : list of int
        The row of each parent; -1 = none.
    """

    def __init__(self, rows: tuple[Quota, ...]) -> None:
        self.rows = rows
        self.at = {row.name: at for at, row in enumerate(rows)}
        self.above = [self.at[row.parent] if row.parent else -1 for row in rows]
        self._children: dict[int, list[int]] = {}
        for at, above in enumerate(self.above):
            self._children.setdefault(above, []).append(at)

    def leaf(self, name: str) -> int:
        """Return the row that holds the jobs of a team; a group of teams holds none."""
        at = self.at.get(name, self.at[CATCH_ALL])
        return self.at[CATCH_ALL] if at in self._children else at

    def path(self, at: int) -> list[int]:
        """Return a row and those above it, up to the top."""
        found = []
        while at >= 0:
            found.append(at)
            at = self.above[at]
        return found

    def sums(self, amounts: Mapping[int, float]) -> list[float]:
        """Return what all rows have together with those below them, given that of the leaves."""
        whole = [0.0] * len(self.rows)
        for leaf, amount in amounts.items():
            for at in self.path(leaf):
                whole[at] += amount
        return whole

    def shares(self, total: float, requests: Sequence[float]) -> list[float]:
        """Return the fair share of every row of a total, given what each asks for."""
        found = [0.0] * len(self.rows)
        self._divide(-1, total, requests, found)
        return found

    def _divide(
        self, above: int, total: float, requests: Sequence[float], found: list[float]
    ) -> None:
        children = self._children.get(above, [])
        rows = self.rows
        asks = [
            Ask(
                rows[at].deserved,
                rows[at].weight,
                requests[at],
                rows[at].maximum,
                rows[at].priority,
            )
            for at in children
        ]
        for at, share in zip(children, fair_shares(total, asks), strict=True):
            found[at] = share
            if at in self._children:
                self._divide(at, share, requests, found)
