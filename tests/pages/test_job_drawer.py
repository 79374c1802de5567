"""The drawer of a job: what it says of jobs of every fate, and what links to it may say."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.params import Spec
from sim.trace import Trace
from tests.pages.conftest import FakePool, Open, finish, sound, texts
from trainyard.results import outcomes
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces.sources import load_source
from ui import job_drawer, state


def opened(app: AppTest, job: str, **more: str) -> AppTest:
    """The page with a job in the address."""
    for name, value in {job_drawer.JOB: job, **more}.items():
        app.query_params[name] = value
    app.run()
    sound(app)
    return app


def title(app: AppTest) -> str:
    """Of the drawer; "" = it is closed."""
    return next((str(one.proto.dialog.title) for one in app.get("dialog")), "")


def why(app: AppTest) -> dict[str, str]:
    """What is said under each policy."""
    texts = [str(one.value).replace("\u2060", "") for one in app.markdown]
    found = [one for one in texts if one.startswith("**")]
    return {
        one.removeprefix("**").partition("**")[0]: one.partition(": ")[2]
        for one in found
        if "**: " in one
    }


def marked(app: AppTest) -> list[float]:
    """Where the thin marks of the chart over time are."""
    chart = next(one for one in app.get("plotly_chart") if "over_time" in str(one.key))
    shapes = json.loads(str(chart.proto.spec))["layout"]["shapes"]
    return [one["x0"] for one in shapes if one.get("line", {}).get("dash") == "dot"]


def of_jobs(pool: FakePool, tiny: Study, allocators: tuple[str, ...], **columns: Any) -> Study:
    """A study of three jobs for 4 GPUs: one takes them all for an hour, one waits, one is small."""
    frame = load_source(tiny.base.trace).trace.frame.iloc[:3].copy()
    frame["job_id"] = ["first", "second", "third"]
    frame["submit_time_s"], frame["num_gpus"] = [0.0, 60.0, 120.0], [4, 4, 1]
    frame["duration_s"], frame["user"] = [3600.0, 600.0, 60.0], "ann"
    made = Trace.of(frame.assign(**columns))
    digest = pool.store.put_trace(made)
    cluster = type(tiny.base.cluster).parse("1x4:v100")
    base = replace(tiny.base, trace=TraceSpec(f"store:{digest}"), cluster=cluster)
    return Study(base, tuple(map(Spec.parse, allocators)), repeats=tiny.repeats)


@pytest.fixture
def three(tiny: Study, pool: FakePool) -> Study:
    study = of_jobs(pool, tiny, ("fifo", "srtf"))
    finish(pool, study)
    return study


def test_a_job_says_what_the_policies_mean_for_it(visit: Open, three: Study) -> None:
    app = opened(visit("compare", three), "second", high="SRTF")
    assert title(app) == "Job second · ann · 4 GPUs"
    said = texts(app)
    assert "**Completed" in said
    assert "submitted day 1, 00:01" in said.replace("\u2060", "")
    assert why(app)["FIFO"].startswith("First by submission; this job needs")
    assert why(app)["SRTF"] == "A shorter job arrived: job third (1 GPU, 1 min left) (1 min)."
    for row in ("Waited to start", "Ran", "Waited again", "Interruptions", "Completed"):
        assert row in said


def test_with_repeats_the_drawer_names_the_one_that_it_shows(
    visit: Open, three: Study, pool: FakePool
) -> None:
    assert "first of" not in texts(opened(visit("compare", three), "second", high="SRTF"))
    finish(pool, study := replace(three, repeats=2))
    shown = texts(opened(visit("compare", study), "second", high="SRTF"))
    assert f"first of 2 repeats, seed {study.base.seed}" in shown


def test_the_job_that_made_room_is_named(visit: Open, three: Study) -> None:
    app = opened(visit("compare", three), "first", high="SRTF")
    assert "A shorter job arrived: job second (4 GPUs, 10 min left)" in why(app)["SRTF"]
    assert "hatched: restarts" in texts(app)


def test_all_events_are_offered_and_computed_when_opened(visit: Open, three: Study) -> None:
    app = opened(visit("compare", three), "first", high="SRTF")
    before = len(app.dataframe)
    app.session_state["job/events/0"] = True
    app.run()
    sound(app)
    assert len(app.dataframe) == before + 1
    told = next(
        one.value["What happened"] for one in app.dataframe if "What happened" in one.value.columns
    )
    assert any("preempted" in line for line in told)


def test_the_address_names_the_job_of_the_title_and_older_links_still_open(
    visit: Open, three: Study
) -> None:
    app = visit("compare", three)
    app.query_params["job"] = "1"  # its row in the trace
    app.run()
    sound(app)
    assert title(app).startswith("Job second ")
    assert app.query_params[job_drawer.JOB] == "second"
    assert "job" not in app.query_params


def test_what_the_browser_sends_before_it_knows_that_the_drawer_is_closed_opens_nothing(
    visit: Open, three: Study
) -> None:
    app = visit("compare", three)
    app.session_state[job_drawer._CLOSED] = "second", time.monotonic()
    assert not title(opened(app, "second"))
    assert job_drawer.JOB not in app.query_params
    assert title(opened(app, "first")).startswith("Job first ")
    minute_ago_s = time.monotonic() - 60.0
    app.session_state[job_drawer._CLOSED] = "second", minute_ago_s
    session = app.session_state[state._SESSION]
    session.drawn_s = minute_ago_s - 1.0  # its closing was never drawn to the end
    assert not title(opened(app, "second"))
    assert title(opened(app, "second")).startswith("Job second ")


def test_a_job_that_did_not_wait_and_ran_longer_says_why(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    policies = ("fifo", "gavel:recompute_s=0")
    study = of_jobs(pool, tiny, policies, num_gpus=[2, 2, 2], gpu_type=["v100"] * 3)
    cluster = type(tiny.base.cluster).parse("1x4:v100,1x4:k80")
    study = replace(study, base=replace(study.base, cluster=cluster))
    finish(pool, study)
    title_of = outcomes.titles(study.allocators)[1]
    app = opened(visit("compare", study), "third", high=title_of)
    said = why(app)
    assert said["FIFO"].startswith("It did not wait. It ran ")
    assert said["FIFO"].endswith(f"longer than under {title_of}: on K80 instead of V100.")
    assert "longer" not in said[title_of]


@pytest.mark.parametrize("wrong", ["99", "-1", "1e3", "<img src=x>", "9" * 50])
def test_a_link_to_no_job_is_one_line(visit: Open, three: Study, wrong: str) -> None:
    app = opened(visit("compare", three), wrong)
    assert not title(app)
    (line,) = [one.value for one in app.warning if "not in this trace" in one.value]
    assert "<img" not in line.replace("\\<", "")
    assert "of 3 jobs" in line


def test_a_job_that_never_starts_and_one_that_fits_nowhere(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    study = of_jobs(pool, tiny, ("fifo", "srtf"), num_gpus=[4, 64, 1])
    study = replace(study, base=replace(study.base, horizon_s=600.0))
    finish(pool, study)
    app = opened(visit("compare", study), "second")
    assert "fits no node" in texts(app)
    assert "It fits no node of this cluster." in why(app)["FIFO"]
    app = opened(app, "third")
    assert "Never started under FIFO" in texts(app)
    assert "not finished" in texts(app)


def test_a_recording_without_a_start_refuses_the_job(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    start_s = [0.0, float("nan"), 130.0]
    study = of_jobs(pool, tiny, ("fifo", "recorded"), start_time_s=start_s)
    finish(pool, study)
    name = outcomes.titles(study.allocators)[1]
    app = opened(visit("compare", study), "second", high=name)
    assert f"Refused by {name}" in texts(app)
    assert why(app)[name] == "Refused: the policy never runs it."
    app = opened(app, "third")
    assert why(app)[name].startswith("The recording started it at day 1, 00:02")


def test_a_job_without_gpus_and_copies_on_several_nodes(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    study = of_jobs(pool, tiny, ("fifo",), num_gpus=[0, 1, 1], cpus=[2.0, 1.0, 1.0])
    finish(pool, study)
    app = opened(visit("compare", study), "first")
    assert title(app) == "Job first · ann · 2 cores"
    assert "Completed under FIFO" in texts(app)


def test_names_from_outside_stay_text(visit: Open, tiny: Study, pool: FakePool) -> None:
    hostile = "<img src=x onerror=alert(1)> **b** $x$ [a](b)"
    study = of_jobs(pool, tiny, ("fifo", "srtf"), user=hostile * 9)
    frame = load_source(study.base.trace, pool.store).trace.frame.assign(
        job_id=[f"{hostile}{at}" for at in range(3)]
    )
    digest = pool.store.put_trace(Trace.of(frame))
    study = replace(study, base=replace(study.base, trace=TraceSpec(f"store:{digest}")))
    finish(pool, study)
    app = opened(visit("compare", study), f"{hostile}1")
    assert "<img" not in texts(app).replace("\\<img", "")
    assert len(title(app)) < 120
    assert "**b**" not in title(app)


def test_show_on_the_timeline_zooms_marks_and_closes(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = opened(visit("compare", tiny), "J6", high="SRTF")
    jobs = outcomes.gather(tiny, pool.store).entries[0][0].jobs()
    app.button(key="job/timeline").click().run()
    sound(app)
    assert not title(app)
    assert job_drawer.JOB not in app.query_params
    begin, end = app.session_state["session"].window
    submit_s = float(jobs["submit_s"].iloc[5])
    lived_s = (end - begin) / 1.2  # a tenth of its life is left on either side
    assert begin == pytest.approx(max(submit_s - 0.1 * lived_s, 0.0))
    assert end >= float(jobs["finish_s"].iloc[5])
    assert len(marked(app)) == 2

    # A reload is another session with the same address.
    again = visit("compare", tiny)
    for name in ("t0", "t1", "marks"):
        again.query_params[name] = app.query_params[name]
    again.session_state["session"].window = begin, end
    again.run()
    sound(again)
    assert marked(again) == marked(app)

    # Another window has no marks.
    again.session_state["session"].window = begin, end + 60.0
    again.run()
    sound(again)
    assert not marked(again)
    assert "marks" not in again.query_params


def test_a_long_replay_is_offered_not_made(
    visit: Open, three: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_drawer.reasons, "replay_s", lambda book, job: 40.0)
    app = opened(visit("compare", three), "second", high="SRTF")
    assert why(app)["FIFO"].startswith("No reason recorded; no GPU was free, the job asks for 4")
    ask = next(one for one in app.button if one.label == "Explain FIFO: about 40 s")
    ask.click().run()
    sound(app)
    assert why(app)["FIFO"].startswith("First by submission")


@pytest.mark.parametrize(("clicked", "wanted"), [(0, ""), (1, "second")])
def test_a_selection_that_the_browser_still_has_after_the_closing_opens_nothing(
    clicked: int, wanted: str
) -> None:
    app = AppTest.from_string(
        f"""
        import streamlit as st
        from ui import job_drawer, url_params

        if not job_drawer.version():
            job_drawer._on_close()
            job_drawer.open_job("second", {clicked})
        st.text(url_params.get(job_drawer.JOB))
        """
    ).run()
    sound(app)
    assert app.text[0].value == wanted
