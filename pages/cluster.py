"""Cluster: the machines as a table and a picture, their prices, and what may go wrong with them."""

from __future__ import annotations

import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.trace import Trace
from trainyard.clusters import machines, prices
from trainyard.text import gpu_type
from trainyard.traces import start
from trainyard.traces.sources import load_trace
from trainyard.views import inputs
from ui import figure, server, state, words
from ui.choosing import cluster_editor, gpu_types, profiles, run_settings
from ui.layout import page


def body() -> None:
    """Draw the page."""
    try:
        trace = load_trace(state.session().study.base.trace, server.store())
    except TrainyardError as error:
        if not start.trace_is_gone(state.session().study, server.store()):  # else it is said above
            st.warning(words.plain(str(error)), icon=":material/warning:")
        trace = None
    # Filled after the tables, which may change what the headline says.
    head = st.container(horizontal=True, vertical_alignment="center")
    gpu_types.ask()
    totals = st.container()
    with st.container(key="cluster_parts"):
        left, right = st.columns([5, 2], gap="small")
    with left:
        cluster_editor.tables()
    cluster = state.session().study.base.cluster
    with head:
        st.title(words.plain(_headline(cluster)), anchor=False)
        cluster_editor.menus(trace)
    with totals:
        _totals(cluster)
    with right:
        figure.draw(inputs.racks(cluster))
    if trace is not None:
        _fit(trace, cluster)
    st.subheader("Restarts and failures", anchor=False)
    run_settings.draw()


def _headline(cluster: Cluster) -> str:
    nodes = words.plural(len(cluster.nodes), "node")
    machines_of = f"{words.plural(cluster.gpus, 'GPU')} on {nodes}" if cluster.gpus else nodes
    return f"{cluster.name}: {machines_of}"


def _totals(cluster: Cluster) -> None:
    total = machines.totals(cluster)
    tiles: dict[str, tuple[str, str | None]] = {"Nodes": (f"{total.nodes:,}", None)}
    if total.gpus:
        tiles["GPUs"] = f"{total.gpus:,}", None
        tiles["V100-equivalents"] = f"{total.equivalents:,.0f}", _EQUIVALENTS
    else:
        tiles["CPU cores"] = words.count(sum(node.cpus for node in cluster.nodes)), None
    listed, missing = (
        words.plain(", ".join(map(gpu_type, names))) for names in prices.not_own(cluster)
    )
    if total.price_per_hour and not missing:
        tiles["Price per hour"] = words.money(total.price_per_hour), "All nodes, in service or not."
    grid = st.grid(len(tiles), min_column_width=130)
    for label, (value, meaning) in tiles.items():
        with grid.cell():
            st.metric(label, value, help=meaning, border=True)
    if missing:
        st.caption(f":material/sell: No price of {missing} is known, so no cost is shown.")
    elif listed:
        st.caption(f":material/sell: List prices of {listed}, for comparison only.")


def _fit(trace: Trace, cluster: Cluster) -> None:
    stopped = profiles.stopped(state.session().study)
    if stopped is not None:
        for sentence in stopped.sentences:
            st.warning(words.plain(sentence), icon=":material/warning:")
        return
    try:
        found = cluster_editor.fit(trace, cluster, state.session().study.base.perf)
    except TrainyardError as error:
        st.warning(words.plain(str(error)), icon=":material/warning:")
        return
    if found.sentences():
        cluster_editor.never(found)
    if not (found.jobs or found.unless_resized):
        st.caption(
            f":material/check: Every one of the {words.plural(len(trace), 'job')} fits on the empty"
            " cluster."
        )


_EQUIVALENTS = "GPUs weighted by the speed of their type; one V100 counts 1."

if __name__ == "__main__":
    page("cluster", body)
