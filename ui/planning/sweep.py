"""The sweep tab: the comparison repeated while one or two things vary."""

from __future__ import annotations

from functools import partial

import streamlit as st

from sim.errors import TrainyardError
from trainyard.library import library
from ui import words
from ui.planning import capacity as plan
from ui.planning import live as plan_live
from ui.planning import sweep_form, sweep_results


def draw() -> None:
    """Draw the tab."""
    study = plan.runnable()
    if study is None:
        return
    known = sweep_form.choices(study)
    before = sweep_form.asked(study, known)
    try:
        locked = plan_live.is_going(plan.as_it_came(before.sweep(study, known)))
    except TrainyardError:
        locked = False
    try:
        sweep = plan.as_it_came(sweep_form.draw(before, known, locked=locked).sweep(study, known))
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    plan.write(sweep)
    policies = words.plural(len(sweep.study.allocators), "policy")
    told = f"{words.plural(sweep.runs, 'run')} ({words.plural(sweep.count, 'point')} × {policies}"
    told += f" × {words.plural(sweep.study.repeats, 'repeat')})" if sweep.study.repeats > 1 else ")"
    draw_results = partial(sweep_results.draw, sweep, library.identity(sweep), known)
    plan_live.draw(plan_live.Panel(sweep, "Sweep", sweep.runs, told, draw_results, exact=True))
    plan_live.say_where()
