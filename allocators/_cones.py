"""Rows, columns and cones of programs over jobs that only the GPUs of types and one level couple.

All of a job's numbers are a row of an array; what couples jobs stands apart, so that every step of
`allocators._interior` is some operations on arrays, whatever the number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sim.contract import Floats

CURVED_ROWS: Final = 3
"""Rows of a second-order cone: the last ones of every job, where there is one."""
_INSIDE: Final = 0.99  # how much of a unit a point that is inside already is moved back


class Rows(NamedTuple):
    """Numbers for all rows: those of each job, of shape (jobs, rows), and those of GPU types."""

    own: Floats
    gpus: Floats

    def plus(self, other: Rows, times: float = 1.0) -> Rows:
        """Return the sum with a multiple of others."""
        return Rows(self.own + times * other.own, self.gpus + times * other.gpus)

    def dot(self, other: Rows) -> float:
        """Return the scalar product."""
        return float(np.vdot(self.own, other.own) + self.gpus @ other.gpus)


class Columns(NamedTuple):
    """Numbers for all columns: each job's, of shape (jobs, columns), and that of the level."""

    own: Floats
    level: float

    def plus(self, other: Columns, times: float = 1.0) -> Columns:
        """Return the sum with a multiple of others."""
        return Columns(self.own + times * other.own, self.level + times * other.level)

    def dot(self, other: Columns) -> float:
        """Return the scalar product."""
        return float(np.vdot(self.own, other.own) + self.level * other.level)


@dataclass(frozen=True)
class Cone:
    """Minimise ``cost . x`` where ``limit - rows . x`` is in a cone.

    Parameters
    ----------
    rows : array (jobs, rows, columns)
        Of each job, in its own columns: first one per GPU type, its shares of time there.
    on_level : array (jobs, rows)
        The same in the column of the level.
    gpus : array (jobs, types)
        What shares of time take of the GPUs of each type.
    cost : Columns
        What is minimised.
    limit : Rows
        What rows leave something of.
    curved : bool
        Whether the last three rows of every job are a second-order cone; all others are >= 0.
    """

    rows: Floats
    on_level: Floats
    gpus: Floats
    cost: Columns
    limit: Rows
    curved: bool = False

    def times(self, x: Columns) -> Rows:
        """Return what all rows come to."""
        own = np.matmul(self.rows, x.own[:, :, None])[:, :, 0] + self.on_level * x.level
        return Rows(own, np.einsum("mk,mk->k", self.gpus, x.own[:, : self.gpus.shape[1]]))

    def transposed(self, z: Rows) -> Columns:
        """Return what all columns come to."""
        own = np.matmul(z.own[:, None, :], self.rows)[:, 0]
        own[:, : self.gpus.shape[1]] += self.gpus * z.gpus
        return Columns(own, float(np.vdot(self.on_level, z.own)))


def norm(values: Rows | Columns) -> float:
    own, rest = values
    return float(np.sqrt(np.vdot(own, own) + np.vdot(rest, rest)))


def determinant(values: Floats) -> Floats:
    found: Floats = values[:, 0] ** 2 - (values[:, 1:] ** 2).sum(axis=1)
    return found


def mirror(values: Floats) -> Floats:
    return np.concatenate((values[:, :1], -values[:, 1:]), axis=1)


def product(a: Rows, b: Rows, *, curved: bool) -> Rows:
    own = a.own * b.own
    if curved:
        u, v = a.own[:, -CURVED_ROWS:], b.own[:, -CURVED_ROWS:]
        own[:, -CURVED_ROWS] = (u * v).sum(axis=1)
        own[:, 1 - CURVED_ROWS :] = u[:, :1] * v[:, 1:] + v[:, :1] * u[:, 1:]
    return Rows(own, a.gpus * b.gpus)


def quotient(by: Rows, a: Rows, *, curved: bool) -> Rows:
    """Return what `by` times gives `a`."""
    own = a.own / by.own
    if curved:
        u, v = by.own[:, -CURVED_ROWS:], a.own[:, -CURVED_ROWS:]
        along = (u[:, 1:] * v[:, 1:]).sum(axis=1)
        first = (u[:, 0] * v[:, 0] - along) / determinant(u)
        own[:, -CURVED_ROWS] = first
        own[:, 1 - CURVED_ROWS :] = (v[:, 1:] - first[:, None] * u[:, 1:]) / u[:, :1]
    return Rows(own, a.gpus / by.gpus)


def unit(rows: Rows, *, curved: bool) -> Rows:
    own = np.ones_like(rows.own)
    if curved:
        own[:, 1 - CURVED_ROWS :] = 0.0
    return Rows(own, np.ones_like(rows.gpus))


def depth(rows: Rows, *, curved: bool) -> float:
    """Return how far a point is inside the cone, in units; < 0 outside."""
    flat = rows.own[:, :-CURVED_ROWS] if curved else rows.own
    lowest = min(float(flat.min()), float(rows.gpus.min()))
    if curved:
        bent = rows.own[:, -CURVED_ROWS:]
        lowest = min(lowest, float((bent[:, 0] - np.hypot(bent[:, 1], bent[:, 2])).min()))
    return lowest


def into(rows: Rows, *, curved: bool) -> Rows:
    """Move a point along the unit until it is well inside the cone."""
    lowest = depth(rows, curved=curved)
    return rows.plus(unit(rows, curved=curved), 1 + (-lowest if lowest <= 0 else -_INSIDE))


def furthest(at: Rows, change: Rows, *, curved: bool) -> float:
    """Return the inverse of the longest step in a direction that stays inside the cone, >= 0."""
    own = change.own / at.own
    if not curved:
        return max(0.0, -float(own.min()), -float((change.gpus / at.gpus).min()))
    lowest = min(float(own[:, :-CURVED_ROWS].min()), float((change.gpus / at.gpus).min()))
    size = np.sqrt(determinant(at.own[:, -CURVED_ROWS:]))[:, None]
    axis, move = at.own[:, -CURVED_ROWS:] / size, change.own[:, -CURVED_ROWS:]
    along = axis[:, 0] * move[:, 0] - (axis[:, 1:] * move[:, 1:]).sum(axis=1)
    rest = move[:, 1:] - ((along + move[:, 0]) / (axis[:, 0] + 1))[:, None] * axis[:, 1:]
    return max(0.0, -lowest, float(((np.hypot(rest[:, 0], rest[:, 1]) - along) / size[:, 0]).max()))
