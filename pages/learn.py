"""Learn: what papers claim, beside what the simulation gives; each tab has an address of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

from ui import learn
from ui.shell import page

TABS: Final[Mapping[str, tuple[str, Callable[[], None]]]] = {"replays": ("Paper replays", learn.replays)}
"""Name in the address -> what the tab is called, and what draws it."""
TAB: Final = "tab"


def body() -> None:
    """Draw the page."""
    st.title("Learn: does it hold here?", anchor=False)
    titles = {name: title for name, (title, _) in TABS.items()}
    asked = titles.get(st.query_params.get(TAB, ""), next(iter(titles.values())))
    for (name, (_, draw)), tab in zip(TABS.items(), st.tabs(list(titles.values()), default=asked, key="learn_tab", on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                draw()
            st.query_params[TAB] = name


if __name__ == "__main__":
    page("learn", body)
