"""By how much the controller books more than the simulator: whole nodes, memory by default, whole
cores, and what suspended jobs still hold.
"""

from __future__ import annotations

from allocators.sites.slurm.select import FreeNodes, Share
from allocators.sites.slurm.state import SlurmJob, replicas_on
from sim.contract import Demand

_LITTLE = 1e-6


class Surplus:
    """The difference, node by node.

    Parameters
    ----------
    nodes : Nodes
        Of the controller.
    """

    def __init__(self, nodes: FreeNodes) -> None:
        self._nodes = nodes
        self._more: dict[int, Share] = {}

    def note(self, job: SlurmJob, demand: Demand, sign: int = 1) -> None:
        """Count a job that runs; `sign` -1 = it runs no longer."""
        if demand.servers is not None or (sign < 0 and not self._more):
            return
        held = dict(replicas_on(job.held, demand.replicas, evenly=job.node_gpus > 0))
        for place, tasks in job.held:
            gpus, cpus, mem_gb = self._nodes.share(job, place, tasks)
            count = held.get(place, 0)
            more = (
                gpus - count * demand.gpus,
                cpus - count * demand.cpus,
                mem_gb - count * demand.mem_gb,
            )
            if any(abs(one) > _LITTLE for one in more):
                self._add(place, more, sign)

    def note_suspended(self, job: SlurmJob, sign: int = 1) -> None:
        """Count a job that is suspended: the simulator sees it hold nothing."""
        for place, tasks in job.held:
            self._add(place, self._nodes.share(job, place, tasks), sign)

    def take_from(self, gpus: list[int], cpus: list[float], mem_gb: list[float]) -> None:
        """Subtract it from what is free on each node."""
        for place, more in self._more.items():
            gpus[place] -= int(more[0])
            cpus[place] -= more[1]
            mem_gb[place] -= more[2]

    def _add(self, place: int, more: Share, sign: int) -> None:
        gpus, cpus, mem_gb = self._more.get(place, (0, 0.0, 0.0))
        self._more[place] = (
            gpus + sign * int(more[0]),
            round(cpus + sign * more[1], 6),
            round(mem_gb + sign * more[2], 6),
        )
