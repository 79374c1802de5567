"""Quotas of tenants: reading and writing them, and dividing unused GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import floor, inf, isfinite
from operator import add
from typing import Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sim.contract import ParameterError

Floats = NDArray[np.float64]

CATCH_ALL: Final = "without quota"
"""Name of the row for jobs of tenants without a quota."""

_ROUNDING: Final = 1e-9
"""Shares this close below a whole unit are rounded up, because sums of weights are not exact."""


class QuotaRequest(NamedTuple):
    """Quota, request and limits of one queue for a resource, in units of it.

    Parameters
    ----------
    deserved : float
        Quota of the queue; inf = the whole total.
    weight : float
        Share of the unused units, relative to its siblings.
    request : float
        Units that its jobs hold and wait for.
    limit : float
        Most units that it may have; inf = no maximum.
    priority : int
        Queues of higher priority get unused units first.
    usage : float
        Share of the cluster that it used in the past, 0 to 1.
    """

    deserved: float
    weight: float
    request: float
    limit: float = inf
    priority: int = 0
    usage: float = 0.0

    @property
    def capped(self) -> float:
        """Return the request, but at most the limit."""
        return min(self.request, self.limit)


def fair_shares(total: float, asks: Sequence[QuotaRequest], k: float = 0.0) -> list[float]:
    """Return the fair share of each queue, in order of creation.

    Parameters
    ----------
    total : float
        Units to divide.
    asks : sequence of QuotaRequest
        The queues, in order of creation.
    k : float
        Weight of past usage against a queue; 0 = only weights count.

    Notes
    -----
    Every queue first gets its quota, at most its request, even if the quotas exceed the total. The
    rest is divided by weight, one priority at a time, in whole units. Units left by rounding go one
    by one to the largest remainders, older queues first. Source: KAI Scheduler, resource division
    of the proportion plugin.

    Ours: no queue gets more than its request, not even by the last unit.
    """
    capped = [ask.capped for ask in asks]
    shares = [
        min(total if ask.deserved == inf else ask.deserved, most)
        for ask, most in zip(asks, capped, strict=True)
    ]
    # Not `sum`: from Python 3.12 on it rounds in another way than the additions of `share_series`.
    left = total - reduce(add, shares, 0.0)
    if left <= 0:
        return shares
    remainders: list[dict[int, float]] = []
    for level in _by_priority([ask.priority for ask in asks]):
        left, rests = _divide_by_weight(left, asks, capped, level, shares, k)
        remainders.append(rests)
    for rests in remainders:
        for queue in sorted(rests, key=lambda queue: (-rests[queue], queue)):
            given = max(0.0, min(1.0, left, capped[queue] - shares[queue]))
            shares[queue] += given
            left -= given
    return shares


def _by_priority(priorities: Sequence[int]) -> list[list[int]]:
    """Return the indices of the queues of each priority, the highest priority first."""
    levels: dict[int, list[int]] = {}
    for queue, priority in enumerate(priorities):
        levels.setdefault(priority, []).append(queue)
    return [levels[priority] for priority in sorted(levels, reverse=True)]


def _divide_by_weight(
    left: float,
    asks: Sequence[QuotaRequest],
    capped: Sequence[float],
    level: Sequence[int],
    shares: list[float],
    k: float,
) -> tuple[float, dict[int, float]]:
    """Divide the remaining units among the queues of one priority by weight.

    Returns the units that remain after that, and the fractions lost by rounding.
    """
    rests: dict[int, float] = {}
    while left > 0:
        unfilled = [queue for queue in level if capped[queue] > shares[queue]]
        total_weight = reduce(add, [asks[queue].weight for queue in unfilled], 0.0)
        if total_weight <= 0:
            break
        norms = {queue: asks[queue].weight / total_weight for queue in unfilled}
        weights = {
            queue: max(0.0, norms[queue] + k * (norms[queue] - asks[queue].usage))
            for queue in unfilled
        }
        parts = reduce(add, weights.values(), 0.0)
        if parts <= 0:
            break
        amount, again = left, False
        for queue in unfilled:
            if not asks[queue].weight:
                continue
            fair = amount * weights[queue] / parts
            need = capped[queue] - shares[queue]
            if need <= fair:
                given = need
                rests.pop(queue, None)
                again = again or need < fair
            else:
                given = float(floor(fair + _ROUNDING))
                if fair > given:
                    rests[queue] = fair - given
            shares[queue] += given
            left -= given
        if not again:
            break
    return left, rests


@dataclass(frozen=True, slots=True)
class Quota:
    """One row of a quota table, in GPUs.

    Parameters
    ----------
    name : str
        Tenant as named in the trace, or a group of tenants.
    deserved : float
        GPUs that the tenant is entitled to.
    maximum : float
        Most GPUs that it may hold, borrowed ones included; inf = no maximum.
    weight : float
        Share of the unused GPUs, relative to its siblings.
    priority : int
        Rows of higher priority get unused GPUs first.
    parent : str
        Group of the tenant; "" = none.
    """

    name: str
    deserved: float
    maximum: float = inf
    weight: float = 1.0
    priority: int = 0
    parent: str = ""


@runtime_checkable
class HasQuotas(Protocol):
    """A policy with a quota table."""

    def quotas(self) -> tuple[Quota, ...]:
        """Return the quota rows, parents before their children; empty without quotas."""
        ...


_WORDS: Final = ("max", "weight", "priority", "under")


def read_quotas(text: str) -> tuple[Quota, ...]:
    """Parse quota rows and return them, parents before their children.

    Example: ``research: 12; a: 8 max 12 weight 2 priority 1 under research``.

    Raises
    ------
    ParameterError
        If a row is malformed, a name occurs twice, a parent has no row, or a row is its own
        ancestor.
    """
    rows: dict[str, Quota] = {}
    for line in text.replace("\n", ";").split(";"):
        if not line.strip():
            continue
        row = _parse_row(line.strip())
        if row.name in rows:
            raise ParameterError(f"The quotas name {row.name} twice. Keep one row of the two.")
        rows[row.name] = row
    return sort_quotas(rows.values())


def sort_quotas(quotas: Iterable[Quota]) -> tuple[Quota, ...]:
    """Return the quota rows sorted so that parents come before their children.

    Raises
    ------
    ParameterError
        If a parent has no row, or a row is its own ancestor.
    """
    rows = {quota.name: quota for quota in quotas}
    order = parents_first(
        {name: row.parent for name, row in rows.items()},
        "The quota of {} is under {}, which has no row. Add one, or leave out 'under'.",
        "Quotas",
    )
    return tuple(rows[name] for name in order)


def parents_first(parent_of: Mapping[str, str], missing: str, what: str) -> list[str]:
    """Return the names of a tree, parents before their children, in stable order.

    Parameters
    ----------
    parent_of : mapping of str to str
        Name -> name of its parent; "" = no parent.
    missing : str
        Error message for a missing parent, with placeholders for the name and the parent.
    what : str
        Plural noun for the names, used in the error message for a cycle.

    Raises
    ------
    ParameterError
        If a parent is missing, or a name is its own ancestor.
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


