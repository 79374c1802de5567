"""What a check against the past has found, from simulated starts to a verdict."""

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
from trainyard.labs.backtests import figures
from trainyard.labs.backtests.figures import Measures, RepeatSpread
from trainyard.labs.backtests.fit import WORSE, Step
from trainyard.labs.backtests.proposal import Proposal
from trainyard.labs.backtests.record import (
    FEWEST_JUDGED,
    Floats,
    Mask,
    RecordedJobs,
    Split,
    by_group,
    use,
)
from trainyard.results.past import Closeness, Past, judged
from trainyard.study.document import plain
from trainyard.study.scenario import Scenario
from trainyard.text import duration, plural

LAST_WEEK: Final = "Recorded median wait of the last week"
_MOST_BINS: Final = 160
_STEPS_S: Final = tuple(hours * 3600.0 for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720))
_ORDER: Final = "the order in which jobs go"
_ROOM: Final = "limits or other load, because most recorded waits happened beside free capacity"


@dataclass(frozen=True, eq=False)
class Simulated:
    """What came of every job in one run; NaN = nothing."""

    start_s: Floats
    end_s: Floats


@dataclass(frozen=True)
class ProposalRow:
    """What the record shows, and what comes of it.

    Parameters
    ----------
    proposal : Proposal
        What the description may lack.
    used : bool
        Whether it is applied.
    effect : float
        By how much more of the waits is explained with it alone, in the first repeat; NaN = not
        known, or it is applied.
    """

    proposal: Proposal
    used: bool = False
    effect: float = math.nan


@dataclass(frozen=True, eq=False)
class FitReport:
    """What a fit has come to.

    Parameters
    ----------
    steps : tuple of Step
        What was tried so far.
    begin, scenario : Scenario
        The settings as given, and those that were chosen.
    fitted, judged : Spread or None
        Their figures on the two parts; None = the fit goes on.
    past : Past or None
        The verdict on them.
    """

    steps: tuple[Step, ...]
    begin: Scenario
    scenario: Scenario
    fitted: RepeatSpread | None = None
    judged: RepeatSpread | None = None
    past: Past | None = None

    @property
    def chosen(self) -> tuple[Step, ...]:
        """The steps that were taken, without the beginning."""
        return tuple(one for one in self.steps if one.kept and one.knob)

    @property
    def values(self) -> dict[str, Any]:
        """Parameters of the policy that were changed."""
        before = self.begin.allocator.values
        after = self.scenario.allocator.values
        return {name: value for name, value in after.items() if before.get(name) != value}

    @property
    def carries(self) -> bool:
        """Whether the fit holds on days that it has not seen."""
        return (
            self.fitted is not None
            and self.judged is not None
            and self.judged.mean.error_s <= WORSE * max(self.fitted.mean.error_s, 1.0)
        )

    @property
    def sentence(self) -> str:
        """What it came to, in words."""
        if self.fitted is None or self.judged is None:
            return f"{plural(max(len(self.steps) - 1, 0), 'setting')} tried so far."
        if not self.chosen:
            return "No other setting wins by more than chance: the settings as given fit best."
        told = ", ".join(f"{one.knob}: {one.option}" for one in self.chosen)
        errors = (
            f"The median error is {duration(self.fitted.mean.error_s)} on the fitted part and"
            f" {duration(self.judged.mean.error_s)} on the judged part."
        )
        if not self.carries:
            return (
                f"The fit does not carry over; the settings stay as given. Tried: {told}. {errors}"
            )
        return f"Fitted: {told}. {errors}"


