"""What a run did to a job and what an instant looks like, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics.life import Happening, Spell
from sim.perf.lookup import used_types
from sim.trace import Trace
from trainyard.text import Clock, length, plural

_ENDED: Final = {
    "failed": "failed",
    "refused": "refused by the policy",
    "impossible": "fits nowhere in this cluster",
    "unfinished": "not finished when the run ended,",
}
_WITHOUT_TIME: Final = ("refused", "impossible")
"""Outcomes of which it is not recorded when they came about."""
_MOST_TOLD: Final = 10
_LAST_TOLD: Final = 3
_MOST_NODES: Final = 4


def moment(wanted: NDArray[np.int64], pieces: pd.DataFrame, amounts: Mapping[str, float], beyond: float, unit: str) -> str:
    """Return who waits for how much, and what is free."""
    jobs, gpus = len(wanted), int(wanted.sum())
    waits = f"{plural(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}" if jobs else "No job waits"
    waits += f" for {plural(gpus, 'GPU')}" if gpus else ""
    free, count, largest = int(pieces["free"].sum()), int(pieces["pieces"].sum()), int(pieces["largest"].max()) if len(pieces) else 0
    are = f"{f'{free:,}' if gpus and unit == 'GPU' else plural(free, unit)} {'is' if free == 1 else 'are'} free" if free else f"no {unit} is free"
    said = [f"{waits}; {are}{_in_pieces(count, largest, wanted, unit)}."]
    if down := round(amounts["down"]):
        said.append(f"{plural(down, unit)} {'is' if down == 1 else 'are'} down.")
    if beyond > 0:
        said.append(f"The recording holds {plural(round(beyond), unit)} more than this cluster has.")
    return " ".join(said)


def _in_pieces(count: int, largest: int, wanted: NDArray[np.int64], unit: str) -> str:
    """Say how what is free is cut, to those who wait for it."""
    if not len(wanted) or not count:
        return ""
    larger = wanted[wanted > largest]
    limit = f": none fits {larger.min()}" if unit == "GPU" and len(larger) else f", the largest of {largest}" if count > 1 else ""
    return f" {f'in {count:,} pieces' if count > 1 else 'on one node'}{limit}"


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

    def shares(self, held_s: NDArray[np.float64]) -> str:
        """Return how GPU time divides among the GPU types of the cluster; nothing where there is one type, or no time."""
        total_s = float(held_s.sum())
        if len(used_types(self.cluster)) < 2 or not total_s:
            return ""
        rows = zip(self.cluster.types, held_s / total_s, strict=True)
        return f"of its GPU time {', '.join(f'{100 * share:.0f} % on {kind.name}' for kind, share in rows if share > 0)}"

    def nodes(self, spell: Spell) -> str:
        """Return the nodes of a spell, the first few by name."""
        found = list(dict.fromkeys(row[0] for row in spell.where))
        named = [self.names[node] if node < len(self.names) else "beyond the cluster" for node in found[:_MOST_NODES]]
        return ", ".join(named) + (f" and {len(found) - _MOST_NODES} more" if len(found) > _MOST_NODES else "")

    def types(self, spell: Spell) -> str:
        """Return the GPU types of a spell."""
        nodes = self.cluster.nodes
        return ", ".join(dict.fromkeys(nodes[row[0]].gpu_type or "CPU" for row in spell.where if row[0] < len(nodes)))

    def events(self, happened: Sequence[Happening]) -> list[str]:
        """Return each event as a sentence."""
        made = []
        for one, waited in zip(happened, _waited(happened), strict=True):
            where = f" on {self.nodes(one.after)}" if one.after is not None and one.what != "tuned" else ""
            when = "" if one.what in _WITHOUT_TIME else f"{self.clock.at(one.t_s)}: "
            said = f"{when}{_said(one).rstrip(',')}{where}{waited}."
            made.append(f"{said[:1].upper()}{said[1:]}")
        return made

    def life(self, happened: Sequence[Happening]) -> str:
        """Return all events in one line; of a long life its beginning and its end."""
        left_out = max(0, len(happened) - _MOST_TOLD)
        told, before_s = [], happened[0].t_s
        for at, (one, waited) in enumerate(zip(happened, _waited(happened), strict=True)):
            if left_out and _MOST_TOLD - _LAST_TOLD <= at < len(happened) - _LAST_TOLD:
                continue
            if left_out and at == len(happened) - _LAST_TOLD:
                told.append(f"{plural(left_out, 'more change')}")
            when = self.clock.at(one.t_s) if not at else self.clock.after(one.t_s, before_s)
            told.append(f"{_said(one)}{'' if one.what in _WITHOUT_TIME else f' {when}'}{waited}")
            before_s = one.t_s
        return ", ".join(told)


def _waited(happened: Sequence[Happening]) -> list[str]:
    """Return for each event that ended a wait how long that was."""
    made, since_s = [], happened[0].t_s
    for one in happened:
        made.append(f" (waited {length(one.t_s - since_s)})" if one.what == "started" and one.t_s > since_s else "")
        since_s = one.t_s if one.what in ("submitted", "preempted", "evicted") else since_s
    return made


def _said(one: Happening) -> str:
    before, after = one.before, one.after
    if one.what == "evicted":
        return f"evicted ({_hit(one)})"
    if one.what == "relaunched":
        return f"one {_role(one)} restarted ({_hit(one)})"
    if one.what == "resized" and before is not None and after is not None:
        return f"resized {_size(before, after)}"
    if one.what == "tuned" and before is not None and after is not None:
        return f"batch size {before.batch:,} → {after.batch:,}"
    return _ENDED.get(one.what, one.what)


def _hit(one: Happening) -> str:
    if one.cause == "oom":
        return f"a {_role(one)} ran out of memory"
    return "a node went down" if one.cause == "outage" else f"a {_role(one)} was interrupted"


def _role(one: Happening) -> str:
    return "parameter server" if one.role == "server" else "worker"


def _size(before: Spell, after: Spell) -> str:
    if before.gpus != after.gpus:
        return f"{before.gpus:,} → {plural(after.gpus, 'GPU')}"
    old, new = ([sum(row[2] for row in spell.where if row[1] == role) for role in (0, 1)] for spell in (before, after))
    changed = [f"{was:,} → {plural(now, noun)}" for was, now, noun in zip(old, new, ("worker", "parameter server"), strict=True) if was != now]
    return " and ".join(changed)
