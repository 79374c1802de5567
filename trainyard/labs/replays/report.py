"""Report of a replay: published and simulated figures, with intervals over seeds."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainyard.formatting import plural
from trainyard.labs.replays.explanation import figures
from trainyard.labs.replays.types import (
    AFTER_RESULTS,
    BY_CONSTRUCTION,
    Claim,
    Replay,
    ReplayMeasure,
    ReplayPoint,
)
from trainyard.study.scenario import Scenario

Floats = NDArray[np.float64]
Numbers = dict[str, float]
Verdict = Literal["in", "out", "undecided", "no band", "not yet"]

CURVE_COLUMNS: Final = ("axis", "value", "measure", "low", "estimate", "high", "seeds")
ROW_KEYS: Final = (
    "replay",
    "metric",
    "published",
    "simulated",
    "ci95",
    "band",
    "verdict",
    "mark",
    "certainty",
    "seeds",
    "cpu_s",
)
_RESAMPLES: Final = 2000
_LEVEL: Final = (2.5, 97.5)
_MIN_SEEDS: Final = 3
_BECAUSE: Final = {
    BY_CONSTRUCTION: (
        "a setting was chosen to match it",
        "settings were chosen to match them",
    ),
    AFTER_RESULTS: (
        "its range was set after the results",
        "their range was set after the results",
    ),
}
"""Mark of a claim -> why it is not counted, for one claim and for several."""
_TALLIED: Final[dict[Verdict, str]] = {
    "in": "in the range",
    "out": "outside",
    "undecided": "undecided",
    "not yet": "not yet run",
}
_MAX_REMARKS: Final = 12
_NUMBER: Final = re.compile(r"\d[\d,.]*(?<![,.])")


class ReplayCell(NamedTuple):
    """One run of a replay: an arm at a point with a seed."""

    at: ReplayPoint
    arm: str
    seed: int

    def __str__(self) -> str:
        return f"arm {self.arm}{f' at {self.at}' if self.at.axis else ''}, seed {self.seed}"


class CellResult(NamedTuple):
    """Result of one run: its numbers, and the distinct remarks of the allocator."""

    numbers: Numbers
    remarks: tuple[str, ...] = ()


class Remark(NamedTuple):
    """A remark of an allocator on its runs.

    Parameters
    ----------
    arm : str
        Title of the arm.
    text : str
        As first said.
    runs, of : int
        Number of runs with this remark (with any numbers), and number of all runs of the arm.
    varies : bool
        Whether the numbers differ between runs.
    """

    arm: str
    text: str
    runs: int
    of: int
    varies: bool

    def __str__(self) -> str:
        if self.runs == self.of and not self.varies:
            return f"{self.arm}: {self.text}"
        return (
            f"{self.arm}: {self.text} (In {self.runs:,} of"
            f" {plural(self.of, 'run')}{'; the numbers differ' if self.varies else ''}.)"
        )


class Pooled(NamedTuple):
    """A measure pooled over seeds, with 95 % bootstrap bounds; NaN bounds below three seeds."""

    value: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class ClaimRow:
    """A claim with its simulated figure.

    Parameters
    ----------
    claim : Claim
        The claim.
    pooled : Pooled
        The simulated figure; NaN with 0 seeds while no run is complete.
    cpu_s : float, seconds
        Processor time of its runs; claims share runs.
    """

    claim: Claim
    pooled: Pooled
    cpu_s: float

    @property
    def verdict(self) -> Verdict:
        """Whether the interval lies in the band: "in", "out" or "undecided".

        Undecided if the interval holds an end of the band, or if there is no interval; "not yet"
        without a finished run, "no band" for claims without one.
        """
        if np.isnan(self.pooled.value):
            return "not yet"
        if self.claim.band is None:
            return "no band"
        (low, high), figure = self.claim.band, self.pooled
        if (
            np.isnan(figure.low)
            or (figure.low < low <= figure.high)
            or (figure.low <= high < figure.high)
        ):
            return "undecided"
        return "in" if low <= figure.low and figure.high <= high else "out"

    def to_json(self, replay: str) -> dict[str, Any]:
        """Return plain values under `ROW_KEYS`."""
        interval = None if np.isnan(self.pooled.low) else [self.pooled.low, self.pooled.high]
        values = (
            replay,
            self.claim.text,
            self.claim.published,
            None if np.isnan(self.pooled.value) else self.pooled.value,
            interval,
            (
                None
                if self.claim.band is None
                else [end if np.isfinite(end) else None for end in self.claim.band]
            ),
            self.verdict,
            self.claim.mark or None,
            self.claim.certainty,
            self.pooled.seeds,
            round(self.cpu_s, 3),
        )
        return dict(zip(ROW_KEYS, values, strict=True))


@dataclass(frozen=True, eq=False)
class ReplayReport:
    """Result of a replay, complete or so far.

    Parameters
    ----------
    rows : tuple of ClaimRow
        One per claim.
    points : tuple of ClaimRow
        The same for each point of each axis and each of its measures; there nothing was published.
    curves : DataFrame
        The points as a frame: axis (its name), value, measure (its label), low, estimate, high,
        seeds; only points of which something is known.
    complete : bool
        Whether every run is there.
    cpu_s : float, seconds
        Processor time of all runs so far.
    wall_s : float, seconds
        From the first run to the last; 0 while it runs, and if the replay was kept from before.
    remarks : tuple of Remark
        What the allocators noted of their runs, by arm, each once; e.g. that another solver had to
        be used.
    in_text : dict
        The numbers of the replay's text as they stand there -> what the run gave.
    """

    rows: tuple[ClaimRow, ...]
    points: tuple[ClaimRow, ...]
    curves: pd.DataFrame
    complete: bool
    cpu_s: float
    wall_s: float
    remarks: tuple[Remark, ...] = ()
    in_text: Mapping[str, float] = field(default_factory=dict)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The first `_MAX_REMARKS` remarks as sentences, and the number of further ones."""
        more = len(self.remarks) - _MAX_REMARKS
        return (
            *map(str, self.remarks[:_MAX_REMARKS]),
            *((f"And {plural(more, 'other remark')}.",) if more > 0 else ()),
        )


