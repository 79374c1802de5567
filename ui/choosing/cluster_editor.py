"""Tables of node groups and GPU types to edit, imports, presets, and jobs that never fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import streamlit as st

from sim.cluster import KNOWN_TYPES, Cluster
from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard import formatting
from trainyard.clusters import machines
from trainyard.clusters.prices import (
    PRICE_LISTS,
    PriceList,
    apply_price_list,
    describe_sources,
    speed_source,
    types_with_guessed_speed,
)
from trainyard.preflight import leave_out
from trainyard.store import profiles
from trainyard.study import gpu_types as study_types
from trainyard.traces import new_study
from ui import figure, server, state, uploaded_files, words
from ui.choosing import gpu_types

_COLUMN: Final = st.column_config
_CPU: Final = ""
"""GPU type of a node without GPUs in the list."""


def _group_columns(types: Sequence[str]) -> dict[str, Any]:
    """Return the editor's column settings for node groups; `types` = GPU types to offer."""
    return {
        "nodes": _COLUMN.NumberColumn(
            "Nodes", width=80, min_value=0, max_value=100_000, step=1, required=True, default=1
        ),
        "gpus_per_node": _COLUMN.NumberColumn(
            "GPUs each",
            width=100,
            min_value=0,
            max_value=1024,
            step=1,
            default=8,
            help="GPUs per node; 0 = a CPU node.",
        ),
        "gpu_type": _COLUMN.SelectboxColumn(
            "GPU type",
            width=100,
            options=list(types),
            format_func=_type_label,
            help="Empty for CPU nodes. Add a missing type with New GPU type.",
            default="v100",
        ),
        "price_per_node_hour": _COLUMN.NumberColumn(
            "USD per node-hour",
            width=145,
            min_value=0,
            format="%.2f",
            help="Not set: GPUs × price of their type.",
        ),
        "rack_size": _COLUMN.NumberColumn(
            "Nodes per rack",
            width=125,
            min_value=0,
            step=1,
            help="Not set: all nodes of this row in one rack.",
        ),
        "name": _COLUMN.TextColumn("Name", width=70, help="Prefix of the node names (optional)."),
        "partitions": _COLUMN.TextColumn(
            "Partitions",
            width=95,
            help=(
                "Queues or virtual clusters that may use these nodes, separated by commas. Empty:"
                " all."
            ),
        ),
        "cores": _COLUMN.NumberColumn(
            "CPU cores", width=100, min_value=0, help="Per node. Not set: not limited."
        ),
        "memory_gb": _COLUMN.NumberColumn(
            "Memory (GB)", width=115, min_value=0, help="Per node. Not set: not limited."
        ),
    }


_FILES: Final = ("json", "csv", "tsv", "conf", "txt", "log", "yaml", "yml")
_TABLES: Final = (
    "CSV: a row per node, or per kind of node with a column nodes. Other columns: gpus, gpu_type,"
    " cores, memory_gb, partitions, instance_type. Virtual-cluster sizes work"
    " too (vc_config.csv of Philly or Lucid, cluster_gpu_number.csv of Helios): nodes are assumed"
    " to have 8 V100."
)
_TYPES: Final[dict[str, Any]] = {
    "speed": _COLUMN.NumberColumn(
        "Speed, V100 = 1", min_value=0.001, format="%.2f", help="Training speed relative to a V100."
    ),
    "price_per_gpu_hour": _COLUMN.NumberColumn("USD per GPU-hour", min_value=0, format="%.2f"),
}


def draw_menus(trace: Trace | None) -> None:
    """Draw the menus Presets, Type or import, Prices (if a list applies), New GPU type."""
    with st.container(horizontal=True, width="content", key="cluster_menus"):
        with st.popover("Presets", icon=":material/dns:", key=state.widget_key("presets")):
            _draw_presets(trace)
        with st.popover(
            "Type or import", icon=":material/input:", key=state.widget_key("type_or_import")
        ):
            _show_errors(_draw_text_field)
            _show_errors(lambda: _draw_import(trace))
        if price_lists := _matching_price_lists():
            with st.popover("Prices", icon=":material/sell:", key=state.widget_key("prices")):
                _draw_price_lists(price_lists)
        with st.popover("New GPU type", icon=":material/add:", key=state.widget_key("new_type")):
            gpu_types.draw_new_type()


