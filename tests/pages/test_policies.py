from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.errors import TrainyardError
from sim.params import Spec
from tests.pages.conftest import FakePool, Open, finish, sound, study_of, texts
from trainyard.formatting import change
from trainyard.results import decision_picture
from trainyard.runs.engines import SETTING
from trainyard.study import catalog
from trainyard.study.study import Study
from ui import state, words
from ui.choosing import policy_rows
from ui.choosing.policy_rows import PolicyRows

NAMES = [choice.name for choice in catalog.allocator_choices()]


def chosen(app: AppTest) -> list[str]:
    return [str(spec) for spec in study_of(app).allocators]


def listed(app: AppTest) -> dict[str, dict[str, Any]]:
    """The rows of the list: id -> what the browser is told."""
    return {row["id"]: row for group in list_data(app)["groups"] for row in group["rows"]}


def list_data(app: AppTest) -> dict[str, Any]:
    """What the browser is told."""
    return dict(json.loads(app.get("bidi_component")[0].proto.json))


def opened(app: AppTest, row: str) -> AppTest:
    """Show the detail of a row."""
    app.query_params["policy"] = row
    app.run()
    sound(app)
    return app


def press(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    sound(app)
    return app


def elastic() -> str:
    """A policy that resizes jobs."""
    return next(
        choice.name for choice in catalog.allocator_choices() if "scaling" in choice.needs.requires
    )


def test_every_policy_of_the_registry_is_in_the_list(visit: Open) -> None:
    rows = listed(visit("policies"))
    assert sorted(rows) == sorted(NAMES)
    for choice in catalog.allocator_choices():
        assert choice.card is not None
        assert rows[choice.name]["title"] == choice.title
        assert rows[choice.name]["brief"] == choice.card.brief


def test_a_policy_of_the_address_that_is_not_in_the_list_is_said(visit: Open, tiny: Study) -> None:
    app = opened(visit("policies", tiny), "No such policy")
    assert "opens “No such policy”, which is not in this list" in texts(app).replace("\\", "")
    assert "which is not in this list" not in texts(opened(app, "fifo"))


@pytest.mark.parametrize("name", NAMES[::6])
def test_the_detail_says_what_a_policy_does_and_where_it_comes_from(
    visit: Open, tiny: Study, name: str
) -> None:
    card = catalog.allocator(name).card
    assert card is not None
    app = opened(visit("policies", tiny), name)
    for text in (card.what, card.cost, card.limits):
        assert words.plain(text) in texts(app)
    assert card.how[0] not in texts(app)
    assert not app.get("plotly_chart")
    app.session_state["policy_tabs"] = "How it decides"
    app.run()
    sound(app)
    assert words.plain(card.how[0]) in texts(app)
    assert "Jobs are done after" in texts(app)
    assert len(app.get("plotly_chart")) == 1


def test_where_a_policy_comes_from_is_a_tab(visit: Open, tiny: Study) -> None:
    card = catalog.allocator("srtf").card
    assert card is not None
    app = opened(visit("policies", tiny), "srtf")
    app.session_state["policy_tabs"] = "Source"
    app.run()
    sound(app)
    assert words.plain(card.source) in texts(app)


def test_a_policy_that_cannot_run_the_example_says_why(
    visit: Open, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str) -> None:
        raise TrainyardError(f"{name} needs <more>.")

    monkeypatch.setattr(decision_picture, "run_example", fails)
    app = opened(visit("policies", tiny), "fifo")
    app.session_state["policy_tabs"] = "How it decides"
    app.run()
    assert "No picture: fifo needs \\<more\\>." in texts(app)


def test_the_list_follows_what_compare_judges_by(visit: Open, pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    app = visit("policies", tiny)
    assert list_data(app)["results"] == "average completion time"
    app.query_params["goal"] = "wait_mean_s"
    app.run()
    sound(app)
    assert list_data(app)["results"] == "average wait"
    rows = listed(app)
    for at, spec in enumerate(tiny.allocators):
        entry = pool.store.get(pool.submit(tiny.policy_scenarios(at)[0]).key)
        assert entry is not None
        assert rows[spec.name]["note"].startswith(words.time(entry.summary["wait_mean_s"]))


@pytest.mark.usefixtures("fast_engine")
def test_stored_results_stand_in_the_list_and_in_the_detail(
    visit: Open, pool: FakePool, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "auto")
    finish(pool, tiny)
    rows = listed(visit("policies", tiny))
    base = tiny.allocators[tiny.baseline].name
    assert rows[base]["change"] == "baseline"
    means = {}
    for at, spec in enumerate(tiny.allocators):
        entry = pool.store.get(pool.submit(tiny.policy_scenarios(at)[0]).key)
        assert entry is not None
        means[spec.name] = entry.summary["jct_mean_s"]
    for name, mean in means.items():
        assert rows[name]["note"].startswith(words.time(mean))
        if name != base:
            assert rows[name]["change"] == change(mean / means[base] - 1)
    others = [row for name, row in rows.items() if name not in means and not row["barred"]]
    assert not any(row["note"] for row in others)
    app = opened(visit("policies", tiny), base)
    assert f"Average completion time **{words.time(means[base])}**" in texts(app)
    # The fast engine does not time single decisions.
    assert "Decision" not in texts(app)
    assert "Computing time per decision" in texts(opened(visit("policies", tiny), "recorded"))
    other = visit("policies", replace(tiny, base=replace(tiny.base, seed=5)))
    assert not any(row["note"] for row in listed(other).values() if not row["barred"])


def test_results_of_the_scenario_on_compare_stay_until_there_are_others(
    visit: Open, pool: FakePool, tiny: Study
) -> None:
    finish(pool, tiny)
    app = visit("compare", tiny)
    app.switch_page("pages/policies.py").run()
    before = listed(app)
    press(app, "sizes")
    after = listed(app)
    for spec in tiny.allocators:
        assert after[spec.name]["note"] == before[spec.name]["note"]
        assert (before[spec.name]["old"], after[spec.name]["old"]) == (False, True)


def test_comparing_and_leaving_out(visit: Open, tiny: Study) -> None:
    app = press(opened(visit("policies", tiny), "sjf"), "compare_it")
    assert chosen(app)[-1] == "sjf"
    assert listed(app)["sjf"]["on"]
    assert f"{len(tiny.allocators) + 1} of {len(NAMES)} policies compared" in texts(app)
    press(app, "compare_it")
    assert "sjf" not in chosen(app)


def test_the_last_policy_cannot_be_left_out(visit: Open, tiny: Study) -> None:
    one = replace(tiny, allocators=tiny.allocators[:1], baseline=0)
    assert opened(visit("policies", one), one.allocators[0].name).button(key="compare_it").disabled
    rows = PolicyRows(NAMES)
    rows.follow(one)
    assert policy_rows.with_ticks(one, rows, {one.allocators[0].name: False}) == one


def test_a_variant_is_a_row_of_its_own_with_its_difference_as_name(
    visit: Open, tiny: Study
) -> None:
    name = tiny.allocators[0].name
    app = press(opened(visit("policies", tiny), name), "add_variant")
    assert chosen(app).count(name) == 2
    next(box for box in app.selectbox if box.label == "Backfill").set_value("first_fit").run()
    sound(app)
    assert chosen(app).count(name) == 1
    assert f"{name}:backfill=first_fit" in chosen(app)
    row = listed(app)[f"{name}-2"]
    assert (row["variant"], row["on"]) == (True, True)
    assert row["title"].endswith("· backfill first fit")
    press(app, "compare_it")
    assert f"{name}:backfill=first_fit" not in chosen(app)
    assert not listed(app)[f"{name}-2"]["on"]
    press(app, "compare_it")
    assert f"{name}:backfill=first_fit" in chosen(app)
    press(app, "delete_variant")
    assert f"{name}:backfill=first_fit" not in chosen(app)
    assert f"{name}-2" not in listed(app)


def test_rows_follow_the_study_and_keep_settings_that_would_be_lost(tiny: Study) -> None:
    study = replace(
        tiny, allocators=(Spec("fifo"), Spec.of("fifo", backfill="first_fit"), Spec("srtf"))
    )
    rows = PolicyRows(NAMES)
    rows.follow(study)
    assert [(row.id, row.study_index) for row in rows.rows_of("fifo")] == [
        ("fifo", 0),
        ("fifo-2", 1),
    ]
    left = policy_rows.with_ticks(study, rows, {"fifo": False, "fifo-2": False, "srtf": True})
    rows.follow(left)
    assert [str(spec) for spec in left.allocators] == ["srtf"]
    assert [str(row.spec) for row in rows.rows_of("fifo")] == ["fifo", "fifo:backfill=first_fit"]
    again = policy_rows.with_ticks(left, rows, {"fifo-2": True, "sjf": True, "no": True})
    assert [str(spec) for spec in again.allocators] == ["srtf", "fifo:backfill=first_fit", "sjf"]
    rows.follow(tiny)
    assert {row.spec for row in rows.rows if row.study_index is not None} == set(tiny.allocators)


def test_of_two_rows_with_equal_settings_the_one_that_was_unticked_is_left_out(
    tiny: Study,
) -> None:
    study = replace(tiny, allocators=(Spec("fifo"), Spec("fifo"), Spec("srtf")))
    rows = PolicyRows(NAMES)
    rows.follow(study)
    left = policy_rows.with_ticks(study, rows, {"fifo": False})
    rows.follow(left)
    assert [(row.id, row.study_index) for row in rows.rows_of("fifo")] == [
        ("fifo", None),
        ("fifo-2", 0),
    ]


def test_the_settings_used_most_are_shown_and_the_others_on_request(
    visit: Open, tiny: Study
) -> None:
    params = catalog.choice_params("gavel")
    app = opened(visit("policies", tiny), "gavel")
    key = f"policy/gavel/{app.session_state[state._SESSION].form_version}/"
    shown = {item.key for kind in ("selectbox", "number_input", "toggle") for item in app.get(kind)}
    assert {f"{key}{info.name}" for info in params[:3]} <= shown
    assert not {f"{key}{info.name}" for info in params[3:]} & shown
    box = app.selectbox(key=f"{key}objective")
    assert "Max-min fairness" in box.options
    assert not [option for option in box.options if "_" in option]
    app.session_state["more/gavel"] = True
    app.run()
    app.selectbox(key=f"{key}within").set_value("fifo").run()
    sound(app)
    assert opened(app, "gavel").expander[0].label == "6 more settings, 1 changed"
    press(app, "compare_it")
    assert chosen(app)[-1] == "gavel:within=fifo"


def test_the_baseline_is_a_choice(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    next(box for box in app.selectbox if box.label == "Baseline").set_value(1).run()
    sound(app)
    assert study_of(app).baseline == 1


def test_a_recorded_schedule_without_start_times_is_not_offered(visit: Open, tiny: Study) -> None:
    kept = tuple(
        spec
        for spec in tiny.allocators
        if "recorded_start" not in catalog.allocator(spec).needs.reads
    )
    loaded = replace(
        tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, load=2.0)), allocators=kept
    )
    app = visit("policies", loaded)
    rows = listed(app)
    for choice in catalog.allocator_choices():
        if "recorded_start" in choice.needs.reads:
            assert rows[choice.name]["barred"]
            assert rows[choice.name]["note"] == "the trace has no start times"
            opened(app, choice.name)
            assert app.button(key="compare_it").disabled
            assert "Cannot run: " in texts(app)


def test_a_locked_policy_offers_a_trace_where_it_acts(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    locked = [name for name, row in listed(app).items() if row["barred"]]
    assert locked
    for name in locked:
        app = opened(visit("policies", tiny), name)
        press(app, "acting_trace")
        row = listed(app)[name]
        assert row["on"]
        assert not row["barred"]
        assert not [button for button in app.button if button.key == "acting_trace"]
    assert not [
        button
        for button in opened(visit("policies", tiny), "fifo").button
        if button.key == "acting_trace"
    ]


def test_a_policy_inside_a_policy_is_a_form_in_a_form(visit: Open, tiny: Study) -> None:
    wrapped = next(
        choice
        for choice in catalog.allocator_choices()
        if any(param.kind == "spec" for param in choice.params)
    )
    inner = next(param for param in wrapped.params if param.kind == "spec")
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, Spec(wrapped.name))))
    opened(app, wrapped.name)
    key = f"policy/{wrapped.name}/{app.session_state[state._SESSION].form_version}/{inner.name}"
    app.selectbox(key=key).set_value("sjf").run()
    sound(app)
    assert dict(study_of(app).allocators[-1].params)[inner.name] == Spec("sjf")


