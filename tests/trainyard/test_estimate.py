from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.params import Spec
from trainyard.runs import estimate
from trainyard.runs.estimate import Costs, Estimate, smaller
from trainyard.store import Entry, Store
from trainyard.store.files import Folder
from trainyard.study.scenario import TraceSpec
from trainyard.traces import start


def ran(policy: str | Spec, jobs: int, wall_s: float) -> Entry:
    facts: Any = {"timing": {"wall_s": wall_s}}
    scenario = {"allocator": (Spec(policy) if isinstance(policy, str) else policy).to_json()}
    return Entry("k", Folder(Path()), {}, {"jobs": jobs}, scenario, facts)


def test_the_largest_run_of_a_policy_says_what_a_job_costs() -> None:
    costs = Costs()
    assert costs.per_job_s(Spec("fifo")) is None
    costs.note(ran("fifo", 12, 99.0))
    assert costs.per_job_s(Spec("fifo")) is None
    costs.note(ran("fifo", 10_000, 2.0))
    costs.note(ran("fifo", 1_000, 99.0))
    assert costs.per_job_s(Spec("fifo")) == 2e-4


def test_a_policy_around_others_costs_what_it_holds() -> None:
    costs = Costs()
    costs.note(ran(Spec.of("rounds", inner=Spec("fifo")), 10_000, 1.0))
    other = Spec.of("fifo", backfill="first_fit")
    assert costs.per_job_s(Spec.of("rounds", inner=other)) == 1e-4
    assert costs.per_job_s(Spec.of("rounds", inner=Spec("hadar"))) is None


def test_runs_share_the_processes_and_the_longest_policy_sets_the_least_time(store: Store) -> None:
    study = replace(
        start.sample_study("tiny"), allocators=(Spec("fifo"), Spec("srtf"), Spec("easy")), repeats=2
    )
    costs = Costs()
    costs.note(ran("fifo", 1_000, 1.0))
    costs.note(ran("srtf", 1_000, 7.0))
    costs.note(ran("easy", 1_000, 2.0))
    told = estimate.estimate(study, store, costs, workers=4)
    # 12 jobs x 2 seeds x (1 + 7 + 2) ms over 4 processes = 60 ms; one run of SRTF takes 12 x 7 = 84
    # ms.
    assert told.seconds == pytest.approx(0.084)
    assert estimate.estimate(study, store, costs, workers=2).seconds == pytest.approx(0.12)
    assert (told.jobs, told.runs, told.known, told.large) == (12, 6, True, False)
    assert told.memory_gb == pytest.approx(4 * (0.15 + 12 * 2.5e-6))
    unknown = estimate.estimate(
        replace(study, allocators=(Spec("las"),), baseline=0, repeats=1), store, costs, workers=4
    )
    assert (unknown.seconds, unknown.known) == (pytest.approx(12 * 1e-4), False)


def test_a_policy_that_has_not_run_here_takes_what_its_card_says(store: Store) -> None:
    study = replace(
        start.sample_study("tiny"), allocators=(Spec("fifo"), Spec("hadar")), baseline=0
    )
    # 12 jobs x (0.1 + 5) ms one after the other; on two processes Hadar's 60 ms.
    assert estimate.estimate(study, store, Costs(), 1).seconds == pytest.approx(12 * 5.1e-3)
    assert estimate.estimate(study, store, Costs(), 2).seconds == pytest.approx(12 * 5e-3)
    costs = Costs()
    costs.note(ran("hadar", 1_000, 2.0))
    assert estimate.job_seconds(Spec("hadar"), costs) == 2e-3


def test_a_policy_around_others_takes_as_long_as_the_slowest() -> None:
    assert estimate.usual_s(Spec.of("rounds", inner=Spec("hadar"))) == 5e-3
    assert estimate.usual_s(Spec.of("switch", first=Spec("fifo"), then=Spec("hadare"))) == 7e-3


@pytest.mark.parametrize(
    ("seconds", "memory_gb", "large"), [(59, 0.9, False), (61, 0.9, True), (5, 1.1, True)]
)
def test_what_is_large(seconds: float, memory_gb: float, large: bool) -> None:
    assert Estimate(1, 1, seconds, memory_gb, known=True).large == large


def test_what_may_be_run_instead() -> None:
    spec = TraceSpec("store:00000000", from_s=100.0, load=2.0)
    assert smaller(spec, 140_000, 8 * 86_400) == {}
    found = smaller(spec, 1_200_000, 60 * 86_400)
    assert found == {
        "a random 100,000": replace(spec, sample=100_000),
        "the first week": replace(spec, to_s=100.0 + 14 * 86_400),
    }


def test_seconds_left_are_told_after_a_while() -> None:
    assert estimate.seconds_left((10.0, 0.1), (12.0, 0.5)) is None
    assert estimate.seconds_left((10.0, 0.1), (14.0, 0.1)) is None
    # 0.4 in 4 s, so the last 0.5 take 5 s.
    assert estimate.seconds_left((10.0, 0.1), (14.0, 0.5)) == pytest.approx(5.0)
