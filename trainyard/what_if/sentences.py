"""Sentences about a run: events of a job, reasons of its waits, and the state at an instant.

They state only facts that the run shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.cluster import Cluster
from sim.metrics.fit import RoomNeeds, has_spread_jobs
from sim.metrics.job_events import JobEvent, JobPeriod
from sim.metrics.timeline import Timeline
from sim.metrics.wait_causes import Piece
from sim.perf.lookup import used_types
from sim.trace import Trace
from trainyard.formatting import RunClock, duration, plural

_ENDED: Final = {
    "failed": "failed",
    "refused": "refused by the policy",
    "impossible": "fits nowhere in this cluster",
    "unfinished": "not finished when the run ended,",
}
_WITHOUT_TIME: Final = ("refused", "impossible")
"""Outcomes without a recorded time."""
_MAX_EVENTS: Final = 10
_LAST_EVENTS: Final = 3
_MAX_NODES: Final = 4


def moment(
    requests: NDArray[np.int64],
    pieces: pd.DataFrame,
    amounts: Mapping[str, float],
    beyond: float,
    unit: str,
) -> str:
    """Return the sentences on waiting jobs and free, down and recorded GPUs at an instant.

    `pieces` = free amounts by GPU type, as in `MomentReport`; `beyond` = GPUs that a recorded
    schedule holds in excess of the cluster.
    """
    jobs, gpus = len(requests), int(requests.sum())
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
    sentences = [f"{waits}; {are}{_pieces_text(count, largest, requests, unit)}."]
    if down := round(amounts["down"]):
        sentences.append(f"{plural(down, unit)} {'is' if down == 1 else 'are'} down.")
    if beyond > 0:
        sentences.append(
            f"The recording holds {plural(round(beyond), unit)} more than this cluster has."
        )
    return " ".join(sentences)


def _pieces_text(count: int, largest: int, requests: NDArray[np.int64], unit: str) -> str:
    """Return on how many nodes the free GPUs are, and whether waiting requests fit on one.

    "" if no job waits or no GPU is free.
    """
    if not len(requests) or not count:
        return ""
    larger = requests[requests > largest]
    limit = (
        f": none fits {larger.min()}"
        if unit == "GPU" and len(larger)
        else f", the largest of {largest}"
        if count > 1
        else ""
    )
    return f" {f'in {count:,} pieces' if count > 1 else 'on one node'}{limit}"


def request_text(trace: Trace, job: int) -> str:
    """Return the request of a job as text: GPUs with admissible types, or cores."""
    gpus, cores = int(trace.frame["num_gpus"].iloc[job]), trace.numbers("cpus")[job]
    types = str(trace.texts("gpu_types_allowed")[job]).replace("|", " or ")
    if gpus:
        return plural(gpus, "GPU") + (f" ({types})" if types else "")
    return plural(round(cores), "core") if np.isfinite(cores) else "no GPUs"


def request_sentence(trace: Trace, job: int) -> str:
    """Return the sentence on user and request of a job."""
    user = str(trace.texts("user")[job])
    return (
        f"Job {trace.frame['job_id'].iloc[job]}{f' of {user}' if user else ''} asked for"
        f" {request_text(trace, job)}."
    )


@dataclass(frozen=True)
class EventFormatter:
    """Formats the events of a job as sentences.

    Parameters
    ----------
    clock : RunClock
        How instants are written.
    cluster : Cluster
        The machines, for the types of nodes.
    names : sequence of str
        Names of the nodes; indices beyond them are nodes that the cluster does not have.
    """

    clock: RunClock
    cluster: Cluster
    names: Sequence[str]

    def shares(self, held_s: NDArray[np.float64]) -> str:
        """Return the shares of GPU time by GPU type as text; "" with one type or no time."""
        total_s = float(held_s.sum())
        if len(used_types(self.cluster)) < 2 or not total_s:
            return ""
        rows = zip(self.cluster.types, held_s / total_s, strict=True)
        return (
            "of its GPU time"
            f" {', '.join(f'{100 * share:.0f} % on {kind.name}' for kind, share in rows if share > 0)}"  # noqa: E501
        )

    def nodes(self, spell: JobPeriod) -> str:
        """Return the names of the nodes of a period as text, at most four of them."""
        nodes = list(dict.fromkeys(row[0] for row in spell.where))
        named = [
            self.names[node] if node < len(self.names) else "beyond the cluster"
            for node in nodes[:_MAX_NODES]
        ]
        return ", ".join(named) + (
            f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        )

    def types(self, spell: JobPeriod) -> str:
        """Return the distinct GPU types of the nodes of a period as text."""
        nodes = self.cluster.nodes
        return ", ".join(
            dict.fromkeys(
                nodes[row[0]].gpu_type or "CPU" for row in spell.where if row[0] < len(nodes)
            )
        )

    def events(self, happened: Sequence[JobEvent]) -> list[str]:
        """Return each event as a sentence, with its instant, nodes and the wait that it ended."""
        sentences = []
        for one, waited in zip(happened, _wait_texts(happened), strict=True):
            where = (
                f" on {self.nodes(one.after)}"
                if one.after is not None and one.what != "tuned"
                else ""
            )
            when = "" if one.what in _WITHOUT_TIME else f"{self.clock.format(one.t_s)}: "
            sentence = f"{when}{_event_phrase(one).rstrip(',')}{where}{waited}."
            sentences.append(f"{sentence[:1].upper()}{sentence[1:]}")
        return sentences

    def life(self, happened: Sequence[JobEvent]) -> str:
        """Return all events in one line; of a long life only the first and last ones."""
        left_out = max(0, len(happened) - _MAX_EVENTS)
        parts, before_s = [], happened[0].t_s
        for at, (one, waited) in enumerate(zip(happened, _wait_texts(happened), strict=True)):
            if left_out and _MAX_EVENTS - _LAST_EVENTS <= at < len(happened) - _LAST_EVENTS:
                continue
            if left_out and at == len(happened) - _LAST_EVENTS:
                parts.append(f"{plural(left_out, 'more change')}")
            when = (
                self.clock.format(one.t_s) if not at else self.clock.format_after(one.t_s, before_s)
            )
            parts.append(
                f"{_event_phrase(one)}{'' if one.what in _WITHOUT_TIME else f' {when}'}{waited}"
            )
            before_s = one.t_s
        return ", ".join(parts)


def _wait_texts(happened: Sequence[JobEvent]) -> list[str]:
    """Return for each event the length of the wait that it ended, as text; "" = none."""
    texts, since_s = [], happened[0].t_s
    for one in happened:
        texts.append(
            f" (waited {duration(one.t_s - since_s)})"
            if one.what == "started" and one.t_s > since_s
            else ""
        )
        since_s = one.t_s if one.what in ("submitted", "preempted", "evicted") else since_s
    return texts


def _event_phrase(one: JobEvent) -> str:
    """Return the verb phrase of an event, such as "resized 2 → 4 GPUs"."""
    before, after = one.before, one.after
    if one.what == "evicted":
        return f"evicted ({_failure_cause(one)})"
    if one.what == "relaunched":
        return f"one {_role(one)} restarted ({_failure_cause(one)})"
    if one.what == "resized" and before is not None and after is not None:
        return f"resized {_size_change(before, after)}"
    if one.what == "tuned" and before is not None and after is not None:
        return f"batch size {before.batch:,} → {after.batch:,}"
    return _ENDED.get(one.what, one.what)


def _failure_cause(one: JobEvent) -> str:
    """Return the cause of a failure: a role out of memory, a node down, or an interruption."""
    if one.cause == "oom":
        return f"a {_role(one)} ran out of memory"
    return "a node went down" if one.cause == "outage" else f"a {_role(one)} was interrupted"


def _role(one: JobEvent) -> str:
    """Return the name of the role that an event concerns."""
    return "parameter server" if one.role == "server" else "worker"


def _size_change(before: JobPeriod, after: JobPeriod) -> str:
    """Return the change of GPUs, workers or servers between two periods: "2 → 4 GPUs"."""
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
_MIN_SHARE: Final = 0.02
"""Share of a wait above which a second cause is named."""


class WaitReason(NamedTuple):
    """Reason of one wait of a job.

    Parameters
    ----------
    t0, t1 : float, seconds
        Start and end.
    cause : str
        The cause in `sim.metrics.wait_causes.CAUSES` that held for most of that time.
    sentence : str
        One or more sentences.
    waited_s : float, seconds
        Time waited: t1 - t0, except for the sum of many short waits.
    notes : str
        Notes of the policy on its decisions in that time, as names and values, also in the
        sentence; "" = none.
    facts : Piece
        The numbers behind the sentence.
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
    """Formats the waits of one job as sentences.

    A `Piece` is a period of waiting with mostly one cause, or the sum of many short waits.

    Parameters
    ----------
    line : Timeline
        The run.
    trace : Trace
        Its jobs.
    clock : RunClock
        How instants are written.
    wanted : RoomNeeds
        Resources that the job needs.
    recorded_s : float, seconds
        Recorded start, if the policy replays the recording; NaN otherwise.
    """

    line: Timeline
    trace: Trace
    clock: RunClock
    wanted: RoomNeeds
    recorded_s: float = float("nan")

    def reason(self, piece: Piece) -> WaitReason:
        """Return one wait, or a sum of short waits, with its cause and sentences.

        Other causes, the end of the run, the recorded start and notes of the policy are added.
        """
        if piece.waits:
            sentence = (
                f"{plural(piece.waits, 'more wait')}, {duration(piece.waited_s)} together:"
                f" {self._shares(piece.seconds)}."
            )
            return WaitReason(piece.t0, piece.t1, piece.cause, sentence, piece.waited_s, "", piece)
        parts = [_SENTENCES[piece.cause](self, piece)]
        other_causes = {
            cause: seconds
            for cause, seconds in piece.seconds.items()
            if cause != piece.cause and seconds >= _MIN_SHARE * piece.waited_s
        }
        if other_causes:
            parts.append(f"Some of the time it was otherwise: {self._shares(other_causes)}.")
        if not piece.started and piece.t1 >= self.line.end_s:
            parts.append("Then the run ended.")
        if np.isfinite(self.recorded_s):
            parts.append(f"The recording started it at {self.clock.format(self.recorded_s)}.")
        if notes := "; ".join(map(_note_text, piece.notes)):
            parts.append(f"The policy noted: {notes}.")
        return WaitReason(
            piece.t0, piece.t1, piece.cause, " ".join(parts), piece.waited_s, notes, piece
        )

    @property
    def _need(self) -> str:
        """The size that the job needs, as text."""
        return self._count(self.wanted.gpus)

    @property
    def _where(self) -> str:
        """Text " on nodes that it may use" if the job may not use all nodes; "" otherwise."""
        return (
            " on nodes that it may use"
            if ((self.wanted.kinds < 0) & (self.line.size > 0)).any()
            else ""
        )

    def _count(self, number: int) -> str:
        """Return a number of GPUs or replicas as text."""
        return plural(number, "GPU" if self.wanted.demand.gpus else "worker")

    def _free(self, piece: Piece) -> str:
        """Return the amount that was free on nodes that the job may use, as a clause."""
        amount = (
            self._count(piece.free)
            if piece.free_least == piece.free
            else f"{piece.free_least:,} to {self._count(piece.free)}"
        )
        if not self.wanted.demand.gpus:
            return f"There was room for {amount}{self._where}"
        return f"{amount} {'was' if piece.free == 1 else 'were'} free{self._where}"

    def _shares(self, seconds: Mapping[str, float]) -> str:
        """Return the durations of causes as text."""
        return "; ".join(
            f"{_SHORT[cause]} ({duration(amount)})" for cause, amount in seconds.items()
        )

    def _job(self, job: int) -> str:
        """Return the id of a job, with its GPUs in parentheses if it has any."""
        gpus = int(self.line.result.jobs["gpus"].iloc[job])
        return f"{self.trace.frame['job_id'].iloc[job]}{f' ({_gpus(gpus)})' if gpus else ''}"

    def _later(self, piece: Piece) -> str:
        """Return the jobs submitted later that ran: a few by id, the others as a number."""
        return ", ".join(map(self._job, piece.later)) + (
            f" and {piece.more_later:,} more" if piece.more_later else ""
        )

    def _ahead(self, piece: Piece) -> str:
        """Return the sentence on jobs submitted earlier that waited too; "" if none did."""
        if not piece.ahead:
            return ""
        return (
            f" {plural(piece.ahead, 'job')} submitted earlier waited"
            f" too{', the first of them' if piece.ahead > 1 else ':'} {self._job(piece.first)}."
        )

    def _no_room(self, piece: Piece) -> str:
        """Return the sentence that too little was free, with the amount, and on earlier jobs.

        Also whether the job can start on less than it asked for.
        """
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
        """Return the sentence that enough was free, but not on nodes that the job may use."""
        here = f"at most {piece.free:,}" if piece.free else "none"
        return (
            f"Up to {self._count(piece.anywhere)} were free, but {here}{self._where}; it needs"
            f" {self._need}."
        )

    def _down(self, piece: Piece) -> str:
        """Return the sentence that too few of the nodes that the job may use were up."""
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
        """Return the sentence that the job needs more than the cluster has."""
        return f"It needs {self._need}, and this cluster has {piece.there:,}{self._where}."

    def _cores(self, piece: Piece) -> str:
        """Return the sentence that GPUs were free, but not with the cores and memory it needs."""
        what = (
            "the cores and memory"
            if self.wanted.servers is None
            else "the cores and memory, or not with room for its parameter servers,"
        )
        return f"{self._free(piece)}, but not with {what} that it needs."

    def _scattered_gpus(self, piece: Piece) -> str:
        """Return the sentence that free GPUs were of several types, or on several nodes.

        Also that no job of this size is spread over more nodes than necessary, if so.
        """
        per = max(self.wanted.demand.gpus, 1)
        if piece.replicas < self.wanted.need:
            return (
                f"{self._free(piece)}, but at most {piece.replicas * per:,} of one type, and it"
                f" needs {self._need} of one type."
            )
        packed, spread = has_spread_jobs(self.line, self.wanted.gpus)
        observation = (
            f" In this run no job of {self._need} is spread over more nodes than it needs."
            if packed and not spread
            else ""
        )
        return (
            f"{self._free(piece)}, but on several nodes, at most {piece.most:,} on one; it needs"
            f" {self._need}.{observation}"
        )

    def _overtaken(self, piece: Piece) -> str:
        """Return the sentence on later jobs that ran, without which there was room."""
        jobs = len(piece.later) + piece.more_later
        room = (
            f"there was room for {self._need}"
            if self.wanted.gpus > 1
            else "a GPU was free"
            if self.wanted.demand.gpus
            else "there was room"
        )
        return (
            f"{plural(jobs, 'job')} submitted later ran in that time: {self._later(piece)}. Without"
            f" {'them' if jobs > 1 else 'it'} {room}."
        )

    def _round(self, piece: Piece) -> str:
        """Return the sentence that there was room, but the policy did not decide in that time."""
        then = (
            f"the policy decided next at {self.clock.format(piece.decides_s)}"
            if np.isfinite(piece.decides_s)
            else "the policy made no more decisions"
        )
        return f"{self._free(piece)}, but {then}."

    def _in_flight(self, piece: Piece) -> str:
        """Return the sentence on when the start was decided and when it took effect."""
        return (
            f"It was decided at {self.clock.format(piece.t0)} to start it, which took effect at"
            f" {self.clock.format(piece.t1)}."
        )

    def _not_started(self, piece: Piece) -> str:
        """Return the clause that there was room, but the policy did not start the job."""
        until = (
            f"changed nothing until {self.clock.format(piece.changes_s)}"
            if np.isfinite(piece.changes_s)
            else "made no more changes"
        )
        did = until if piece.changes_s >= piece.t1 else "did not start it"
        return f"{self._free(piece)} and it needs {self.wanted.gpus:,}, but the policy {did}"

    def _earlier_waited(self, piece: Piece) -> str:
        """Return the sentence that there was room, but earlier jobs waited too."""
        return f"{self._not_started(piece)}.{self._ahead(piece)}"

    def _policy(self, piece: Piece) -> str:
        """Return the sentence that there was room and no earlier job waited, and on later jobs."""
        later = f" Jobs submitted later that ran: {self._later(piece)}." if piece.later else ""
        return f"{self._not_started(piece)}; no job submitted earlier waited.{later}"


def _gpus(number: int) -> str:
    """Return a number of GPUs as text."""
    return plural(number, "GPU")


_SENTENCES: Final[Mapping[str, Callable[[Reasons, Piece], str]]] = {
    "no_room": Reasons._no_room,
    "not_allowed": Reasons._not_allowed,
    "down": Reasons._down,
    "cores": Reasons._cores,
    "scattered": Reasons._scattered_gpus,
    "overtaken": Reasons._overtaken,
    "round": Reasons._round,
    "in_flight": Reasons._in_flight,
    "behind": Reasons._earlier_waited,
    "policy": Reasons._policy,
    "beyond": Reasons._beyond,
}


def _note_text(note: tuple[str, float, float]) -> str:
    """Return a note of the policy as text: its name, and its value or range."""
    name, low, high = note
    return (
        f"{name.replace('_', ' ')} {low:.4g}"
        if low == high
        else f"{name.replace('_', ' ')} {low:.4g} to {high:.4g}"
    )
