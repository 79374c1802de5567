"""Learn: lessons to predict and run, what papers claim beside what comes out here, the words, and the limits; each tab has an address of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

from ui import place
from ui.learning import background, lessons
from ui.learning import replay_tab as learn
from ui.shell import page

TABS: Final[Mapping[str, tuple[str, Callable[[], None]]]] = {
    "lessons": ("Lessons", lessons.draw),
    "replays": ("Paper replays", learn.replays),
    "glossary": ("Glossary", background.words_of_the_field),
    "limits": ("Limits of the model", background.limits),
}
"""Name in the address -> what the tab is called, and what draws it."""
TAB: Final = "tab"


def body() -> None:
    """Draw the page."""
    st.title("Learn: predict, run, see", anchor=False)
    titles = {name: title for name, (title, _) in TABS.items()}
    asked = titles.get(place.asked(TAB), titles["replays" if learn.NAME in st.query_params else "lessons"])
    for (name, (_, draw)), tab in zip(TABS.items(), st.tabs(list(titles.values()), default=asked, key="learn_tab", on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                draw()
            place.put(TAB, name)


if __name__ == "__main__":
    page("learn", body)
