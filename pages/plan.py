"""Plan: how many nodes meet a target, what happens while a slider moves or something varies, which
quotas teams need, and how far the simulation reproduces the record; each tab has an address of its
own.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from trainyard.study.sweep import Sweep
from ui import url_params
from ui.layout import page
from ui.planning import capacity as plan
from ui.planning import from_here, past, quotas, sweep, what_if

TABS: Final[url_params.Tabs] = {
    "capacity": ("Capacity", plan.draw),
    what_if.NAME: ("What if", what_if.draw),
    "sweep": ("Sweep", sweep.draw),
    quotas.NAME: ("Quotas", quotas.draw),
    from_here.NAME: ("Change from an instant", from_here.draw),
    past.NAME: ("Check against the past", past.draw),
}


def body() -> None:
    """Draw the page."""
    recipe = plan.adopt()
    named = (
        url_params.asked(url_params.TAB)
        if recipe is None or url_params.TAB in st.query_params
        else "sweep"
        if isinstance(recipe, Sweep)
        else "capacity"
    )
    asked = named if named in TABS else "capacity"
    url_params.tabs(TABS, asked, "plan_tab")


if __name__ == "__main__":
    page("plan", body)