def test_numbers_are_entered_with_slashes_and_checked(visit: Open, tiny: Study) -> None:
    choice = next(
        choice
        for choice in catalog.allocator_choices()
        if any(param.kind == "numbers" for param in choice.params[:3])
    )
    numbers = next(param for param in choice.params if param.kind == "numbers")
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, Spec(choice.name))))
    opened(app, choice.name)
    key = f"policy/{choice.name}/{app.session_state[state._SESSION].form_version}/{numbers.name}"
    app.text_input(key=key).set_value("100/2000").run()
    sound(app)
    assert dict(study_of(app).allocators[-1].params)[numbers.name] == (100.0, 2000.0)
    app.text_input(key=key).set_value("a/b").run()
    assert len(app.error) == 1
    assert dict(study_of(app).allocators[-1].params)[numbers.name] == (100.0, 2000.0)


def _draw_unchanged_forms() -> None:
    """Draw the form of every policy and check what it gives (run as a page)."""
    from sim.params import Spec as PolicySpec  # noqa: PLC0415 - a page of its own
    from trainyard.study import catalog as entries  # noqa: PLC0415
    from ui.choosing.forms import draw_spec  # noqa: PLC0415

    for choice in entries.allocator_choices():
        spec = PolicySpec(choice.name)
        entered = entries.canonical("allocator", draw_spec(choice.name, spec, choice.name))
        assert entered == entries.canonical("allocator", spec), choice.name


