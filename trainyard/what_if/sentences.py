"""What a run did to a job, why the job waited, and what an instant looks like: sentences that say
no more than the record of the run shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics.life import Happening, JobPeriod
from sim.metrics.room import RoomNeeds, spreads
from sim.metrics.timeline import Timeline
from sim.metrics.why import Piece
from sim.perf.lookup import used_types
from sim.trace import Trace
from trainyard.text import RunClock, duration, plural

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


def moment(
    wanted: NDArray[np.int64],
    pieces: pd.DataFrame,
    amounts: Mapping[str, float],
    beyond: float,
    unit: str,
) -> str:
    """Return who waits for how much, and what is free."""
    jobs, gpus = len(wanted), int(wanted.sum())
    waits = f"{plural(jobs, 'job')} {'waits' if jobs == 1 else 'wait'}" if jobs else "No job waits"
    waits += f" for {plural(gpus, 'GPU')}" if gpus else ""
    free, count, largest = (
        int(pieces["free"].sum()),
        int(pieces["pieces"].sum()),
        int(pieces["largest"].max()) if len(pieces) else 0,
    )
    are = (
        f"{f'{free:,}' if gpus and unit == 'GPU' else plural(free, unit)}"
        f" {'is' if free == 1 else 'are'} free"
        if free
        else f"no {unit} is free"
    )
    sentences = [f"{waits}; {are}{_in_pieces(count, largest, wanted, unit)}."]
    if down := round(amounts["down"]):
        sentences.append(f"{plural(down, unit)} {'is' if down == 1 else 'are'} down.")
    if beyond > 0:
        sentences.append(
            f"The recording holds {plural(round(beyond), unit)} more than this cluster has."
        )
    return " ".join(sentences)


def _in_pieces(count: int, largest: int, wanted: NDArray[np.int64], unit: str) -> str:
    """Say how what is free is cut, to those who wait for it."""
    if not len(wanted) or not count:
        return ""
    larger = wanted[wanted > largest]
    limit = (
        f": none fits {larger.min()}"
        if unit == "GPU" and len(larger)
        else f", the largest of {largest}"
        if count > 1
        else ""
    )
    return f" {f'in {count:,} pieces' if count > 1 else 'on one node'}{limit}"


def asked_for(trace: Trace, job: int) -> str:
    """Return what a job asked for: GPUs and their types, or cores."""
    gpus, cores = int(trace.frame["num_gpus"].iloc[job]), trace.numbers("cpus")[job]
    types = str(trace.texts("gpu_types_allowed")[job]).replace("|", " or ")
    if gpus:
        return plural(gpus, "GPU") + (f" ({types})" if types else "")
    return plural(round(cores), "core") if np.isfinite(cores) else "no GPUs"


def facts(trace: Trace, job: int) -> str:
    """Return who asked for what."""
    user = str(trace.texts("user")[job])
    return (
        f"Job {trace.frame['job_id'].iloc[job]}{f' of {user}' if user else ''} asked for"
        f" {asked_for(trace, job)}."
    )


@dataclass(frozen=True)
class Teller:
    """Puts what befell a job into words.

    Parameters
    ----------
    clock : RunClock
        How instants are written.
    cluster : Cluster
        For the types of nodes.
    names : sequence of str
        Of the nodes; a node beyond them is one that the cluster does not have.
    """

    clock: RunClock
    cluster: Cluster
    names: Sequence[str]

    def shares(self, held_s: NDArray[np.float64]) -> str:
        """Return how GPU time divides among the GPU types of the cluster; nothing where there is
        one type, or no time.
        """
        total_s = float(held_s.sum())
        if len(used_types(self.cluster)) < 2 or not total_s:
            return ""
        rows = zip(self.cluster.types, held_s / total_s, strict=True)
        return (
            "of its GPU time"
            f" {', '.join(f'{100 * share:.0f} % on {kind.name}' for kind, share in rows if share > 0)}"  # noqa: E501
        )

    def nodes(self, spell: JobPeriod) -> str:
        """Return the nodes of a spell, the first few by name."""
        found = list(dict.fromkeys(row[0] for row in spell.where))
        named = [
            self.names[node] if node < len(self.names) else "beyond the cluster"
            for node in found[:_MOST_NODES]
        ]
        return ", ".join(named) + (
            f" and {len(found) - _MOST_NODES} more" if len(found) > _MOST_NODES else ""
        )

    def types(self, spell: JobPeriod) -> str:
        """Return the GPU types of a spell."""
        nodes = self.cluster.nodes
        return ", ".join(
            dict.fromkeys(
                nodes[row[0]].gpu_type or "CPU" for row in spell.where if row[0] < len(nodes)
            )
        )

    def events(self, happened: Sequence[Happening]) -> list[str]:
        """Return each event as a sentence."""
        made = []
        for one, waited in zip(happened, _waited(happened), strict=True):
            where = (
                f" on {self.nodes(one.after)}"
                if one.after is not None and one.what != "tuned"
                else ""
            )
            when = "" if one.what in _WITHOUT_TIME else f"{self.clock.at(one.t_s)}: "
            sentence = f"{when}{_said(one).rstrip(',')}{where}{waited}."
            made.append(f"{sentence[:1].upper()}{sentence[1:]}")
        return made

    def life(self, happened: Sequence[Happening]) -> str:
        """Return all events in one line; of a long life its beginning and its end."""
        left_out = max(0, len(happened) - _MOST_TOLD)
        parts, before_s = [], happened[0].t_s
        for at, (one, waited) in enumerate(zip(happened, _waited(happened), strict=True)):
            if left_out and _MOST_TOLD - _LAST_TOLD <= at < len(happened) - _LAST_TOLD:
                continue
            if left_out and at == len(happened) - _LAST_TOLD:
                parts.append(f"{plural(left_out, 'more change')}")
            when = self.clock.at(one.t_s) if not at else self.clock.after(one.t_s, before_s)
            parts.append(f"{_said(one)}{'' if one.what in _WITHOUT_TIME else f' {when}'}{waited}")
            before_s = one.t_s
        return ", ".join(parts)


def _waited(happened: Sequence[Happening]) -> list[str]:
    """Return for each event that ended a wait how long that was."""
    made, since_s = [], happened[0].t_s
    for one in happened:
        made.append(
            f" (waited {duration(one.t_s - since_s)})"
            if one.what == "started" and one.t_s > since_s
            else ""
        )
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


def _size(before: JobPeriod, after: JobPeriod) -> str:
    if before.gpus != after.gpus:
        return f"{before.gpus:,} → {plural(after.gpus, 'GPU')}"
    old, new = (
        [sum(row[2] for row in spell.where if row[1] == role) for role in (0, 1)]
        for spell in (before, after)
    )
    changed = [
        f"{was:,} → {plural(now, noun)}"
        for was, now, noun in zip(old, new, ("worker", "parameter server"), strict=True)
        if was != now
    ]
    return " and ".join(changed)


_SHORT: Final = {
    "no_room": "less was free than it needs",
    "not_allowed": "what was free was on nodes that it may not use",
    "down": "its nodes were down",
    "cores": "cores or memory were missing",
    "scattered": "what was free was scattered",
    "overtaken": "jobs submitted later had its room",
    "round": "there was room, but no decision",
    "in_flight": "the decision was taking effect",
    "behind": "there was room, and jobs submitted earlier waited too",
    "policy": "there was room",
    "beyond": "it needs more than the cluster has",
}
_LEAST_TOLD: Final = 0.02
"""Share of a piece from which on a second cause is named."""


class WaitReason(NamedTuple):
    """Why a job waited for a time.

    Parameters
    ----------
    t0, t1 : float, seconds
        From when to when.
    cause : str
        The one of `sim.metrics.why.CAUSES` that held most of that time.
    sentence : str
        One or more sentences.
    waited_s : float, seconds
        What it waited of that time: t1 - t0, but for the sum of many short waits.
    notes : str
        What the policy noted with its decisions in that time, as names and values, also in `told`;
        "" = nothing.
    facts : Piece
        The numbers behind all that.
    """

    t0: float
    t1: float
    cause: str
    sentence: str
    waited_s: float
    notes: str
    facts: Piece


@dataclass(frozen=True, eq=False)
class Reasons:
    """Puts the waits of one job into words.

    Parameters
    ----------
    line : Timeline
        The run.
    trace : Trace
        Its jobs.
    clock : RunClock
        How instants are written.
    wanted : RoomNeeds
        What the job needs.
    recorded_s : float, seconds
        When the recording started it, if that is what the policy replays; NaN = it does not.
    """

    line: Timeline
    trace: Trace
    clock: RunClock
    wanted: RoomNeeds
    recorded_s: float = float("nan")

    def reason(self, piece: Piece) -> WaitReason:
        """Return one piece in words."""
        if piece.waits:
            sentence = (
                f"{plural(piece.waits, 'more wait')}, {duration(piece.waited_s)} together:"
                f" {self._shares(piece.seconds)}."
            )
            return WaitReason(piece.t0, piece.t1, piece.cause, sentence, piece.waited_s, "", piece)
        said = [_SAID[piece.cause](self, piece)]
        others = {
            cause: seconds
            for cause, seconds in piece.seconds.items()
            if cause != piece.cause and seconds >= _LEAST_TOLD * piece.waited_s
        }
        if others:
            said.append(f"Some of the time it was otherwise: {self._shares(others)}.")
        if not piece.started and piece.t1 >= self.line.end_s:
            said.append("Then the run ended.")
        if np.isfinite(self.recorded_s):
            said.append(f"The recording started it at {self.clock.at(self.recorded_s)}.")
        if notes := "; ".join(map(_note, piece.notes)):
            said.append(f"The policy noted: {notes}.")
        return WaitReason(
            piece.t0, piece.t1, piece.cause, " ".join(said), piece.waited_s, notes, piece
        )

    @property
    def _need(self) -> str:
        return self._count(self.wanted.gpus)

    @property
    def _where(self) -> str:
        """Where free GPUs are looked for, unless that is everywhere."""
        return (
            " on nodes that it may use"
            if ((self.wanted.kinds < 0) & (self.line.size > 0)).any()
            else ""
        )

    def _count(self, number: int) -> str:
        return plural(number, "GPU" if self.wanted.demand.gpus else "worker")

    def _free(self, piece: Piece) -> str:
        """Return what was free on nodes that it may use, from the least to the most."""
        amount = (
            self._count(piece.free)
            if piece.free_least == piece.free
            else f"{piece.free_least:,} to {self._count(piece.free)}"
        )
        if not self.wanted.demand.gpus:
            return f"There was room for {amount}{self._where}"
        return f"{amount} {'was' if piece.free == 1 else 'were'} free{self._where}"

    def _shares(self, seconds: Mapping[str, float]) -> str:
        return "; ".join(
            f"{_SHORT[cause]} ({duration(amount)})" for cause, amount in seconds.items()
        )

    def _job(self, job: int) -> str:
        gpus = int(self.line.result.jobs["gpus"].iloc[job])
        return f"{self.trace.frame['job_id'].iloc[job]}{f' ({_gpus(gpus)})' if gpus else ''}"

    def _later(self, piece: Piece) -> str:
        return ", ".join(map(self._job, piece.later)) + (
            f" and {piece.more_later:,} more" if piece.more_later else ""
        )

    def _ahead(self, piece: Piece) -> str:
        if not piece.ahead:
            return ""
        return (
            f" {plural(piece.ahead, 'job')} submitted earlier waited"
            f" too{', the first of them' if piece.ahead > 1 else ':'} {self._job(piece.first)}."
        )

    def _no_room(self, piece: Piece) -> str:
        number = self.wanted.gpus
        gpus = f"No {number:,} free GPUs" if number > 1 else "No free GPU"
        head = gpus if self.wanted.demand.gpus else f"No room for {self._need}"
        sentence = (
            f"{head}: {self._free(piece)}."
            if piece.free
            else f"{head}{self._where}{': none was free' if number > 1 else ''}."
        )
        if self.wanted.need < self.wanted.demand.replicas:
            sentence += f" It can start on {self._need}, less than it asked for."
        if piece.later:
            sentence += " Without the jobs submitted later it would not have been enough either."
        return f"{sentence}{self._ahead(piece)}"

    def _not_allowed(self, piece: Piece) -> str:
        here = f"at most {piece.free:,}" if piece.free else "none"
        return (
            f"Up to {self._count(piece.anywhere)} were free, but {here}{self._where}; it needs"
            f" {self._need}."
        )

    def _down(self, piece: Piece) -> str:
        up = (
            f"{piece.there:,} {'was' if piece.there == 1 else 'were'}"
            if piece.there
            else "none was"
        )
        return (
            f"It needs {self._need}, and at times {up} up{self._where}: other nodes were down or"
            " absent."
        )

    def _beyond(self, piece: Piece) -> str:
        return f"It needs {self._need}, and this cluster has {piece.there:,}{self._where}."

    def _cores(self, piece: Piece) -> str:
        what = (
            "the cores and memory"
            if self.wanted.servers is None
            else "the cores and memory, or not with room for its parameter servers,"
        )
        return f"{self._free(piece)}, but not with {what} that it needs."

    def _scattered(self, piece: Piece) -> str:
        per = max(self.wanted.demand.gpus, 1)
        if piece.replicas < self.wanted.need:
            return (
                f"{self._free(piece)}, but at most {piece.replicas * per:,} of one type, and it"
                f" needs {self._need} of one type."
            )
        alike, spread = spreads(self.line, self.wanted.gpus)
        seen = (
            f" In this run no job of {self._need} is spread over more nodes than it needs."
            if alike and not spread
            else ""
        )
        return (
            f"{self._free(piece)}, but on several nodes, at most {piece.most:,} on one; it needs"
            f" {self._need}.{seen}"
        )

    def _overtaken(self, piece: Piece) -> str:
        jobs = len(piece.later) + piece.more_later
        room = (
            f"there was room for {self._need}"
            if self.wanted.gpus > 1
            else "a GPU was free"
            if self.wanted.demand.gpus
            else "there was room"
        )
        return (
            f"{plural(jobs, 'job')} submitted later ran meanwhile: {self._later(piece)}. Without"
            f" {'them' if jobs > 1 else 'it'} {room}."
        )

    def _round(self, piece: Piece) -> str:
        then = (
            f"the policy decided next at {self.clock.at(piece.decides_s)}"
            if np.isfinite(piece.decides_s)
            else "the policy made no more decisions"
        )
        return f"{self._free(piece)}, but {then}."

    def _in_flight(self, piece: Piece) -> str:
        return (
            f"It was decided at {self.clock.at(piece.t0)} to start it, which took effect at"
            f" {self.clock.at(piece.t1)}."
        )

    def _left(self, piece: Piece) -> str:
        """Say that it was not started although there was room, and until when nobody was."""
        until = (
            f"changed nothing until {self.clock.at(piece.changes_s)}"
            if np.isfinite(piece.changes_s)
            else "made no more changes"
        )
        did = until if piece.changes_s >= piece.t1 else "did not start it"
        return f"{self._free(piece)} and it needs {self.wanted.gpus:,}, but the policy {did}"

    def _behind(self, piece: Piece) -> str:
        return f"{self._left(piece)}.{self._ahead(piece)}"

    def _policy(self, piece: Piece) -> str:
        later = f" Jobs submitted later that ran: {self._later(piece)}." if piece.later else ""
        return f"{self._left(piece)}; no job submitted earlier waited.{later}"


def _gpus(number: int) -> str:
    return plural(number, "GPU")


_SAID: Final[Mapping[str, Callable[[Reasons, Piece], str]]] = {
    "no_room": Reasons._no_room,
    "not_allowed": Reasons._not_allowed,
    "down": Reasons._down,
    "cores": Reasons._cores,
    "scattered": Reasons._scattered,
    "overtaken": Reasons._overtaken,
    "round": Reasons._round,
    "in_flight": Reasons._in_flight,
    "behind": Reasons._behind,
    "policy": Reasons._policy,
    "beyond": Reasons._beyond,
}


def _note(note: tuple[str, float, float]) -> str:
    name, low, high = note
    return (
        f"{name.replace('_', ' ')} {low:.4g}"
        if low == high
        else f"{name.replace('_', ' ')} {low:.4g} to {high:.4g}"
    )
