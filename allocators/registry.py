"""Registry of policies by name, including policies of installed packages."""

from __future__ import annotations

import re
from dataclasses import is_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from allocators.elastic.dp import DpElastic
from allocators.elastic.greedy import GreedyElastic
from allocators.elastic.mip import MipElastic
from allocators.heterogeneous.gavel.policy import Gavel
from allocators.heterogeneous.hadar.hadare import HadarE
from allocators.heterogeneous.hadar.policy import Hadar
from allocators.inner_policies import Composite
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
from allocators.sites.kai.policy import Kai
from allocators.sites.kueue.policy import Kueue
from allocators.sites.slurm.policy import Slurm
from sim.contract import Allocator, Card, ParameterError, Spec, build, did_you_mean

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
"""Name -> policy, a dataclass of parameters. The only list of policies: forms, command line, sweeps
and tests derive from it. Installed packages add theirs.
"""
ENTRY_POINTS: Final = "trainyard.policies"
"""Entry point group of policies in other packages."""
PACKAGES: Final[dict[str, str]] = {}
"""Name of a policy from another package -> name and version of the package."""
LEFT_OUT: Final[dict[str, str]] = {}
"""Name of a policy from another package that cannot be used -> the reason as a sentence."""
RESERVED: Final = ("all", "faults", "overheads")
"""Names with another meaning on the command line."""


def load_policy(point: EntryPoint) -> type[Allocator]:
    """Load and check the policy class of an entry point.

    Raises
    ------
    ParameterError
        If it cannot be loaded, is no policy, its package has no version, or its name is taken or
        cannot be written in a spec.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", point.name):
        raise ParameterError("Its name must be of the form lower_case_1.")
    if point.name in REGISTRY or point.name in RESERVED:
        raise ParameterError("Its name is taken.")
    if point.dist and not point.dist.version:
        raise ParameterError("Its package has no version, which results are stored under.")
    try:
        cls: type[Allocator] = point.load()
        is_policy = is_dataclass(cls) and Allocator in cls.__mro__
        has_card = is_policy and isinstance(build(cls, Spec(point.name)).card, Card)
    except (Exception, SystemExit) as error:  # the code of others may raise anything
        raise ParameterError(f"It cannot be loaded: {error}.") from error
    if not has_card:
        raise ParameterError(f"{point.value} is no dataclass derived from Allocator with a card.")
    return cls


def packages_of(spec: Spec) -> dict[str, str]:
    """Return the installed packages of a policy and its inner policies, by policy name.

    Built-in policies are left out.
    """
    packages = {spec.name: PACKAGES[spec.name]} if spec.name in PACKAGES else {}
    for value in spec.values.values():
        if isinstance(value, Spec):
            packages |= packages_of(value)
    return packages


def make(spec: Spec) -> Allocator:
    """Build a policy and its inner policies from a spec.

    Parameters
    ----------
    spec : Spec
        Name and parameters.

    Raises
    ------
    ParameterError
        If a policy or parameter is unknown or a value is out of bounds, also in inner policies.
    """
    if spec.name not in REGISTRY:
        choices = did_you_mean(spec.name, REGISTRY) or f"Choose one of {', '.join(REGISTRY)}."
        choices = LEFT_OUT.get(spec.name) or choices
        raise ParameterError(f"There is no policy '{spec.name}'. {choices}")
    policy = build(REGISTRY[spec.name], spec)
    if isinstance(policy, Composite):
        policy.assemble(make)
    return policy


def register_installed() -> None:
    """Register the policies of installed packages; record why a policy is left out."""
    for point in entry_points(group=ENTRY_POINTS):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        try:
            REGISTRY[point.name] = load_policy(point)
        except ParameterError as error:
            text = f"Policy {point.name!r} of package {package} is left out. {error}"
            LEFT_OUT[point.name] = text
        else:
            PACKAGES[point.name] = package


register_installed()

__all__ = ["LEFT_OUT", "PACKAGES", "REGISTRY", "hard_quotas", "make", "packages_of"]
