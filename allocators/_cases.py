"""One job with parameter servers and how far its plans are: looks at it, and the stage machine that says what it shall be made of next."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from allocators._history import Watched
from allocators._stages import (
    HOT_RECORDS,
    Before,
    Config,
    Preset,
    Seen,
    at_end_gb,
    first_servers,
    hot_servers,
    more_workers,
    servers_within,
    workers_within,
)
from sim.contract import Demand, Grant, Telemetry, instant

WORKER_INITIAL, PS_INITIAL, PS_RUNNING = range(3)
_SERVERS_EVERY_S = 3600.0


@dataclass(slots=True)
class Case:
    """What a job asked for, what it is or will be made of, and what was seen of it; ``due_s`` is when to look at it again.

    Until ``stays_s`` none of its replicas is moved for being slow, as there was no better place for them.
    """

    asked: Demand
    config: Config
    demand: Demand
    kind: int
    due_s: float = inf
    stage: int = WORKER_INITIAL
    plans: int = 0
    planned_s: float = -inf
    servers_s: float = -inf
    before: Before | None = None
    seen: list[Seen] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    watched: Watched = field(default_factory=lambda: Watched([], []))
    suspects: frozenset[int] = frozenset()
    avoid: frozenset[int] = frozenset()
    stays_s: float = -inf

    def begins(self) -> None:
        """Take note that the job starts or moves; what was seen in another place counts no more."""
        self.planned_s = -inf
        self.seen.clear()
        self.memory.clear()
        self.suspects, self.stays_s = frozenset(), -inf

    def look(self, speed: float, left: float, telemetry: Telemetry) -> None:
        """Remember what is seen of the running job: work per second, work left, and use of cores and memory."""
        cpus, gb = telemetry.cpus, telemetry.mem_gb
        found = Seen(speed, cpus["worker"], gb["worker"], cpus["server"], gb["server"])
        self.seen.append(found)
        del self.seen[:-HOT_RECORDS]
        self.watched.seen.append(found)
        self.watched.servers.append(self.config.servers)
        self.memory[1:] = [(left, found.server_gb * self.config.servers)]

    def becomes(self, config: Config, demand: Demand, now_s: float) -> None:
        """Take note that the running job is made of something else from now on."""
        if config.workers != self.config.workers and self.seen:
            self.before = Before(self.config.workers, self.seen[-1].speed)
        self.config, self.demand, self.planned_s = config, demand, now_s
        self.seen.clear()


class Stages(NamedTuple):
    """The stage machine.

    Parameters
    ----------
    preset : Preset
        Thresholds.
    brain : bool
        Whether the rules are those that go with a history.
    """

    preset: Preset
    brain: bool

    def planned(self, case: Case, now_s: float, left: float, limit: tuple[float, float]) -> Config:
        """Return what a job that was just looked at shall be made of: `left` is its work left, `limit` its cores and GB without a history."""
        if case.stage == PS_INITIAL:
            return self._servers(case, left, limit[0])
        if self._hot_due(case, now_s):
            hot = hot_servers(case.config, case.seen, with_history=self.brain)
            if hot != case.config:
                return hot
        if not self.brain:
            return workers_within(case.config, case.seen, case.before, limit)
        return more_workers(case.config, case.seen, case.before, case.plans, self._alone_s(case, left), self.preset)

    def advance(self, case: Case, now_s: float, *, servers_move: bool) -> None:
        """Take note that what was planned is carried out."""
        case.planned_s = now_s
        if case.stage == PS_INITIAL or servers_move:
            case.servers_s = now_s
        else:
            case.plans += 1
        case.stage = min(case.stage + 1, PS_RUNNING)

    def _hot_due(self, case: Case, now_s: float) -> bool:
        return case.stage == PS_RUNNING and now_s >= instant(case.servers_s + _SERVERS_EVERY_S)

    def _servers(self, case: Case, left: float, limit_cores: float) -> Config:
        end_gb = at_end_gb(case.memory[0], case.memory[-1])
        if not self.brain:
            return servers_within(case.config, case.seen, limit_cores, end_gb)
        return first_servers(case.config, case.seen, self._alone_s(case, left), end_gb, self.preset)

    @staticmethod
    def _alone_s(case: Case, left: float) -> float:
        return left / (case.seen[-1].speed / case.config.workers)


def slow_nodes(grant: Grant, telemetry: Telemetry, below: float) -> frozenset[int]:
    """Return the nodes of a grant on which a replica runs below this share of the speed of a healthy one."""
    workers, servers = grant.gangs[0]
    found: set[int] = set()
    for part, role in ((workers, "worker"), (servers, "server")):
        if part is not None:
            nodes = [node for node, count in zip(part.nodes, part.count, strict=True) for _ in range(count)]
            found.update(node for node, speed in zip(nodes, telemetry.speed[role], strict=True) if speed < below)
    return frozenset(found)
