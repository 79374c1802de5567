from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sim.errors import TrainyardError
from sim.params import Spec
from tests.pages.conftest import FakePool, Open, finish, sound, study_of, texts
from trainyard.lessons import decision_picture
from trainyard.store import profiles
from trainyard.study import catalog
from trainyard.study.study import Study
from trainyard.traces.sources import load_trace
from ui import state, words


def chosen(app: AppTest) -> list[str]:
    return [str(spec) for spec in study_of(app).allocators]


def test_every_policy_of_the_registry_has_a_card(visit: Open) -> None:
    app = visit("policies")
    labels = [box.label for box in app.checkbox]
    for choice in catalog.allocator_choices():
        assert f"**{choice.title}**" in labels
        assert choice.card is not None
        assert choice.card.what in texts(app)
        assert choice.card.certainty[1:] in texts(app)


@pytest.mark.parametrize("name", [choice.name for choice in catalog.allocator_choices()][:3])
def test_how_a_policy_decides_is_told_and_drawn_when_somebody_looks(visit: Open, tiny: Study, name: str) -> None:
    app = visit("policies", tiny)
    card = catalog.allocator(name).card
    assert card is not None
    assert card.how[0] not in texts(app)
    assert not app.get("plotly_chart")
    opened(app, f"how/{name}")
    assert words.plain(card.how[0]) in texts(app)
    assert "Jobs are done after" in texts(app)
    assert len(app.get("plotly_chart")) == 1
    opened(app, f"data/example/{name}")
    assert list(app.dataframe[-1].value.columns) == ["Job", "Has", "From (s)", "To (s)"]


def test_a_policy_that_cannot_run_the_example_says_why(visit: Open, tiny: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> None:
        raise TrainyardError(f"{name} needs <more>.")

    monkeypatch.setattr(decision_picture, "picture", fails)
    app = opened(visit("policies", tiny), "how/fifo")
    assert "There is no picture: fifo needs \\<more\\>." in texts(app)


def test_the_time_of_decisions_of_the_results_shown_is_on_the_cards(visit: Open, pool: FakePool, tiny: Study) -> None:
    finish(pool, tiny)
    app = visit("policies", tiny)
    assert texts(app).count("Decisions took") == len(tiny.allocators)
    assert "Decisions took" not in texts(visit("policies", replace(tiny, base=replace(tiny.base, seed=5))))


def opened(app: AppTest, key: str) -> AppTest:
    """Unfold what computes only when it is open."""
    app.session_state[key] = True
    app.run()
    sound(app)
    return app


def test_choosing_and_leaving_out(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    title = catalog.allocator("sjf").title
    next(box for box in app.checkbox if box.label == f"**{title}**").check().run()
    sound(app)
    assert chosen(app)[-1] == "sjf"
    next(box for box in app.checkbox if box.label == f"**{title}**").uncheck().run()
    assert "sjf" not in chosen(app)


def test_the_last_policy_cannot_be_left_out(visit: Open, tiny: Study) -> None:
    app = visit("policies", replace(tiny, allocators=tiny.allocators[:1], baseline=0))
    assert [box.disabled for box in app.checkbox if box.value] == [True]


def test_two_variants_of_one_policy_get_their_difference_as_name(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    name = tiny.allocators[0].name
    app.button(key=f"add/{name}").click().run()
    sound(app)
    heads = [box for box in app.selectbox if box.label == "Head"]
    heads[1].set_value("skip").run()
    sound(app)
    assert chosen(app).count(name) == 1
    assert f"{name}:head=skip" in chosen(app)
    assert "· head skip" in texts(app)
    app.button(key=f"remove/{name}/1").click().run()
    sound(app)
    assert f"{name}:head=skip" not in chosen(app)


def test_the_baseline_is_a_choice(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    next(box for box in app.selectbox if box.label == "Baseline").set_value(1).run()
    sound(app)
    assert study_of(app).baseline == 1


def test_a_policy_that_cannot_run_is_disabled_with_its_reason(visit: Open, tiny: Study) -> None:
    kept = tuple(spec for spec in tiny.allocators if "recorded_start" not in catalog.allocator(spec).needs)
    loaded = replace(tiny, base=replace(tiny.base, trace=replace(tiny.base.trace, load=2.0)), allocators=kept)
    app = visit("policies", loaded)
    replays = {f"**{choice.title}**" for choice in catalog.allocator_choices() if "recorded_start" in choice.needs}
    assert [box.disabled for box in app.checkbox if box.label in replays] == [True] * len(replays)
    assert "Cannot run here" in texts(app)


def test_a_policy_inside_a_policy_is_a_form_in_a_form(visit: Open, tiny: Study) -> None:
    wrapped = next(choice for choice in catalog.allocator_choices() if any(param.kind == "spec" for param in choice.params))
    inner = next(param for param in wrapped.params if param.kind == "spec")
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, Spec(wrapped.name))))
    key = f"policy/{wrapped.name}/0/{app.session_state[state._DESK].edition}/{inner.name}"
    app.selectbox(key=key).set_value("sjf").run()
    sound(app)
    assert dict(study_of(app).allocators[-1].params)[inner.name] == Spec("sjf")


def test_numbers_are_entered_with_slashes_and_checked(visit: Open, tiny: Study) -> None:
    choice = next(choice for choice in catalog.allocator_choices() if any(param.kind == "numbers" for param in choice.params))
    numbers = next(param for param in choice.params if param.kind == "numbers")
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, Spec(choice.name))))
    key = f"policy/{choice.name}/0/{app.session_state[state._DESK].edition}/{numbers.name}"
    app.text_input(key=key).set_value("100/2000").run()
    sound(app)
    assert dict(study_of(app).allocators[-1].params)[numbers.name] == (100.0, 2000.0)
    app.text_input(key=key).set_value("a/b").run()
    assert len(app.error) == 1
    assert dict(study_of(app).allocators[-1].params)[numbers.name] == (100.0, 2000.0)


