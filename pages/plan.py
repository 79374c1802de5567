"""Plan: how many nodes meet a target, and what happens while something varies; each tab has an address of its own."""

from __future__ import annotations

from typing import Final

import streamlit as st

from trainyard.sweeps.recipe import Sweep
from ui import place
from ui.planning import capacity as plan
from ui.planning import from_here, sweep
from ui.shell import page

TABS: Final[place.Tabs] = {
    "capacity": ("Capacity", plan.draw),
    "sweep": ("Sweep", sweep.draw),
    from_here.NAME: ("From here on", from_here.draw),
}


def body() -> None:
    """Draw the page."""
    st.title("Plan: how much is enough?", anchor=False)
    recipe = plan.adopt()
    named = place.asked(place.TAB) if recipe is None or place.TAB in st.query_params else "sweep" if isinstance(recipe, Sweep) else "capacity"
    asked = named if named in TABS else "capacity"
    place.tabs(TABS, asked, "plan_tab")


if __name__ == "__main__":
    page("plan", body)
