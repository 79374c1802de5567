"""Plan: purchases for a target, sweeps, quotas, mid-run switch, backtest."""

from __future__ import annotations

from typing import Final

import streamlit as st

from trainyard.study.sweep import Sweep
from ui import url_params
from ui.layout import run_page
from ui.planning import backtest, buy, mid_run_switch, quotas, sweep

_FORMER_BUY: Final = "capacity"
"""Name of the tab "Buy" in older links."""
TABS: Final[url_params.Tabs] = {
    url_params.BUY: ("Buy", buy.draw),
    "sweep": ("Sweep", sweep.draw),
    quotas.NAME: ("Quotas", quotas.draw),
    mid_run_switch.NAME: ("Switch policy mid-run", mid_run_switch.draw),
    backtest.NAME: ("Backtest", backtest.draw),
}


def body() -> None:
    """Draw the Plan page with the tab of the URL open, or the tab of the linked plan."""
    recipe = buy.read_url()
    requested = (
        url_params.get(url_params.TAB)
        if recipe is None or url_params.TAB in st.query_params
        else "sweep"
        if isinstance(recipe, Sweep)
        else url_params.BUY
    )
    if requested == _FORMER_BUY:
        url_params.set_param(url_params.TAB, requested := url_params.BUY)
    first_tab = requested if requested in TABS else url_params.BUY
    url_params.draw_tabs(TABS, first_tab, "plan_tab")


if __name__ == "__main__":
    run_page("plan", body)
