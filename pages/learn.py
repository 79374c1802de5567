"""Learn: lessons to predict and run, what papers claim beside what comes out here, the words, and
the limits; each tab has an address of its own.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from ui import url_params
from ui.layout import page
from ui.learning import background, lessons
from ui.learning import replay_tab as learn

TABS: Final[url_params.Tabs] = {
    "lessons": ("Lessons", lessons.draw),
    "replays": ("Paper replays", learn.replays),
    "glossary": ("Glossary", background.words_of_the_field),
    "limits": ("Limits of the model", background.limits),
}


def body() -> None:
    """Draw the page."""
    asked = url_params.asked(url_params.TAB)
    url_params.tabs(
        TABS,
        asked if asked in TABS else "replays" if learn.NAME in st.query_params else "lessons",
        "learn_tab",
    )


if __name__ == "__main__":
    page("learn", body)