class ReplayCells(NamedTuple):
    """All runs of a replay.

    Parameters
    ----------
    keys : dict
        Cell -> key; cells with equal scenarios have one key and are run once. First seed first, so
        that a first impression is complete early.
    recipes : dict
        Point and arm, or bound, -> the scenario, with seed 0.
    """

    keys: dict[ReplayCell, str]
    recipes: dict[tuple[ReplayPoint, str], Scenario]


def cells(replay: Replay, seeds: int | None = None, curves: bool = True) -> ReplayCells:
    """Return all runs of a replay, with their keys and scenarios.

    Parameters
    ----------
    replay : Replay
        What is repeated.
    seeds : int or None
        Runs per arm for the claims; curves never take more. None = as the replay says.
    curves : bool
        Whether axis points without a claim are run too.
    """
    count = replay.seeds if seeds is None else seeds
    runs: dict[tuple[ReplayPoint, str], int] = {}
    for claim in replay.claims:
        for at in claim.points:
            runs |= {(at, arm): count for arm in claim.measure.arms}
    for axis in replay.axes if curves else ():
        for at in (ReplayPoint(axis.name, value) for value in axis.values):
            for arm in (arm for measure in axis.measures for arm in measure.arms):
                runs.setdefault((at, arm), min(axis.seeds, count))
    recipes = {(at, arm): replay.scenario(arm, at) for at, arm in runs}
    texts = {
        (at, arm): recipe.canonical()
        + (f" {bound.by}" if (bound := replay.find_bound(arm)) else "")
        for (at, arm), recipe in recipes.items()
    }
    # Equal points of different axes share their runs.
    most: dict[str, int] = {}
    for place, text in texts.items():
        most[text] = max(runs[place], most.get(text, 0))
    return ReplayCells(
        {
            ReplayCell(*place, seed): _key(text, seed)
            for seed in range(count)
            for place, text in texts.items()
            if seed < most[text]
        },
        recipes,
    )


