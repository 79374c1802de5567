"""The parts of the Compare page that are drawn from one stored report: headline, table, how jobs ended, completion times and their parts, trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import streamlit as st

import charts
from sim.errors import TrainyardError
from trainyard.results import groups, meaning, outcomes
from trainyard.results.groups import Grouping
from trainyard.results.headline import GOALS
from trainyard.results.outcomes import Report, Shown
from ui import figure, lookup, server, state, states, words
from ui.comparing import tables, ways_out, winners

_GOAL: Final = "goal"
_ALL_JOBS: Final = "all jobs"
_SMALL_S: Final = 0.5
"""A part below that is not worth a sentence."""


@st.cache_resource(max_entries=24, show_spinner=False)
def report(mark: str, _shown: Shown) -> Report | None:
    """Return the comparison of the complete runs; shared by all sessions and never changed.

    Parameters
    ----------
    mark : str
        `Shown.mark`: the hashes of the runs, because frames must not be keys.
    """
    del mark
    return outcomes.report(_shown, server.store())


def opened(mine: state.Desk, title: str, about: str, *, listed: bool = False) -> tuple[Report, Shown, tables.Look] | None:
    """Return what a page of results is about, and say what about it is old or missing; None after drawing what stands there while there is nothing to show.

    Parameters
    ----------
    mine : Desk
        What this session has before it.
    title, about : str
        Of the page: its question, and what it will show.
    listed : bool
        Whether it has a table in which policies that cannot run have a row.
    """
    if mine.shown is None:
        states.nothing(mine, title, about)
        return None
    shown = lookup.gather(mine.shown)
    states.stale(mine)
    states.troubles(mine, shown, listed=listed)
    said = report(shown.mark, shown)
    if said is None:
        states.waiting(mine, title)
        return None
    return said, shown, look(shown)


@st.fragment
def answer(said: Report, shown: Shown, look: tables.Look) -> None:
    """Draw the sentence that answers the goal, what it is about, and the table, of all jobs or of a group."""
    goals = list(said.headlines)
    goal = st.session_state.get(_GOAL, goals[0])
    ways_out.headline(said, shown, said.headlines.get(goal, said.told))
    _assumed(said)
    st.caption(words.plain(f"{said.facts} · JCT = job completion time, from submission to finish"))
    with st.container(horizontal=True):
        if len(goals) > 1:
            st.selectbox("What matters most", goals, key=_GOAL, format_func=_capital, width=220, persist_state="session")
        group = _group(said, shown)
    if said.assumptions:
        with st.expander("Assumed of how jobs scale, because the trace does not say it", icon=":material/rule:"):
            for sentence in said.assumptions:
                st.markdown(words.plain(sentence))
    if group is None:
        _table(said, look, goal)
    else:
        _group_table(shown, look, group, withheld=said.told.withheld)
    if said.certainty:
        st.caption(words.plain(said.certainty))
    left_out = [title for title in said.labels if title not in look.drawn(said.labels)]
    if left_out:
        st.caption(words.plain(f"Charts of several policies draw {outcomes.MOST_SHOWN}: {', '.join(left_out)} in the table only."))


def overloaded(said: Report, shown: Shown, look: tables.Look) -> bool:
    """Draw what stands in place of an answer where no policy can be judged; tell whether the other parts of the page may follow.

    Notes
    -----
    Whoever compares all the same sees what still means something, under a line that stays.
    """
    ways_out.headline(said, shown, said.told)
    _assumed(said)
    st.caption(words.plain(said.facts))
    if said.overflow:
        st.warning(words.plain(said.overflow), icon=":material/warning:")
    if not ways_out.insisted(said):
        # There is no table with a row for them.
        for title, why in said.skipped.items():
            st.caption(words.plain(f"{title} is skipped. {why}"))
        return False
    st.warning("Compared all the same: times to finish and waits tell how long jobs kept coming, not how good a policy is.", icon=":material/warning:")
    st.html(tables.main_table(said.table, look, said.remarks, skipped=said.skipped, names=tables.OVERLOADED))
    _ends(said.counts)
    return True


def _assumed(said: Report) -> None:
    if said.assumed:
        st.caption(f":material/rule: Assumed: {words.plain(said.assumed)}")


def subject(said: Report) -> str:
    """Return the title of the policy that the headline shown is about; "" = none."""
    return said.headlines.get(st.session_state.get(_GOAL, ""), said.told).subject


def _capital(goal: str) -> str:
    return GOALS[goal][:1].upper() + GOALS[goal][1:]


def _table(said: Report, look: tables.Look, goal: str) -> None:
    st.html(tables.main_table(said.table, look, said.remarks, goal, skipped=said.skipped))
    if said.overflow:
        st.warning(words.plain(said.overflow), icon=":material/warning:")
    _ends(said.counts)
    if said.not_common:
        st.caption(words.plain(said.not_common))
    with st.expander("All metrics", key="data/metrics", on_change="rerun") as box:
        if box.open:
            st.html(tables.full_table(said.table, look, said.remarks))


def _group(said: Report, shown: Shown) -> tuple[Grouping, int] | None:
    """Draw the choice of the jobs that the table is of; None = all."""
    if not said.baseline:
        return None
    try:
        ways = winners.groupings(shown)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return None
    options: dict[str, tuple[Grouping, int]] = {}
    for way in ways.values():
        options |= {f"{way.title}: {name}": (way, at) for at, name in enumerate(way.names)}
    chosen = st.selectbox("Jobs of the table", [_ALL_JOBS, *options], key="table_group", format_func=charts.visible, width=280, persist_state="session")
    return options.get(chosen)


def _group_table(shown: Shown, look: tables.Look, group: tuple[Grouping, int], *, withheld: bool) -> None:
    way, at = group
    try:
        table, counts = _only(shown.mark, way.title, at, shown, way)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        return
    fewest = int(counts["completed"].min() / counts["repeats"].iloc[0])
    # Of few jobs nothing is told in per cent.
    st.html(tables.full_table(table, replace(look, baseline="") if withheld or fewest < meaning.FEWEST_IN_GROUP else look))
    _ends(counts)
    st.caption(
        words.plain(
            f"{way.title} {way.names[at]} only. GPUs busy, makespan and costs belong to the whole run, so they are left out; the headline is of all jobs."
        )
    )


@st.cache_resource(max_entries=24, show_spinner=False)
def _only(mark: str, title: str, at: int, _shown: Shown, _way: Grouping) -> tuple[pd.DataFrame, pd.DataFrame]:
    del mark, title
    return groups.only(_shown, _way.codes == at)


def cdf(said: Report, look: tables.Look) -> None:
    """Draw the distribution of completion times."""
    shown = look.drawn(said.labels)
    curves = {title: said.frames["cdf"][title] for title in shown}
    left_out = {title: said.left_out[title] for title in shown}
    question = "How long do jobs take, from submission to finish?"
    drawn = figure.kept(("cdf", said.mark), lambda: charts.jct_cdf(curves, {title: look.style[title] for title in shown}, question, left_out))
    half = ", ".join(f"{title} {words.time(float(curve['jct_s'].iloc[(len(curve) - 1) // 2]))}" for title, curve in curves.items() if len(curve))
    figure.draw(drawn, "cdf", f"Share of jobs done within a time. Half of them within: {half}.", lambda: _quantiles(curves))


def _quantiles(curves: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    parts = [pd.DataFrame({"Policy": title, "Share of jobs": curve["share"], "Within (s)": curve["jct_s"]}) for title, curve in curves.items()]
    return pd.concat(parts, ignore_index=True)


def decomposition(said: Report) -> None:
    """Draw what the mean completion times consist of, with a sentence on every part that is there."""
    table = said.parts
    told = {part.name.capitalize(): table[part.column].map(words.time) for part in charts.PARTS}
    rows = {"Policy": table["policy"], "Jobs completed": table["jobs"], "Mean JCT": table["jct_s"].map(words.time), **told}
    drawn = figure.kept(("parts", said.mark), lambda: charts.decomposition(table, "Where does the time of a job go?"))
    figure.draw(drawn, "parts", _parts_alt(table), lambda: pd.DataFrame(rows))
    there = [part for part in charts.PARTS if (table[part.column] > _SMALL_S).any()]
    st.caption(" ".join(["Means over completed jobs.", *([f"{'; '.join(f'**{part.name}**: {part.meaning}' for part in there)}."] if there else [])]))


def trust(said: Report) -> None:
    """Draw how far the simulator is from the recorded history."""
    if said.trust is None:
        st.caption(said.untold)
        return
    with st.expander(f"How far to believe it: {words.plain(said.trust.sentence())}"):
        told = said.trust.by_size.assign(**{name: said.trust.by_size[name].map(words.time) for name in ("recorded_s", "median_s", "p95_s")})
        st.dataframe(told, hide_index=True, height="content", column_config=_TRUST)
        st.caption("Absolute error of the wait (first start − submission) against the recorded one, by GPUs asked for.")


def look(shown: Shown) -> tables.Look:
    """Return how the policies of a study are drawn: by their place in it, so that one that comes later changes no colour."""
    baseline = shown.titles[shown.baseline]
    dark = getattr(st.context.theme, "type", "light") == "dark"
    return tables.Look(charts.policy_style(shown.titles, baseline), baseline if shown.complete(shown.baseline) else "", dark)


def _parts_alt(table: pd.DataFrame) -> str:
    told = [
        f"{row['policy']} {words.time(float(row['jct_s']))}, of it {words.time(float(row['queue_s']))} waiting to start" for row in table.to_dict("records")
    ]
    return f"Mean JCT and its parts, by policy: {'; '.join(told)}."


def _ends(counts: pd.DataFrame) -> None:
    """Say how many jobs did not complete, beside every mean."""
    rows = [{str(key): value for key, value in row.items()} for row in counts.to_dict("records")]
    told = []
    for row in rows:
        why = f" ({row['why']})" if row["why"] else ""
        others = [
            f"{words.count(row[name])} {name}{why if name == 'failed' else ''}" for name in ("failed", "impossible", "refused", "unfinished") if row[name]
        ]
        if others:
            told.append(f"{words.plain(str(row['label']))}: {', '.join(others)}")
    repeats = int(rows[0]["repeats"])
    if told:
        st.caption(f"Not completed, so not in the means{f' (of {repeats} repeats together)' if repeats > 1 else ''}: {'; '.join(told)}.")
        return
    jobs = int(rows[0]["jobs"]) // repeats
    all_of = "The only job was" if jobs == 1 else f"All {words.plural(jobs, 'job')} were"
    under = "every policy" if len(rows) > 1 else words.plain(str(rows[0]["label"]))
    st.caption(f"{all_of} completed under {under}{f', in each of {repeats} repeats' if repeats > 1 else ''}.")


_TRUST: Final[dict[str, Any]] = {
    "size": "GPUs",
    "jobs": st.column_config.NumberColumn("Jobs", format="localized"),
    "recorded_s": "Median recorded wait",
    "median_s": "Median error",
    "p95_s": "95th percentile of the error",
}
