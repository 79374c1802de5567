"""A check against the past under way: first two repeats, which tell whether seeds matter, then the
others and the rivals, then what the record proposes, one by one, and the fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sim.errors import ParameterError
from sim.params import Spec
from sim.trace import Trace
from trainyard.labs.backtests import fit, infer, report
from trainyard.labs.backtests.figures import NAMES, Measures
from trainyard.labs.backtests.fit import MOST_RUNS, Knob
from trainyard.labs.backtests.proposal import MOST_PROPOSALS, Proposal
from trainyard.labs.backtests.record import Mask, RecordedJobs, faults, split
from trainyard.labs.backtests.report import (
    BacktestReport,
    FitReport,
    Ground,
    ProposalRow,
    Simulated,
)
from trainyard.results import past
from trainyard.results.trust import share_waiting_for_gpus
from trainyard.results.ways_out import reference_policies
from trainyard.runs.batch import Lost, ScenarioBatch
from trainyard.runs.executors import DEFAULT
from trainyard.runs.queue import RunQueue
from trainyard.runs.run import key_of
from trainyard.runs.task import Numbers
from trainyard.store import Store, StoreError
from trainyard.study import catalog
from trainyard.study.check import Check
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace

_RECORDED: Final = Spec("recorded")
_LOST: Final = Measures(0.0, *[math.inf] * (len(NAMES) - 1))
"""Of a setting under which the policy cannot run."""


class BacktestRun(ScenarioBatch):
    """A check under way.

    Parameters
    ----------
    check : Check
        What is asked.
    store, where
        As for `ScenarioBatch`; whole results are kept.
    """

    def __init__(self, check: Check, store: Store, where: str | RunQueue = DEFAULT) -> None:
        super().__init__(store, where, whole=True)
        self.check = check
        self._ground: Ground | None = None
        self._base = check.scenario
        self._proposals: tuple[Proposal, ...] = ()
        self._knobs: tuple[Knob, ...] = ()
        self._made: dict[Scenario, BacktestReport] = {}
        self._all = False
        self._keys: dict[Scenario, str] = {}
        self._found: dict[str, Simulated | Lost] = {}
        self._asked: set[str] = set()
        self._report: BacktestReport | None = None

    @property
    def title(self) -> str:
        """Title of the policy."""
        return catalog.allocator(self.check.scenario.allocator).title

    @property
    def report(self) -> BacktestReport | None:
        """What it has found so far; None before the policy is judged."""
        return self._report

    @property
    def scenario(self) -> Scenario:
        """What is checked: the scenario with what is applied of the record."""
        return self._base

    @property
    def done(self) -> int:
        """Runs that are over."""
        return len(self._found)

    @property
    def most(self) -> int:
        """Runs that it takes at most."""
        own = self.check.repeats + len(reference_policies())
        told = len(self._open_proposals) if self._ground is not None else MOST_PROPOSALS
        return own + told + (self.check.repeats + MOST_RUNS if self.check.fit else 0)

    @property
    def complete(self) -> bool:
        """Whether nothing is left to be run."""
        return self._all

    @property
    def _open_proposals(self) -> list[Proposal]:
        """What can be simulated and is not applied."""
        return [one for one in self._proposals if one.applicable and one.id not in self.check.use]

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all runs so far, once each."""
        return tuple(dict.fromkeys(self._keys.values()))

    def _look_up(self) -> None:
        if self._all:
            return
        if self._ground is None:
            self._open()
        while not self._all:
            known = len(self._found)
            for key in {self._key(one) for one in self._next()} - self._found.keys():
                if self.store.has(key):
                    self._take_stored(key)
            if len(self._found) == known:
                return

    def _open(self) -> None:
        """Read the record, see whether it is a yardstick, and what it shows."""
        check, cluster = self.check, self.check.scenario.cluster
        trace = load_trace(check.scenario.trace, self.store)
        found = faults(trace, cluster)
        if trace.has("start_time_s"):
            record = RecordedJobs.of(trace)
            parts = split(record, check.half_life_s, check.warm_s, check.judge_s)
            short = report.too_short(record, parts)
            if not short and (check.anyway or not found):
                self._infer(trace)
                self._ground = Ground(record, parts, share_waiting_for_gpus(trace, cluster), found)
                return
            found += (short,) if short else ()
        self._report, self._all = report.refused(self.title, found), True

    def _infer(self, trace: Trace) -> None:
        self._proposals = infer.proposals(trace, self.check.scenario)
        known = {one.id: one for one in self._proposals if one.applicable}
        self._base = self.check.scenario
        for name in self.check.use:
            if name not in known:
                there = f"There are {', '.join(known)}." if known else "There are none."
                raise ParameterError(
                    f"The record proposes no '{name}' that can be simulated. {there}"
                )
            self._base = known[name].applied(self._base)
        if self.check.fit:
            self._knobs = fit.knobs(trace, self._base, self._proposals, self.check.use)

    def _next(self) -> list[Scenario]:
        """Return what has to be run now, and make the report as far as it can be made; nothing = it
        is whole.
        """
        ground = self._ground
        if ground is None or self._all:
            return []
        turns = self._turns(self._base, min(self.check.repeats, 2))
        rivals = self._rivals()
        if missing := self._missing([*turns, *rivals.values()]):
            return missing
        runs = [self._simulated(one) for one in turns]
        random = len(runs) > 1 and not np.array_equal(
            runs[0].start_s, runs[1].start_s, equal_nan=True
        )
        repeats = self.check.repeats if random else 1
        turns = self._turns(self._base, repeats)
        if missing := self._missing(turns):
            return missing
        made = self._judged(ground, [self._simulated(one) for one in turns], rivals)
        return self._more(ground, made, repeats)

    def _more(self, ground: Ground, made: BacktestReport, repeats: int) -> list[Scenario]:
        """Return what is missing of the effects of proposals and of the fit."""
        alone = {one.id: self._turns(one.applied(self._base), 1) for one in self._open_proposals}
        missing = self._missing([run for turns in alone.values() for run in turns])
        rows = tuple(
            ProposalRow(
                one,
                one.id in self.check.use,
                self._effect(ground, alone[one.id][0]) if one.id in alone else math.nan,
            )
            for one in self._proposals
        )
        self._report = made = replace(made, proposals=rows)
        if missing:
            return missing
        if not self.check.fit:
            self._all = True
            return []
        found, missing = self._fitted(ground, repeats)
        self._report = replace(made, fit=found)
        self._all = not missing
        return missing

    def _fitted(self, ground: Ground, repeats: int) -> tuple[FitReport, list[Scenario]]:
        """Return what the fit has come to, and what it needs to go on."""
        few = min(repeats, fit.TURNS)
        part = ground.parts.fitted(ground.record)
        if not part.any():
            raise ParameterError(
                "Nothing is left to fit between the warm-up and the judged part. Give a shorter"
                " warm-up or judged part, or a longer record."
            )

        def measured(scenario: Scenario) -> list[Measures]:
            turns = self._turns(scenario, few)
            if self._missing(turns):
                return []
            lost = any(isinstance(self._found[self._key(one)], Lost) for one in turns)
            return [_LOST if lost else self._against(ground, one, part) for one in turns]

        found = fit.descend(self._base, self._knobs, measured)
        so_far = FitReport(found.steps, self._base, found.scenario)
        if found.wanted:
            wanted = [run for one in found.wanted for run in self._turns(one, few)]
            return so_far, self._missing(wanted)
        turns = self._turns(found.scenario, repeats)
        if missing := self._missing(turns):
            return so_far, missing
        made = self._judged(ground, [self._simulated(one) for one in turns], {}, found.scenario)
        return replace(so_far, fitted=made.fitted, judged=made.judged, past=made.past), []

    def _judged(
        self,
        ground: Ground,
        runs: Sequence[Simulated],
        rivals: Mapping[str, Scenario],
        scenario: Scenario | None = None,
    ) -> BacktestReport:
        """Return what runs say, and keep the verdict."""
        of = scenario or self._base
        if of in self._made:
            return self._made[of]
        told: dict[str, Simulated] = {}
        remarks: list[str] = []
        for title, one in rivals.items():
            outcome = self._found[self._key(one)]
            if isinstance(outcome, Lost):
                remarks.append(f"{title} is no rival here: {outcome.why}")
            else:
                told[title] = outcome
        made = report.made(self.title, ground, runs, told, tuple(remarks))
        if made.past is not None and not made.faults:
            past.keep(made.past, of, self.store)
        self._made[of] = made
        return made

    def _effect(self, ground: Ground, run: Scenario) -> float:
        """Return by how much more is explained by a run than by the first one."""
        if self._missing([run]) or isinstance(self._found[self._key(run)], Lost):
            return math.nan
        part = ground.parts.judged(ground.record)
        first = self._turns(self._base, 1)[0]
        return (
            self._against(ground, run, part).explained
            - self._against(ground, first, part).explained
        )

    def _against(self, ground: Ground, run: Scenario, part: Mask) -> Measures:
        return ground.against(self._simulated(run).start_s - ground.record.submit_s, part)

    def _turns(self, scenario: Scenario, repeats: int) -> list[Scenario]:
        return [self._opened_at(replace(scenario, seed=turn)) for turn in range(repeats)]

    def _opened_at(self, scenario: Scenario) -> Scenario:
        """Return a scenario that begins as recorded, where jobs were there when the record
        opens.
        """
        opens_s = self._ground.record.opens_s if self._ground is not None else 0.0
        if not opens_s:
            return scenario
        begun = Spec.of("switch", at_s=opens_s, first=_RECORDED, then=scenario.allocator)
        return replace(scenario, allocator=begun)

    def _rivals(self) -> dict[str, Scenario]:
        own = self.check.scenario.allocator
        confined = catalog.allocator(own).needs.confine_by
        return {
            catalog.allocator(spec).title: self._opened_at(
                replace(
                    self._base,
                    # Whoever keeps jobs in their partition is compared with what does so, too.
                    allocator=Spec.of("partition", by=confined, inner=spec) if confined else spec,
                )
            )
            for spec in reference_policies()
            if spec != own
        }

    def _key(self, scenario: Scenario) -> str:
        if scenario not in self._keys:
            self._keys[scenario] = key_of(scenario, self.store)
        return self._keys[scenario]

    def _missing(self, wanted: Sequence[Scenario]) -> list[Scenario]:
        return [one for one in wanted if self._key(one) not in self._found]

    def _simulated(self, scenario: Scenario) -> Simulated:
        outcome = self._found[self._key(scenario)]
        if isinstance(outcome, Lost):
            raise ParameterError(f"{self.title} could not be simulated. {outcome.why}")
        return outcome

    def _wanted(self) -> Iterator[tuple[str, Scenario]]:
        self._look_up()
        if self._all:
            return
        self._shelve_keys()
        for scenario in self._next():
            key = self._key(scenario)
            if key not in self._asked:
                self._asked.add(key)
                yield key, scenario

    def _note(self, key: str, outcome: Numbers | Lost) -> None:
        if isinstance(outcome, Lost):
            self._found[key] = outcome
        else:
            self._take_stored(key)
        self._next()

    def _take_stored(self, key: str) -> None:
        entry = self.store.get(key)
        if entry is None:
            raise StoreError(
                f"The result {key[:12]} was kept, but is gone or damaged already. Run again."
            )
        jobs = entry.jobs()
        self._found[key] = Simulated(
            jobs["first_start_s"].to_numpy(np.float64), jobs["finish_s"].to_numpy(np.float64)
        )
