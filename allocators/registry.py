"""All policies by name, and how one is made."""

from __future__ import annotations

from typing import Final

from allocators.elastic.dp import DpElastic
from allocators.elastic.greedy import GreedyElastic
from allocators.elastic.mip import MipElastic
from allocators.gavel.policy import Gavel
from allocators.hadar.hadare import HadarE
from allocators.hadar.policy import Hadar
from allocators.kai.policy import Kai
from allocators.kueue.policy import Kueue
from allocators.nesting import Composite
from allocators.parameter_server.aiturbo import AITurbo
from allocators.parameter_server.dlrover import DLRover
from allocators.parameter_server.optimus import Optimus
from allocators.queue.asrpt import Asrpt
from allocators.queue.conservative import Conservative
from allocators.queue.easy import Easy
from allocators.queue.fifo import Fifo
from allocators.queue.las import Las
from allocators.queue.quota import Quotas, hard_quotas
from allocators.queue.recorded import Recorded
from allocators.queue.rounds import Rounds
from allocators.queue.sjf import Sjf
from allocators.queue.srtf import Srtf
from allocators.queue.wrappers import Partition, Switch
from allocators.slurm.policy import Slurm
from sim.contract import Allocator, ParameterError, Spec, build

REGISTRY: Final[dict[str, type[Allocator]]] = {
    "fifo": Fifo,
    "recorded": Recorded,
    "sjf": Sjf,
    "easy": Easy,
    "conservative": Conservative,
    "slurm": Slurm,
    "kai": Kai,
    "kueue": Kueue,
    "srtf": Srtf,
    "las": Las,
    "mip_elastic": MipElastic,
    "greedy_elastic": GreedyElastic,
    "dp_elastic": DpElastic,
    "gavel": Gavel,
    "hadar": Hadar,
    "hadare": HadarE,
    "asrpt": Asrpt,
    "aiturbo": AITurbo,
    "optimus": Optimus,
    "dlrover": DLRover,
    "partition": Partition,
    "switch": Switch,
    "rounds": Rounds,
    "quota": Quotas,
}
"""Name -> allocator, a dataclass of parameters. The only list of allocators there is: forms,
command line, sweeps and tests are derived from it.
"""


def make(spec: Spec) -> Allocator:
    """Build a fresh allocator.

    Parameters
    ----------
    spec : Spec
        Name and parameters.

    Raises
    ------
    ParameterError
        If the name or a parameter is unknown, or a value is out of its bounds; also for the
        allocators inside.
    """
    if spec.name not in REGISTRY:
        raise ParameterError(
            f"There is no allocator '{spec.name}'. Choose one of {', '.join(REGISTRY)}."
        )
    made = build(REGISTRY[spec.name], spec)
    if isinstance(made, Composite):
        made.assemble(make)
    return made


__all__ = ["REGISTRY", "hard_quotas", "make"]
