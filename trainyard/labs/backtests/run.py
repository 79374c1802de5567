"""Run of a backtest: two repeats to see if seeds matter, further runs, proposals and the fit."""

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
from trainyard.labs.backtests.fit import MAX_RUNS, Knob
from trainyard.labs.backtests.proposal import MAX_PROPOSALS, Proposal
from trainyard.labs.backtests.record import Mask, RecordedJobs, record_faults, split_record
from trainyard.labs.backtests.report import (
    BacktestReport,
    FitReport,
    Ground,
    ProposalRow,
    Simulated,
)
from trainyard.results import backtest_verdict
from trainyard.results.recorded_accuracy import share_waiting_for_gpus
from trainyard.results.suggestions import reference_policies
from trainyard.runs.batch import FailedRun, ScenarioBatch
from trainyard.runs.executors import DEFAULT
from trainyard.runs.queue import RunQueue
from trainyard.runs.run import scenario_key
from trainyard.runs.task import Numbers
from trainyard.store import Store, StoreError
from trainyard.study import catalog
from trainyard.study.check import Check
from trainyard.study.scenario import Scenario
from trainyard.traces.sources import load_trace

_RECORDED: Final = Spec("recorded")
_LOST: Final = Measures(0.0, *[math.inf] * (len(NAMES) - 1))
"""Errors of a setting under which the policy cannot run."""