def labelled(app: AppTest, name: str) -> Any:
    return next(box for box in app.checkbox if box.label == f"**{catalog.allocator(name).title}**")


def elastic() -> str:
    """A policy that resizes jobs."""
    return next(choice.name for choice in catalog.allocator_choices() if "scaling" in choice.needs)


def test_where_jobs_have_one_size_a_click_lets_them_scale(visit: Open, tiny: Study) -> None:
    name = elastic()
    app = visit("policies", tiny)
    assert labelled(app, name).disabled
    assert "Jobs run at one size only" in texts(app)
    app.button(key=f"scale/{name}").click().run()
    sound(app)
    scaling = study_of(app).base.perf
    assert catalog.instance("perf", scaling).scales
    assert "Jobs run at one size only" not in texts(app)
    trace = load_trace(tiny.base.trace)
    for sentence in profiles.assumptions(scaling, trace):
        assert words.plain(sentence) in texts(app)
    assert app.segmented_control[0].value == scaling.name
    labelled(app, name).check().run()
    sound(app)
    assert chosen(app)[-1].startswith(name)


def test_how_fast_jobs_run_is_chosen_here_and_nowhere_else(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    fast = next(control for control in app.segmented_control if control.label == "How fast jobs run")
    assert [str(option) for option in fast.options] != []
    fast.set_value("amdahl").run()
    sound(app)
    assert study_of(app).base.perf == Spec("amdahl")
    name = next(field for field in app.number_input if field.key is not None and field.key.startswith("perf/amdahl/"))
    name.set_value(name.max if name.max is not None else 1.0).run()
    sound(app)
    assert study_of(app).base.perf != Spec("amdahl")
    app.switch_page("pages/cluster.py").run()
    sound(app)
    assert not [control for control in app.segmented_control if control.label == "How fast jobs run"]


def test_a_policy_of_the_study_that_no_longer_can_run_stays_and_says_so(visit: Open, tiny: Study) -> None:
    name = elastic()
    app = visit("policies", replace(tiny, allocators=(*tiny.allocators, Spec(name))))
    box = labelled(app, name)
    assert (box.value, box.disabled) == (True, False)
    assert "Cannot run here" in texts(app)


def test_a_goal_shows_its_policies_and_those_of_the_study(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    every = len(app.checkbox)
    app.pills(key="goal").set_value("elastic").run()
    sound(app)
    labels = {box.label for box in app.checkbox}
    assert len(labels) < every
    for choice in catalog.allocator_choices():
        of_study = choice.name in {spec.name for spec in tiny.allocators}
        assert choice.card is not None
        assert (f"**{choice.title}**" in labels) == (of_study or "elastic" in choice.card.goals)
    assert chosen(app) == [str(spec) for spec in tiny.allocators]


def test_what_a_policy_will_do_differently_here_is_on_its_card(visit: Open, tiny: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = catalog.allocator_choices
    monkeypatch.setattr(catalog, "allocator_choices", lambda *args: tuple(replace(one, remarks=("It <rains>.",)) for one in plain(*args)))
    app = visit("policies", tiny)
    assert [caption.value for caption in app.caption].count(":material/info: It \\<rains\\>.") == len(plain())


@pytest.mark.parametrize("name", [choice.name for choice in catalog.perf_models()])
def test_every_performance_model_can_be_chosen_and_says_what_it_assumes(visit: Open, tiny: Study, name: str) -> None:
    app = visit("policies", tiny)
    next(control for control in app.segmented_control if control.label == "How fast jobs run").set_value(name).run()
    sound(app)
    assert not app.error
    assert study_of(app).base.perf.name == name
    assert all(words.plain(sentence) in texts(app) for sentence in profiles.assumptions(Spec(name), load_trace(tiny.base.trace)))


def test_what_is_believed_is_a_form_with_its_meaning(visit: Open) -> None:
    app = visit("policies")
    next(item for item in app.selectbox if item.label == "Belief").set_value("noisy").run()
    next(item for item in app.number_input if item.label == "Sigma").set_value(0.5).run()
    sound(app)
    assert study_of(app).base.belief.to_json() == {"name": "noisy", "params": {"sigma": 0.5}}
    chosen = next(item for item in app.selectbox if item.label == "Belief")
    assert [option for option in chosen.options if "_" in option] == []
    chosen.set_value("per_user").run()
    assert "median of the jobs of its user" in texts(app)


def test_the_policies_of_the_study_come_first_and_deadlines_are_a_goal(visit: Open, tiny: Study) -> None:
    last = catalog.allocator_choices()[-1]
    app = visit("policies", replace(tiny, allocators=(Spec(last.name),), baseline=0))
    titles = [f"**{choice.title}**" for choice in catalog.allocator_choices()]
    shown = [box.label for box in app.checkbox if box.label in titles]
    assert shown == [f"**{last.title}**", *(title for title in titles if title != f"**{last.title}**")]
    assert "deadlines" in app.pills(key="goal").options


def test_one_button_makes_all_policies_selectable(visit: Open, tiny: Study) -> None:
    app = visit("policies", tiny)
    needing = [choice for choice in catalog.allocator_choices(load_trace(tiny.base.trace)) if choice.reason]
    assert needing
    assert all(labelled(app, choice.name).disabled for choice in needing)
    app.button(key="selectable").click().run()
    sound(app)
    perf = study_of(app).base.perf
    assert not any(labelled(app, choice.name).disabled for choice in needing)
    assert all(words.plain(sentence) in texts(app) for sentence in profiles.assumptions(perf, load_trace(tiny.base.trace)))
    assert not [button for button in app.button if button.key == "selectable"]
