"""A check against the past from jobs to a verdict, and what comparisons make of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trainyard as ty
from sim.cluster import Cluster
from sim.params import Spec
from sim.trace import Trace
from trainyard.cli.backtest import report_lines
from trainyard.cli.main import main
from trainyard.labs.backtests.run import BacktestRun
from trainyard.results import backtest_verdict
from trainyard.results.backtest_verdict import Closeness, Past, judge_closeness
from trainyard.runs.run import run
from trainyard.store import Store
from trainyard.study.check import Check, backtest_scenario
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study

CLUSTER = Cluster.parse("1x4:v100")
DAY_S = 86_400.0


def made(jobs: int = 300) -> pd.DataFrame:
    """Jobs of 1 to 4 GPUs in six days, at a load of about 0.9."""
    rng = np.random.default_rng(7)
    at_s = np.sort(rng.uniform(0, 6 * DAY_S, jobs))
    return pd.DataFrame(
        {
            "job_id": [str(at) for at in range(jobs)],
            "submit_time_s": at_s - at_s[0],
            "num_gpus": rng.choice([1, 2, 4], jobs),
            "duration_s": rng.uniform(60, 5000, jobs),
        }
    )


@pytest.fixture(scope="module")
def as_fifo() -> pd.DataFrame:
    """What FIFO really did with them."""
    frame = made()
    scenario = Scenario(TraceSpec("x"), CLUSTER, Spec("fifo"))
    done = run(scenario, trace=Trace.of(frame))
    return frame.assign(start_time_s=done.jobs["first_start_s"].to_numpy())


def scenario(frame: pd.DataFrame, policy: str, store: Store) -> Scenario:
    digest = store.put_trace(Trace.of(frame))
    return Scenario(TraceSpec(f"store:{digest}"), CLUSTER, Spec.parse(policy))


def check(frame: pd.DataFrame, policy: str, store: Store, **changed: object) -> BacktestRun:
    found = BacktestRun(
        Check(scenario(frame, policy, store), **changed),  # type: ignore[arg-type]
        store,
        "inline",
    )
    found.run()
    assert found.error == ""
    return found


def test_the_policy_that_was_in_force_reproduces_the_record(
    as_fifo: pd.DataFrame, store: Store
) -> None:
    done = check(as_fifo, "fifo", store)
    report = done.report
    assert report is not None
    assert report.judged is not None
    assert report.rivals is not None
    assert report.past is not None
    assert report.past.level == "reproduces"
    assert report.comparable
    assert report.judged.mean.error_s == report.judged.mean.bias_s == 0.0
    assert report.judged.mean.explained == 1.0
    # Seeds change nothing: the second repeat shows it, and there is no floor.
    assert (report.repeats, report.floor, done.done) == (1, None, 3)
    assert sorted(report.rivals) == ["EASY backfilling", "Recorded median wait of the last week"]
    assert report.rivals["EASY backfilling"].explained < 1.0
    assert report.use is not None
    assert report.use["recorded"].to_numpy() == pytest.approx(report.use["simulated"].to_numpy())
    # What is stored is not run again.
    again = BacktestRun(done.check, store, "inline")
    assert again.recall()
    assert again.report is not None
    assert again.report.to_json() == report.to_json()
    json.dumps(report.to_json(), allow_nan=False)
    assert any("Judged part" in line for line in report_lines(report))


def test_another_policy_explains_less_and_nothing_is_told_against_the_record(
    as_fifo: pd.DataFrame, store: Store
) -> None:
    shuffled = as_fifo.copy()
    waits = (as_fifo["start_time_s"] - as_fifo["submit_time_s"]).to_numpy().copy()
    np.random.default_rng(1).shuffle(waits)
    shuffled["start_time_s"] = shuffled["submit_time_s"] + waits
    base = scenario(shuffled, "fifo", store)
    study = Study(base, (Spec("recorded"), Spec("fifo")))
    assert backtest_verdict.best_verdict(study, store) is None
    report = check(shuffled, "fifo", store, anyway=True).report
    assert report is not None
    assert report.past is not None
    assert report.past.level == "nothing"
    assert not report.comparable
    assert report.headline.startswith("Does not explain the recorded waits. Something is missing:")


def test_a_comparison_heeds_the_check(as_fifo: pd.DataFrame, store: Store) -> None:
    # Jobs that EASY served: FIFO and EASY are compared with the record by today's rule, until a
    # check says more.
    trace = Trace.of(as_fifo)
    done = ty.compare(trace, CLUSTER, ["recorded", "sjf"], store=store)
    assert "nothing shows that the model explains" in done.headline
    report = ty.backtest(trace, CLUSTER, "sjf", store=store)
    again = ty.compare(trace, CLUSTER, ["recorded", "sjf"], store=store)
    assert report.past is not None
    told = backtest_verdict.best_verdict(again.study, store)
    assert told == report.past
    assert report.comparable == ("You cannot quote" not in again.headline)
    if not report.comparable:
        assert report.past.full_sentence in again.headline
    assert ty.backtest(trace, CLUSTER, "fifo", store=store).comparable
    with_fifo = ty.compare(trace, CLUSTER, ["recorded", "sjf", "fifo"], store=store)
    # The best verdict counts: what simulates the site stands in the same comparison.
    assert "You cannot quote" not in with_fifo.headline


def test_the_policy_of_the_record_itself_cannot_be_checked(
    as_fifo: pd.DataFrame, store: Store
) -> None:
    with pytest.raises(ty.TrainyardError, match="replays the recorded schedule"):
        Check(scenario(as_fifo, "recorded", store))


def test_a_record_that_is_no_yardstick_runs_nothing(as_fifo: pd.DataFrame, store: Store) -> None:
    done = check(as_fifo.iloc[:150], "fifo", store)
    assert done.report is not None
    assert (done.done, done.report.past) == (0, None)
    assert done.report.headline.startswith(
        "This record cannot be checked against. Only 150 jobs have a recorded start."
    )
    anyway = check(as_fifo.iloc[:150], "fifo", store, anyway=True).report
    assert anyway is not None
    assert anyway.past is not None
    assert not anyway.comparable
    assert "But the record is no yardstick. Only 150" in anyway.headline
    assert (
        backtest_verdict.best_verdict(
            Study(scenario(as_fifo.iloc[:150], "fifo", store), (Spec("recorded"), Spec("fifo"))),
            store,
        )
        is None
    )


@pytest.mark.parametrize("policy", ["fifo", "slurm:half_life_h=1"])
def test_a_record_that_opens_full_begins_as_recorded(
    policy: str, as_fifo: pd.DataFrame, store: Store
) -> None:
    # Twelve jobs that in the record all began at once, as no queue of this cluster would let them.
    old = pd.DataFrame(
        {
            "job_id": [f"old {at}" for at in range(12)],
            "submit_time_s": 0.0,
            "num_gpus": 1,
            "duration_s": [600.0] + [1200.0] * 11,
            "start_time_s": 0.0,
        }
    )
    frame = pd.concat([old, as_fifo])
    done = check(frame, policy, store, anyway=True, repeats=1)
    assert done.report is not None
    assert done.report.opens_s == 600.0
    jobs = store.get(done.keys[0])
    assert jobs is not None
    assert jobs.jobs()["first_start_s"].iloc[:12].tolist() == [0.0] * 12


@pytest.mark.parametrize(
    ("found", "level"),
    [
        (Closeness(120.0, 100.0, 0.1, 0.0, 0.0, 60.0), "reproduces"),
        (Closeness(120.0, 100.0, 0.11, 0.5, 0.0, 60.0), "most"),
        (Closeness(140.0, 100.0, -0.25, 0.5, 0.0, 60.0), "most"),
        (Closeness(140.0, 100.0, 0.26, 0.9, 0.0, 60.0), "order"),
        (Closeness(140.0, 100.0, 0.0, 0.1, 0.5, 60.0), "order"),
        (Closeness(140.0, 100.0, 0.0, 0.19, math.nan, 60.0), "nothing"),
        (Closeness(1.0, 0.0, 0.0, 1.0, 1.0, math.nan), "reproduces"),
    ],
)
def test_the_four_sentences(found: Closeness, level: str) -> None:
    one = judge_closeness("Slurm", found, "the order in which jobs go")
    assert one.level == level
    assert one.comparable == (level in ("reproduces", "most"))
    assert one.full_sentence.startswith("Slurm, in the backtest, ")


def test_what_is_kept_comes_back(as_fifo: pd.DataFrame, store: Store) -> None:
    base = scenario(as_fifo, "fifo", store)
    one = Past("FIFO", "order", "Orders.", math.nan)
    backtest_verdict.store_verdict(
        one, backtest_scenario(replace(base, seed=3), base.allocator), store
    )
    found = backtest_verdict.best_verdict(
        Study(replace(base, seed=9), (Spec("recorded"), Spec("fifo"))), store
    )
    assert found is not None
    assert (found.level, found.sentence) == ("order", "Orders.")
    assert (
        backtest_verdict.best_verdict(Study(base, (Spec("recorded"), Spec("sjf"))), store) is None
    )
    # Without a record nothing is to be known.
    assert backtest_verdict.best_verdict(Study(base, (Spec("fifo"),)), store) is None


def test_a_question_is_written_and_read(as_fifo: pd.DataFrame, store: Store) -> None:
    one = Check(scenario(as_fifo, "fifo", store), 3, 60.0, None, anyway=True)
    assert Check.from_json(json.loads(one.canonical())) == one
    with pytest.raises(ty.TrainyardError, match="not between 1 and 50"):
        replace(one, repeats=0)
    with pytest.raises(ty.TrainyardError, match="not a length of time"):
        replace(one, warm_s=-1.0)
    with pytest.raises(ty.TrainyardError, match="Fit with 2 repeats or more"):
        replace(one, repeats=1, fit=True)


def test_the_command(
    as_fifo: pd.DataFrame,
    tmp_path: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path))
    file = f"{tmp_path}/jobs.csv"
    as_fifo.to_csv(file, index=False)
    given = ["backtest", "--trace", file, "--cluster", "1x4:v100", "--executor", "inline"]
    assert main([*given, "--allocator", "fifo"]) == 0
    told = capsys.readouterr().out
    assert "FIFO: Reproduces the recorded waits as well as chance allows." in told
    assert "explained" in told
    assert main([*given, "--allocator", "fifo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["level"], document["comparable"]) == ("reproduces", True)
    assert main([*given, "--allocator", "fifo", "--allocator", "sjf"]) == 2
    assert "A backtest takes one policy" in capsys.readouterr().err
