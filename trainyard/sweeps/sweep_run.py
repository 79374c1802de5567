"""A sweep under way: results come as they are ready, and failed runs are rows with a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from sim.errors import ParameterError, TrainyardError
from trainyard.runs.batch import Lost, ScenarioBatch, stored_numbers
from trainyard.runs.executors import DEFAULT
from trainyard.runs.queue import RunQueue
from trainyard.runs.run import key_of
from trainyard.runs.task import Numbers
from trainyard.store import Store
from trainyard.study.document import canonical_json
from trainyard.study.scenario import Scenario
from trainyard.study.sweep import Cell, Sweep


class SweepRun(ScenarioBatch):
    """One sweep under way.

    Parameters
    ----------
    sweep : Sweep
        What is run.
    store, where, whole
        As for `ScenarioBatch`.

    Attributes
    ----------
    known : int
        Runs whose numbers were kept before.
    """

    def __init__(
        self, sweep: Sweep, store: Store, where: str | RunQueue = DEFAULT, *, whole: bool = False
    ) -> None:
        super().__init__(store, where, whole=whole)
        self.sweep = sweep
        self.known = 0
        self._planned = False
        self._keys: Mapping[Cell, str] = {}
        self._wrong: Mapping[Cell, Lost] = {}
        self._outcomes: dict[str, Numbers | Lost] = {}
        self._rest: Iterator[tuple[str, Scenario]] = iter(())

    @property
    def of(self) -> int:
        """Runs in all; equal ones count once."""
        return len(set(self._keys.values())) + len(self._wrong)

    @property
    def done(self) -> int:
        """Runs that are over, with numbers or without."""
        return len(self._outcomes) + len(self._wrong)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be run."""
        return self._planned and self.done >= self.of

    @property
    def failed(self) -> Mapping[Cell, Lost]:
        """Runs that gave no numbers."""
        lost = {
            key: outcome
            for key, outcome in self._outcomes.copy().items()
            if isinstance(outcome, Lost)
        }
        return {
            **self._wrong,
            **{cell: lost[key] for cell, key in self._keys.items() if key in lost},
        }

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all its runs, once each."""
        return tuple(dict.fromkeys(self._keys.values()))

    def _look_up(self) -> None:
        """Find the scenario and key of every run, and the numbers of those that are known."""
        if self._planned:
            return
        keys, wrong, scenarios = dict[Cell, str](), dict[Cell, Lost](), dict[str, Scenario]()
        for cell, scenario in self.sweep.cells():
            if self._stop.is_set():
                return
            try:
                if isinstance(scenario, TrainyardError):
                    raise scenario
                keys[cell] = key_of(scenario, self.store)
                scenarios.setdefault(keys[cell], scenario)
            except TrainyardError as error:
                wrong[cell] = Lost(str(error))
        if not keys and wrong:
            raise ParameterError(
                f"No run of this sweep can be made. {next(iter(wrong.values())).why}"
            )
        self._keys, self._wrong = keys, wrong
        self._outcomes |= stored_numbers(self.store, self.keys, whole=self._whole)
        self.known, self._planned = len(self._outcomes), True
        self._rest = iter(
            [(key, scenario) for key, scenario in scenarios.items() if key not in self._outcomes]
        )

    def _wanted(self) -> Iterator[tuple[str, Scenario]]:
        return self._rest

    def _note(self, key: str, outcome: Numbers | Lost) -> None:
        self._outcomes[key] = outcome

    def table(self) -> pd.DataFrame:
        """Return one row per run that is over.

        Returns
        -------
        DataFrame
            `point` (place), one column per axis (its path), `policy` (title), `repeat`, `key` ("" =
            its settings cannot be used), `error` (a sentence, "" = it has numbers), and every
            number of `sim.metrics.summary`; of runs that failed NaN.
        """
        outcomes = self._outcomes.copy()
        points, names = self.sweep.points(), self.sweep.study.titles
        paths = [axis.path for axis in self.sweep.axes]
        rows: list[dict[str, Any]] = []
        for cell in sorted({*self._keys, *self._wrong}):
            key = self._keys.get(cell, "")
            outcome = self._wrong.get(cell) or outcomes.get(key)
            if outcome is not None:
                values = zip(paths, map(_shown, points[cell.point].values), strict=True)
                why = outcome.why if isinstance(outcome, Lost) else ""
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


def _shown(value: Any) -> Any:
    """Return a value of an axis as a table can group by it."""
    return (
        canonical_json({"value": value})[len('{"value":') : -1]
        if isinstance(value, (dict, list, tuple))
        else value
    )


def _scalars(summary: Mapping[str, Any]) -> dict[str, float | None]:
    return {
        name: value
        for name, value in summary.items()
        if value is None or isinstance(value, (int, float))
    }
