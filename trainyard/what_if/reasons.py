"""Reasons why a job waited, as stated by its policy, and why it ran longer than elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from string import Formatter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.contract import Allocator, Reason, Value, later
from sim.engine.simulator import Simulator
from sim.metrics import job_events
from sim.metrics.timeline import Timeline
from sim.metrics.wait_causes import Waits, waits
from trainyard import formatting
from trainyard.formatting import RunClock, plural
from trainyard.runs.run import conditions
from trainyard.store import Store
from trainyard.study import catalog
from trainyard.study.scenario import Scenario
from trainyard.what_if import explore
from trainyard.what_if.explore import Book
from trainyard.what_if.statements import Statement, Witness

_MAX_NAMED: Final = 5
_MAX_SPANS: Final = 5
_MIN_SHARE: Final = 0.02
"""Share of all waiting below which spans are summed up; also of a run time."""
_LONGER_S: Final = 60.0


def _count_text(value: float, noun: str, *, were: bool) -> str:
    """Return a count with its noun and, if requested, its verb: "no GPU was", "3 jobs"."""
    count = plural(int(value), noun) if value else f"no {noun}"
    return f"{count}{(' was' if value <= 1 else ' were') if were else ''}"


def _number(value: float) -> str:
    """Return a number as text."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2g}"


_FORMATTERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "jobs": partial(_count_text, noun="job", were=False),
    "jobs_were": partial(_count_text, noun="job", were=True),
    "gpus": partial(_count_text, noun="GPU", were=False),
    "gpus_were": partial(_count_text, noun="GPU", were=True),
    "duration": lambda value: (
        formatting.duration(value) if math.isfinite(value) else "unknown time"
    ),
    "share": lambda value: f"{100 * value:.0f} %",
    "number": _number,
    "text": str,
}
"""Kind of a value -> its formatter."""
_NAMES: Final = frozenset({"job", "text"})
"""Kinds whose values distinguish reasons."""


class _Extent(NamedTuple):
    """Smallest and largest value of a reason within a span."""

    least: float
    greatest: float


class WhyWaited(NamedTuple):
    """A reason for a wait of one job.

    Parameters
    ----------
    sentence : str
        The reason as text; job names in it are untrusted.
    waited_s : float, seconds
        Length of the span, or of the joined waits.
    times : int
        Number of joined waits.
    stated : bool
        Whether the policy stated the reason; otherwise it is derived from the run.
    """

    sentence: str
    waited_s: float
    times: int
    stated: bool = True

    @property
    def full_sentence(self) -> str:
        """The sentence with the length of the wait, and the number of waits if joined."""
        if self.waited_s < 1:
            return f"{self.sentence}."
        waits = f" in {self.times:,} waits" if self.times > 1 else ""
        return f"{self.sentence} ({formatting.duration(self.waited_s)}{waits})."


def stated_reasons(book: Book, job: int, statements: Sequence[Statement]) -> tuple[WhyWaited, ...]:
    """Return the longest waits of a job with their reasons, in order of time.

    Without statements of the policy, the reason is derived from the run; empty if the job did not
    wait.

    Parameters
    ----------
    book : Book
        The run.
    job : int
        Row of the trace.
    statements : sequence of Statement
        From `replay_statements`; statements on other jobs are ignored.

    Raises
    ------
    ParameterError
        If there is no such job.
    """
    pieces = explore.wait_reasons(book, job)
    if not pieces:
        return ()
    names = book.trace.frame["job_id"].tolist()
    stated = span_reasons(book.line, job, statements, ReasonFormatter(names, book.clock))
    return stated or (_derived_reason(book, job, pieces),)


def replay_s(book: Book, job: int) -> float:
    """Return the expected seconds of a replay up to a job's last wait; 0 = it never waited."""
    intervals = waits(book.line, job)
    if not len(intervals.t1):
        return 0.0
    share = float(intervals.t1.max()) / max(book.result.end_s, 1.0)
    return book.result.timing.cpu_s * min(share, 1.0)