class BacktestRun(ScenarioBatch):
    """A backtest in progress.

    Parameters
    ----------
    check : Check
        What is asked.
    store, where
        As for `ScenarioBatch`; full results are stored.
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
        self._found: dict[str, Simulated | FailedRun] = {}
        self._asked: set[str] = set()
        self._report: BacktestReport | None = None

    @property
    def title(self) -> str:
        """Title of the policy."""
        return catalog.allocator(self.check.scenario.allocator).title

    @property
    def report(self) -> BacktestReport | None:
        """The report so far; None until the policy is judged."""
        return self._report

    @property
    def scenario(self) -> Scenario:
        """The scenario under test, with the applied proposals."""
        return self._base

    @property
    def done(self) -> int:
        """Number of finished runs."""
        return len(self._found)

    @property
    def most(self) -> int:
        """Maximum number of runs: repeats, reference policies, proposals and fit."""
        proposal_count = (
            len(self._untested_proposals) if self._ground is not None else MAX_PROPOSALS
        )
        return (
            self.check.repeats
            + len(reference_policies())
            + proposal_count
            + (self.check.repeats + MAX_RUNS if self.check.fit else 0)
        )

    @property
    def complete(self) -> bool:
        """Whether no run is left."""
        return self._all

    @property
    def _untested_proposals(self) -> list[Proposal]:
        """Proposals that can be simulated and are not applied."""
        return [one for one in self._proposals if one.applicable and one.id not in self.check.use]

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all runs so far, once each."""
        return tuple(dict.fromkeys(self._keys.values()))

    def _look_up(self) -> None:
        """Open the recording once, and take stored results until the next one is not stored."""
        if self._all:
            return
        if self._ground is None:
            self._open()
        while not self._all:
            before = len(self._found)
            for key in {self._key(one) for one in self._next()} - self._found.keys():
                if self.store.has(key):
                    self._take_stored(key)
            if len(self._found) == before:
                return

    def _open(self) -> None:
        """Read and check the recording, and infer its proposals.

        If it cannot be judged, the report says why and the backtest is complete.
        """
        check, cluster = self.check, self.check.scenario.cluster
        trace = load_trace(check.scenario.trace, self.store)
        fault_sentences = record_faults(trace, cluster)
        if trace.has("start_time_s"):
            record = RecordedJobs.from_trace(trace)
            parts = split_record(record, check.half_life_s, check.warm_s, check.judge_s)
            short = report.short_record_reason(record, parts)
            if not short and (check.anyway or not fault_sentences):
                self._infer_proposals(trace)
                self._ground = Ground(
                    record, parts, share_waiting_for_gpus(trace, cluster), fault_sentences
                )
                return
            fault_sentences += (short,) if short else ()
        self._report, self._all = report.refusal_report(self.title, fault_sentences), True

    def _infer_proposals(self, trace: Trace) -> None:
        """Infer the proposals, apply the chosen ones, and set up the fit.

        Raises ParameterError if a chosen proposal does not exist or cannot be simulated.
        """
        self._proposals = infer.proposals(trace, self.check.scenario)
        by_id = {one.id: one for one in self._proposals if one.applicable}
        self._base = self.check.scenario
        for name in self.check.use:
            if name not in by_id:
                available = f"There are {', '.join(by_id)}." if by_id else "There are none."
                raise ParameterError(
                    f"The record proposes no '{name}' that can be simulated. {available}"
                )
            self._base = by_id[name].apply_to(self._base)
        if self.check.fit:
            self._knobs = fit.knobs(trace, self._base, self._proposals, self.check.use)

    def _next(self) -> list[Scenario]:
        """Update the report and return the scenarios to run next; empty when complete.

        Two repeats and the reference policies come first; further repeats run only if these differ.
        """
        ground = self._ground
        if ground is None or self._all:
            return []
        turns = self._turns(self._base, min(self.check.repeats, 2))
        rivals = self._rivals()
        if missing := self._missing([*turns, *rivals.values()]):
            return missing
        runs = [self._run_times(one) for one in turns]
        random = len(runs) > 1 and not np.array_equal(
            runs[0].start_s, runs[1].start_s, equal_nan=True
        )
        repeats = self.check.repeats if random else 1
        turns = self._turns(self._base, repeats)
        if missing := self._missing(turns):
            return missing
        judged = self._judge_runs(ground, [self._run_times(one) for one in turns], rivals)
        return self._more(ground, judged, repeats)

    def _more(self, ground: Ground, judged: BacktestReport, repeats: int) -> list[Scenario]:
        """Add proposals and fit to the report; return the runs that they still need.

        The backtest is complete if none is needed.
        """
        runs_by_proposal = {
            one.id: self._turns(one.apply_to(self._base), 1) for one in self._untested_proposals
        }
        missing = self._missing([run for turns in runs_by_proposal.values() for run in turns])
        rows = tuple(
            ProposalRow(
                one,
                one.id in self.check.use,
                self._effect(ground, runs_by_proposal[one.id][0])
                if one.id in runs_by_proposal
                else math.nan,
            )
            for one in self._proposals
        )
        self._report = judged = replace(judged, proposals=rows)
        if missing:
            return missing
        if not self.check.fit:
            self._all = True
            return []
        fit_report, missing = self._advance_fit(ground, repeats)
        self._report = replace(judged, fit=fit_report)
        self._all = not missing
        return missing

    def _advance_fit(self, ground: Ground, repeats: int) -> tuple[FitReport, list[Scenario]]:
        """Return the fit so far and the runs that it needs to continue; empty when complete."""
        few = min(repeats, fit.MAX_REPEATS)
        part = ground.parts.fitted_mask(ground.record)
        if not part.any():
            raise ParameterError(
                "Nothing is left to fit between the warm-up and the judged part. Give a shorter"
                " warm-up or judged part, or a longer record."
            )

        def measure_repeats(scenario: Scenario) -> list[Measures]:
            """Return the errors of each repeat on the fitted part; empty while a run is missing.

            Infinite errors if a run failed.
            """
            turns = self._turns(scenario, few)
            if self._missing(turns):
                return []
            lost = any(isinstance(self._found[self._key(one)], FailedRun) for one in turns)
            return [_LOST if lost else self._against(ground, one, part) for one in turns]

        state = fit.descend(self._base, self._knobs, measure_repeats)
        so_far = FitReport(state.steps, self._base, state.scenario)
        if state.wanted:
            wanted = [run for one in state.wanted for run in self._turns(one, few)]
            return so_far, self._missing(wanted)
        turns = self._turns(state.scenario, repeats)
        if missing := self._missing(turns):
            return so_far, missing
        judged = self._judge_runs(
            ground, [self._run_times(one) for one in turns], {}, state.scenario
        )
        return replace(so_far, fitted=judged.fitted, judged=judged.judged, past=judged.past), []

    def _judge_runs(
        self,
        ground: Ground,
        runs: Sequence[Simulated],
        rivals: Mapping[str, Scenario],
        scenario: Scenario | None = None,
    ) -> BacktestReport:
        """Return the report on finished runs; cached by scenario.

        Stores the verdict if the recording has no faults. Failed rivals become remarks.
        """
        of = scenario or self._base
        if of in self._made:
            return self._made[of]
        rival_runs: dict[str, Simulated] = {}
        remarks: list[str] = []
        for title, one in rivals.items():
            outcome = self._found[self._key(one)]
            if isinstance(outcome, FailedRun):
                remarks.append(f"{title} is no rival here: {outcome.why}")
            else:
                rival_runs[title] = outcome
        judged = report.build_report(self.title, ground, runs, rival_runs, tuple(remarks))
        if judged.past is not None and not judged.faults:
            backtest_verdict.store_verdict(judged.past, of, self.store)
        self._made[of] = judged
        return judged

    def _effect(self, ground: Ground, run: Scenario) -> float:
        """Return the gain in the explained share of a run over the base run; NaN = no result."""
        if self._missing([run]) or isinstance(self._found[self._key(run)], FailedRun):
            return math.nan
        part = ground.parts.judged_mask(ground.record)
        first = self._turns(self._base, 1)[0]
        return (
            self._against(ground, run, part).explained
            - self._against(ground, first, part).explained
        )

    def _against(self, ground: Ground, run: Scenario, part: Mask) -> Measures:
        """Return the errors of a run on a part of the jobs."""
        return ground.against(self._run_times(run).start_s - ground.record.submit_s, part)

    def _turns(self, scenario: Scenario, repeats: int) -> list[Scenario]:
        """Return a scenario's repeats with consecutive seeds."""
        return [self._with_opening_jobs(replace(scenario, seed=turn)) for turn in range(repeats)]

    def _with_opening_jobs(self, scenario: Scenario) -> Scenario:
        """Return a scenario that follows the recorded schedule until the recording opens.

        Unchanged if the recording starts empty.
        """
        opens_s = self._ground.record.opens_s if self._ground is not None else 0.0
        if not opens_s:
            return scenario
        begun = Spec.of("switch", at_s=opens_s, first=_RECORDED, then=scenario.allocator)
        return replace(scenario, allocator=begun)

    def _rivals(self) -> dict[str, Scenario]:
        """Return title -> scenario of the reference policies, except the tested policy.

        They follow the same opening, and are confined to partitions if the tested policy is.
        """
        own = self.check.scenario.allocator
        confined = catalog.allocator(own).needs.confine_by
        return {
            catalog.allocator(spec).title: self._with_opening_jobs(
                replace(
                    self._base,
                    # A policy that confines jobs to partitions gets rivals that do so too.
                    allocator=Spec.of("partition", by=confined, inner=spec) if confined else spec,
                )
            )
            for spec in reference_policies()
            if spec != own
        }

    def _key(self, scenario: Scenario) -> str:
        """Return the store key of a scenario's result; cached."""
        if scenario not in self._keys:
            self._keys[scenario] = scenario_key(scenario, self.store)
        return self._keys[scenario]

    def _missing(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Return the scenarios without a result."""
        return [one for one in scenarios if self._key(one) not in self._found]

    def _run_times(self, scenario: Scenario) -> Simulated:
        """Return start and end times of a finished run; raise ParameterError if it failed."""
        outcome = self._found[self._key(scenario)]
        if isinstance(outcome, FailedRun):
            raise ParameterError(f"{self.title} could not be simulated. {outcome.why}")
        return outcome

    def _next_runs(self) -> Iterator[tuple[str, Scenario]]:
        """Yield (key, scenario) of runs needed next, and mark each as requested.

        Takes stored results first, and announces the run keys.
        """
        self._look_up()
        if self._all:
            return
        self._shelve_keys()
        for scenario in self._next():
            key = self._key(scenario)
            if key not in self._asked:
                self._asked.add(key)
                yield key, scenario

    def _record_outcome(self, key: str, outcome: Numbers | FailedRun) -> None:
        """Record a failure, or read the stored result of a finished run; update the report."""
        if isinstance(outcome, FailedRun):
            self._found[key] = outcome
        else:
            self._take_stored(key)
        self._next()

    def _take_stored(self, key: str) -> None:
        """Read the job times of a stored result into the outcomes by key.

        Raises StoreError if the result is gone.
        """
        entry = self.store.get(key)
        if entry is None:
            raise StoreError(
                f"The result {key[:12]} was stored, but is gone or damaged. Run again."
            )
        jobs = entry.jobs()
        self._found[key] = Simulated(
            jobs["first_start_s"].to_numpy(np.float64), jobs["finish_s"].to_numpy(np.float64)
        )
