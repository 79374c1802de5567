"""Runs of a sweep in progress; failed runs have a message instead of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from sim.errors import ParameterError, TrainyardError
from trainyard.runs.batch import FailedRun, ScenarioBatch, stored_numbers
from trainyard.runs.executors import DEFAULT
from trainyard.runs.queue import RunQueue
from trainyard.runs.run import scenario_key
from trainyard.runs.task import Numbers
from trainyard.store import Store
from trainyard.study.document import canonical_json
from trainyard.study.scenario import Scenario
from trainyard.study.sweep import Cell, Sweep


class SweepRun(ScenarioBatch):
    """A sweep in progress.

    Parameters
    ----------
    sweep : Sweep
        The sweep.
    store, where, whole
        See `ScenarioBatch`.

    Attributes
    ----------
    stored_runs : int
        Number of runs stored before.
    """

    def __init__(
        self, sweep: Sweep, store: Store, where: str | RunQueue = DEFAULT, *, whole: bool = False
    ) -> None:
        super().__init__(store, where, whole=whole)
        self.sweep = sweep
        self.stored_runs = 0
        self._planned = False
        self._keys: Mapping[Cell, str] = {}
        self._invalid: Mapping[Cell, FailedRun] = {}
        self._outcomes: dict[str, Numbers | FailedRun] = {}
        self._rest: Iterator[tuple[str, Scenario]] = iter(())

    @property
    def total(self) -> int:
        """Total number of runs; equal ones count once."""
        return len(set(self._keys.values())) + len(self._invalid)

    @property
    def done(self) -> int:
        """Number of finished runs, with numbers or without."""
        return len(self._outcomes) + len(self._invalid)

    @property
    def complete(self) -> bool:
        """Whether all runs are finished."""
        return self._planned and self.done >= self.total

    @property
    def failed(self) -> Mapping[Cell, FailedRun]:
        """Runs without numbers, including those with invalid settings -> their failure."""
        lost = {
            key: outcome
            for key, outcome in self._outcomes.copy().items()
            if isinstance(outcome, FailedRun)
        }
        return {
            **self._invalid,
            **{cell: lost[key] for cell, key in self._keys.items() if key in lost},
        }

    @property
    def keys(self) -> Sequence[str]:
        """Distinct keys of all runs."""
        return tuple(dict.fromkeys(self._keys.values()))

    def _look_up(self) -> None:
        """Determine scenario and key of every run once, and load stored numbers.

        Invalid settings become failed runs. Raises ParameterError if no run is possible.
        """
        if self._planned:
            return
        keys, invalid, scenarios = dict[Cell, str](), dict[Cell, FailedRun](), dict[str, Scenario]()
        for cell, scenario in self.sweep.cells():
            if self._stop.is_set():
                return
            try:
                if isinstance(scenario, TrainyardError):
                    raise scenario
                keys[cell] = scenario_key(scenario, self.store)
                scenarios.setdefault(keys[cell], scenario)
            except TrainyardError as error:
                invalid[cell] = FailedRun(str(error))
        if not keys and invalid:
            raise ParameterError(
                f"No run of this sweep is possible. {next(iter(invalid.values())).why}"
            )
        self._keys, self._invalid = keys, invalid
        self._outcomes |= stored_numbers(self.store, self.keys, whole=self._whole)
        self.stored_runs, self._planned = len(self._outcomes), True
        self._rest = iter(
            [(key, scenario) for key, scenario in scenarios.items() if key not in self._outcomes]
        )

    def _next_runs(self) -> Iterator[tuple[str, Scenario]]:
        """Return the runs without stored numbers."""
        return self._rest

    def _record_outcome(self, key: str, outcome: Numbers | FailedRun) -> None:
        """Record the outcome of a run."""
        self._outcomes[key] = outcome

    def table(self) -> pd.DataFrame:
        """Return one row per finished run.

        Returns
        -------
        DataFrame
            `point` (index), one column per axis (its path), `policy` (title), `repeat`, `key` ("" =
            invalid settings), `error` (a sentence, "" = none), and all numbers of
            `sim.metrics.summary`; NaN for failed runs.
        """
        outcomes = self._outcomes.copy()
        points, names = self.sweep.points(), self.sweep.study.titles
        paths = [axis.path for axis in self.sweep.axes]
        rows: list[dict[str, Any]] = []
        for cell in sorted({*self._keys, *self._invalid}):
            key = self._keys.get(cell, "")
            outcome = self._invalid.get(cell) or outcomes.get(key)
            if outcome is not None:
                values = zip(paths, map(_groupable_value, points[cell.point].values), strict=True)
                why = outcome.why if isinstance(outcome, FailedRun) else ""
                numbers = _scalars(outcome.summary) if isinstance(outcome, Numbers) else {}
                rows.append(
                    {
                        "point": cell.point,
                        **dict(values),
                        "policy": names[cell.policy],
                        "repeat": cell.repeat,
                        "key": key,
                        "error": why,
                        **numbers,
                    }
                )
        return pd.DataFrame(
            rows, columns=None if rows else ["point", *paths, "policy", "repeat", "key", "error"]
        )


def _groupable_value(value: Any) -> Any:
    """Return a value of an axis as a scalar that a table can group by."""
    return (
        canonical_json({"value": value})[len('{"value":') : -1]
        if isinstance(value, (dict, list, tuple))
        else value
    )


def _scalars(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a summary, without tables and lists."""
    return {
        name: value
        for name, value in summary.items()
        if value is None or isinstance(value, (int, float))
    }
