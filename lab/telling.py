"""What a run did to a job and what an instant looks like, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lab.words import Clock, plural
from sim.cluster import Cluster
from sim.metrics.life import Happening, Spell
from sim.trace import Trace

_CAUSES: Final = {"outage": "a node went down", "interruption": "the job was interrupted", "oom": "out of memory"}
_MOST_TOLD: Final = 10


def moment(wanted: NDArray[np.int64], pieces: pd.DataFrame, amounts: Mapping[str, float], beyond: float, unit: str) -> str:
    """Return who waits for how much, and what is free."""
    jobs, gpus = len(wanted), int(wanted.sum())
    waits = f"{plural(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}" if jobs else "No job waits"
    waits += f" for {plural(gpus, 'GPU')}" if gpus else ""
    free, count, largest = int(pieces["free"].sum()), int(pieces["pieces"].sum()), int(pieces["largest"].max()) if len(pieces) else 0
    said = [f"{waits}; {_free(free, count, largest, wanted, unit)}."]
    if amounts["down"] > 0:
        said.append(f"{plural(round(amounts['down']), unit)} {'is' if amounts['down'] == 1 else 'are'} down.")
    if beyond > 0:
        said.append(f"The recording holds {plural(round(beyond), unit)} more than this cluster has.")
    return " ".join(said)


def _free(free: int, count: int, largest: int, wanted: NDArray[np.int64], unit: str) -> str:
    if not free:
        return f"no {unit} is free"
    are = f"{plural(free, unit)} {'is' if free == 1 else 'are'} free"
    if not len(wanted):
        return are
    if count == 1:
        return f"{are}, on one node"
    more = np.sort(wanted[wanted > largest])
    return f"{are} in {count:,} pieces: none fits {more[0]}" if unit == "GPU" and len(more) else f"{are} in {count:,} pieces, the largest of {largest}"


def facts(trace: Trace, job: int) -> str:
    """Return who asked for what."""
    gpus, cores = int(trace.frame["num_gpus"].iloc[job]), trace.numbers("cpus")[job]
    user, types = str(trace.texts("user")[job]), str(trace.texts("gpu_types_allowed")[job]).replace("|", " or ")
    asked = plural(gpus, "GPU") if gpus else plural(round(cores), "core") if np.isfinite(cores) else "no GPUs"
    asked += f" ({types})" if types and gpus else ""
    return f"Job {trace.frame['job_id'].iloc[job]}{f' of {user}' if user else ''} asked for {asked}."


@dataclass(frozen=True)
class Teller:
    """Puts what befell a job into words.

    Parameters
    ----------
    clock : Clock
        How instants are written.
    cluster : Cluster
        For the types of nodes.
    names : sequence of str
        Of the nodes; a node beyond them is one that the cluster does not have.
    """

    clock: Clock
    cluster: Cluster
    names: Sequence[str]

    def nodes(self, spell: Spell) -> str:
        """Return the nodes of a spell, the first few by name."""
        found = list(dict.fromkeys(row[0] for row in spell.where))
        named = [self.names[node] if node < len(self.names) else "beyond the cluster" for node in found[:4]]
        return ", ".join(named) + (f" and {len(found) - 4} more" if len(found) > 4 else "")

    def types(self, spell: Spell) -> str:
        """Return the GPU types of a spell."""
        nodes = self.cluster.nodes
        return ", ".join(dict.fromkeys(nodes[row[0]].gpu_type or "CPU" for row in spell.where if row[0] < len(nodes)))

    def event(self, one: Happening, submit_s: float) -> str:
        """Return one event as a sentence."""
        return f"{self.clock.at(one.t_s)}: {self._said(one, submit_s)}."

    def life(self, happened: Sequence[Happening]) -> str:
        """Return all events in one line; of a long life its beginning and its end."""
        submit_s = happened[0].t_s
        left_out = max(0, len(happened) - _MOST_TOLD)
        shown = list(happened) if not left_out else [*happened[: _MOST_TOLD - 3], *happened[-3:]]
        parts, before_s = [], None
        for at, one in enumerate(shown):
            if left_out and at == _MOST_TOLD - 3:
                parts.append(f"{plural(left_out, 'more change')}")
            when = self.clock.at(one.t_s) if before_s is None else self.clock.after(one.t_s, before_s)
            parts.append(f"{self._said(one, submit_s)} {when}")
            before_s = one.t_s
        return ", ".join(parts)

    def _said(self, one: Happening, submit_s: float) -> str:
        if one.what == "evicted":
            return f"evicted ({_CAUSES[one.cause]})"
        if one.what == "resized" and one.before is not None and one.after is not None:
            return f"resized {one.before.gpus} → {plural(one.after.gpus, 'GPU')}"
        return one.what