def _key(recipe: str, seed: int) -> str:
    """Return the key of a scenario with a seed."""
    return hashlib.blake2b(f"{seed} {recipe}".encode(), digest_size=16).hexdigest()


def needed_metrics(replay: Replay) -> list[str]:
    """Return the metrics that a replay's claims and curves use, sorted."""
    return sorted({measure.metric for measure in _measures(replay)})


def report(
    replay: Replay,
    keys: Mapping[ReplayCell, str],
    results: Mapping[str, CellResult],
    wall_s: float = 0.0,
) -> ReplayReport:
    """Return claims, curves, remarks and numbers of the text over the finished runs.

    Parameters
    ----------
    replay : Replay
        What is repeated.
    keys : mapping
        Every run, from `cells`.
    results : mapping
        Key -> result of a run.
    wall_s : float, seconds
        How long it took.
    """
    table = _Table(keys, results, exact=replay.seeds == 1)
    rows = claim_rows(replay, keys, results)
    spots = [
        Claim(measure, ReplayPoint(axis.name, value), None, "", None, "our reading")
        for axis in replay.axes
        for measure in axis.measures
        for value in axis.values
    ]
    points = tuple(row for row in map(table.row, spots) if row.pooled.seeds)
    lines = [
        (
            row.claim.at.axis,
            row.claim.at.value,
            row.claim.measure.label,
            row.pooled.low,
            row.pooled.value,
            row.pooled.high,
            row.pooled.seeds,
        )
        for row in points
    ]
    complete = all(key in results for key in keys.values())
    total = sum(ran.numbers["cell_cpu_s"] for ran in results.values())
    curves = pd.DataFrame(lines, columns=list(CURVE_COLUMNS))
    in_text = {
        text: table.row(claim).pooled.value for text, claim in figures(replay.explain).items()
    }
    in_text = {text: value for text, value in in_text.items() if np.isfinite(value)}
    return ReplayReport(
        rows, points, curves, complete, total, wall_s, _remarks(replay, keys, results), in_text
    )


def tally(rows: Sequence[ClaimRow]) -> str:
    """Return how many figures lie in their bands, as sentences; "" without bands.

    Bands that prove nothing are counted apart.
    """
    counts = Counter(row.verdict for row in rows if row.claim.band and not row.claim.mark)
    marks = Counter(row.claim.mark for row in rows if row.claim.band and row.claim.mark)
    counted = [f"{counts[kind]} {words}" for kind, words in _TALLIED.items() if counts[kind]]
    count = sum(counts.values())
    sentences = (
        [f"Of {plural(count, 'figure')} with an expected range that counts: {', '.join(counted)}."]
        if count
        else []
    )
    if marks:
        reasons = "; ".join(
            f"{number} not counted, because {_BECAUSE[mark][number > 1]}"
            for mark, number in sorted(marks.items())
        )
        sentences.append(f"{reasons}.")
    return " ".join(sentences)


def claim_rows(
    replay: Replay, keys: Mapping[ReplayCell, str], results: Mapping[str, CellResult]
) -> tuple[ClaimRow, ...]:
    """Return one row per claim, in order; much faster than `report`."""
    table = _Table(keys, results, exact=replay.seeds == 1)
    return tuple(table.row(claim) for claim in replay.claims)


def _remarks(
    replay: Replay, keys: Mapping[ReplayCell, str], results: Mapping[str, CellResult]
) -> tuple[Remark, ...]:
    """Return the allocators' remarks by arm; remarks that differ only in numbers are merged."""
    remarks = []
    for arm in replay.arms:
        own = dict.fromkeys(
            key for cell, key in keys.items() if cell.arm == arm.name and key in results
        )
        by_kind: dict[str, list[str]] = {}
        for key in own:
            for kind, text in {
                _NUMBER.sub("#", text): text for text in results[key].remarks
            }.items():
                by_kind.setdefault(kind, []).append(text)
        remarks += [
            Remark(arm.title, texts[0], len(texts), len(own), len(set(texts)) > 1)
            for texts in by_kind.values()
        ]
    return tuple(remarks)


