"""A run as plain arrays for exploration: holdings by node and time, computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from sim.metrics.gpu_seconds import UsageArrays, downtimes
from sim.metrics.series import Presence, presence
from sim.metrics.steps import Floats, Ints, merge_intervals


class Notes(NamedTuple):
    """The numbers that a policy noted, in order of its decisions."""

    decision: Ints
    name: Ints
    names: tuple[str, ...]
    value: Floats


@dataclass(frozen=True, eq=False)
class Timeline(UsageArrays):
    """The arrays of `UsageArrays`, with cached lookups for exploring a run.

    Notes
    -----
    Machines are counted in GPUs, or in cores if the cluster has no GPUs. GPUs of the recorded
    schedule beyond the cluster are on no node.
    """

    @cached_property
    def unit(self) -> str:
        """The counted unit: "GPU" or "core"."""
        return "GPU" if self.cluster.gpus else "core"

    @cached_property
    def size(self) -> Floats:
        """GPUs of each node, or cores if the cluster has no GPUs; 0 = none, or unlimited cores."""
        if self.cluster.gpus:
            return np.array([node.gpus for node in self.cluster.nodes], np.float64)
        return np.array(
            [node.cpus if np.isfinite(node.cpus) else 0.0 for node in self.cluster.nodes],
            np.float64,
        )

    @cached_property
    def amount(self) -> Floats:
        """GPUs (or cores) of each placement."""
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
    def grant_periods(self) -> tuple[Ints, Floats, Floats]:
        """Job, begin and end of the periods with a grant, not overlapping."""
        return merge_intervals(self.owner, self.t0, self.t1)

    @cached_property
    def presence(self) -> Presence:
        """Instants at which each job enters and leaves the system."""
        return presence(self.result)

    @cached_property
    def waited_s(self) -> Floats:
        """Seconds that each job was in the system without a grant."""
        job, t0, t1 = self.grant_periods
        enter, leave = self.presence
        inside = np.clip(np.minimum(t1, leave[job]) - np.maximum(t0, enter[job]), 0.0, None)
        return np.asarray(
            np.maximum(leave - enter - np.bincount(job, inside, minlength=len(enter)), 0.0)
        )

    @cached_property
    def down(self) -> tuple[Ints, Floats, Floats]:
        """Node, begin and end of the periods without capacity, not overlapping."""
        return downtimes(self.result, self.cluster)

    @cached_property
    def decided(self) -> Floats:
        """Instants of the decisions, in seconds."""
        return self.result.decisions["t"].to_numpy(np.float64)

    @cached_property
    def changed(self) -> Floats:
        """Instants of the decisions that changed something, in seconds."""
        return np.asarray(self.decided[self.result.decisions["changed"].to_numpy() > 0])

    @cached_property
    def notes(self) -> Notes:
        """The numbers that the policy noted with its decisions."""
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
        """Unique name of each node."""
        return unique_names([node.name for node in self.cluster.nodes])

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """Rack of each node."""
        return tuple(node.rack for node in self.cluster.nodes)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """GPU type of each node; "CPU" for nodes without GPUs."""
        return tuple(node.gpu_type or "CPU" for node in self.cluster.nodes)

    @cached_property
    def end_s(self) -> float:
        """End of the run, in seconds."""
        return float(self.result.end_s)


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names made unique by a number after each repeated one, e.g. "a (2)"."""
    counts: dict[str, int] = {}
    unique = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        unique.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(unique)


def index_by_name(names: Iterable[str]) -> dict[str, int]:
    """Return name -> index in order of first appearance."""
    return {name: index for index, name in enumerate(dict.fromkeys(names))}
