"""Generators of synthetic workloads with a seed: `generate` follows published statistics.

`WORKLOADS` names all generators; `workload` builds one from a short text such as
``elastic-nodes:jobs=50,per_h=12,seed=3``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol

from jobtraces.generate.aiturbo import AITurboWorkload
from jobtraces.generate.dlrover import DLRoverCheck, DLRoverWorkload
from jobtraces.generate.elastic import MAX_JOBS, MAX_SEED, BatchJobs, ElasticNodes
from jobtraces.generate.fit import figures
from jobtraces.generate.gavel import GavelPhysical, GavelWorkload
from jobtraces.generate.hadar import HadarEWorkload, HadarWorkload
from jobtraces.generate.history import with_history
from jobtraces.generate.like import Like
from jobtraces.generate.profiles import PROFILES, SizeGroup, WorkloadProfile
from jobtraces.generate.recurring import Recurring
from jobtraces.generate.site import Site
from jobtraces.generate.workload import generate
from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec, build, param, spec_of
from sim.trace import Trace

__all__ = [
    "PROFILES",
    "WORKLOADS",
    "SizeGroup",
    "Workload",
    "WorkloadProfile",
    "canonical",
    "figures",
    "generate",
    "with_history",
    "workload",
]


class Workload(Protocol):
    """A generator of jobs: a frozen dataclass with fields declared by `sim.params.param`.

    Lists show the first line of its docstring.
    """

    title: ClassVar[str]

    def machines(self) -> Cluster:
        """Return the cluster of the workload."""

    def make(self) -> Trace:
        """Return the jobs, a pure function of the parameters."""


@dataclass(frozen=True)
class LookAlike:
    """Jobs with the published statistics of a profile, see `jobtraces.generate.generate`."""

    title: ClassVar[str] = ""
    profile: ClassVar[str] = ""

    jobs: int = param(1000, low=2, high=MAX_JOBS, help="Number of jobs.")
    load: float = param(
        0.9,
        low=0,
        high=100,
        help="GPU-seconds requested over GPU-seconds of the cluster; 0 = not scaled.",
    )
    days: float = param(
        0.0,
        title="Time span",
        unit="days",
        low=0,
        high=3650,
        help=(
            "Time from first to last submission; 0 = follows from the load, or from the "
            "published rate."
        ),
    )
    cluster: str = param(
        "",
        help=(
            "Cluster that the jobs are generated for, e.g. 40x8:p100, with + between "
            "groups; empty = the profile's."
        ),
    )
    history: bool = param(
        False,
        title="Add start times",
        help=(
            "Whether to add generated start times, so that the recorded schedule can be replayed."
        ),
    )
    seed: int = param(0, low=0, high=MAX_SEED, help="Seed of everything random.")

    def __post_init__(self) -> None:
        """Check the cluster; its groups are joined by a plus (commas separate parameters)."""
        object.__setattr__(
            self,
            "cluster",
            "+".join(part.strip() for part in self.cluster.replace(",", "+").split("+")),
        )
        self.machines()

    def machines(self) -> Cluster:
        """Return the given cluster, or the profile's if none is given."""
        return Cluster.parse(self.cluster.replace("+", ",") or PROFILES[self.profile].cluster)

    def make(self) -> Trace:
        """Return the jobs of the profile, with start times if `history` is set.

        Raises
        ------
        ParameterError
            If the cluster has no GPU, or the load cannot be reached in the given days.
        """
        cluster = self.machines()
        trace = generate(
            self.profile,
            jobs=self.jobs,
            seed=self.seed,
            cluster=cluster,
            load=self.load or None,
            days=self.days or None,
        )
        if self.history:
            trace = with_history(trace, cluster, self.seed)
        return replace(trace, name=f"Made: {trace.name}")


def _look_alike(name: str) -> type[LookAlike]:
    """Return the workload class of a profile."""
    return type(
        name,
        (LookAlike,),
        {
            "__doc__": f"Jobs with the published statistics of the profile {name}.",
            "profile": name,
            "title": PROFILES[name].title,
        },
    )


WORKLOADS: Final[Mapping[str, type[Workload]]] = {
    "elastic-nodes": ElasticNodes,
    "batch-jobs": BatchJobs,
    "gavel": GavelWorkload,
    "gavel-physical": GavelPhysical,
    "recurring": Recurring,
    "site": Site,
    "hadar": HadarWorkload,
    "hadare": HadarEWorkload,
    "aiturbo": AITurboWorkload,
    "dlrover": DLRoverWorkload,
    "dlrover-check": DLRoverCheck,
    "like": Like,
} | {name: _look_alike(name) for name in PROFILES}
"""Name -> class of the workload."""


def workload(spec: Spec | str) -> Workload:
    """Return the workload for a text, with its parameters checked; it draws no jobs yet.

    Parameters
    ----------
    spec : Spec or str
        A name with parameters, or its text ``name:key=value,...``.

    Raises
    ------
    TrainyardError
        If the name or a parameter is unknown, or a value is out of its bounds.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    if spec.name not in WORKLOADS:
        raise ParameterError(
            f"There is no workload '{spec.name}'. Choose one of {', '.join(WORKLOADS)}."
        )
    return build(WORKLOADS[spec.name], spec)


def canonical(spec: Spec | str) -> str:
    """Return the text of a workload with sorted parameters and without defaults.

    Raises
    ------
    TrainyardError
        As for `workload`.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    return str(spec_of(spec.name, workload(spec)))
