"""The headline of Compare with what limits it, and the ways out as buttons that change the scenario and run it."""

from __future__ import annotations

from typing import Final

import streamlit as st

from trainyard.results import ways_out
from trainyard.results.headline import Headline
from trainyard.results.outcomes import Report, Shown
from trainyard.results.ways_out import WayOut
from trainyard.traces.sources import load_trace
from ui import server, state, words
from ui.planning import capacity_form

_INSISTED: Final = "insisted"
_ICONS: Final = {
    "lower_load": ":material/trending_down:",
    "raise_load": ":material/trending_up:",
    "fewer_nodes": ":material/remove:",
    "enough_gpus": ":material/dns:",
    "compare_anyway": ":material/visibility:",
    "repeats": ":material/casino:",
    "add_references": ":material/add:",
    "change_baseline": ":material/swap_horiz:",
}


def headline(said: Report, shown: Shown, told: Headline) -> None:
    """Draw the sentence on top, what else limits it, and what can be done."""
    st.subheader(words.plain(told.text), anchor=False)
    for sentence in (*told.also, *(way.text for way in told.advice if way.name == "hint")):
        st.caption(words.plain(sentence))
    ways = [way for way in told.advice if way.name in _ICONS and not (way == ways_out.COMPARE_ANYWAY and insisted(said))]
    if not ways:
        return
    with st.container(horizontal=True):
        for way in ways:
            if st.button(words.plain(way.text), key=f"way/{way.name}", icon=_ICONS[way.name]):
                _take(said, shown, way)


def insisted(said: Report) -> bool:
    """Tell whether the user wants to see these runs compared although no policy can be judged."""
    return bool(st.session_state.get(_INSISTED) == said.mark)


def _take(said: Report, shown: Shown, way: WayOut) -> None:
    mine = state.desk()
    if way == ways_out.COMPARE_ANYWAY:
        st.session_state[_INSISTED] = said.mark
        st.rerun()
    made = ways_out.apply(shown.study, way, load_trace(shown.study.base.trace, server.store()))
    if not made.matches(mine.study):
        mine.replace(made)
    if way.name == "enough_gpus":
        capacity_form.take_overloaded(made, said.told.load)
        st.switch_page("pages/plan.py", query_params=state.address() | {"tab": "capacity"})
    mine.run()
    st.rerun()