def _parse_row(line: str) -> Quota:
    """Parse one quota row such as "a: 8 max 12 under research"; raise if it is malformed."""
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
        values[word] = _parse_number(name, word, words[at + 1])
        at += 2
    return Quota(
        name,
        _parse_number(name, "quota", words[0]),
        values.get("max", inf),
        values.get("weight", 1.0),
        int(values.get("priority", 0)),
        parent,
    )


def _parse_number(name: str, word: str, text: str) -> float:
    """Parse a number of 0 or more, or raise an error that names the tenant and the word."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise ParameterError(f"The {word} of {name} is '{text:.40}'; it must be a number from 0.")
    return value


def write_quotas(quotas: Iterable[Quota]) -> str:
    """Return the quota rows as text that `read_quotas` can read."""
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
    """Return the rows with one of zero GPUs for tenants without a quota, if it is missing."""
    has_row = any(row.name == CATCH_ALL for row in quotas)
    return quotas if has_row else (*quotas, Quota(CATCH_ALL, 0.0))


_STATES_AT_ONCE: Final = 8_192
"""States whose shares are computed together: as many as the processor's cache holds."""


class QuotaTree:
    """A quota table as a tree; jobs belong to its leaves.

    Attributes
    ----------
    rows : tuple of Quota
        Parents before their children; all lists of this class are in this order.
    above : list of int
        Index of the parent of each row; -1 = none.
    """

    def __init__(self, rows: tuple[Quota, ...]) -> None:
        self.rows = rows
        self.at = {row.name: at for at, row in enumerate(rows)}
        self.above = [self.at[row.parent] if row.parent else -1 for row in rows]
        self._children: dict[int, list[int]] = {}
        for at, above in enumerate(self.above):
            self._children.setdefault(above, []).append(at)

    def leaf(self, name: str) -> int:
        """Return the row index for the jobs of a tenant; groups use the catch-all row."""
        at = self.at.get(name, self.at[CATCH_ALL])
        return self.at[CATCH_ALL] if at in self._children else at

    def path(self, at: int) -> list[int]:
        """Return the indices of a row and its ancestors, up to the root."""
        path = []
        while at >= 0:
            path.append(at)
            at = self.above[at]
        return path

    def shares(self, total: float, requests: Sequence[float]) -> list[float]:
        """Return the fair share of every row of a total, given the requests per row."""
        shares, rows = [0.0] * len(self.rows), self.rows
        for above, children in self._children.items():
            asks = [
                QuotaRequest(
                    rows[at].deserved,
                    rows[at].weight,
                    requests[at],
                    rows[at].maximum,
                    rows[at].priority,
                )
                for at in children
            ]
            given = fair_shares(total if above < 0 else shares[above], asks)
            for at, share in zip(children, given, strict=True):
                shares[at] = share
        return shares

    def share_series(self, totals: Floats, requests: Mapping[int, Floats]) -> Floats:
        """Return the fair share of every row in many states, of shape (rows, states).

        Parameters
        ----------
        totals : array of shape (states,)
            GPUs to divide in each state.
        requests : mapping of leaf row to array of shape (states,)
            GPUs that the jobs of the row hold and wait for.
        """
        sums, shares = np.zeros((2, len(self.rows), len(totals)))
        for leaf, request in requests.items():
            for at in self.path(leaf):
                sums[at] += request
        for above, children in self._children.items():
            rows = [self.rows[at] for at in children]
            divided = totals if above < 0 else shares[above]
            for begin in range(0, len(totals), _STATES_AT_ONCE):
                part = slice(begin, begin + _STATES_AT_ONCE)
                shares[children, part] = _share_series(divided[part], rows, sums[children, part])
        return shares


