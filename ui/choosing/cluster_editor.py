"""The machines as two tables to edit: node groups, and the speed and price of each GPU type; and the jobs that they can never hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.clusters.prices import PRICES, figures_from, with_prices
from trainyard.preflight import leave_out
from trainyard.store import profiles
from trainyard.traces import start
from ui import figure, received, server, state, words

_COLUMN: Final = st.column_config
_GROUPS: Final[dict[str, Any]] = {
    "name": _COLUMN.TextColumn("Name", width=70, help="Prefix of the node names; may stay empty."),
    "nodes": _COLUMN.NumberColumn("Nodes", width=80, min_value=0, max_value=100_000, step=1, required=True, default=1),
    "gpus_per_node": _COLUMN.NumberColumn("GPUs/node", width=105, min_value=0, max_value=1024, step=1, default=8, help="0 = a CPU node."),
    "gpu_type": _COLUMN.TextColumn("GPU type", width=105, help="Any name, e.g. v100 or a100; empty for CPU nodes.", default="v100"),
    "rack_size": _COLUMN.NumberColumn("Nodes/rack", width=110, min_value=0, step=1, help="Empty = all of this row are in one rack."),
    "partitions": _COLUMN.TextColumn("Partitions", width=95, help="Queues or virtual clusters that may use these nodes, separated by commas; empty = all."),
    "cores": _COLUMN.NumberColumn("CPU cores", width=110, min_value=0, help="Per node; empty = cores are not modelled."),
    "memory_gb": _COLUMN.NumberColumn("Memory (GB)", width=125, min_value=0, help="Per node; empty = memory is not modelled."),
    "price_per_node_hour": _COLUMN.NumberColumn("USD/node-hour", width=135, min_value=0, format="%.2f", help="Empty = GPUs × the price of their type."),
}
_FILES: Final = ("json", "csv", "tsv", "conf", "txt", "log")
_TABLES: Final = (
    "A CSV has a row per node, or per kind of node with a column nodes; its other columns: gpus, gpu_type, cores, memory_gb, partitions. Or it holds the sizes "
    "of virtual clusters, as vc_config.csv of Philly or Lucid and the daily cluster_gpu_number.csv of Helios do; those are read as nodes of 8 v100."
)
_TYPES: Final[dict[str, Any]] = {
    "gpu_type": _COLUMN.TextColumn("GPU type"),
    "speed": _COLUMN.NumberColumn("Speed, V100 = 1", min_value=0.001, format="%.2f", help="Training speed against one V100."),
    "price_per_gpu_hour": _COLUMN.NumberColumn("USD per GPU-hour", min_value=0, format="%.2f"),
}


def presets(trace: Trace | None) -> None:
    """Draw the list of clusters to start from, and the short description."""
    mine = state.desk()
    found = {preset.name: preset for preset in _presets(trace.digest if trace is not None else "", trace)}
    grid = st.grid(2, min_column_width=320, vertical_alignment="bottom", gap="medium")
    with grid.cell(), st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Preset", list(found), None, key="preset", placeholder="choose a cluster to start from")
        if st.button("Load", key="load_preset", disabled=chosen is None) and chosen is not None:
            _take(mine, found[chosen].cluster)
    with grid.cell(), st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input("or in one line", "", key="cluster_spec", placeholder="16x8:v100,4x4:t4,2x0:cpu", help="nodes x GPUs : type")
        if st.button("Use", key="use_spec", disabled=not text):
            _read(lambda: _take(mine, Cluster.parse(text)))
    if chosen is not None:
        st.caption(words.plain(found[chosen].help))
    with st.expander("Import slurm.conf, scontrol or a table", key="import"):
        _read(lambda: _import(trace))


def _read(take: Callable[[], None]) -> None:
    """Take a description over; what is wrong with one is said where it was given, and the cluster stays as it was."""
    try:
        take()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def _import(trace: Trace | None) -> None:
    mine = state.desk()
    file = st.file_uploader("slurm.conf, what scontrol prints, a CSV or a description (JSON)", _FILES, key="cluster_file", max_upload_size=5)
    st.caption("What your cluster says of itself:")
    st.code("scontrol show node > nodes.txt", language="bash")
    st.caption(_TABLES)
    if file is None or st.session_state.get("taken_cluster") == file.file_id:
        return
    st.session_state["taken_cluster"] = file.file_id
    cluster, notes = machines.import_cluster(file.name, received.taken(file, "cluster_file"), trace.epoch if trace is not None else "")
    mine.news = " ".join([f"Read {words.plural(len(cluster.nodes), 'node')} with {words.plural(cluster.gpus, 'GPU')} from {file.name}.", *notes])
    _take(mine, cluster)


def tables() -> None:
    """Draw the two tables; what cannot be used is said, and the cluster stays as it was."""
    mine = state.desk()
    groups_key = state.widget("groups")
    if groups_key not in st.session_state or "cluster_source" not in st.session_state:
        # The editor wants the same frame on every run, or it loses edits; so it is made anew only when the page is opened or the cluster is replaced.
        st.session_state["cluster_source"] = machines.group_table(mine.study.base.cluster)
    order = list(_GROUPS)
    groups = st.data_editor(
        st.session_state["cluster_source"],
        key=groups_key,
        num_rows="dynamic",
        hide_index=True,
        column_order=order,
        column_config=_GROUPS,
        alt="Node groups",
        placeholder="–",
    )
    st.caption("One row per kind of node. Add a row at the bottom; select rows at the left to delete them.")
    try:
        cluster = machines.cluster_from_tables(groups, machines.type_table(mine.study.base.cluster), mine.study.base.cluster)
        cluster = machines.cluster_from_tables(groups, _types(cluster), cluster)
        study = start.with_cluster(mine.study, cluster)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("Until this is corrected, the scenario keeps the cluster as it was before.")
        return
    if cluster != mine.study.base.cluster:
        mine.edit(study)
    if cluster.gpus:
        with st.expander("Where these figures come from", key="figures_from"):
            st.markdown("\n".join(f"- {words.plain(line)}" for line in figures_from(cluster)))


def prices() -> None:
    """Draw the lists of prices to start from, of those that know a GPU type of the cluster."""
    mine = state.desk()
    types = set(mine.study.base.cluster.type_index)
    known = {prices.name: prices for prices in PRICES if types & set(prices.usd_per_gpu_hour)}
    if not known:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Prices", list(known), None, key="price_list", placeholder="choose a list of prices", width=320)
        if st.button("Load", key="load_prices", disabled=chosen is None) and chosen is not None:
            _take(mine, with_prices(mine.study.base.cluster, known[chosen]))
    if chosen is not None:
        named = ", ".join(f"{kind} {words.money(usd)}" for kind, usd in known[chosen].usd_per_gpu_hour.items())
        st.caption(words.plain(f"{known[chosen].help} Per GPU-hour: {named}. Other types, and nodes with a price of their own, keep theirs."))


def fit(trace: Trace, cluster: Cluster, perf: Spec) -> machines.Hopeless:
    """Return which jobs can never start on a cluster; remembered by content.

    Raises
    ------
    TrainyardError
        If the performance model does not work with these jobs and machines.
    """
    return _fit(f"{trace.digest} {cluster.digest} {perf}", trace, cluster, perf)


def never(found: machines.Hopeless) -> None:
    """Draw who can never start: how many and why, the first of them, and a way to leave them out."""
    st.warning("  \n".join(words.plain(sentence) for sentence in found.sentences()), icon=":material/warning:")
    if found.jobs and not found.never.all():
        label, how = f"Leave out {words.plural(found.jobs, 'job')}", "The others become a trace of their own, which counts those that are left out."
        if st.button(label, key="leave_out", icon=":material/filter_alt:", help=how):
            mine = state.desk()
            study = leave_out.without_impossible(mine.study, server.store())
            mine.news = f"Jobs that can never start on {mine.study.base.cluster.name} are left out; the Trace page counts them."
            mine.replace(study)
            st.rerun()
    if len(found.first):
        with st.expander(f"Show them ({len(found.first):,} of {found.jobs + found.unless_resized:,})"):
            st.dataframe(figure.readable(found.first), hide_index=True)


@st.cache_data(max_entries=16, show_spinner=False)
def _fit(mark: str, _trace: Trace, _cluster: Cluster, _perf: Spec) -> machines.Hopeless:
    del mark
    return machines.impossible(_trace, _cluster, profiles.resolved(_perf, server.store()))


@st.cache_resource(max_entries=8, show_spinner=False)
def _presets(mark: str, _trace: Trace | None) -> tuple[machines.Preset, ...]:
    del mark
    return machines.presets(_trace)


def _types(cluster: Cluster) -> pd.DataFrame:
    if not cluster.gpus:
        return machines.type_table(cluster)
    names = "+".join(kind.name for kind in cluster.types)
    key = state.widget("types", names)
    sources: dict[str, pd.DataFrame] = st.session_state.setdefault("type_sources", {})
    if key not in st.session_state or key not in sources:
        sources.clear()
        sources[key] = machines.type_table(cluster)
    return st.data_editor(sources[key], key=key, hide_index=True, disabled=["gpu_type"], column_config=_TYPES, alt="GPU types")


def _take(mine: state.Desk, cluster: Cluster) -> None:
    mine.replace(start.with_cluster(mine.study, cluster))
    st.rerun()
