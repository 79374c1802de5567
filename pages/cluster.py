"""Cluster: machines as a table and a picture, prices, failures."""

from __future__ import annotations

import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.trace import Trace
from trainyard.clusters import machines, prices
from trainyard.formatting import gpu_type
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from trainyard.views import inputs
from ui import figure, server, state, words
from ui.choosing import cluster_editor, gpu_types, profiles, run_settings
from ui.layout import run_page


def body() -> None:
    """Draw the Cluster page: totals, tables, racks, jobs that never fit, restarts, failures."""
    try:
        trace = load_trace(state.session().study.base.trace, server.store())
    except TrainyardError as error:
        if not new_study.is_trace_missing(
            state.session().study, server.store()
        ):  # else reported above
            st.warning(words.plain(str(error)), icon=":material/warning:")
        trace = None
    # Filled after the tables, which may change the headline.
    head = st.container(horizontal=True, vertical_alignment="center")
    gpu_types.draw_questions()
    totals = st.container()
    with st.container(key="cluster_parts"):
        left, right = st.columns([5, 2], gap="small")
    with left:
        cluster_editor.draw_tables()
    cluster = state.session().study.base.cluster
    with head:
        st.title(words.plain(_headline(cluster)), anchor=False)
        cluster_editor.draw_menus(trace)
    with totals:
        _draw_totals(cluster)
    with right:
        figure.draw(inputs.racks(cluster))
    if trace is not None:
        _draw_fit(trace, cluster)
    st.subheader("Restarts and failures", anchor=False)
    run_settings.draw()


def _headline(cluster: Cluster) -> str:
    """Return the headline: name of the cluster, GPUs (if it has any) and nodes."""
    nodes = words.plural(len(cluster.nodes), "node")
    size = f"{words.plural(cluster.gpus, 'GPU')} on {nodes}" if cluster.gpus else nodes
    return f"{cluster.name}: {size}"


def _draw_totals(cluster: Cluster) -> None:
    """Draw nodes, GPUs or cores, and price as tiles; name GPU types with no or list prices."""
    total = machines.cluster_totals(cluster)
    tiles: dict[str, tuple[str, str | None]] = {"Nodes": (f"{total.nodes:,}", None)}
    if total.gpus:
        tiles["GPUs"] = f"{total.gpus:,}", None
        tiles["Capacity in V100s"] = f"{total.equivalents:,.0f}", _EQUIVALENTS
    else:
        tiles["CPU cores"] = words.count(sum(node.cpus for node in cluster.nodes)), None
    list_priced, missing = (
        words.plain(", ".join(map(gpu_type, names)))
        for names in prices.types_without_own_price(cluster)
    )
    if total.price_per_hour and not missing:
        tiles["Price per hour"] = words.money(total.price_per_hour), "All nodes, in service or not."
    grid = st.grid(len(tiles), min_column_width=130)
    for label, (value, help_text) in tiles.items():
        with grid.cell():
            st.metric(label, value, help=help_text, border=True)
    if missing:
        st.caption(f":material/sell: No price for {missing}, so no cost is shown. Set it below.")
    elif list_priced:
        st.caption(f":material/sell: List prices of {list_priced}, for comparison only.")


def _draw_fit(trace: Trace, cluster: Cluster) -> None:
    """Draw what the profile lacks, else jobs that can never start, else that all jobs fit."""
    missing_profiles = profiles.blocking_coverage(state.session().study)
    if missing_profiles is not None:
        for sentence in missing_profiles.sentences:
            st.warning(words.plain(sentence), icon=":material/warning:")
        return
    try:
        fit = cluster_editor.find_unschedulable(trace, cluster, state.session().study.base.perf)
    except TrainyardError as error:
        st.warning(words.plain(str(error)), icon=":material/warning:")
        return
    if fit.sentences():
        cluster_editor.draw_unschedulable(fit)
    if not (fit.jobs or fit.need_resizing):
        st.caption(
            f":material/check: All {words.plural(len(trace), 'job')} fit on the empty cluster."
        )


_EQUIVALENTS = "GPUs weighted by the speed of their type; one V100 = 1."

if __name__ == "__main__":
    run_page("cluster", body)