def _share_series(totals: Floats, rows: Sequence[Quota], requests: Floats) -> Floats:
    """Return the `fair_shares` of sibling rows in many states, equal to the last bit.

    `totals` has one entry per state; `requests` and the shares have one row per quota.
    """
    limits, deserved = (
        np.array([[getattr(row, name)] for row in rows]) for name in ("maximum", "deserved")
    )
    capped = np.minimum(requests, limits)
    shares: Floats = np.minimum(np.where(deserved == inf, totals, deserved), capped)
    left = totals - reduce(add, shares, np.zeros(len(totals)))
    remainders = []
    for level in _by_priority([row.priority for row in rows]):
        weights = np.array([[rows[queue].weight] for queue in level])
        level_shares = shares[level]
        remainders.append((np.array(level), _divide(left, weights, capped[level], level_shares)))
        shares[level] = level_shares
    for queues, rests in remainders:
        states = np.flatnonzero((left > 0) & rests.any(axis=0))
        for rank in np.argsort(-rests[:, states], axis=0, kind="stable"):
            queue = queues[rank]
            room = np.minimum(left[states], capped[queue, states] - shares[queue, states])
            given = np.where(rests[rank, states] > 0, np.clip(room, 0.0, 1.0), 0.0)
            shares[queue, states] += given
            left[states] -= given
    return shares


def _divide(left: Floats, weights: Floats, capped: Floats, shares: Floats) -> Floats:
    """Return the fractions lost by rounding when units are divided by weight in many states.

    Updates `left` and `shares` like `_divide_by_weight`. Arrays but `left` have one row per queue.
    """
    rests, states = np.zeros_like(shares), np.flatnonzero(left > 0)
    while len(states):
        unfilled = np.where(capped[:, states] > shares[:, states], weights, 0.0)
        total_weight = reduce(add, unfilled, np.zeros(len(states)))
        states, unfilled = states[total_weight > 0], unfilled[:, total_weight > 0]
        norms = unfilled / total_weight[total_weight > 0]
        amount, parts = left[states], reduce(add, norms, np.zeros(len(states)))
        is_again = np.zeros(len(states), np.bool_)
        for queue, norm in enumerate(norms):
            takes = np.flatnonzero(norm > 0)
            state = states[takes]
            fair = amount[takes] * norm[takes] / parts[takes]
            need = capped[queue, state] - shares[queue, state]
            whole = np.floor(fair + _ROUNDING)
            given = np.where(need <= fair, need, whole)
            rest = np.where(fair > whole, fair - whole, rests[queue, state])
            rests[queue, state] = np.where(need <= fair, 0.0, rest)
            is_again[takes] |= need < fair
            shares[queue, state] += given
            left[state] -= given
        states = states[is_again & (left[states] > 0)]
    return rests
