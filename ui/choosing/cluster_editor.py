"""The machines as two tables to edit: node groups, and the speed and price of each GPU type; and
the jobs that they can never hold.
"""

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
from trainyard import text
from trainyard.clusters import machines
from trainyard.clusters.prices import (
    PRICES,
    Prices,
    figures_from,
    guessed,
    speed_from,
    with_prices,
)
from trainyard.preflight import leave_out
from trainyard.store import profiles
from trainyard.study import gpu_types as study_types
from trainyard.traces import start
from ui import figure, received, server, state, words
from ui.choosing import gpu_types

_COLUMN: Final = st.column_config
_CPU: Final = ""
"""What the list of GPU types calls a node without GPUs."""


def _group_columns(types: Sequence[str]) -> dict[str, Any]:
    """Return the columns of the table of nodes; the GPU type is a choice."""
    return {
        "nodes": _COLUMN.NumberColumn(
            "Nodes", width=85, min_value=0, max_value=100_000, step=1, required=True, default=1
        ),
        "gpus_per_node": _COLUMN.NumberColumn(
            "GPUs each",
            width=105,
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
            format_func=_type_name,
            help="Empty for CPU nodes. A type that is missing here is added with New GPU type.",
            default="v100",
        ),
        "price_per_node_hour": _COLUMN.NumberColumn(
            "USD per node-hour",
            width=150,
            min_value=0,
            format="%.2f",
            help="Empty = GPUs × the price of their type.",
        ),
        "rack_size": _COLUMN.NumberColumn(
            "Nodes per rack",
            width=130,
            min_value=0,
            step=1,
            help="Empty = all of this row are in one rack.",
        ),
        "name": _COLUMN.TextColumn(
            "Name", width=70, help="Prefix of the node names; may stay empty."
        ),
        "partitions": _COLUMN.TextColumn(
            "Partitions",
            width=95,
            help=(
                "Queues or virtual clusters that may use these nodes, separated by commas; empty ="
                " all."
            ),
        ),
        "cores": _COLUMN.NumberColumn(
            "CPU cores", width=90, min_value=0, help="Per node; empty = cores are not modelled."
        ),
        "memory_gb": _COLUMN.NumberColumn(
            "Memory (GB)", width=105, min_value=0, help="Per node; empty = memory is not modelled."
        ),
    }


_FILES: Final = ("json", "csv", "tsv", "conf", "txt", "log", "yaml", "yml")
_TABLES: Final = (
    "A CSV has a row per node, or per kind of node with a column nodes; its other columns: gpus,"
    " gpu_type, cores, memory_gb, partitions, or instance_type of a cloud. Or it holds the sizes of"
    " virtual clusters, as vc_config.csv of Philly or Lucid and the daily cluster_gpu_number.csv of"
    " Helios do: nodes of 8 V100, unless you say otherwise."
)
_TYPES: Final[dict[str, Any]] = {
    "speed": _COLUMN.NumberColumn(
        "Speed, V100 = 1", min_value=0.001, format="%.2f", help="Training speed against one V100."
    ),
    "price_per_gpu_hour": _COLUMN.NumberColumn("USD per GPU-hour", min_value=0, format="%.2f"),
}


def menus(trace: Trace | None) -> None:
    """Draw what the cluster is made from, each folded: a preset, a line to type, a file, a list of
    prices, a GPU type of one's own; each is closed again once it has been used.
    """
    with st.container(horizontal=True, width="content", key="cluster_menus"):
        with st.popover("Presets", icon=":material/dns:", key=state.widget_key("presets")):
            _preset_buttons(trace)
        with st.popover(
            "Type or import", icon=":material/input:", key=state.widget_key("type_or_import")
        ):
            _read(_typed)
            _read(lambda: _import(trace))
        if known := _known_lists():
            with st.popover("Prices", icon=":material/sell:", key=state.widget_key("prices")):
                _price_buttons(known)
        with st.popover("New GPU type", icon=":material/add:", key=state.widget_key("new_type")):
            gpu_types.describe()


def _preset_buttons(trace: Trace | None) -> None:
    for preset in _presets(trace.digest if trace is not None else "", trace):
        name = f"preset/{preset.name}"
        if st.button(preset.name, key=name, help=words.plain(preset.help), width="stretch"):
            gpu_types.take(preset.cluster, preset.unknown)


def _typed() -> None:
    typed = st.text_input(
        "Type it, e.g. 4x8:a100",
        "",
        key="cluster_spec",
        placeholder="16x8:v100,2x0:cpu,4xp4d.24xlarge",
        help="nodes x GPUs : type, or nodes x cloud instance such as 4xp4d.24xlarge; separated by"
        " commas.",
    )
    if st.button("Apply", key="use_spec") and typed:
        cluster = Cluster.parse(typed)
        named = replace(cluster, name=study_types.in_words(cluster))
        gpu_types.take(named, study_types.unknown(cluster))


def _read(take: Callable[[], None]) -> None:
    """Take a description over; what is wrong with one is said where it was given, and the cluster
    stays as it was.
    """
    try:
        take()
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")