def _draw_presets(trace: Trace | None) -> None:
    """Draw a button per preset (one is made for the trace) that replaces the cluster."""
    for preset in _presets_for(trace.digest if trace is not None else "", trace):
        types = [formatting.gpu_type(kind.name) for kind in preset.cluster.types]
        unnamed = ", ".join(kind for kind in types if kind not in preset.name)
        label = f"{preset.name}, {words.plural(preset.cluster.gpus, 'GPU')}"
        label += f" ({unnamed})" if unnamed else ""
        if st.button(
            label, key=f"preset/{preset.name}", help=words.plain(preset.help), width="stretch"
        ):
            gpu_types.set_cluster(preset.cluster, preset.unknown_types)


def _draw_text_field() -> None:
    """Draw a field for a cluster as text, e.g. 4x8:a100, and the button that uses it."""
    typed = st.text_input(
        "Nodes x GPUs : type",
        "",
        key="cluster_spec",
        placeholder="4x8:a100,2x8:v100",
        help="4x8:a100 = 4 nodes of 8 A100, 2x0:cpu = 2 nodes without GPUs, 4xp4d.24xlarge = 4"
        " cloud instances; separated by commas.",
    )
    if st.button("Apply", key="use_spec") and typed:
        cluster = Cluster.parse(typed)
        named_cluster = replace(cluster, name=study_types.describe_cluster(cluster))
        gpu_types.set_cluster(named_cluster, study_types.unknown_types(cluster))


def _show_errors(import_cluster: Callable[[], None]) -> None:
    """Call a function that imports a cluster, and draw its TrainyardError on the page."""
    try:
        import_cluster()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def _draw_import(trace: Trace | None) -> None:
    """Draw the uploader for a cluster description; a new file replaces the cluster."""
    counts_down_nodes = st.toggle(
        "Include down nodes",
        key="cluster_away",
        help="Also drained, reserved, cordoned and not-ready nodes. Set this before the file.",
    )
    # The toggle changes the key, which empties the uploader: an imported file is not kept.
    key = "cluster_file_away" if counts_down_nodes else "cluster_file"
    file = st.file_uploader(
        "slurm.conf, output of scontrol, sinfo or kubectl, CSV, or JSON description",
        _FILES,
        key=key,
        max_upload_size=5,
    )
    st.code(
        "scontrol show node > nodes.txt\nkubectl get nodes -o json > nodes.json", language="bash"
    )
    st.caption(_TABLES)
    if file is None or st.session_state.get("taken_cluster") == file.file_id:
        return
    st.session_state["taken_cluster"] = file.file_id
    cluster, notes, unknown, questions = machines.import_cluster(
        file.name,
        uploaded_files.take_bytes(file, key),
        trace.epoch if trace is not None else "",
        include_down=counts_down_nodes,
    )
    summary = (
        f"Read {words.plural(len(cluster.nodes), 'node')} with"
        f" {words.plural(cluster.gpus, 'GPU')} from {file.name}."
    )
    gpu_types.set_cluster(cluster, unknown, " ".join([summary, *notes]), questions)


def draw_tables() -> None:
    """Draw editable tables of node groups and GPU types; save edits or draw their error."""
    session = state.session()
    groups_key = state.widget_key("groups")
    if groups_key not in st.session_state or "cluster_source" not in st.session_state:
        # The editor needs the same frame on every rerun to keep edits, so a new one is built only
        # when the page opens or code replaces the cluster.
        st.session_state["cluster_source"] = machines.group_table(session.study.base.cluster)
    own_types = gpu_types.own_types()
    described = session.study.base.cluster.types
    names = dict.fromkeys([*KNOWN_TYPES, *(kind.name for kind in described), *own_types])
    columns = _group_columns([_CPU, *names])
    groups = st.data_editor(
        st.session_state["cluster_source"],
        key=groups_key,
        num_rows="dynamic",
        hide_index=True,
        column_order=list(columns),
        column_config=columns,
        alt="Node groups: one row per kind of node",
        placeholder="not set",
    )
    described_names = {kind.name for kind in described}
    before = machines.type_table(
        replace(
            session.study.base.cluster,
            types=(
                *described,
                *(kind for name, kind in own_types.items() if name not in described_names),
            ),
        )
    )
    try:
        cluster = machines.cluster_from_tables(groups, before, session.study.base.cluster)
        cluster = machines.cluster_from_tables(groups, _draw_types(cluster), cluster)
        study = new_study.with_cluster(session.study, cluster)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("The scenario keeps the earlier cluster until this is corrected.")
        return
    if cluster != session.study.base.cluster:
        session.edit(study)


