"""Rigid jobs with communication: a gang over more servers takes longer, per job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sim.cluster import Cluster
from sim.contract import Floats, Grant, Ints, JobId, Shape, Telemetry
from sim.params import param
from sim.perf.copy_cost import Copies
from sim.perf.machines import Machines, Spans
from sim.perf.model import Limits, Rate
from sim.perf.resizable import job_share
from sim.perf.rigid import RigidModel
from sim.trace import Trace


@dataclass(frozen=True)
class Spread(Copies):
    """The recorded run time, longer for a gang that spans more servers than necessary.

    Notes
    -----
    The recorded duration is assumed to be on the fewest servers that can hold the gang, k0: as many
    of the largest nodes of the cluster as it needs. On one server per GPU an iteration takes
    ``spread_slowdown`` times as long, a column of the trace, else the parameter `slowdown`. In
    between it grows linearly with the servers: on k of them, with g GPUs, by 1 + (slowdown - 1) (k
    - k0) / (g - k0). This is the simplified communication model of our reading of A-SRPT [1]_. The
    rest is as in `sim.perf.rigid.Rigid`: complete gangs at the speed of their slowest GPU type; a
    forked job does the sum of its gangs, minus the cost of copies (`sim.perf.copy_cost`).

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload
    Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    scales: ClassVar[bool] = False
    staffed: ClassVar[bool] = False

    reference: str = param(
        "",
        title="Reference GPU type",
        help=(
            "GPU type that durations without a type of their own were measured on; empty = the"
            " first type of the cluster."
        ),
    )
    slowdown: float = param(
        1.5,
        title="Slowdown when spread",
        low=1,
        high=1000,
        help=(
            "Time of an iteration on one server per GPU over that on the fewest servers, for jobs"
            " that do not state spread_slowdown."
        ),
    )

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return a sentence on the jobs of several GPUs without a slowdown; () = none."""
        gpus = trace.numbers("num_gpus")
        silent = (gpus > 1) & np.isnan(trace.numbers("spread_slowdown"))
        if not silent.any():
            return ()
        return (
            (
                f"{job_share(silent, gpus > 0)} do not state their spread_slowdown; assumed:"
                f" {self.slowdown:g} on one server per GPU."
            ),
        )

    def bind(self, trace: Trace, cluster: Cluster) -> SpreadModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's.
        """
        rigid = RigidModel(trace, Machines("spread", Spans(self.reference), trace, cluster), self)
        return SpreadModel(
            rigid,
            trace.numbers("num_gpus"),
            trace.numbers("spread_slowdown", self.slowdown),
            cluster,
            self,
        )


class SpreadModel:
    """`Spread`, bound to one trace and one cluster.

    Parameters
    ----------
    rigid : RigidModel
        Rates of the jobs on the fewest servers.
    gpus, slowdown : arrays of shape (jobs,)
        Requested GPUs, and the slowdown on one server per GPU.
    cluster : Cluster
        The machines.
    price : Copies
        Cost of copies.
    """

    def __init__(
        self, rigid: RigidModel, gpus: Floats, slowdown: Floats, cluster: Cluster, price: Copies
    ) -> None:
        self._rigid, self._price = rigid, price
        gpus_on_largest = np.cumsum(
            sorted([node.gpus for node in cluster.initial_nodes], reverse=True)
        )
        self._fewest: Floats = np.searchsorted(gpus_on_largest, gpus).astype(np.float64) + 1
        extra_servers = gpus - self._fewest
        self._per_server: Floats = np.where(
            extra_servers > 0, (slowdown - 1) / np.maximum(extra_servers, 1), 0.0
        )
        self._most: Floats = np.maximum(gpus, self._fewest)

    def work(self) -> Floats:
        """Return seconds on the reference type and the fewest servers, of shape (jobs,)."""
        return self._rigid.work()

    def limits(self) -> Limits:
        """Return the requested size of each job as minimum and maximum."""
        return self._rigid.limits()

    def fastest(self) -> Floats:
        """Return the speed on the fewest servers of the fastest type; 1 for CPU jobs."""
        return self._rigid.fastest()

    def rate(self, job: JobId, grant: Grant, done: float, now_s: float) -> Rate:
        """Return the rate of a job on complete gangs, slowed by the servers that they span.

        Raises
        ------
        ContractError
            If a gang has another size than requested.
        """
        gangs = grant.gangs
        if len(gangs) == 1 and len(gangs[0].workers.nodes) == 1:
            return self._rigid.rate(job, grant, done, now_s)
        speeds = [
            self._rigid.rate(job, Grant((gang,)), done, now_s).work_per_s
            / self._slowdown(job, len(gang.workers.nodes))
            for gang in gangs
        ]
        return Rate(sum(speeds) * self._price.worth(len(gangs)))

    def rates(self, ids: Ints, shapes: Sequence[Shape]) -> Floats:
        """Return rates before placement, of shape (jobs, shapes); 0 for an incomplete gang."""
        servers = np.array([shape.nodes for shape in shapes], np.float64)
        fewest = self._fewest[ids, None]
        beyond = np.clip(servers, fewest, self._most[ids, None]) - fewest
        rates: Floats = self._rigid.rates(ids, shapes) / (1 + self._per_server[ids, None] * beyond)
        return rates

    def telemetry(self, job: JobId, grant: Grant, done: float, now_s: float) -> Telemetry:
        """Return telemetry of healthy workers that use their request."""
        return self._rigid.telemetry(job, grant, done, now_s)

    def _slowdown(self, job: JobId, servers: int) -> float:
        """Return the slowdown of a job on a number of servers; 1 on the fewest."""
        fewest = float(self._fewest[job])
        return 1 + float(self._per_server[job]) * (
            min(max(servers, fewest), float(self._most[job])) - fewest
        )
