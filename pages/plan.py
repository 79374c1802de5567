"""Plan: how many nodes meet a target, and what happens while something varies; each tab has an address of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

from lab.sweeps.recipe import Sweep
from ui import place
from ui.planning import capacity as plan
from ui.planning import from_here, sweep
from ui.shell import page

TABS: Final[Mapping[str, tuple[str, Callable[[], None]]]] = {
    "capacity": ("Capacity", plan.draw),
    "sweep": ("Sweep", sweep.draw),
    from_here.NAME: ("From here on", from_here.draw),
}
"""Name in the address -> what the tab is called, and what draws it."""
TAB: Final = "tab"


def body() -> None:
    """Draw the page."""
    st.title("Plan: how much is enough?", anchor=False)
    recipe = plan.adopt()
    titles = {name: title for name, (title, _) in TABS.items()}
    named = place.asked(TAB) if recipe is None or TAB in st.query_params else "sweep" if isinstance(recipe, Sweep) else "capacity"
    asked = titles.get(named, titles["capacity"])
    for (name, (_, draw)), tab in zip(TABS.items(), st.tabs(list(titles.values()), default=asked, key="plan_tab", on_change="rerun"), strict=True):
        if tab.open:
            with tab:
                draw()
            place.put(TAB, name)


if __name__ == "__main__":
    page("plan", body)