def _matching_price_lists() -> dict[str, PriceList]:
    """Return name -> price list, for lists with a GPU type of the cluster."""
    types = set(state.session().study.base.cluster.type_index)
    return {prices.name: prices for prices in PRICE_LISTS if types & set(prices.usd_per_gpu_hour)}


def _draw_price_lists(price_lists: Mapping[str, PriceList]) -> None:
    """Draw a button per price list that applies it, and the sources of current prices."""
    cluster = state.session().study.base.cluster
    for name, prices in price_lists.items():
        if st.button(
            name.capitalize(), key=f"prices/{name}", help=words.plain(prices.help), width="stretch"
        ):
            gpu_types.set_cluster(apply_price_list(cluster, prices))
    if cluster.gpus:
        st.caption("\n".join(f"- {words.plain(line)}" for line in describe_sources(cluster)))


def find_unschedulable(trace: Trace, cluster: Cluster, perf: Spec) -> machines.UnschedulableJobs:
    """Return the jobs that can never start on a cluster, with reasons; cached.

    Raises
    ------
    TrainyardError
        If the performance model cannot handle these jobs and machines.
    """
    return _unschedulable_cached(f"{trace.digest} {cluster.digest} {perf}", trace, cluster, perf)


def draw_unschedulable(unschedulable: machines.UnschedulableJobs) -> None:
    """Draw why jobs can never start, a button that leaves them out, and a table."""
    st.warning(
        "  \n".join(words.plain(sentence) for sentence in unschedulable.sentences()),
        icon=":material/warning:",
    )
    if unschedulable.jobs and not unschedulable.mask.all():
        label, help_text = (
            f"Leave out {words.plural(unschedulable.jobs, 'job')}",
            "Makes a new trace of the other jobs, which counts the omitted ones.",
        )
        if st.button(label, key="leave_out", icon=":material/filter_alt:", help=help_text):
            session = state.session()
            study = leave_out.without_unschedulable(session.study, server.store())
            session.news = (
                f"Jobs that can never start on {session.study.base.cluster.name} are left out."
                " Trace counts them."
            )
            session.replace(study)
            st.rerun()
    if len(unschedulable.first_jobs):
        total = unschedulable.jobs + unschedulable.need_resizing
        shown_count = len(unschedulable.first_jobs)
        label = (
            f"Show {shown_count:,} of {total:,} jobs"
            if shown_count < total
            else f"Show {shown_count:,} jobs"
        )
        with st.expander(label):
            st.dataframe(figure.readable(unschedulable.first_jobs), hide_index=True)


@st.cache_data(max_entries=16, show_spinner=False)
def _unschedulable_cached(
    cache_key: str, _trace: Trace, _cluster: Cluster, _perf: Spec
) -> machines.UnschedulableJobs:
    """Return the jobs that can never start, cached by trace, cluster and model."""
    del cache_key
    return machines.find_unschedulable_jobs(
        _trace, _cluster, profiles.build_model(_perf, server.store())
    )


@st.cache_resource(max_entries=8, show_spinner=False)
def _presets_for(cache_key: str, _trace: Trace | None) -> tuple[machines.ClusterPreset, ...]:
    """Return the preset clusters, with one made for the trace if it is given; cached."""
    del cache_key
    return machines.cluster_presets(_trace)


def _type_label(name: object) -> str:
    return formatting.gpu_type(str(name))


def _type_column(names: Sequence[str]) -> Any:
    """Return a select column of GPU types."""
    return _COLUMN.SelectboxColumn("GPU type", options=list(names), format_func=_type_label)


def _draw_types(cluster: Cluster) -> pd.DataFrame:
    """Draw the table of GPU speeds and prices; return it as edited. Hidden without GPUs."""
    if not cluster.gpus:
        return machines.type_table(cluster)
    names = "+".join(kind.name for kind in cluster.types)
    key = state.widget_key("types", names)
    sources: dict[str, pd.DataFrame] = st.session_state.setdefault("type_sources", {})
    if key not in st.session_state or key not in sources:
        sources.clear()
        sources[key] = machines.type_table(cluster)
    edited = st.data_editor(
        sources[key],
        key=key,
        hide_index=True,
        disabled=["gpu_type"],
        column_config={"gpu_type": _type_column([kind.name for kind in cluster.types]), **_TYPES},
        alt="GPU types",
    )
    if guessed_types := types_with_guessed_speed(cluster):
        listed = "; ".join(
            f"{formatting.gpu_type(kind.name)} {speed_source(kind).removeprefix('guessed: ')}"
            for kind in guessed_types
        )
        st.caption(f":material/help: Guessed speeds, not measured: {words.plain(listed)}.")
    return edited
