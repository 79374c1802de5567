"""Learn: lessons, paper replays, glossary, limits of the model; one URL per tab."""

from __future__ import annotations

from typing import Final

import streamlit as st

from ui import url_params
from ui.layout import run_page
from ui.learning import lessons, reference_tabs
from ui.learning import replay_tab as learn

TABS: Final[url_params.Tabs] = {
    "lessons": ("Lessons", lessons.draw),
    "replays": ("Paper replays", learn.draw),
    "glossary": ("Glossary", reference_tabs.draw_glossary),
    "limits": ("Limits of the model", reference_tabs.draw_limits),
}


def body() -> None:
    """Draw the Learn page with the tab of the URL open; a replay in the URL opens its tab."""
    requested = url_params.get(url_params.TAB)
    url_params.draw_tabs(
        TABS,
        requested
        if requested in TABS
        else "replays"
        if learn.NAME in st.query_params
        else "lessons",
        "learn_tab",
    )


if __name__ == "__main__":
    run_page("learn", body)
