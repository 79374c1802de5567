"""Failures: random and known node outages, interruptions of jobs, and the retry limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from sim.clock import LATEST_S, instant, later
from sim.cluster import Cluster
from sim.engine.agenda import OUTAGE, Agenda
from sim.errors import ParameterError
from sim.params import param

OUTAGE_STREAM, INTERRUPTION_STREAM, HIT_STREAM = 1, 2, 5


@dataclass(frozen=True)
class Faults:
    """Failures of nodes and jobs; by default nothing fails.

    Notes
    -----
    Times between failures and to repair are exponential, drawn from a stream per (seed, node), so
    they are the same for every allocator. Interruptions are drawn per (seed, job, attempt) with a
    rate of ``interruptions_per_node_h`` for each node that the job spans; an attempt is the
    total time with a grant between two interruptions, so stops and restarts neither avoid nor
    hasten an interruption.
    """

    mtbf_h: float = param(
        0.0,
        title="Mean time between failures",
        unit="h",
        low=0,
        high=1e9,
        help="Mean time between failures of one node; 0 = nodes do not fail at random.",
    )
    mttr_h: float = param(
        4.0,
        title="Mean time to repair",
        unit="h",
        low=0,
        high=1e6,
        help="Mean time to repair a node.",
    )
    interruptions_per_node_h: float = param(
        0.0,
        title="Interruptions per node",
        unit="1/h",
        low=0,
        high=1e3,
        help="Interruptions of a job per node and hour that leave the node intact.",
    )
    retries: int = param(
        -1,
        low=-1,
        high=1_000_000,
        help=(
            "How often a job is tried again after it lost its GPUs or memory; after that "
            "it has failed. -1 = always."
        ),
    )
    outages: str = param(
        "",
        title="Known outages",
        help="Known outages as node:from_s:to_s, separated by semicolons.",
    )

    def known_outages(self, cluster: Cluster) -> list[tuple[int, float, float]]:
        """Return the known outages as (node, from_s, to_s), sorted by time.

        Raises
        ------
        ParameterError
            If an entry is malformed, names a missing node, or begins after the end of the
            clock.
        """
        outages = []
        for entry in filter(None, (part.strip() for part in self.outages.split(";"))):
            fields = entry.split(":")
            try:
                node, start, end = (
                    int(fields[0]),
                    instant(float(fields[1])),
                    instant(float(fields[2])),
                )
            except (ValueError, IndexError) as error:
                raise ParameterError(
                    f"faults: outage '{entry}' is not of the form node:from_s:to_s, e.g."
                    " 3:3600:7200."
                ) from error
            if not (0 <= node < len(cluster.nodes) and 0 <= start < end and len(fields) == 3):
                raise ParameterError(
                    f"faults: outage '{entry}' must name a node from 0 to {len(cluster.nodes) - 1}"
                    " and times that grow."
                )
            if start > LATEST_S:
                raise ParameterError(
                    f"faults: outage '{entry}' begins after the clock ends, {LATEST_S:g} s after"
                    " the first submission. Give times in seconds from there, or leave it out."
                )
            outages.append((node, start, end))
        return sorted(outages, key=lambda outage: outage[1:])

    def interruption_s(self, seed: int, job: int, attempt: int) -> float:
        """Return the seconds on one node until the job is interrupted; inf = never.

        On n nodes it takes one n-th of that.
        """
        if not self.interruptions_per_node_h:
            return inf
        rng = np.random.default_rng([seed, INTERRUPTION_STREAM, job, attempt])
        return float(rng.exponential(3600 / self.interruptions_per_node_h))

    @staticmethod
    def hit(seed: int, job: int, attempt: int) -> float:
        """Return the position of the hit replica among all replicas, from 0 to 1."""
        return float(np.random.default_rng([seed, HIT_STREAM, job, attempt]).random())


class Outages:
    """Takes nodes out of service and returns them.

    A node that is out for two reasons returns when both are over, and a node that is gone for good
    does not fail again.

    Parameters
    ----------
    agenda : Agenda
        The clock.
    down, up : callable
        Called with (node, cause) when a node goes down, and with (node,) when it returns.
    """

    def __init__(
        self, agenda: Agenda, down: Callable[[int, str], None], up: Callable[[int], None]
    ) -> None:
        self._agenda, self._down, self._up = agenda, down, up
        self._reasons: dict[int, int] = {}
        self._repairs: Counter[int] = Counter()  # node -> repairs in progress
        self._dated_returns: Counter[int] = Counter()  # node -> future dated returns
        self._gone: set[int] = set()  # nodes that never come back
        self.last_known_s = 0.0
        """Latest known instant at which a node goes or comes, without future random failures."""

    @property
    def repairs_pending(self) -> bool:
        """Whether a node that is out now will return, or an absent one will appear."""
        return any(
            node not in self._gone
            for returns in (self._repairs, self._dated_returns)
            for node in +returns
        )

    def are_over(self, now_s: float) -> bool:
        """Return True if no node is known to go or come any more, except random failures."""
        return self.last_known_s <= now_s and not self.repairs_pending

    def start(self, faults: Faults, cluster: Cluster, seed: int) -> None:
        """Start all outages and dated changes; changes dated at or before 0 act at once."""
        for node, start, end in faults.known_outages(cluster):
            self._agenda.follow(self._known_outage(node, start, end), OUTAGE)
            self._extend_known(start if end == inf else end)
        absent_first: dict[int, bool] = {}
        for change in sorted(cluster.changes, key=lambda change: change.at_s):
            for node in change.nodes:
                if change.at_s <= 0:
                    absent_first[node] = not change.present
        later = [
            change
            for change in sorted(cluster.changes, key=lambda change: change.at_s)
            if change.at_s > 0
        ]
        self._dated_returns.update(
            node for change in later if change.present for node in change.nodes
        )
        for node in (node for node, absent in sorted(absent_first.items()) if absent):
            self._remove_node(node)
        if later:
            self._extend_known(later[-1].at_s)
            self._agenda.follow(self._apply_dated_changes(later, dict(absent_first)), OUTAGE)
        if faults.mtbf_h:
            for node in range(len(cluster.nodes)):
                rng = np.random.default_rng([seed, OUTAGE_STREAM, node])
                self._agenda.follow(self._random_outages(node, faults, rng), OUTAGE)

    def _known_outage(self, node: int, start: float, end: float) -> Iterator[float]:
        """Take a node down for one known outage, yielding the instants of its begin and end."""
        yield instant(start)
        if end == inf:
            self._gone.add(node)
            self._add_reason(node, "outage")
            return
        self._add_reason(node, "outage")
        self._repairs[node] += 1
        yield instant(end)
        self._end_repair(node)

    def _random_outages(
        self, node: int, faults: Faults, rng: np.random.Generator
    ) -> Iterator[float]:
        """Let a node fail and recover at random, yielding the instants."""
        while True:
            now_s = self._agenda.now_s  # the clock moves on however often nodes fail
            fails_s = later(now_s + rng.exponential(faults.mtbf_h * 3600), now_s)
            if fails_s > LATEST_S:
                return
            yield fails_s
            if node in self._gone:
                return  # otherwise the clock would run on although nothing can happen
            self._add_reason(node, "outage")
            self._repairs[node] += 1
            repaired_s = instant(self._agenda.now_s + rng.exponential(faults.mttr_h * 3600))
            self._extend_known(repaired_s)
            yield repaired_s
            self._end_repair(node)

    def _apply_dated_changes(self, changes: list[Any], absent: dict[int, bool]) -> Iterator[float]:
        """Apply the dated changes of the cluster, yielding their instants."""
        for change in changes:
            yield instant(change.at_s)
            self._dated_returns.subtract(change.nodes if change.present else ())
            for node in change.nodes:
                if change.present and absent.get(node, False):
                    self._drop_reason(node)
                elif not change.present and not absent.get(node, False):
                    self._remove_node(node)
                absent[node] = not change.present

    def _remove_node(self, node: int) -> None:
        """Remove a node by a dated change, for good unless it has a dated return."""
        if not self._dated_returns[node]:
            self._gone.add(node)
        self._add_reason(node, "absent")

    def _end_repair(self, node: int) -> None:
        """End a repair in progress, which is one reason less to be out of service."""
        self._repairs[node] -= 1
        if not self._repairs[node]:
            del self._repairs[node]
        self._drop_reason(node)

    def _extend_known(self, at_s: float) -> None:
        """Move the latest known instant of a node change to `at_s`, if that is later."""
        self.last_known_s = max(self.last_known_s, at_s)

    def _add_reason(self, node: int, cause: str) -> None:
        """Add a reason for a node to be out of service; the first takes it down."""
        self._reasons[node] = self._reasons.get(node, 0) + 1
        if self._reasons[node] == 1:
            self._down(node, cause)

    def _drop_reason(self, node: int) -> None:
        """Remove a reason for a node to be out of service; the last one brings it back."""
        self._reasons[node] -= 1
        if not self._reasons[node]:
            self._up(node)
