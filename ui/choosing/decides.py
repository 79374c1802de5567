"""How a policy decides: its rule in a few lines, and a picture of a small example that is run when somebody looks."""

from __future__ import annotations

import streamlit as st

import charts
from sim.errors import TrainyardError
from trainyard.lessons import decision_picture
from trainyard.study.catalog import Choice
from ui import figure, lookup, state, words


def draw(choice: Choice) -> None:
    """Draw the rule and picture of a policy and where it comes from, each behind a button."""
    about = choice.card
    if about is None:
        return
    with st.popover("How it decides", key=f"how/{choice.name}", on_change="rerun") as box:
        if box.open:
            st.markdown("\n".join(f"{at}. {words.plain(line)}" for at, line in enumerate(about.how, 1)))
            _picture(choice)
    with st.popover("Paper, our reading" if "our reading" in about.certainty else "Paper", key=f"paper/{choice.name}"):
        st.markdown(f"{words.plain(about.source)}.  \n{words.plain(about.certainty[:1].upper() + about.certainty[1:])}.")


def solve_time(name: str) -> str:
    """Return how long a policy took to decide in the results that are shown, as a sentence; "" = it is not among them."""
    shown = state.desk().shown
    if shown is None:
        return ""
    found = lookup.gather(shown)
    return decision_picture.solve_time(entry for spec, entries in zip(shown.allocators, found.entries, strict=True) if spec.name == name for entry in entries)


def _picture(choice: Choice) -> None:
    try:
        made = decision_picture.picture(choice.name)
    except TrainyardError as error:
        st.caption(f"There is no picture: {words.plain(str(error))}")
        return
    drawn = charts.example(made.bars, made.jobs, made.rows, made.until_s)
    figure.draw(drawn, f"example/{choice.name}", f"{choice.title}. {made.sentence}", lambda: made.pieces)
    st.caption(f"{made.sentence} {made.about}")
