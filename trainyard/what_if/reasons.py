"""Why a job waited, in sentences that say no more than the record of the run shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from sim.metrics.room import Wanted, spreads
from sim.metrics.timeline import Timeline
from sim.metrics.why import Piece
from sim.trace import Trace
from trainyard.text import Clock, length, plural

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


class Reason(NamedTuple):
    """Why a job waited for a time.

    Parameters
    ----------
    t0, t1 : float, seconds
        From when to when.
    cause : str
        The one of `sim.metrics.why.CAUSES` that held most of that time.
    told : str
        One or more sentences.
    waited_s : float, seconds
        What it waited of that time: t1 - t0, but for the sum of many short waits.
    notes : str
        What the policy noted with its decisions in that time, as names and values, also in `told`; "" = nothing.
    facts : Piece
        The numbers behind all that.
    """

    t0: float
    t1: float
    cause: str
    told: str
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
    clock : Clock
        How instants are written.
    wanted : Wanted
        What the job needs.
    recorded_s : float, seconds
        When the recording started it, if that is what the policy replays; NaN = it does not.
    """

    line: Timeline
    trace: Trace
    clock: Clock
    wanted: Wanted
    recorded_s: float = float("nan")

    def told(self, piece: Piece) -> Reason:
        """Return one piece in words."""
        if piece.waits:
            told = f"{plural(piece.waits, 'more wait')}, {length(piece.waited_s)} together: {self._shares(piece.seconds)}."
            return Reason(piece.t0, piece.t1, piece.cause, told, piece.waited_s, "", piece)
        said = [_SAID[piece.cause](self, piece)]
        others = {cause: seconds for cause, seconds in piece.seconds.items() if cause != piece.cause and seconds >= _LEAST_TOLD * piece.waited_s}
        if others:
            said.append(f"Some of the time it was otherwise: {self._shares(others)}.")
        if not piece.started and piece.t1 >= self.line.end_s:
            said.append("Then the run ended.")
        if np.isfinite(self.recorded_s):
            said.append(f"The recording started it at {self.clock.at(self.recorded_s)}.")
        if notes := "; ".join(map(_note, piece.notes)):
            said.append(f"The policy noted: {notes}.")
        return Reason(piece.t0, piece.t1, piece.cause, " ".join(said), piece.waited_s, notes, piece)

    @property
    def _need(self) -> str:
        return self._count(self.wanted.gpus)

    @property
    def _where(self) -> str:
        """Where free GPUs are looked for, unless that is everywhere."""
        return " on nodes that it may use" if ((self.wanted.kinds < 0) & (self.line.size > 0)).any() else ""

    def _count(self, number: int) -> str:
        return plural(number, "GPU" if self.wanted.demand.gpus else "worker")

    def _free(self, piece: Piece) -> str:
        """Return what was free on nodes that it may use, from the least to the most."""
        amount = self._count(piece.free) if piece.free_least == piece.free else f"{piece.free_least:,} to {self._count(piece.free)}"
        if not self.wanted.demand.gpus:
            return f"There was room for {amount}{self._where}"
        return f"{amount} {'was' if piece.free == 1 else 'were'} free{self._where}"

    def _shares(self, seconds: Mapping[str, float]) -> str:
        return "; ".join(f"{_SHORT[cause]} ({length(amount)})" for cause, amount in seconds.items())

    def _job(self, job: int) -> str:
        gpus = int(self.line.result.jobs["gpus"].iloc[job])
        return f"{self.trace.frame['job_id'].iloc[job]}{f' ({_gpus(gpus)})' if gpus else ''}"

    def _later(self, piece: Piece) -> str:
        return ", ".join(map(self._job, piece.later)) + (f" and {piece.more_later:,} more" if piece.more_later else "")

    def _ahead(self, piece: Piece) -> str:
        if not piece.ahead:
            return ""
        return f" {plural(piece.ahead, 'job')} submitted earlier waited too{', the first of them' if piece.ahead > 1 else ':'} {self._job(piece.first)}."

    def _no_room(self, piece: Piece) -> str:
        number = self.wanted.gpus
        gpus = f"No {number:,} free GPUs" if number > 1 else "No free GPU"
        head = gpus if self.wanted.demand.gpus else f"No room for {self._need}"
        told = f"{head}: {self._free(piece)}." if piece.free else f"{head}{self._where}{': none was free' if number > 1 else ''}."
        if self.wanted.need < self.wanted.demand.replicas:
            told += f" It can start on {self._need}, less than it asked for."
        if piece.later:
            told += " Without the jobs submitted later it would not have been enough either."
        return f"{told}{self._ahead(piece)}"

    def _not_allowed(self, piece: Piece) -> str:
        here = f"at most {piece.free:,}" if piece.free else "none"
        return f"Up to {self._count(piece.anywhere)} were free, but {here}{self._where}; it needs {self._need}."

    def _down(self, piece: Piece) -> str:
        up = f"{piece.there:,} {'was' if piece.there == 1 else 'were'}" if piece.there else "none was"
        return f"It needs {self._need}, and at times {up} up{self._where}: other nodes were down or absent."

    def _beyond(self, piece: Piece) -> str:
        return f"It needs {self._need}, and this cluster has {piece.there:,}{self._where}."

    def _cores(self, piece: Piece) -> str:
        what = "the cores and memory" if self.wanted.servers is None else "the cores and memory, or not with room for its parameter servers,"
        return f"{self._free(piece)}, but not with {what} that it needs."

    def _scattered(self, piece: Piece) -> str:
        per = max(self.wanted.demand.gpus, 1)
        if piece.replicas < self.wanted.need:
            return f"{self._free(piece)}, but at most {piece.replicas * per:,} of one type, and it needs {self._need} of one type."
        alike, spread = spreads(self.line, self.wanted.gpus)
        seen = f" In this run no job of {self._need} is spread over more nodes than it needs." if alike and not spread else ""
        return f"{self._free(piece)}, but on several nodes, at most {piece.most:,} on one; it needs {self._need}.{seen}"

    def _overtaken(self, piece: Piece) -> str:
        jobs = len(piece.later) + piece.more_later
        room = f"there was room for {self._need}" if self.wanted.gpus > 1 else "a GPU was free" if self.wanted.demand.gpus else "there was room"
        return f"{plural(jobs, 'job')} submitted later ran meanwhile: {self._later(piece)}. Without {'them' if jobs > 1 else 'it'} {room}."

    def _round(self, piece: Piece) -> str:
        then = f"the policy decided next at {self.clock.at(piece.decides_s)}" if np.isfinite(piece.decides_s) else "the policy made no more decisions"
        return f"{self._free(piece)}, but {then}."

    def _in_flight(self, piece: Piece) -> str:
        return f"It was decided at {self.clock.at(piece.t0)} to start it, which took effect at {self.clock.at(piece.t1)}."

    def _left(self, piece: Piece) -> str:
        """Say that it was not started although there was room, and until when nobody was."""
        until = f"changed nothing until {self.clock.at(piece.changes_s)}" if np.isfinite(piece.changes_s) else "made no more changes"
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
    return f"{name.replace('_', ' ')} {low:.4g}" if low == high else f"{name.replace('_', ' ')} {low:.4g} to {high:.4g}"
