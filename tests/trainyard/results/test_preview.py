from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from sim.result import Progress
from tests.waiting import wait_until
from trainyard.results import groups, outcomes, preview
from trainyard.results.preview import PreviewAnswer, PreviewRequest, Previews
from trainyard.results.window_series import loads
from trainyard.runs.engines import SETTING
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.runs.worker import StoppedError
from trainyard.store import Store
from trainyard.store.files import StoreError
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def study(cluster: str = "2x4:v100", *policies: str) -> Study:
    base = Scenario(TraceSpec.of("sample:tiny"), Cluster.parse(cluster), Spec("fifo"))
    return Study(base, tuple(map(Spec, policies or ("fifo", "easy", "gavel"))))


def stored(asked: Study, store: Store) -> outcomes.StudyResults:
    trace = load_trace(asked.base.trace, store)
    for scenario in asked.scenarios():
        result = run(scenario, trace=trace, store=store, engine="kernel")
        store_result(store, scenario_key(scenario, store), scenario, result, trace)
    return outcomes.gather(asked, store)


@pytest.mark.usefixtures("fast_engine")
def test_an_answer_is_what_the_stored_runs_say(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "auto")
    asked = study()
    found = preview.answer(PreviewRequest(asked.to_json(), store.address))
    whole = stored(asked.only((0, 1)), store)
    report = outcomes.report(whole, store)
    assert found.report is not None
    assert report is not None
    assert found.report.labels == report.labels == ("FIFO", "EASY backfilling")
    assert set(found.others) == {"Gavel"}
    measured = ~report.table["metric"].str.startswith(("cpu", "wall", "decision", "peak"))
    pd.testing.assert_frame_equal(
        found.report.table[measured.to_numpy()], report.table[measured.to_numpy()]
    )
    assert found.report.headline == report.headline
    for title, curve in report.frames["cdf"].items():
        pd.testing.assert_frame_equal(found.report.frames["cdf"][title], curve)
    firsts = {whole.titles[at]: whole.entries[at][0] for at in whole.places}
    course, own = loads(firsts, asked.base.cluster), found.loads[None]
    np.testing.assert_array_equal(own.edges_s, course.edges_s)
    for title, one in course.runs.items():
        np.testing.assert_array_equal(own.runs[title].waiting, one.waiting)
        np.testing.assert_array_equal(own.runs[title].busy, one.busy)


def test_a_policy_without_an_answer_keeps_its_last_course(store: Store) -> None:
    before = stored(study("2x4:v100", "fifo", "gavel"), store)
    keys = {title: own[0] for title, own in zip(before.titles, before.keys, strict=True)}
    after = study("1x8:v100", "fifo", "gavel")
    found = preview.answer(
        PreviewRequest(
            after.to_json(), store.address, stored={"Gavel": keys["Gavel"], "FIFO": keys["FIFO"]}
        )
    )
    course = found.loads[None].runs
    alone = loads({"Gavel": before.entries[1][0]}, before.study.base.cluster)
    assert course["Gavel"].peak == alone.runs["Gavel"].peak
    # That of the policy that has an answer is the new one.
    fresh = preview.answer(PreviewRequest(after.to_json(), store.address))
    assert course["FIFO"].peak_s == fresh.loads[None].runs["FIFO"].peak_s


def test_a_group_is_compared_by_its_name(store: Store) -> None:
    asked = study("2x4:v100", "fifo", "easy")
    trace, whole = load_trace(asked.base.trace, store), stored(asked, store)
    way = next(iter(groups.groupings(trace, whole.entries[0][0].jobs()).values()))
    found = preview.answer(
        PreviewRequest(asked.to_json(), store.address, group=(way.title, way.names[0]))
    ).group
    assert found is not None
    same = groups.compare_subset(whole, way.codes == 0, trace)
    pd.testing.assert_frame_equal(found.table, same.table)
    unknown = PreviewRequest(asked.to_json(), store.address, group=(way.title, "no such"))
    assert preview.answer(unknown).group is None


def test_nothing_of_an_answer_is_kept_or_taken_for_a_stored_run(store: Store) -> None:
    asked = study()
    found = preview.answer(PreviewRequest(asked.to_json(), store.address))
    assert store.entries() == []
    assert all(key.startswith("preview ") for own in found.shown.keys for key in own if key)
    assert all(own == () for own in found.shown.entries)


def test_a_run_in_memory_has_no_reduced_frames() -> None:
    entry = preview.InMemory("k", None, {}, {}, {}, {})  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="no frame 'states'"):
        entry.chart("states")


def test_policies_that_follow(store: Store) -> None:
    asked = study("2x4:v100", "fifo", "srtf", "gavel", "recorded")
    assert preview.fast_policies(asked, store) == {"FIFO", "SRTF"}
    slow = replace(asked, base=replace(asked.base, overheads=Spec("overheads", {"restart_s": 60})))
    assert preview.fast_policies(slow, store) == {"FIFO", "SRTF"}
    lost = Spec("overheads", {"on_preempt": "lose_all"})
    loses = replace(asked, base=replace(asked.base, overheads=lost))
    assert preview.fast_policies(loses, store) == {"FIFO"}
    reasons = preview.engine_obstacles(loses, store)
    assert reasons["SRTF"] == "some jobs lose work when they are stopped, or must not be stopped"
    assert reasons.keys() == {"SRTF", "Gavel", "Recorded schedule"}


def test_an_answer_that_is_overtaken_ends_between_policies(store: Store) -> None:
    seen: list[int] = []

    def stop(progress: Progress) -> None:
        seen.append(progress.jobs)
        raise StoppedError("overtaken")

    with pytest.raises(StoppedError):
        preview.answer(PreviewRequest(study().to_json(), store.address), progress=stop)
    assert len(seen) == 1


@pytest.fixture
def previews() -> Iterator[Previews]:
    made = Previews()
    yield made
    made.close()


@pytest.mark.slow
def test_the_process_stays_when_a_question_is_cancelled(previews: Previews, store: Store) -> None:
    large = replace(
        study("16x8:v100", "fifo", "easy"),
        base=replace(study("16x8:v100").base, trace=TraceSpec.of("sample:philly-like")),
    )
    asked = PreviewRequest(large.to_json(), store.address)
    first = previews.ask(asked, "me", large.base)
    wait_until(lambda: first.progress or first.has_ended, "the answer is under way")
    first.cancel()
    last = previews.ask(PreviewRequest(study().to_json(), store.address), "me", large.base)
    assert last.wait(300)
    assert isinstance(last.result, PreviewAnswer)
    assert first.has_ended
    # What is overtaken before it begins never runs.
    running = previews.ask(asked, "me", large.base)
    waiting = previews.ask(asked, "me", large.base)
    waiting.cancel()
    assert waiting.state == "cancelled"
    running.cancel()
    wait_until(lambda: running.has_ended, "the run ends")