def test_no_form_with_its_defaults_gives_an_error() -> None:
    app = AppTest.from_function(_draw_unchanged_forms, default_timeout=60).run()
    assert [item.message for item in app.exception] == []


def test_jobs_change_size_under_the_plainest_model_and_servers_are_a_second_step(
    visit: Open, tiny: Study
) -> None:
    app = visit("policies", tiny)
    barred = [name for name, row in listed(app).items() if row["barred"]]
    # Three policies resize jobs, three more need workers and servers.
    assert len(barred) == 6
    assert (
        "6 policies cannot run: 3 need jobs that change size, 3 need parameter servers."
        in texts(app)
    )
    assert all("must change size" in listed(app)[name]["note"] for name in (elastic(),))
    press(app, "sizes")
    # The plainest model that lets jobs change size has no servers that nobody described.
    assert study_of(app).base.perf == Spec("power_law")
    left = [name for name, row in listed(app).items() if row["barred"]]
    assert left == ["aiturbo", "optimus", "dlrover"]
    assert "3 policies cannot run: they need parameter servers." in texts(app)
    assert app.button(key="sizes").label == "Add parameter servers"
    press(app, "sizes")
    assert study_of(app).base.perf == Spec("parameter_server")
    assert not any(row["barred"] for row in listed(app).values())
    assert chosen(app) == [str(spec) for spec in tiny.allocators]
    press(app, "keep_sizes")
    assert study_of(app) == tiny
    assert [name for name, row in listed(app).items() if row["barred"]] == barred


