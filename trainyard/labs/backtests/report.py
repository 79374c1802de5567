"""Report of a backtest: from simulated starts to errors and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.metrics.steps import integral
from trainyard.formatting import duration, plural
from trainyard.labs.backtests import figures
from trainyard.labs.backtests.figures import Measures, RepeatSpread
from trainyard.labs.backtests.fit import WORSE, Step
from trainyard.labs.backtests.proposal import Proposal
from trainyard.labs.backtests.record import (
    MIN_JUDGED,
    Floats,
    Mask,
    RecordedJobs,
    Split,
    job_groups,
    use,
)
from trainyard.results.backtest_verdict import Closeness, Past, judge_closeness
from trainyard.study.document import plain
from trainyard.study.scenario import Scenario

LAST_WEEK: Final = "Recorded median wait of the last week"
_MAX_BINS: Final = 160
_STEPS_S: Final = tuple(hours * 3600.0 for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720))
_ORDER: Final = "the order of the jobs"
_ROOM: Final = "limits or other load, because most recorded waits happened despite free capacity"


@dataclass(frozen=True, eq=False)
class Simulated:
    """Start and end of every job in one run; NaN = never."""

    start_s: Floats
    end_s: Floats


@dataclass(frozen=True)
class ProposalRow:
    """A proposal with its effect on the backtest.

    Parameters
    ----------
    proposal : Proposal
        The proposal.
    used : bool
        Whether the proposal is applied.
    effect : float
        Increase of the explained share of waits with this proposal alone, in the first repeat; NaN
        = unknown, or applied.
    """

    proposal: Proposal
    used: bool = False
    effect: float = math.nan


@dataclass(frozen=True, eq=False)
class FitReport:
    """Result of a fit, complete or so far.

    Parameters
    ----------
    steps : tuple of Step
        Candidates tried so far.
    begin, scenario : Scenario
        The given and the chosen settings.
    fitted, judged : RepeatSpread or None
        Errors of the chosen settings on the two parts; None while the fit runs.
    past : Past or None
        Verdict on the chosen settings.
    """

    steps: tuple[Step, ...]
    begin: Scenario
    scenario: Scenario
    fitted: RepeatSpread | None = None
    judged: RepeatSpread | None = None
    past: Past | None = None

    @property
    def chosen(self) -> tuple[Step, ...]:
        """The steps that were kept, without the start."""
        return tuple(one for one in self.steps if one.kept and one.knob)

    @property
    def values(self) -> dict[str, Any]:
        """Policy parameters changed by the fit, with their new values."""
        before = self.begin.allocator.values
        after = self.scenario.allocator.values
        return {name: value for name, value in after.items() if before.get(name) != value}

    @property
    def carries(self) -> bool:
        """Whether the fit holds on the judged days."""
        return (
            self.fitted is not None
            and self.judged is not None
            and self.judged.mean.error_s <= WORSE * max(self.fitted.mean.error_s, 1.0)
        )

    @property
    def sentence(self) -> str:
        """The fitted settings and their errors, or why the given settings stay, in one sentence.

        Errors on the fitted and the judged part. While the fit runs, the number of settings tried.
        """
        if self.fitted is None or self.judged is None:
            return f"{plural(max(len(self.steps) - 1, 0), 'setting')} tried so far."
        if not self.chosen:
            return "No other setting wins by more than chance: the settings as given fit best."
        settings = ", ".join(f"{one.knob}: {one.option}" for one in self.chosen)
        errors = (
            f"The median error is {duration(self.fitted.mean.error_s)} on the fitted part and"
            f" {duration(self.judged.mean.error_s)} on the judged part."
        )
        if not self.carries:
            return (
                f"The fit does not carry over; the settings stay as given. Tried: {settings}."
                f" {errors}"
            )
        return f"Fitted: {settings}. {errors}"


@dataclass(frozen=True, eq=False)
class BacktestReport:
    """How well a policy reproduces the recorded waits.

    Parameters
    ----------
    policy : str
        Title of the policy.
    faults : tuple of str
        Why the recording cannot be judged against; if nothing was simulated, all else is empty.
    past : Past or None
        The verdict; None = nothing was simulated.
    split : Split or None
        Warm-up, fitted and judged part.
    opens_s : float, seconds
        Jobs before this time are kept as recorded; 0 = the recording starts empty.
    repeats : int
        Number of runs with different seeds; 1 = seeds change nothing, or one was requested.
    judged, fitted : RepeatSpread or None
        Errors on the two parts.
    floor : Measures or None
        Error between two repeats; None = the policy is deterministic.
    rivals : mapping of Measures
        Simple predictor -> its errors on the judged part.
    groups : DataFrame
        `kind` ("Partition", "Size"), `name`, `jobs`, `recorded_s` (mean wait), and `bias_s`,
        `error_s`, `p90_s`, `within`, `explained` of the judged part.
    medians : DataFrame
        See `trainyard.labs.backtests.figures.binned_medians`, of all jobs after the warm-up.
    use : DataFrame
        `from_s`, `to_s`, `recorded`, `simulated`: mean use by jobs with a recorded start, in
        `unit`.
    unit : str
        "GPUs" or "cores".
    remarks : tuple of str
        Further notes.
    proposals : tuple of ProposalRow
        Proposals from the recording.
    fit : FitReport or None
        Result of the fit; None = no fit requested.
    """

    policy: str
    faults: tuple[str, ...] = ()
    past: Past | None = None
    split: Split | None = None
    opens_s: float = 0.0
    repeats: int = 0
    judged: RepeatSpread | None = None
    fitted: RepeatSpread | None = None
    floor: Measures | None = None
    rivals: Mapping[str, Measures] | None = None
    groups: pd.DataFrame | None = None
    medians: pd.DataFrame | None = None
    use: pd.DataFrame | None = None
    unit: str = "GPUs"
    remarks: tuple[str, ...] = ()
    proposals: tuple[ProposalRow, ...] = ()
    fit: FitReport | None = None

    @property
    def headline(self) -> str:
        """The verdict as a sentence, with the first fault of the record, or why there is none."""
        if self.past is None:
            return f"This record cannot be checked against. {self.faults[0]}"
        if self.faults:
            return f"{self.past.sentence} But the record is no yardstick. {self.faults[0]}"
        return self.past.sentence

    @property
    def comparable(self) -> bool:
        """Whether gains over the recorded schedule can be claimed."""
        return self.past is not None and self.past.comparable and not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON; unknown values are null."""

        def rows(frame: pd.DataFrame | None) -> list[dict[Any, Any]] | None:
            """Return the rows of a frame as plain values."""
            return None if frame is None else frame.astype(object).to_dict("records")

        values: dict[str, Any] = plain(
            {
                "policy": self.policy,
                "headline": self.headline,
                "level": None if self.past is None else self.past.level,
                "comparable": self.comparable,
                "believe_s": None if self.past is None else self.past.believe_s,
                "faults": self.faults,
                "split": None if self.split is None else asdict(self.split),
                "opens_s": self.opens_s,
                "repeats": self.repeats,
                "judged": None if self.judged is None else asdict(self.judged),
                "fitted": None if self.fitted is None else asdict(self.fitted),
                "floor": None if self.floor is None else asdict(self.floor),
                "rivals": {name: asdict(one) for name, one in (self.rivals or {}).items()},
                "groups": rows(self.groups),
                "medians": rows(self.medians),
                "use": rows(self.use),
                "unit": self.unit,
                "remarks": self.remarks,
                "proposals": [
                    {
                        "id": row.proposal.id,
                        "what": row.proposal.what,
                        "evidence": row.proposal.evidence,
                        "applicable": row.proposal.applicable,
                        "used": row.used,
                        "effect": row.effect,
                    }
                    for row in self.proposals
                ],
                "fit": None if self.fit is None else _fit_json(self.fit),
            }
        )
        return values


