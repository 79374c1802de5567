"""The sentence that answers a comparison: the largest clear effect on what the user is after, then what it costs; it never says "best"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from lab.results.compare import Interval, Outcome, Paired, jobs_text, paired, percent, table
from lab.words import MANY, as_many

GOALS: Final[Mapping[str, str]] = {
    "jct_mean_s": "mean JCT",
    "jct_p95_s": "P95 JCT",
    "wait_mean_s": "mean wait",
    "makespan_s": "makespan",
    "cost_held_per_job_usd": "cost per job",
}
"""Metrics that one may be after -> what they are called in a sentence; less of each is better."""
_WORTH: Final = 0.05
"""A change of another goal below this is no main cost."""


def headline(outcomes: Sequence[Outcome], baseline: int = 0, goal: str = "jct_mean_s", rows: pd.DataFrame | None = None, missing: int = 0) -> str:
    """Return the sentence.

    Parameters
    ----------
    outcomes : sequence of Outcome
        All on the same jobs.
    baseline : int
        Place of the one that others are compared with.
    goal : str
        Key of `GOALS`.
    rows : DataFrame or None
        The `table` of these outcomes, if it is at hand.
    missing : int
        Policies of the same study that have no outcome (yet).

    Notes
    -----
    The largest clear reduction; if there is none, the largest clear increase; if there is none either, "No clear difference." Recorded schedules are no
    candidates: they are history. What a reduction costs: jobs that are not completed any more; else the share of jobs that get slower, and the largest clear
    increase of another goal by at least `_WORTH`.
    """
    base = outcomes[baseline]
    others = [other for at, other in enumerate(outcomes) if at != baseline and not other.replays]
    if not any(one.completed for one in outcomes):
        return _nothing(outcomes)
    if not others:
        return _nobody(outcomes, base, missing)
    cells = _cells(table(outcomes, baseline) if rows is None else rows)
    clear = [other for other in others if (other.label, goal) in cells and _is_clear(cells[other.label, goal])]
    # Who gets no "better" has it from dropping jobs, and no "worse" is said against a recording with more GPUs.
    reduced = [other for other in clear if cells[other.label, goal]["verdict"] == "better"]
    raised = [other for other in clear if cells[other.label, goal]["verdict"] == "worse"]
    if not reduced and not raised:
        return "No clear difference."
    found = min(reduced, key=lambda one: float(cells[one.label, goal]["change"])) if reduced else max(raised, key=lambda one: float(_at(cells, one, goal)))
    verb = "cuts" if reduced else "raises"
    change = abs(float(_at(cells, found, goal)))
    told = _cost(paired(base, found), _elsewhere(cells, found, goal)) if reduced else _gain(paired(base, found))
    return f"{found.label} {verb} {GOALS[goal]} {_by(change)} against {base.label}; {told}."


Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def _cells(rows: pd.DataFrame) -> Cells:
    return {(str(row["label"]), str(row["metric"])): {str(key): value for key, value in row.items()} for row in rows.to_dict("records")}


def _at(cells: Cells, outcome: Outcome, metric: str) -> float:
    return float(cells[outcome.label, metric]["change"]) if (outcome.label, metric) in cells else float("nan")


def _is_clear(cell: Mapping[str, Any]) -> bool:
    change, low, high = (float(cell[name]) for name in ("change", "low", "high"))
    return Interval(change, None if np.isnan(low) else low, None if np.isnan(high) else high).clear


def _elsewhere(cells: Cells, outcome: Outcome, goal: str) -> str:
    """Return the other goal that gets clearly worse by the most; "" = none by much."""
    worse = {name: _at(cells, outcome, name) for name in GOALS if name != goal and cells.get((outcome.label, name), {}).get("verdict") == "worse"}
    name = max(worse, key=lambda one: worse[one], default="")
    return f"{GOALS[name]} rises {_by(worse[name])}" if name and worse[name] >= _WORTH else ""


def _by(change: float) -> str:
    return f"{as_many(change)}-fold" if change > MANY else f"by {percent(change)}"


def _cost(pair: Paired, elsewhere: str) -> str:
    if pair.only_base > pair.only_other:
        missing = pair.only_base - pair.only_other
        return f"{jobs_text(missing)} fewer complete{'s' if missing == 1 else ''}"
    slower = f"{percent(pair.slower)} of jobs get slower" if pair.slower else "no job gets slower"
    if not elsewhere:
        return slower
    return f"{slower} and {elsewhere}" if pair.slower else f"{slower}, but {elsewhere}"


def _gain(pair: Paired) -> str:
    if pair.only_base > pair.only_other:
        return _cost(pair, "")
    return f"{percent(pair.faster)} of jobs get faster" if pair.faster else "no job gets faster"


def _nothing(outcomes: Sequence[Outcome]) -> str:
    """Return the sentence where no job was completed."""
    ended = [one for outcome in outcomes for one in outcome.summaries]
    if all(one["impossible"] == one["jobs"] for one in ended):
        return "No job can run: none of them fits on this cluster."
    return f"No job was completed under {outcomes[0].label if len(outcomes) == 1 else 'any policy'}."


def _nobody(outcomes: Sequence[Outcome], base: Outcome, missing: int) -> str:
    """Return the sentence where no policy is a candidate."""
    if missing:
        return f"{' and '.join(one.label for one in outcomes)} {'is' if len(outcomes) == 1 else 'are'} complete, no other policy is: nothing to compare yet."
    if len(outcomes) == 1:
        return f"{base.label} alone: add another policy to compare."
    return f"{base.label} stands beside the recorded schedule only: add another policy to see which is faster."
