from __future__ import annotations

from dataclasses import replace

from streamlit.testing.v1 import AppTest

from lab import catalog
from lab.front import Spec, Study
from tests.pages.conftest import Open, sound, study_of, texts
from ui import state


def chosen(app: AppTest) -> list[str]:
    return [str(spec) for spec in study_of(app).allocators]


def test_every_policy_of_the_registry_has_a_card(visit: Open) -> None:
    app = visit("policies")
    labels = [box.label for box in app.checkbox]
    for choice in catalog.allocator_choices():
        assert f"**{choice.title}**" in labels
        assert choice.card is not None
        assert choice.card.what in texts(app)
        assert choice.card.certainty in texts(app)


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