@dataclass(frozen=True, eq=False)
class BacktestReport:
    """How far a policy reproduces the recorded waits.

    Parameters
    ----------
    policy : str
        Title of the policy.
    faults : tuple of str
        Why the record is no yardstick; if nothing was simulated, all else is empty.
    past : Past or None
        The verdict; None = nothing was simulated.
    split : Split or None
        Warm-up, fitted and judged part.
    opens_s : float, seconds
        Until here jobs are taken as recorded; 0 = the record begins empty.
    repeats : int
        Runs with other seeds; 1 = seeds change nothing, or one was asked for.
    judged, fitted : Spread or None
        Figures of the two parts.
    floor : Measures or None
        How near two repeats come to each other; None = the policy leaves nothing to chance.
    rivals : mapping of Measures
        What needs no knowledge of the site -> how near that comes, on the judged part.
    groups : DataFrame
        `kind` ("Partition", "Size"), `name`, `jobs`, `recorded_s` (mean wait), and `bias_s`,
        `error_s`, `p90_s`, `within`, `explained` of the judged part.
    medians : DataFrame
        See `trainyard.labs.backtests.figures.medians`, of all jobs after the warm-up.
    use : DataFrame
        `from_s`, `to_s`, `recorded`, `simulated`: mean of what the jobs held that have a recorded
        start, in `unit`.
    unit : str
        "GPUs" or "cores".
    remarks : tuple of str
        What else must be known.
    proposals : tuple of ProposalRow
        What the record shows that the description lacks.
    fit : FitReport or None
        What the fit has come to; None = none was asked for.
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
        """The verdict in words, or why there is none."""
        if self.past is None:
            return f"This record cannot be checked against. {self.faults[0]}"
        if self.faults:
            return f"{self.past.sentence} But the record is no yardstick. {self.faults[0]}"
        return self.past.sentence

    @property
    def comparable(self) -> bool:
        """Whether gains over the recorded schedule may be told."""
        return self.past is not None and self.past.comparable and not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not known is null."""

        def rows(frame: pd.DataFrame | None) -> list[dict[Any, Any]] | None:
            return None if frame is None else frame.astype(object).to_dict("records")

        made: dict[str, Any] = plain(
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
        return made


def _fit_json(fit: FitReport) -> dict[str, Any]:
    return {
        "text": fit.sentence,
        "steps": [asdict(one) for one in fit.steps],
        "values": fit.values,
        "carries": fit.carries,
        "fitted": None if fit.fitted is None else asdict(fit.fitted),
        "judged": None if fit.judged is None else asdict(fit.judged),
        "level": None if fit.past is None else fit.past.level,
    }


def too_short(record: RecordedJobs, parts: Split) -> str:
    """Return why a split leaves too little to judge; "" = enough is left."""
    left = int(parts.judged(record).sum())
    if left >= FEWEST_JUDGED:
        return ""
    warm = duration(parts.warm_s - float(record.submit_s.min()))
    return (
        f"After a warm-up of {warm} {plural(left, 'job')} {'is' if left == 1 else 'are'} left to"
        f" judge. Needed: at least {FEWEST_JUDGED}, so a longer record, or a shorter warm-up."
    )


@dataclass(frozen=True, eq=False)
class Ground:
    """What simulated starts are held against.

    Parameters
    ----------
    record, parts : Record, Split
        What happened, and which part of it is judged.
    short : float
        Share of the recorded waiting in which too little was free, see
        `trainyard.results.trust.waited_for_gpus`; NaN = not known.
    faults : tuple of str
        Why the record is no yardstick.
    """

    record: RecordedJobs
    parts: Split
    short: float
    faults: tuple[str, ...] = ()

    @cached_property
    def reference_s(self) -> float:
        """The median recorded wait before the judged part, seconds; NaN = there is none."""
        earlier = self.record.wait_s[self.parts.before(self.record)]
        return float(np.median(earlier)) if len(earlier) else math.nan

    def against(self, waits: Floats, part: Mask) -> Measures:
        """Return how near waits come to the recorded ones."""
        return figures.measure(waits[part], self.record.wait_s[part], self.reference_s)


def made(
    policy: str,
    ground: Ground,
    runs: Sequence[Simulated],
    rivals: Mapping[str, Simulated],
    remarks: tuple[str, ...] = (),
) -> BacktestReport:
    """Return what simulated starts say.

    Parameters
    ----------
    policy : str
        Its title.
    ground : Ground
        What they are held against.
    runs : sequence of Simulated
        The repeats.
    rivals : mapping of Simulated
        Titles of simulated rivals -> their run.
    remarks : tuple of str
        See `BacktestReport`.
    """
    record, parts = ground.record, ground.parts
    waits = [one.start_s - record.submit_s for one in runs]
    chosen, fitted = parts.judged(record), parts.fitted(record)
    against = ground.against
    of_judged = figures.over_repeats([against(wait, chosen) for wait in waits])
    floor = figures.floor(waits, chosen)
    binned = figures.medians(record, waits, parts.fitted(record) | chosen)
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
        judged(
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
        figures.over_repeats([against(wait, fitted) for wait in waits]) if fitted.any() else None,
        floor,
        {
            LAST_WEEK: against(figures.last_week(record), chosen),
            **{
                title: against(one.start_s - record.submit_s, chosen)
                for title, one in rivals.items()
            },
        },
        _groups(ground, waits, chosen),
        binned,
        _use(record, runs[0], parts),
        record.unit,
        remarks,
    )


def _groups(ground: Ground, waits: Sequence[Floats], chosen: Mask) -> pd.DataFrame:
    names = ("bias_s", "error_s", "p90_s", "within", "explained")
    rows = []
    for kind, name, members in by_group(ground.record, chosen):
        mean = figures.over_repeats([ground.against(wait, members) for wait in waits]).mean
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


def _use(record: RecordedJobs, run: Simulated, parts: Split) -> pd.DataFrame:
    first_s, last_s = min(parts.warm_s, parts.judge_s), parts.end_s
    step_s = next(
        (step for step in _STEPS_S if (last_s - first_s) / step <= _MOST_BINS), _STEPS_S[-1]
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


def refused(policy: str, faults: tuple[str, ...]) -> BacktestReport:
    """Return what is said of a record that is no yardstick."""
    return replace(BacktestReport(policy), faults=faults)
