"""Node events of a run, read in advance from `sim.engine.faults`, and the arrays of failures."""

from __future__ import annotations

from heapq import heappop
from typing import Final

import numpy as np

from sim.engine.agenda import Agenda
from sim.engine.fast import failures
from sim.engine.fast.arrays import FastRun, Tables
from sim.engine.faults import Outages
from sim.engine.record import Record

_FIRST_EVENTS: Final = 256
_CLOSE_EVENTS: Final = 1000
"""Node events within a millisecond that would look like a stuck clock."""


class NodeEvents:
    """The failures and returns of nodes, which do not depend on jobs.

    Parameters
    ----------
    lane : FastRun
        Input of the run.
    """

    def __init__(self, lane: FastRun) -> None:
        self._agenda = Agenda()
        self._outages = Outages(self._agenda, self._node_down, self._node_up)
        self._rows: list[tuple[float, int, int, str]] = []
        self._joined: list[bool] = []
        self._pending: list[bool] = []
        self._wanted = _FIRST_EVENTS
        if lane.can_fail:
            conditions = lane.conditions
            self._outages.start(conditions.faults, lane.cluster, conditions.seed)
            self._note_joined()
            self._note_pending()
        self._begun = len(self._rows)
        nodes = [node for pool in lane.pools for node in pool.nodes]
        self._slot_of = np.empty(len(lane.cluster.nodes), np.int32)
        self._slot_of[nodes] = np.arange(len(nodes))

    def read_more(self, before: failures.Failures) -> failures.Failures:
        """Return the failures with as many more node events as there are, at least 256."""
        agenda = self._agenda
        while agenda.actions and len(self._rows) < self._wanted:
            agenda.now_s = agenda.actions[0][0]
            count = len(self._rows)
            while agenda.actions and agenda.actions[0][0] <= agenda.now_s:
                heappop(agenda.actions)[3]()
                self._note_joined()
            if len(self._rows) == count:
                self._rows.append((agenda.now_s, -1, 0, ""))  # a node remains down
                self._note_joined()
            self._note_pending()
        self._wanted *= 2
        at_s = [row[0] for row in self._rows]
        return before._replace(
            at_s=np.array([*at_s, -1.0 if agenda.actions else np.inf]),
            slot=self._slot_of[np.array([row[1] for row in self._rows], np.int64)],
            change=np.array([row[2] for row in self._rows], np.int8),
            is_joined=np.array(self._joined, np.int8),
            is_pending=np.array(self._pending, np.int8),
        )

    @property
    def are_too_close(self) -> bool:
        """Whether the clock of the general simulator might look stuck."""
        at_s = np.unique([row[0] for row in self._rows])
        return bool((at_s[_CLOSE_EVENTS:] - at_s[:-_CLOSE_EVENTS] < 1e-3).any())

    def add_to(self, record: Record, count: int) -> None:
        """Record the first `count` node events; those before second 0 came in any case."""
        for at_s, node, change, cause in self._rows[: max(count, self._begun)]:
            if change < 0:
                record.node_down(node, at_s, cause)
            elif change:
                record.node_up(node, at_s)

    def _node_down(self, node: int, cause: str) -> None:
        """Add the failure of a node."""
        self._rows.append((self._agenda.now_s, node, -1, cause))

    def _node_up(self, node: int) -> None:
        """Add the return of a node."""
        self._rows.append((self._agenda.now_s, node, 1, ""))

    def _note_joined(self) -> None:
        """Note for the new events that they come together."""
        new = len(self._rows) - len(self._joined)
        self._joined += [index > 0 for index in range(new)]

    def _note_pending(self) -> None:
        """Note for the events of this instant whether a node will return."""
        new = len(self._rows) - len(self._pending)
        self._pending += [self._outages.repairs_pending] * new


def new_failures(lane: FastRun, tables: Tables, stints: int) -> failures.Failures:
    """Return the failures of a run of at most `stints` stints, without its node events."""
    conditions, cluster = lane.conditions, lane.cluster
    nodes = [cluster.nodes[node] for pool in lane.pools for node in pool.nodes]
    gpus = np.array([node.gpus for node in nodes], np.int64)
    none, jobs = np.zeros(0), tables.jobs
    total = rate = weight = none
    if lane.changes_keys:
        assert lane.estimates is not None, "a rule by run times reads no estimates"
        preferred = [jobs.pool[first] if first < end else 0 for first, end in tables.group_bounds]
        total, rate = lane.estimates.copy(), tables.rates[preferred]
        weight = np.where("gpu_time_s" in lane.rule.key, np.maximum(jobs.need, 1), 1).astype(float)
    return failures.Failures(
        np.zeros(6, np.int64),
        lane.can_fail,
        np.full(1, np.inf),
        np.zeros(0, np.int32),
        np.zeros(0, np.int8),
        np.zeros(0, np.int8),
        np.zeros(0, np.int8),
        np.repeat(np.arange(len(lane.pools)), [len(pool.nodes) for pool in lane.pools]),
        gpus,
        np.empty(int(gpus.sum()) + 1, np.int32),
        np.empty(int(gpus.sum()) + 1, np.int32),
        float(conditions.overheads.checkpoint_every_s),
        float(conditions.overheads.period_s),
        conditions.faults.retries,
        2 * int(gpus.sum()) + len(nodes) if lane.can_fail else 0,
        np.empty(stints if lane.can_fail else 0),
        np.zeros(len(lane.trace), np.int32),
        tables.left,
        tables.work,
        float(conditions.overheads.restart_s),
        total,
        rate,
        weight,
    )