def replay_statements(
    book: Book, job: int | None = None, store: Store | None = None
) -> tuple[Statement, ...]:
    """Run a scenario again, and return its policy's statements on why jobs wait.

    Parameters
    ----------
    book : Book
        The run.
    job : int or None
        Row of the trace: only this job, up to its last wait; None = all jobs.
    store : Store or None
        Holds the user's profiles.

    Raises
    ------
    TrainyardError
        As the run itself, e.g. if a profile was deleted.
    """
    assert book.entry is not None, "only stored runs can be replayed"
    scenario = Scenario.from_json(book.entry.scenario)
    allocator: Allocator = catalog.instance("allocator", scenario.allocator)
    given = conditions(scenario, store)
    if job is not None:
        until_s = float(waits(book.line, job).t1.max(initial=0.0))
        given = replace(given, horizon_s=min(given.horizon_s, later(until_s, until_s)))
    witness = Witness(None if job is None else {job})
    Simulator(book.trace, scenario.cluster, allocator, given, witness=witness.bind(allocator)).run()
    return tuple(witness.said)


def _derived_reason(book: Book, job: int, pieces: Sequence[explore.WaitReason]) -> WhyWaited:
    """Return one reason for all waits of a job, derived from the run for lack of a statement."""
    needs, longest = book.room_needs(job), max(pieces, key=lambda piece: piece.waited_s)
    waited_s = math.fsum(piece.waited_s for piece in pieces)
    if not needs.demand.gpus:
        return WhyWaited(longest.sentence, waited_s, len(pieces), stated=False)
    free = _count_text(longest.facts.free, "GPU", were=True)
    sentence = f"No reason recorded; {free} free, the job asks for {needs.gpus:,}"
    return WhyWaited(sentence, waited_s, len(pieces), stated=False)


class _RunFacts(NamedTuple):
    """How a job ran: times, GPU types, GPUs, nodes and batch sizes.

    Seconds with progress, of these seconds that repeated lost work, shares of GPU types as text,
    GPUs (least, most and mean), nodes and batch sizes (least, most).
    """

    ran_s: float
    redone_s: float
    types: str
    gpus: tuple[int, int]
    mean_gpus: float
    nodes: tuple[int, int]
    batches: tuple[int, int]


def ran_longer(book: Book, other: Book, job: int) -> str:
    """Return how much longer a job ran than in another run, and why; "" = not longer.

    Also "" if one of the runs did not complete it.
    """
    if any(one.result.jobs["outcome"].iloc[job] != "completed" for one in (book, other)):
        return ""
    here, there = _run_facts(book, job), _run_facts(other, job)
    longer_s = here.ran_s - there.ran_s
    if longer_s < max(_LONGER_S, _MIN_SHARE * there.ran_s):
        return ""
    causes = []
    if here.redone_s > there.redone_s + 1:
        causes.append(f"a stop undid work that took {formatting.duration(here.redone_s)} again")
    if here.types and there.types and here.types != there.types:
        causes.append(f"on {here.types} instead of {there.types}")
    if here.mean_gpus < (1 - _MIN_SHARE) * there.mean_gpus:
        causes.append(
            f"on {_range_text(here.gpus, 'GPU')} instead of {_range_text(there.gpus, 'GPU')}"
        )
    if here.nodes[1] > there.nodes[1]:
        causes.append(
            f"on {_range_text(here.nodes, 'node')} instead of {_range_text(there.nodes, 'node')}"
        )
    if here.batches != there.batches:
        causes.append("with another batch size")
    why = ", ".join(causes) or "the record does not say why"
    return f"It ran {formatting.duration(longer_s)} longer than under {other.title}: {why}."