def band_text(
    measure: ReplayMeasure, band: tuple[float, float] | None, write: Callable[[float], str]
) -> str:
    """Return a band as text, e.g. "1.2 to 1.8" or "below 2"; "" = none."""
    if band is None:
        return ""
    low, high = band
    if high == np.inf:
        return f"above {write(low)}"
    return (
        f"below {write(high)}"
        if low <= 0 and measure.kind != "difference"
        else f"{write(low)} to {write(high)}"
    )


def pool(
    measure: ReplayMeasure,
    arm: Sequence[float],
    against: Sequence[float],
    since: Sequence[Sequence[float]] = (),
) -> Pooled:
    """Return a measure pooled over seeds, with its interval.

    Parameters
    ----------
    measure : ReplayMeasure
        Only its kind, and whether it compares, matter here.
    arm, against : sequences of float
        One number per seed, same seed at the same place; `against` is empty for a plain value.
        Seeds where one of both is not finite count in neither.
    since : sequence of sequences of float
        The same one or two at another point: then the change from there is pooled, as a ratio, for
        differences as a difference.

    Notes
    -----
    The ratio, or difference, of the means over seeds. The interval: the seeds are drawn anew
    together, 2,000 times from a fixed stream, percentiles 2.5 and 97.5 of what results.
    """
    sides = np.array([arm, *([against] if measure.against else []), *since], np.float64)
    sides = sides[:, np.isfinite(sides).all(axis=0)]
    count = sides.shape[1]
    value = float(_statistic(measure, sides)) if count else np.nan
    if not np.isfinite(value):
        return Pooled(np.nan, np.nan, np.nan, 0)
    if count < _MIN_SEEDS:
        return Pooled(value, np.nan, np.nan, count)
    drawn = _statistic(
        measure, sides[:, np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))]
    )
    low, high = np.percentile(drawn[np.isfinite(drawn)], _LEVEL)
    return Pooled(value, float(low), float(high), count)


def _statistic(measure: ReplayMeasure, sides: Floats) -> Any:
    """Return a measure of means over seeds: value, ratio or difference, or its change.

    `sides` has the shape (1, 2 or 4, ..., seeds): arm, `against`, then the same at the reference
    point, from where the change is computed.
    """
    means = sides.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        if measure.kind == "difference":
            figures = means[::2] - means[1::2]
            return figures[0] - figures[1] if len(figures) > 1 else figures[0]
        figures = means[::2] / means[1::2] if measure.against else means
        return figures[0] / figures[1] if len(figures) > 1 else figures[0]


class _Table:
    """Finished runs by point, arm and seed; with `exact`, nothing is random.

    Then one run is enough.
    """

    def __init__(
        self, keys: Mapping[ReplayCell, str], results: Mapping[str, CellResult], *, exact: bool
    ) -> None:
        self._of: dict[tuple[ReplayPoint, str], dict[int, str]] = {}
        for cell, key in keys.items():
            if key in results:
                self._of.setdefault((cell.at, cell.arm), {})[cell.seed] = key
        self._found, self._exact = results, exact

    def row(self, claim: Claim) -> ClaimRow:
        """Return the row of a claim, pooled over the seeds with all of its runs finished."""
        measure = claim.measure
        places = [self._of.get((at, arm), {}) for at in claim.points for arm in measure.arms]
        seeds = sorted(set.intersection(*map(set, places)))
        keys = [[place[seed] for seed in seeds] for place in places]
        sides = [[self._found[key].numbers[measure.metric] for key in own] for own in keys]
        cpu_s = sum(
            self._found[key].numbers["cell_cpu_s"] for key in {key for own in keys for key in own}
        )
        per = len(measure.arms)
        pooled = pool(measure, sides[0], sides[1] if measure.against else (), sides[per:])
        if self._exact:
            pooled = pooled._replace(low=pooled.value, high=pooled.value)
        return ClaimRow(claim, pooled, cpu_s)


def _measures(replay: Replay) -> list[ReplayMeasure]:
    """Return all measures of claims, texts and curves, in this order, with repeats."""
    claims = (*replay.claims, *figures(replay.explain).values())
    return [claim.measure for claim in claims] + [
        measure for axis in replay.axes for measure in axis.measures
    ]
