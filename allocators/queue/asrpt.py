"""A-SRPT: a virtual machine under SRPT gives the start order of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from allocators.placement import RUN_TIME_NEEDS, Placer, empty_cluster_grant, mix_param, types_param
from allocators.reasons import queue_reason
from allocators.toolkit import backfill_param, newly_waiting
from sim.contract import (
    Allocator,
    Card,
    Decided,
    Demand,
    Grant,
    JobId,
    Needs,
    Plan,
    Reason,
    Shape,
    View,
    instant,
    param,
)


class VirtualMachine:
    """Preemptive SRPT on one virtual machine; its clock follows the cluster.

    Completion times are rounded like events of the cluster, and the remaining work of the current
    job to a millionth, so that equal work compares as equal.

    Parameters
    ----------
    now_s : float
        Start of its clock.
    speed : float
        Work per second.

    Notes
    -----
    Ties go to the lower job id. A job of infinite work completes as soon as no other job is left.
    """

    def __init__(self, now_s: float, speed: float) -> None:
        self.now_s, self.speed = now_s, speed
        # Only the work of the first one falls, so the heap stays a heap.
        self._left: list[tuple[float, JobId]] = []

    def __len__(self) -> int:
        """Return the number of jobs that are not complete."""
        return len(self._left)

    def count_ahead(self, job: JobId) -> int:
        """Return the number of incomplete jobs with less work left than `job`."""
        mine = next(((work, one) for work, one in self._left if one == job), (inf, job))
        return sum(entry < mine for entry in self._left)

    def add(self, job: JobId, work: float) -> None:
        """Add a job at the current time of the machine."""
        heappush(self._left, (work, job))

    def advance(self, now_s: float) -> list[tuple[float, JobId]]:
        """Advance the clock; remove completed jobs and return them as (time, job), in order."""
        complete = []
        left = self._left
        while left:
            end_s = self._end_s()
            if end_s > now_s:
                break
            self.now_s = end_s
            complete.append((end_s, heappop(left)[1]))
        if now_s > self.now_s:
            if left:
                work, job = left[0]
                left[0] = instant(work - (now_s - self.now_s) * self.speed), job
            self.now_s = now_s
        return complete

    def next_s(self) -> float:
        """Return when the next job completes if none is added; inf = never."""
        return self._end_s() if self._left else inf

    def _end_s(self) -> float:
        """Return when the first job completes: now if its work is 0 or infinite, inf at speed 0."""
        work = self._left[0][0]
        if not work or not isfinite(work):
            return self.now_s
        return instant(self.now_s + work / self.speed) if self.speed else inf


Lane = tuple[int, bool]
"""Demand key and whether it communicates much; if the first such job does not fit, none does."""


class Predicted(NamedTuple):
    """Estimates for a job at its arrival.

    Parameters
    ----------
    time_s : float
        Run time on the fewest nodes of the preferred type.
    slowdown : float
        Iteration time on one node per GPU over that on the fewest nodes; 0 for a job without a
        gang.
    """

    time_s: float
    slowdown: float


@dataclass
class Asrpt(Allocator):
    """Start jobs in the order of their completion on one virtual machine under SRPT.

    Notes
    -----
    Non-preemptive. With g GPUs, predicted iterations n and iteration time a_min on the fewest
    servers, a job has g n a_min of work for a machine whose speed is the number of GPUs in service.
    Once complete there, the job joins the real queue. The first job of that queue is tried:

    - It communicates much if g > 1 and a_max / a_min >= ``theta``, where a_max is the iteration
      time on one server per GPU. Other jobs take the nodes with the fewest free GPUs, to use up
      fragments.
    - A job that communicates much takes the fewest servers that can hold it. If they have no room
      for ``tau`` times its predicted run time after it became first in the queue, it takes the
      nodes with the most free GPUs.

    Heavy-edge placement puts both ends of the heaviest edge on one server while it has room,
    starting with the emptiest server. Here all edges of a job have the same weight, so this means
    "fill the emptiest nodes first".

    We know the paper [1]_ by its abstract and outline: the order of the real queue without
    overtaking, ``theta`` and ``tau`` are our reading. Also ours: on mixed clusters the preferred
    type counts, and all GPUs count the same; a job that outlives its prediction changes nothing; an
    evicted job returns to its place; a policy installed mid-run treats waiting jobs as new and
    ignores running ones. CPU jobs are no work for the virtual machine and join the real queue when
    they arrive.

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload
    Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    theta: float = param(
        1.5,
        title="Threshold of heavy communication",
        low=1,
        high=1000,
        help=(
            "A gang is communication-heavy if one GPU per node makes an iteration this many"
            " times as long."
        ),
    )
    tau: float = param(
        0.2,
        title="Longest wait for fewer nodes",
        low=0,
        high=100,
        help=(
            "Wait of a gang above 'Threshold of heavy communication' at the head of the queue for"
            " fewer nodes, as a share of its predicted run time."
        ),
    )
    backfill: str = backfill_param()
    types: str = types_param()
    mix: bool = mix_param()
    _machine: VirtualMachine | None = field(init=False, repr=False, default=None)
    _complete: int = field(init=False, repr=False, default=0)
    _lanes: dict[Lane, list[tuple[int, JobId]]] = field(
        init=False, repr=False, default_factory=dict
    )
    _place_of: dict[JobId, int] = field(init=False, repr=False, default_factory=dict)
    _predicted: dict[JobId, Predicted] = field(init=False, repr=False, default_factory=dict)
    _first_s: dict[JobId, float] = field(init=False, repr=False, default_factory=dict)
    _shapes: dict[int, tuple[Shape, Shape] | None] = field(
        init=False, repr=False, default_factory=dict
    )
    _fragments: Placer = field(init=False, repr=False)
    _consolidated: Placer = field(init=False, repr=False)
    _emptiest: Placer = field(init=False, repr=False)

    card = Card(
        title="A-SRPT",
        brief="queues jobs as one fast machine would finish them",
        what=(
            "Starts jobs in the order that one simulated fast machine would complete them,"
            " shortest predicted job first."
        ),
        cost=(
            "A job waits until that machine completes it even if GPUs are idle; a large"
            " gang at the head blocks all others."
        ),
        limits=(
            "Depends on the accuracy of its predictions. Never preempts jobs. Placement matters"
            " only if the performance model slows spread gangs."
        ),
        source="Luo, Liu, Lee, Shroff, INFOCOM 2025, arXiv 2501.05563",
        certainty=(
            "our reading of abstract and outline; strict order, theta and tau are our choice"
        ),
        goals=("short waits",),
        how=(
            "A job's work is its GPUs times its predicted run time on the fewest servers.",
            (
                "One simulated machine, as fast as all GPUs together, always serves the job"
                " with the least remaining work."
            ),
            (
                "Jobs queue in their order of completion on it; the first job of the queue"
                " starts when it has room."
            ),
            (
                "A communication-heavy gang waits for few nodes, for part of its predicted run"
                " time; other gangs fill fragments."
            ),
            "A running job is never stopped.",
        ),
    )

    def __post_init__(self) -> None:
        """Create the three placers."""
        self._fragments, self._consolidated, self._emptiest = (
            Placer(how, self.types, self.mix) for how in ("pack", "consolidate", "fewest")
        )

    @property
    def needs(self) -> Needs:
        """Need estimated work, and rates on few and on many nodes."""
        return Needs(RUN_TIME_NEEDS, mixes_types=self.mix)

    def allocate(self, view: View, /) -> Plan:
        """Advance the virtual machine and start the jobs that it has completed."""
        machine = self._advance_machine(view)
        for job in view.delta.finished:
            self._predicted.pop(job, None)
            self._place_of.pop(job, None)
        started, wake_at_s = self._start(view)
        return Plan(started, wake_at_s=min(wake_at_s, machine.next_s()))

    def explain(self, decided: Decided, job: JobId, /) -> Reason:
        """Explain a wait by the virtual machine or by the jobs ahead in the queue."""
        machine, view = self._machine, decided.view
        if machine is not None and job not in self._place_of:
            return Reason(
                "the simulated machine had not completed it: {before:jobs} had less work left",
                {"before": machine.count_ahead(job)},
            )
        entries = sorted(entry for lane in self._lanes.values() for entry in lane)
        queue = [one for _, one in entries]
        ahead = queue[: queue.index(job)] if job in queue else []
        due_s = self._due_s(job)
        if not ahead and self._is_communication_heavy(job) and view.now_s < due_s < inf:
            return Reason(
                "it communicates much, so it waited for {gpus:gpus} on fewer nodes until"
                " {due:instant}",
                {"gpus": decided.wants(job), "due": due_s},
            )
        return queue_reason(
            decided,
            job,
            ahead,
            "in the order of the simulated machine",
            blocks=self.backfill == "none",
        )

    # -- the virtual machine
    # ----------------------------------------------------------------------------------------------

    def _advance_machine(self, view: View) -> VirtualMachine:
        """Advance the virtual machine through the events since the last call; return it.

        New jobs are predicted and added to it; completed ones join the real queue.
        """
        delta, now_s = view.delta, view.now_s
        machine = self._machine
        if machine is None:
            machine = self._machine = VirtualMachine(now_s, float(view.capacity.sum()))
        arrived = set(delta.arrived)
        for job in newly_waiting(delta):
            if job in self._place_of:
                self._enqueue(view, job)
                continue
            predicted = self._predicted[job] = self._predict(view, job)
            since_s = view.one("arrival_s", job) if job in arrived else now_s
            if since_s > machine.now_s:
                self._enqueue_completed(view, machine.advance(since_s))
            gpus = view.one("gpus", job)
            machine.add(job, gpus * predicted.time_s if gpus else 0.0)
        self._enqueue_completed(view, machine.advance(now_s))
        if delta.nodes:
            machine.speed = float(view.capacity.sum())
        return machine

    def _enqueue_completed(self, view: View, complete: list[tuple[float, JobId]]) -> None:
        """Add jobs completed by the virtual machine to the real queue and record their order."""
        for _, job in complete:
            self._complete += 1
            self._place_of[job] = self._complete
            self._enqueue(view, job)

    def _predict(self, view: View, job: JobId) -> Predicted:
        """Return the predicted run time and slowdown of a job."""
        demand = view.demand(job)
        time_s = self._consolidated.run_time_s(view, job)
        key = demand.key
        if key not in self._shapes:
            self._shapes[key] = self._extreme_shapes(view, demand)
        shapes = self._shapes[key]
        if shapes is None or not isfinite(time_s):
            return Predicted(time_s, 0.0)
        few, many = view.estimates.rates(np.array([job]), shapes)[0].tolist()
        return Predicted(time_s, few / many if many > 0 else inf)

    def _extreme_shapes(self, view: View, demand: Demand) -> tuple[Shape, Shape] | None:
        """Return the shapes of a gang on the fewest nodes and on one node per GPU.

        None for a job that is no gang.
        """
        groups = self._consolidated.options(view, demand).groups
        if not demand.gpus or demand.replicas == 1 or not groups:
            return None
        nodes, count = empty_cluster_grant(view, demand, groups).gangs[0].workers[:2]
        gpus = [0] * len(view.cluster.types)
        for node, replicas in zip(nodes, count, strict=True):
            gpus[view.cluster.type_index[view.cluster.nodes[node].gpu_type]] += (
                replicas * demand.gpus
            )
        return Shape(tuple(gpus), len(nodes)), Shape(tuple(gpus), demand.replicas)

    # -- the real queue
    # ----------------------------------------------------------------------------------------------

    def _enqueue(self, view: View, job: JobId) -> None:
        """Add a job to the real queue, in its lane: jobs of one demand if others may pass."""
        # Without backfilling a single lane holds all jobs.
        lane = (
            (view.demand(job).key, self._is_communication_heavy(job))
            if self.backfill == "first_fit"
            else (0, False)
        )
        heappush(self._lanes.setdefault(lane, []), (self._place_of[job], job))

    def _start(self, view: View) -> tuple[dict[JobId, Grant | None], float]:
        """Reserve nodes for queued jobs in order; return the grants and the next wake-up.

        A job without room blocks its lane. Records when the first job became the first.
        """
        lanes, wake_at_s, is_first = self._lanes, inf, True
        started: dict[JobId, Grant | None] = {}
        line = [(*queue[0], lane) for lane, queue in lanes.items()]
        heapify(line)
        while line:
            _, job, lane = line[0]
            if is_first:
                self._first_s.setdefault(job, view.now_s)
            due_s = self._due_s(job)
            place = self._placer_for(job, is_due=due_s <= view.now_s)
            grant = place(view, view.demand(job))
            if grant is None:
                if is_first and place is self._consolidated:
                    wake_at_s = due_s
                is_first = False
                heappop(line)
                continue
            started[job] = grant
            self._first_s.pop(job, None)
            queue = lanes[lane]
            heappop(queue)
            if queue:
                heapreplace(line, (*queue[0], lane))
            else:
                del lanes[lane]
                heappop(line)
        return started, wake_at_s

    def _is_communication_heavy(self, job: JobId) -> bool:
        """Return True if a job is slower by a factor of `theta` or more on one node per GPU."""
        return self._predicted[job].slowdown >= self.theta - 1e-9

    def _placer_for(self, job: JobId, *, is_due: bool) -> Placer:
        """Return a job's placer: fragments, or if it communicates much few nodes until it is due.

        A job that is due takes the emptiest nodes.
        """
        if not self._is_communication_heavy(job):
            return self._fragments
        return self._emptiest if is_due else self._consolidated

    def _due_s(self, job: JobId) -> float:
        """Return when a job that communicates much stops waiting for few nodes, or inf."""
        first_s = self._first_s.get(job)
        if first_s is None:
            return inf
        return instant(first_s + self.tau * self._predicted[job].time_s)
