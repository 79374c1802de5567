"""What the pages say in every state that a scenario can be in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from sim.engine.simulator import Progress
from sim.trace import Trace
from tests.pages.conftest import FakePool, Open, chip, finish, sound, study_of, texts
from trainyard.results import outcomes
from trainyard.runs.engines import SETTING
from trainyard.runs.estimate import Costs
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from ui import state, stored_results
from ui.layout import PAGES, WITHOUT_BAR
from ui.run_status import RESULTS

GONE = TraceSpec("store:" + "0" * 32)


def desk(app: AppTest) -> state.Session:
    found: state.Session = app.session_state[state._SESSION]
    return found


def primary(app: AppTest) -> list[str]:
    return [button.label for button in app.button if button.proto.type == "primary"]


def started(visit: Open, study: Study) -> AppTest:
    app = visit("compare", study)
    return app.button(key="run_here").click().run()


def test_waiting_says_the_place_in_the_queue(visit: Open, tiny: Study, pool: FakePool) -> None:
    app = started(visit, tiny)
    pool.jobs[0].state, pool.jobs[0].place = "waiting", 2
    app.run()
    assert f"{outcomes.titles(tiny.allocators)[0]}: 2nd in the queue" in texts(app)
    pool.jobs[0].starts_in_s = 90.0
    app.run()
    assert "2nd in the queue, starts in about 1.5 min" in texts(app)
    assert app.button(key="cancel")
    assert primary(app) == []


def test_running_says_how_far_and_after_three_seconds_how_long(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("ui.progress.monotonic", lambda: clock[0])
    app = started(visit, tiny)
    pool.jobs[0].progress = Progress(3, 12, 1 * 86_400, 7 * 86_400)
    app.run()
    assert "25 %, day 1.0 of 7.0" in bar(app)
    assert "left" not in bar(app)
    clock[0] = 104.0
    pool.jobs[0].progress = Progress(6, 12, 3 * 86_400, 7 * 86_400)
    app.run()
    # A quarter in 4 s, so half of it takes 8 s.
    assert "50 %, day 3.0 of 7.0, about 8 s left" in bar(app)
    pool.jobs[0].progress = Progress(11, 12, 8 * 86_400, 7 * 86_400)
    app.run()
    assert "8 days, all jobs submitted" in bar(app)


def bar(app: AppTest) -> str:
    return str(next(iter(app.get("progress"))).proto.text)


def test_cancelled_says_when_and_what_is_shown_all_the_same(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    first, *others = outcomes.titles(tiny.allocators)
    app = started(visit, tiny)
    finish(pool, tiny, [0])
    pool.jobs[0].state = "done"
    pool.jobs[1].progress = Progress(5, 12, 4 * 86_400 + 7200, 9e5)
    app.button(key="cancel").click().run()
    sound(app)
    notes = {row["title"]: row["note"] for row in ledger(app)["rows"]}
    assert notes == {
        first: "",
        others[0]: "cancelled at day 5, 02:00",
        **dict.fromkeys(others[1:], "cancelled"),
    }


def ledger(app: AppTest) -> Any:
    """What the ledger was given."""
    found = app.get("bidi_component")
    return json.loads(
        next(one.proto.json for one in found if one.proto.component_name == "trainyard_ledger")
    )


def test_cancelled_before_anything_was_complete(visit: Open, tiny: Study) -> None:
    app = started(visit, tiny)
    app.button(key="cancel").click().run()
    assert "Cancelled. " in app.info[0].value
    assert "nothing to compare" in texts(app)
    assert [label for label in primary(app) if "Run again, about" in label] == primary(app)


def test_failed_says_when_with_details_and_offers_the_others(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    title = outcomes.titles(tiny.allocators)[1]
    app = started(visit, tiny)
    finish(pool, tiny, [0, 2, 3])
    for job in pool.jobs:
        job.state = "done"
    failed = pool.jobs[1]
    failed.state, failed.error, failed.details = (
        "failed",
        "It asked for 70 GPUs; the cluster has 64.",
        {"now_s": 2 * 86_400.0 + 11_640, "free": 64},
    )
    app.run()
    sound(app)
    assert ledger(app)["rows"][1]["note"] == (
        f"{title} stopped at day 3, 03:14: It asked for 70 GPUs; the cluster has 64."
    )
    assert any('"now_s"' in code.value for code in app.code)
    app.button(key=f"others/{failed.key}").click().run()
    sound(app)
    assert [spec.name for spec in study_of(app).allocators] == [
        spec.name for spec in (*tiny.allocators[:1], *tiny.allocators[2:])
    ]
    assert "Up to date" in texts(app)
    assert not app.error


def test_too_big_is_said_before_the_run_and_something_smaller_is_offered(
    visit: Open, tiny: Study, pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "kernel")
    assert " runs: about " not in texts(visit("policies", tiny))
    days = [at * 86_400.0 for at in range(20)]
    frame = pd.DataFrame(
        {
            "job_id": [str(at) for at in range(20)],
            "submit_time_s": days,
            "num_gpus": 1,
            "duration_s": 60.0,
        }
    )
    monkeypatch.setattr(
        Costs, "per_job_s", lambda self, policy, engine: 30.0 if policy.name != "fifo" else None
    )
    monkeypatch.setattr("trainyard.runs.estimate.SAMPLE", 10)
    month = replace(
        tiny,
        base=replace(tiny.base, trace=TraceSpec(f"store:{pool.store.put_trace(Trace.of(frame))}")),
    )
    app = visit("policies", month)
    # 20 jobs under three policies at 30 s each on two processes.
    assert "20 jobs in 4 runs: about 15 min, 0.3 GB (a rough estimate" in texts(app)
    assert app.button(key="less/a random 10")
    app.button(key="less/the first week").click().run()
    sound(app)
    assert study_of(app).base.trace.to_s == 7 * 86_400
    # A recorded schedule needs start times, which these jobs lack.
    assert "7 jobs in 3 runs" in texts(app)
    assert desk(app).undo_stack[-1] == month


def test_result_gone_is_said_of_a_link_and_the_same_scenario_offered(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    assert app.query_params["r"] in ("1", ["1"])
    for entry in pool.store.entries():
        pool.store.delete(entry.key)
    stored_results.forget_entries()
    del app.session_state[state._SESSION]
    app.run()
    sound(app)
    assert "This result is no longer on the server, which keeps results for 30 days." in texts(app)
    assert primary(app) == ["Run again, about 1 s"]
    app.button(key="run_gone").click().run()
    assert len(pool.jobs) == len(tiny.allocators)
    assert "of 4 policies done" in texts(app)


def test_trace_gone_keeps_the_scenario_and_offers_what_helps(visit: Open, tiny: Study) -> None:
    app = visit("compare", replace(tiny, base=replace(tiny.base, trace=GONE), repeats=2))
    assert ["The trace is not on this server" in error.value for error in app.error] == [True]
    assert study_of(app).repeats == 2
    assert {"Open a scenario file", "Load the trace"} <= {
        link.proto.label for link in app.get("page_link")
    }
    app.switch_page("pages/trace.py").run()
    # Said once, in the same words, and nothing offers what cannot work.
    assert ["The trace is not on this server" in error.value for error in app.error] == [True]
    assert "no longer on this machine" not in texts(app)
    assert app.button(key="run").disabled
    for name in ("cluster", "policies"):
        app.switch_page(f"pages/{name}.py").run()
        assert "no longer on this machine" not in texts(app)


def test_a_stored_result_says_so_and_can_be_run_again(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("policies", tiny)
    assert "Up to date" in texts(app)
    assert "Stored result, computed" in texts(app)
    app.button(key="run_again").click().run()
    sound(app)
    assert [job.state for job in pool.jobs] == ["running"] * len(tiny.allocators)
    app.switch_page("pages/compare.py").run()
    assert "Running again. Shown: the stored result." in texts(app)
    for job in pool.jobs:
        job.state = "done"
    app.run()
    assert "Up to date" in texts(app)
    assert "Computed now in" in texts(app)
    assert "Stored result" not in texts(app)


def test_the_window_of_the_address_stays_while_a_scenario_is_run(
    visit: Open, tiny: Study, pool: FakePool
) -> None:
    finish(pool, tiny)
    app = visit("policies", tiny)
    desk(app).window = (60.0, 600.0)
    app.run()
    shared: dict[str, Any] = dict(app.query_params)
    assert (shared["t0"], shared["t1"]) in (("60", "600"), (["60"], ["600"]))


def _empty(visit: Open, study: Study, pool: FakePool) -> AppTest:
    return visit("policies", study)


def _stale(visit: Open, study: Study, pool: FakePool) -> AppTest:
    finish(pool, study)
    app = visit("policies", study)
    return chip(app.number_input, "seed").set_value(5).run()


def _waiting(visit: Open, study: Study, pool: FakePool) -> AppTest:
    app = started(visit, study)
    pool.jobs[0].state, pool.jobs[0].place = "waiting", 2
    return app


def _running(visit: Open, study: Study, pool: FakePool) -> AppTest:
    app = started(visit, study)
    pool.jobs[0].progress = Progress(3, 12, 86_400, 7 * 86_400)
    return app


def _cancelled(visit: Open, study: Study, pool: FakePool) -> AppTest:
    return started(visit, study).button(key="cancel").click().run()


def _failed(visit: Open, study: Study, pool: FakePool) -> AppTest:
    app = started(visit, study)
    finish(pool, study, [0])
    for job in pool.jobs:
        job.state, job.error = "failed", "It asked for too much."
    pool.jobs[0].state = "done"
    return app


class Slow(Costs):
    def per_job_s(self, policy: object, engine: str) -> float | None:
        return 10.0


def _too_big(visit: Open, study: Study, pool: FakePool) -> AppTest:
    pool.costs = Slow()
    return visit("policies", study)


def _result_gone(visit: Open, study: Study, pool: FakePool) -> AppTest:
    finish(pool, study)
    app = visit("compare", study)
    for entry in pool.store.entries():
        pool.store.delete(entry.key)
    stored_results.forget_entries()
    del app.session_state[state._SESSION]
    return app.run()


def _trace_gone(visit: Open, study: Study, pool: FakePool) -> AppTest:
    return visit("policies", replace(study, base=replace(study.base, trace=GONE)))


ALL = tuple(name for name in PAGES if name not in WITHOUT_BAR)
STATES: dict[Callable[[Open, Study, FakePool], AppTest], tuple[str, str, tuple[str, ...]]] = {
    _empty: ("Not run yet", "No result yet", RESULTS),
    _stale: (
        "Changed since the last run: seed 0 → 5",
        "Shown: previous scenario (1 change: seed 0 → 5)",
        ("explore",),
    ),
    _waiting: ("2nd in the queue", "Each policy appears when it has finished", RESULTS),
    _running: ("25 %, day 1.0 of 7.0", "Each policy appears when it has finished", RESULTS),
    _cancelled: ("4 policies without a result", "Cancelled.", RESULTS),
    _failed: (
        "3 policies without a result",
        "stopped: It asked for too much.",
        RESULTS,
    ),
    _too_big: ("12 jobs in 4 runs: about", "No result yet", RESULTS),
    _result_gone: (
        "4 policies without a result",
        "This result is no longer on the server",
        RESULTS,
    ),
    _trace_gone: ("Not run yet", "The trace is not on this server", ALL),
}
"""How a scenario gets into a state -> what the bar says on its pages, what some pages say
themselves, and which pages these are.
"""


@pytest.mark.parametrize("get_there", STATES)
def test_every_page_lives_in_every_state(
    visit: Open, tiny: Study, pool: FakePool, get_there: Any
) -> None:
    beside, within, where = STATES[get_there]
    app = get_there(visit, tiny, pool)
    for name in ALL:
        app.switch_page(f"pages/{name}.py").run()
        sound(app)
        # The next step is one.
        assert len(primary(app)) <= 1, name
        told = [item.proto.text for item in app.get("progress")]
        assert beside in "\n".join([texts(app), *told]), name
        assert (within in texts(app)) == (name in where), name