def _fit_json(fit: FitReport) -> dict[str, Any]:
    """Return a fit as plain values."""
    return {
        "text": fit.sentence,
        "steps": [asdict(one) for one in fit.steps],
        "values": fit.values,
        "carries": fit.carries,
        "fitted": None if fit.fitted is None else asdict(fit.fitted),
        "judged": None if fit.judged is None else asdict(fit.judged),
        "level": None if fit.past is None else fit.past.level,
    }


def short_record_reason(record: RecordedJobs, parts: Split) -> str:
    """Return why a split leaves too few jobs to judge; "" if it leaves enough."""
    left = int(parts.judged_mask(record).sum())
    if left >= MIN_JUDGED:
        return ""
    warm = duration(parts.warm_s - float(record.submit_s.min()))
    return (
        f"After a warm-up of {warm} {plural(left, 'job')} {'is' if left == 1 else 'are'} left to"
        f" judge. Needed: at least {MIN_JUDGED}, so a longer record, or a shorter warm-up."
    )


@dataclass(frozen=True, eq=False)
class Ground:
    """The recording against which simulated starts are measured.

    Parameters
    ----------
    record, parts : RecordedJobs, Split
        The recorded jobs and their split.
    short : float
        Share of recorded waiting time with too few free GPUs, see
        `trainyard.results.recorded_accuracy.share_waiting_for_gpus`; NaN = unknown.
    faults : tuple of str
        Why the recording cannot be judged against.
    """

    record: RecordedJobs
    parts: Split
    short: float
    faults: tuple[str, ...] = ()

    @cached_property
    def reference_s(self) -> float:
        """Median recorded wait before the judged part, in seconds; NaN = none."""
        earlier = self.record.wait_s[self.parts.unjudged_mask(self.record)]
        return float(np.median(earlier)) if len(earlier) else math.nan

    def against(self, waits: Floats, part: Mask) -> Measures:
        """Return the errors of waits against the recorded ones, over a part of the jobs."""
        return figures.measure(waits[part], self.record.wait_s[part], self.reference_s)


