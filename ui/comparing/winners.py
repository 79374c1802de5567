"""Who wins and who loses, job by job and group by group, on the Compare page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd
import streamlit as st

import charts
from sim.errors import TrainyardError
from trainyard.results import groups
from trainyard.results.compare import together
from trainyard.results.groups import WHATS, Grouped, Grouping
from trainyard.results.outcomes import Report, Shown
from trainyard.traces.sources import load_trace
from ui import figure, server, words
from ui.comparing import tables

_KEEP: Final = "session"


@st.fragment
def changes(said: Report, look: tables.Look) -> None:
    """Draw how completion times change under one policy, which the user chooses; nothing while there is nothing to compare."""
    if not said.changes:
        return
    titles = list(said.changes)
    # The one that the headline is about.
    first = titles.index(said.told.subject) if said.told.subject in titles else 0
    # The choice stands below, so that the figure is level with the one beside it.
    above, below = st.container(), st.container()
    title = below.selectbox("Policy", titles, first, key="winners_policy", width=320, persist_state=_KEEP) if len(titles) > 1 else titles[0]
    change = said.changes[title]
    parts = groups.told_parts(change, int(said.counts["repeats"].iloc[0]))
    question = f"Who wins, who loses under {title}?"
    told = f"Of {words.plural(change.jobs, 'job')}{together(said.counts)} under {title}, {parts[0]} take less time "
    told += f"than under {said.baseline}, {parts[1]} as long, {parts[2]} longer."
    colour = look.style[title][0]
    beside = look.drawn(said.labels)
    drawn = figure.kept(("winners", said.mark, title), lambda: charts.winners(change.histogram, parts, colour, charts.literal(question), beside))
    with above:
        figure.draw(drawn, "winners", told, lambda: change.histogram.rename(columns=_HISTOGRAM))
    st.caption(words.plain(f"{told} Drawn are those that change; beyond 32 times they are in the outermost bars."))


@st.fragment
def by_group(said: Report, shown: Shown, look: tables.Look) -> None:
    """Draw the baseline and the other policies group by group; nothing while there is nothing to compare."""
    if not said.changes:
        return
    try:
        ways = groupings(shown)
        if not ways:
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            by = st.segmented_control(
                "By", list(ways), default=next(iter(ways)), required=True, format_func=lambda name: ways[name].title, key="group_by", wrap=True
            )
            what = st.segmented_control("Of each", list(WHATS), default=next(iter(WHATS)), required=True, format_func=lambda name: WHATS[name], key="group_of")
        found = _grouped(shown.mark, by, what, look.drawn(said.labels), shown, ways[by])
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    if found is None or found.table.empty:
        st.caption("No job was completed under all of these policies, so there is nothing to compare by group.")
        return
    question = f"Which jobs gain, which lose? {WHATS[what][:1].upper()}{WHATS[what][1:]} by {_noun(ways[by])}"
    drawn = figure.kept(("groups", said.mark, by, what), lambda: charts.dumbbell(_with_counts(found.table), look.style, said.baseline, question, WHATS[what]))
    figure.draw(drawn, "groups", found.finding(said.baseline, WHATS[what]), lambda: _rows(found))
    st.caption(words.plain(found.note(said.baseline, together(said.counts))))


def _with_counts(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(group=[f"{group} ({words.plural(jobs, 'job')})" for group, jobs in zip(table["group"], table["jobs"].tolist(), strict=True)])


def groupings(shown: Shown) -> Mapping[str, Grouping]:
    """Return the ways in which the jobs of a study can be grouped.

    Raises
    ------
    TrainyardError
        If its trace or a stored result was removed meanwhile.
    """
    first = shown.places[0]
    return _groupings(shown.keys[first][0], shown)


@st.cache_resource(max_entries=8, show_spinner=False)
def _groupings(key: str, _shown: Shown) -> dict[str, Grouping]:
    del key
    return groups.groupings(load_trace(_shown.study.base.trace, server.store()), _shown.entries[_shown.places[0]][0].jobs())


@st.cache_resource(max_entries=48, show_spinner=False)
def _grouped(mark: str, by: str, what: str, drawn: tuple[str, ...], _shown: Shown, _grouping: Grouping) -> Grouped | None:
    del mark, by
    return groups.by_group(_shown, _grouping, drawn, what)


def _noun(grouping: Grouping) -> str:
    return grouping.title if grouping.title.startswith("GPU") else grouping.title.lower()


def _rows(found: Grouped) -> pd.DataFrame:
    table = found.table
    columns = {"Group": table["group"], "Policy": table["label"], "Jobs": table["jobs"], "Mean": table["value"].map(words.time)}
    columns["Change"] = table["change"].map(words.change)
    if table["low"].notna().any():
        columns |= {"From": table["low"].map(words.time), "To": table["high"].map(words.time)}
    return pd.DataFrame(columns)


_HISTOGRAM: Final = {"low": "From (times the baseline's)", "high": "To (times the baseline's)", "jobs": "Jobs"}