def _import(trace: Trace | None) -> None:
    away = st.toggle(
        "Count nodes that are down",
        key="cluster_away",
        help="Also those that are drained, reserved, cordoned or not ready; else they are left out."
        " Choose before the file.",
    )
    # Another choice empties the field: of a file that was read nothing is kept.
    key = "cluster_file_away" if away else "cluster_file"
    file = st.file_uploader(
        "slurm.conf, what scontrol, sinfo or kubectl prints, a CSV or a description (JSON)",
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
    cluster, notes, unknown, asked = machines.import_cluster(
        file.name,
        received.take_bytes(file, key),
        trace.epoch if trace is not None else "",
        away=away,
    )
    read = (
        f"Read {words.plural(len(cluster.nodes), 'node')} with"
        f" {words.plural(cluster.gpus, 'GPU')} from {file.name}."
    )
    gpu_types.take(cluster, unknown, " ".join([read, *notes]), asked)


def tables() -> None:
    """Draw the two tables; what cannot be used is said, and the cluster stays as it was."""
    session = state.session()
    groups_key = state.widget_key("groups")
    if groups_key not in st.session_state or "cluster_source" not in st.session_state:
        # The editor wants the same frame on every run, or it loses edits; so it is made anew only
        # when the page is opened or the cluster is replaced.
        st.session_state["cluster_source"] = machines.group_table(session.study.base.cluster)
    own = gpu_types.own()
    described = session.study.base.cluster.types
    names = dict.fromkeys([*KNOWN_TYPES, *(kind.name for kind in described), *own])
    columns = _group_columns([_CPU, *names])
    groups = st.data_editor(
        st.session_state["cluster_source"],
        key=groups_key,
        num_rows="dynamic",
        hide_index=True,
        column_order=list(columns),
        column_config=columns,
        alt="Node groups: one row per kind of node",
        placeholder="–",
    )
    known = {kind.name for kind in described}
    before = machines.type_table(
        replace(
            session.study.base.cluster,
            types=(*described, *(kind for name, kind in own.items() if name not in known)),
        )
    )
    try:
        cluster = machines.cluster_from_tables(groups, before, session.study.base.cluster)
        cluster = machines.cluster_from_tables(groups, _types(cluster), cluster)
        study = start.with_cluster(session.study, cluster)
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        st.caption("Until this is corrected, the scenario keeps the cluster as it was before.")
        return
    if cluster != session.study.base.cluster:
        session.edit(study)


def _known_lists() -> dict[str, Prices]:
    """Return the lists of prices that know a GPU type of the cluster."""
    types = set(state.session().study.base.cluster.type_index)
    return {prices.name: prices for prices in PRICES if types & set(prices.usd_per_gpu_hour)}


def _price_buttons(known: Mapping[str, Prices]) -> None:
    cluster = state.session().study.base.cluster
    for name, prices in known.items():
        if st.button(
            name.capitalize(), key=f"prices/{name}", help=words.plain(prices.help), width="stretch"
        ):
            gpu_types.take(with_prices(cluster, prices))
    if cluster.gpus:
        st.markdown("\n".join(f"- {words.plain(line)}" for line in figures_from(cluster)))


def fit(trace: Trace, cluster: Cluster, perf: Spec) -> machines.Hopeless:
    """Return which jobs can never start on a cluster; remembered by content.

    Raises
    ------
    TrainyardError
        If the performance model does not work with these jobs and machines.
    """
    return _fit(f"{trace.digest} {cluster.digest} {perf}", trace, cluster, perf)


def never(found: machines.Hopeless) -> None:
    """Draw who can never start: how many and why, the first of them, and a way to leave them
    out.
    """
    st.warning(
        "  \n".join(words.plain(sentence) for sentence in found.sentences()),
        icon=":material/warning:",
    )
    if found.jobs and not found.never.all():
        label, how = (
            f"Leave out {words.plural(found.jobs, 'job')}",
            "The others become a trace of their own, which counts those that are left out.",
        )
        if st.button(label, key="leave_out", icon=":material/filter_alt:", help=how):
            session = state.session()
            study = leave_out.without_unschedulable(session.study, server.store())
            session.news = (
                f"Jobs that can never start on {session.study.base.cluster.name} are left out; the"
                " Trace page counts them."
            )
            session.replace(study)
            st.rerun()
    if len(found.first):
        all_of = found.jobs + found.unless_resized
        shown = len(found.first)
        label = f"Show {shown:,} of {all_of:,} jobs" if shown < all_of else f"Show {shown:,} jobs"
        with st.expander(label):
            st.dataframe(figure.readable(found.first), hide_index=True)


@st.cache_data(max_entries=16, show_spinner=False)
def _fit(mark: str, _trace: Trace, _cluster: Cluster, _perf: Spec) -> machines.Hopeless:
    del mark
    return machines.unschedulable(_trace, _cluster, profiles.resolved(_perf, server.store()))


@st.cache_resource(max_entries=8, show_spinner=False)
def _presets(mark: str, _trace: Trace | None) -> tuple[machines.ClusterPreset, ...]:
    del mark
    return machines.presets(_trace)


def _type_name(name: object) -> str:
    return text.gpu_type(str(name))


def _type_column(names: Sequence[str]) -> Any:
    return _COLUMN.SelectboxColumn("GPU type", options=list(names), format_func=_type_name)


def _types(cluster: Cluster) -> pd.DataFrame:
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
    if doubtful := guessed(cluster):
        named = "; ".join(
            f"{text.gpu_type(kind.name)} {speed_from(kind).removeprefix('guessed: ')}"
            for kind in doubtful
        )
        st.caption(f":material/help: Speeds that are guessed, not measured: {words.plain(named)}.")
    return edited