def test_a_policy_of_the_study_that_no_longer_can_run_stays_and_says_so(
    visit: Open, tiny: Study
) -> None:
    name = elastic()
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, Spec(name))))
    row = listed(app)[name]
    assert (row["on"], row["barred"]) == (True, True)
    opened(app, name)
    assert not app.button(key="compare_it").disabled
    assert "Cannot run: " in texts(app)


def test_what_a_policy_will_do_differently_here_is_in_its_detail(
    visit: Open, tiny: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = catalog.allocator_choices
    monkeypatch.setattr(
        catalog,
        "allocator_choices",
        lambda *args: tuple(replace(one, remarks=("It <rains>.",)) for one in plain(*args)),
    )
    app = visit("policies", tiny)
    assert ":material/info: It \\<rains\\>." in [caption.value for caption in app.caption]


def test_run_time_estimates_are_a_form_with_its_meaning(visit: Open) -> None:
    app = visit("policies")
    app.session_state["estimates_box"] = True
    app.run()
    field = "Run-time estimates"
    next(item for item in app.selectbox if item.label == field).set_value("noisy").run()
    next(item for item in app.number_input if item.label == "Error (sigma)").set_value(0.5).run()
    sound(app)
    assert study_of(app).base.estimator.to_json() == {"name": "noisy", "params": {"sigma": 0.5}}
    box = next(item for item in app.selectbox if item.label == field)
    assert [option for option in box.options if "_" in option] == []
    box.set_value("per_user").run()
    assert "edian of the finished jobs of the same user" in texts(app)


def test_forty_rows_with_long_names_stay_one_list(visit: Open, tiny: Study) -> None:
    specs = [Spec.of("las", thresholds=(float(at), 1e6)) for at in range(1, 25)]
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, *specs)))
    rows = listed(app)
    assert len(rows) == len(NAMES) + 23
    assert all(len(row["title"]) <= 200 for row in rows.values())


def test_a_variant_can_be_called_otherwise_and_keeps_its_name(
    visit: Open, pool: FakePool, tiny: Study
) -> None:
    study = replace(tiny, allocators=(*tiny.allocators, Spec.of("fifo", backfill="first_fit")))
    finish(pool, study)
    app = opened(visit("policies", study), "fifo-2")
    field = next(item for item in app.text_input if item.label == "Name")
    assert field.placeholder.endswith("backfill first fit")
    field.set_value("  Gaps & <b>filled</b>_  ").run()
    sound(app)
    assert study_of(app).names[-1] == "Gaps b filled /b"
    assert listed(app)["fifo-2"]["title"] == "Gaps b filled /b"
    # It is no other scenario: what is stored is still there.
    assert study_of(app) == study
    assert listed(app)["fifo-2"]["note"]
    press(app, "compare_it")
    assert study_of(app).names == ("",) * len(tiny.allocators)
    press(app, "compare_it")
    assert study_of(app).names[-1] == "Gaps b filled /b"
    assert "Gaps b filled /b" in "".join(
        str(option) for box in app.selectbox if box.label == "Baseline" for option in box.options
    )
