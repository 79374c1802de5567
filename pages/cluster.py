"""Cluster: which machines, at what price, and what may go wrong with them."""

from __future__ import annotations

import streamlit as st

import charts
from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.trace import Trace
from trainyard.clusters import machines, prices
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from ui import figure, server, state, words
from ui.choosing import cluster_editor, knobs, profiles
from ui.shell import page


def body() -> None:
    """Draw the page."""
    st.title("Which machines?", anchor=False)
    try:
        trace = load_trace(state.desk().study.base.trace, server.store())
    except TrainyardError as error:
        if not start.trace_is_gone(state.desk().study, server.store()):  # else it is said above
            st.warning(words.plain(str(error)), icon=":material/warning:")
        trace = None
    cluster_editor.presets(trace)
    cluster_editor.tables()
    cluster_editor.prices()
    cluster = state.desk().study.base.cluster
    _totals(cluster)
    _racks(cluster)
    if trace is not None:
        _fit(trace, cluster)
    st.subheader("What else may differ", anchor=False)
    knobs.draw()
    st.page_link("pages/policies.py", label="Next: the policies", icon=":material/arrow_forward:")


def _totals(cluster: Cluster) -> None:
    total = machines.totals(cluster)
    grid = st.grid(4, min_column_width=130)
    with grid.cell():
        st.metric("Nodes", f"{total.nodes:,}")
    with grid.cell():
        st.metric("GPUs", f"{total.gpus:,}")
    with grid.cell():
        if not total.gpus:
            st.metric("CPU cores", words.count(sum(node.cpus for node in cluster.nodes)))
        else:
            st.metric("V100-equivalents", f"{total.equivalents:,.0f}", help="GPUs weighted by the speed of their type; one V100 counts 1.")
    with grid.cell():
        st.metric("Price per hour", words.money(total.price_per_hour) if total.price_per_hour else words.MISSING, help=_PRICE)
    listed, missing = (words.plain(", ".join(names)) for names in prices.not_own(cluster))
    if listed:
        st.caption(f":material/sell: List prices of {listed}, for comparison only: edit them to make them yours.")
    if missing:
        st.caption(f":material/sell: No price of {missing} is known, so what costs money leaves them out: enter your own.")


def _racks(cluster: Cluster) -> None:
    nodes = machines.nodes(cluster)
    types = charts.type_style([kind.name for kind in cluster.types])
    gpus = f"{words.plural(cluster.gpus, 'GPU')} on " if cluster.gpus else ""
    said = f"{gpus}{words.plural(len(nodes), 'node')} in {words.plural(nodes['rack'].nunique(), 'rack')}"
    figure.draw(charts.racks(nodes, types, said), "racks", said, lambda: machines.nodes(cluster))


def _fit(trace: Trace, cluster: Cluster) -> None:
    stopped = profiles.stopped(state.desk().study)
    if stopped is not None:
        for sentence in stopped.sentences:
            st.warning(words.plain(sentence), icon=":material/warning:")
        return
    try:
        found = cluster_editor.fit(trace, cluster, state.desk().study.base.perf)
    except TrainyardError as error:
        st.warning(words.plain(str(error)), icon=":material/warning:")
        return
    if found.sentences():
        cluster_editor.never(found)
    else:
        st.caption(f":material/check: Every one of the {words.plural(len(trace), 'job')} fits on the empty cluster.")


_PRICE = "All nodes, in service or not. – = no node and no GPU type here has a price."

if __name__ == "__main__":
    page("cluster", body)
