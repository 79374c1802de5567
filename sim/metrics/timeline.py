"""A run prepared for exploration: holdings by place and time, in the unit that its machines are
counted in, as plain arrays that are made once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.series import Presence, presence
from sim.metrics.steps import Floats, Ints, merged
from sim.metrics.usage import UsageArrays, downtimes


class Notes(NamedTuple):
    """The numbers of a policy, in order of its decisions."""

    decision: Ints
    name: Ints
    names: tuple[str, ...]
    value: Floats


@dataclass(frozen=True, eq=False)
class Timeline(UsageArrays):
    """The data of `UsageArrays`, and lookups that exploring a run repeats often.

    Notes
    -----
    Machines are counted in GPUs; where a cluster has none, in cores. What the recorded schedule
    held beyond the cluster is on no node.
    """

    @cached_property
    def unit(self) -> str:
        """What is counted: "GPU" or "core"."""
        return "GPU" if self.cluster.gpus else "core"

    @cached_property
    def size(self) -> Floats:
        """GPUs (cores) of each node; 0 for nodes that have none of it."""
        if self.cluster.gpus:
            return np.array([node.gpus for node in self.cluster.nodes], np.float64)
        return np.array(
            [node.cpus if np.isfinite(node.cpus) else 0.0 for node in self.cluster.nodes],
            np.float64,
        )

    @cached_property
    def amount(self) -> Floats:
        """GPUs (cores) that each placement holds."""
        if self.cluster.gpus:
            return self.held_gpus
        placements = self.result.placements
        return np.asarray(
            placements["count"].to_numpy(np.float64) * placements["cpus"].to_numpy(np.float64)
        )

    @cached_property
    def begin(self) -> Floats:
        """Begin of each placement, in seconds."""
        return np.asarray(self.t0[self.segment])

    @cached_property
    def end(self) -> Floats:
        """End of each placement, in seconds."""
        return np.asarray(self.t1[self.segment])

    @cached_property
    def owner(self) -> Ints:
        """Job of each segment."""
        return self.result.segments["job"].to_numpy(np.int64)

    @cached_property
    def holder(self) -> Ints:
        """Job of each placement."""
        return np.asarray(self.owner[self.segment])

    @cached_property
    def held(self) -> tuple[Ints, Floats, Floats]:
        """Job, begin and end of the times in which a job holds something, not overlapping."""
        return merged(self.owner, self.t0, self.t1)

    @cached_property
    def presence(self) -> Presence:
        """When each job is in the system."""
        return presence(self.result)

    @cached_property
    def waited_s(self) -> Floats:
        """How long each job was in the system without holding anything, in seconds."""
        job, t0, t1 = self.held
        enter, leave = self.presence
        inside = np.clip(np.minimum(t1, leave[job]) - np.maximum(t0, enter[job]), 0.0, None)
        return np.asarray(
            np.maximum(leave - enter - np.bincount(job, inside, minlength=len(enter)), 0.0)
        )

    @cached_property
    def down(self) -> tuple[Ints, Floats, Floats]:
        """Node, begin and end of the times without capacity, not overlapping."""
        return downtimes(self.result, self.cluster)

    @cached_property
    def decided(self) -> Floats:
        """Instants of the decisions, in seconds."""
        return self.result.decisions["t"].to_numpy(np.float64)

    @cached_property
    def changed(self) -> Floats:
        """Instants of those that changed anything, in seconds."""
        return np.asarray(self.decided[self.result.decisions["changed"].to_numpy() > 0])

    @cached_property
    def notes(self) -> Notes:
        """What the policy noted with its decisions."""
        frame = self.result.notes
        codes, names = pd.factorize(frame["name"].astype("str"))
        return Notes(
            frame["decision"].to_numpy(np.int64),
            codes.astype(np.int64),
            tuple(map(str, names)),
            frame["value"].to_numpy(np.float64),
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each node, no two alike."""
        return distinct([node.name for node in self.cluster.nodes])

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """Rack of each node."""
        return tuple(node.rack for node in self.cluster.nodes)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """GPU type of each node, "CPU" where it has none."""
        return tuple(node.gpu_type or "CPU" for node in self.cluster.nodes)

    @cached_property
    def end_s(self) -> float:
        """End of the run, in seconds."""
        return float(self.result.end_s)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names with a number behind those that an earlier one has already."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return tuple(made)


def first_places(names: Iterable[str]) -> dict[str, int]:
    """Return each name once, with its number in order of first appearance."""
    return {name: at for at, name in enumerate(dict.fromkeys(names))}