def _run_facts(book: Book, job: int) -> _RunFacts:
    """Return how a job ran, from its periods with progress; zeros if it never ran."""
    spells = [one for one in job_events.job_periods(book.line, job) if one.state == "running"]
    lengths = np.array([one.t1 - one.t0 for one in spells])
    row, ran_s = book.result.jobs.iloc[job], float(lengths.sum())
    work, lost = float(row["work"]), float(row["lost_work"])
    gpus, nodes, batches = (
        np.array(values)
        for values in (
            [one.gpus for one in spells],
            [len({place[0] for place in one.where}) for one in spells],
            [one.batch for one in spells],
        )
    )
    held_s = book.type_time[job]
    # Tenths: smaller differences explain nothing.
    tenths = np.rint(10 * held_s / max(held_s.sum(), 1.0)).astype(int).tolist()
    kinds = {
        formatting.gpu_type(kind.name): tenth
        for kind, tenth in zip(book.cluster.types, tenths, strict=True)
        if tenth
    }
    return _RunFacts(
        ran_s,
        ran_s * lost / (work + lost) if lost else 0.0,
        " and ".join(
            name if len(kinds) == 1 else f"{name} ({10 * tenth} %)" for name, tenth in kinds.items()
        ),
        _min_max(gpus),
        float((gpus * lengths).sum() / ran_s) if ran_s else 0.0,
        _min_max(nodes),
        _min_max(batches),
    )


def _min_max(values: NDArray[np.int64]) -> tuple[int, int]:
    """Return the smallest and largest value; (0, 0) for no values."""
    return (int(values.min()), int(values.max())) if len(values) else (0, 0)


def _range_text(ends: tuple[int, int], noun: str) -> str:
    """Return a range of counts as text, e.g. "2 to 4 GPUs"."""
    least, most = ends
    return plural(most, noun) if least == most else f"{least:,} to {plural(most, noun)}"


class ReasonFormatter(Formatter):
    """Formats the rule of a reason with its values.

    Parameters
    ----------
    names : sequence of str
        Names of the jobs, by row of the trace.
    clock : RunClock
        Formatter of instants.
    """

    def __init__(self, names: Sequence[str], clock: RunClock) -> None:
        self._names, self._clock = names, clock

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value, or a range of values, as text by its kind; see `sim.contract.Reason`."""
        if format_spec == "job":
            return str(self._names[int(value)])
        if format_spec == "instant":
            value = value.greatest if isinstance(value, _Extent) else value
            return self._clock.format(value) if math.isfinite(value) else "no known instant"
        write = _FORMATTERS[format_spec]
        if not isinstance(value, _Extent):
            return write(value)
        least, greatest = write(value.least), write(value.greatest)
        if format_spec == "share":
            least = least.removesuffix(" %")
        elif format_spec.startswith(("jobs", "gpus")):
            least = f"{int(value.least):,}"
        return greatest if least == greatest else f"{least} to {greatest}"

    def rule(self, *reasons: Reason) -> str:
        """Return the rule of these reasons as text; values that differ are written as ranges.

        All reasons have the same rule.
        """
        first = reasons[0]
        values: dict[str, Value | _Extent] = {}
        for name in filter(None, (part[1] for part in self.parse(first.rule))):
            own = [one.values[name] for one in reasons]
            numbers = [one for one in own if isinstance(one, float | int)]
            same = len(set(own)) == 1
            values[name] = first.values[name] if same else _Extent(min(numbers), max(numbers))
        return self.vformat(first.rule, (), values)

    def names(self, reason: Reason) -> tuple[str, ...]:
        """Return the rule's template, then the jobs and texts in it: equal for joined reasons."""
        fields = self.parse(reason.rule)
        named = [str(reason.values[name]) for _, name, kind, _ in fields if name and kind in _NAMES]
        return reason.rule, *named

    def detail(self, reason: Reason) -> str:
        """Return the varying part of a reason as text; "" = none."""
        return self.vformat(reason.detail, (), reason.values) if reason.detail else ""