def build_report(
    policy: str,
    ground: Ground,
    runs: Sequence[Simulated],
    rivals: Mapping[str, Simulated],
    remarks: tuple[str, ...] = (),
) -> BacktestReport:
    """Return verdict, errors and rivals from the simulated starts, without proposals and fit.

    Parameters
    ----------
    policy : str
        Its title.
    ground : Ground
        The recording.
    runs : sequence of Simulated
        The repeats.
    rivals : mapping of Simulated
        Title of a simple policy -> its run.
    remarks : tuple of str
        See `BacktestReport`.
    """
    record, parts = ground.record, ground.parts
    waits = [one.start_s - record.submit_s for one in runs]
    chosen, fitted = parts.judged_mask(record), parts.fitted_mask(record)
    against = ground.against
    of_judged = figures.summarize_repeats([against(wait, chosen) for wait in waits])
    floor = figures.repeat_floor(waits, chosen)
    binned = figures.binned_medians(record, waits, parts.fitted_mask(record) | chosen)
    late = binned[binned["from_s"] >= parts.judge_s - figures.BIN_S]
    error_s = (late["simulated_s"] - late["recorded_s"]).abs()
    mean = of_judged.mean
    never = int((chosen & ~np.isfinite(waits[0])).sum())
    if never:
        remarks += (
            f"{plural(never, 'job')} of the judged part never start{'s' if never == 1 else ''} in"
            " the simulation and are not compared.",
        )
    return BacktestReport(
        policy,
        ground.faults,
        judge_closeness(
            policy,
            Closeness(
                mean.error_s,
                0.0 if floor is None else floor.error_s,
                mean.bias,
                mean.explained,
                mean.rank,
                float(error_s.quantile(0.95)) if len(error_s) else math.nan,
            ),
            _ROOM if ground.short < 0.5 else _ORDER,
        ),
        parts,
        record.opens_s,
        len(runs),
        of_judged,
        figures.summarize_repeats([against(wait, fitted) for wait in waits])
        if fitted.any()
        else None,
        floor,
        {
            LAST_WEEK: against(figures.last_week_medians(record), chosen),
            **{
                title: against(one.start_s - record.submit_s, chosen)
                for title, one in rivals.items()
            },
        },
        _group_errors(ground, waits, chosen),
        binned,
        _binned_use(record, runs[0], parts),
        record.unit,
        remarks,
    )


def _group_errors(ground: Ground, waits: Sequence[Floats], chosen: Mask) -> pd.DataFrame:
    """Return jobs, mean recorded wait and errors (means over repeats) by partition and size."""
    names = ("bias_s", "error_s", "p90_s", "within", "explained")
    rows = []
    for kind, name, members in job_groups(ground.record, chosen):
        mean = figures.summarize_repeats([ground.against(wait, members) for wait in waits]).mean
        rows.append(
            {
                "kind": kind,
                "name": name,
                "jobs": int(members.sum()),
                "recorded_s": float(ground.record.wait_s[members].mean()),
                **{key: getattr(mean, key) for key in names},
            }
        )
    return pd.DataFrame(rows, columns=["kind", "name", "jobs", "recorded_s", *names])


def _binned_use(record: RecordedJobs, run: Simulated, parts: Split) -> pd.DataFrame:
    """Return mean use per time bin, recorded and in one run, from the warm-up's end."""
    first_s, last_s = min(parts.warm_s, parts.judge_s), parts.end_s
    step_s = next(
        (step for step in _STEPS_S if (last_s - first_s) / step <= _MAX_BINS), _STEPS_S[-1]
    )
    edges = np.arange(math.floor(first_s / step_s), math.ceil(last_s / step_s) + 1) * step_s
    lines = {
        "recorded": use(record, record.start_s, record.end_s, record.started),
        "simulated": use(record, run.start_s, run.end_s, record.started),
    }
    frame = pd.DataFrame({"from_s": edges[:-1], "to_s": edges[1:]})
    for name, (t_s, level) in lines.items():
        frame[name] = [integral(t_s, level, a, b) / step_s for a, b in pairwise(edges)]
    return frame


def refusal_report(policy: str, faults: tuple[str, ...]) -> BacktestReport:
    """Return the report on a recording that cannot be judged against."""
    return replace(BacktestReport(policy), faults=faults)