def span_reasons(
    line: Timeline, job: int, statements: Sequence[Statement], words: ReasonFormatter
) -> tuple[WhyWaited, ...]:
    """Return the longest waits of a job with their reasons, in order of time.

    At most five spans are given, and all events; the time of other spans is summed in a last
    reason.

    Parameters
    ----------
    line : Timeline
        The run.
    job : int
        Row of the trace.
    statements : sequence of Statement
        Statements of the policy.
    words : ReasonFormatter
        Writes reasons.

    Notes
    -----
    A span lasts while the policy states the same rule about the same jobs within one wait; changing
    numbers are written as "3 to 5". Events, which have a detail, are joined over all waits and
    always kept.
    """
    own = sorted((one for one in statements if one.job == job), key=lambda one: one.t_s)
    events: dict[str, list[tuple[Statement, float]]] = {}
    spans: list[_Span] = []
    total_s = 0.0
    for one, held_s in _with_durations(own, waits(line, job)):
        total_s += held_s
        if one.reason.detail:
            events.setdefault(f"{one.reason.rule}\n{one.reason.detail}", []).append((one, held_s))
            continue
        key = one.since_s, words.names(one.reason)
        if not spans or spans[-1].key != key:
            spans.append(_Span(one.t_s, key))
        spans[-1].reasons.append(one.reason)
        spans[-1].held_s += held_s
    longest = sorted(spans, key=lambda span: (-span.held_s, span.t_s))[:_MAX_SPANS]
    shown = [span for span in longest if span.held_s >= _MIN_SHARE * total_s]
    reasons = [(group[0][0].t_s, _join_events(group, words)) for group in events.values()]
    reasons += [
        (one.t_s, WhyWaited(_capitalize(words.rule(*one.reasons)), one.held_s, 1)) for one in shown
    ]
    reasons.sort(key=lambda pair: pair[0])
    rest = [span.held_s for span in spans if span not in shown]
    if rest and sum(rest) >= _MIN_SHARE * total_s:
        count = plural(len(rest), "shorter span")
        reasons.append((math.inf, WhyWaited(f"{count} had other reasons", sum(rest), 1)))
    return tuple(one for _, one in reasons)


@dataclass(eq=False)
class _Span:
    """A part of one wait with a single rule about the same jobs."""

    t_s: float
    key: tuple[float, tuple[str, ...]]
    reasons: list[Reason] = field(default_factory=list)
    held_s: float = 0.0


def _with_durations(own: Sequence[Statement], waits_of_job: Waits) -> list[tuple[Statement, float]]:
    """Return each statement with its seconds: until the next one, or the end of the wait."""
    durations = []
    for at, one in enumerate(own):
        wait = int(np.searchsorted(waits_of_job.t0, one.t_s, "right")) - 1
        end_s = float(waits_of_job.t1[wait]) if wait >= 0 else one.t_s
        if at + 1 < len(own):
            end_s = min(end_s, own[at + 1].t_s)
        durations.append((one, max(end_s - one.t_s, 0.0)))
    return durations


def _join_events(group: Sequence[tuple[Statement, float]], words: ReasonFormatter) -> WhyWaited:
    """Return one reason for events of one kind: how often, the first details, the total time."""
    first = {one.since_s: one for one, _ in reversed(group)}
    times, rule = len(first), words.rule(group[0][0].reason)
    ordered = [first[since_s] for since_s in sorted(first)]
    details = list(dict.fromkeys(words.detail(one.reason) for one in ordered))
    more = f" and {len(details) - _MAX_NAMED} more" if len(details) > _MAX_NAMED else ""
    named = ", ".join(details[:_MAX_NAMED])
    begin = f"{times} times {rule}" if times > 1 else _capitalize(rule)
    return WhyWaited(f"{begin}: {named}{more}", sum(held_s for _, held_s in group), times)


def _capitalize(rule: str) -> str:
    """Return a sentence with a capital first letter."""
    return f"{rule[:1].upper()}{rule[1:]}"
