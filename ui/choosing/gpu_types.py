"""GPU types without speed and price: form to enter them or use the nearest known type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from jobtraces.readers.options import Question
from sim.cluster import KNOWN_TYPES, Cluster, GpuType
from sim.errors import TrainyardError
from trainyard.clusters import virtual_clusters
from trainyard.study import gpu_types
from trainyard.traces import new_study
from ui import state, words

_PENDING: Final = "pending_cluster"
_OPEN: Final = "open_cluster"
_OWN: Final = "own_gpu_types"
_FASTEST: Final = 1000.0


@dataclass(frozen=True)
class PendingCluster:
    """A cluster that cannot be used until its GPU types have speeds.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    names : tuple of str
        Its GPU types without speed and price.
    news : str
        Message once the cluster is in use.
    jobs : str
        Source of the trace that it came with; "" = none.
    """

    cluster: Cluster
    names: tuple[str, ...]
    news: str = ""
    jobs: str = ""


def set_cluster(
    cluster: Cluster,
    unknown: tuple[str, ...] = (),
    news: str = "",
    questions: tuple[Question, ...] = (),
    jobs: str = "",
) -> None:
    """Use a cluster in the scenario, or keep it pending if speeds are missing; rerun.

    `unknown` are its GPU types without speed. `questions` are drawn by `draw_questions` while this
    cluster is in use.
    """
    session = state.session()
    st.session_state[_OPEN] = (cluster.digest, questions)
    if unknown:
        st.session_state[_PENDING] = PendingCluster(cluster, unknown, news, jobs)
        session.form_version += 1
    else:
        drop_pending()
        session.news = news or session.news
        session.replace(new_study.with_cluster(session.study, cluster))
    st.rerun()


def drop_pending() -> None:
    """Forget the pending cluster."""
    st.session_state.pop(_PENDING, None)


def draw_questions() -> None:
    """Draw the open question of the cluster, and the missing speeds of a pending one.

    A pending cluster that came with a trace is dropped once another trace is in use.
    """
    _draw_open_question()
    pending: PendingCluster | None = st.session_state.get(_PENDING)
    if pending is not None and pending.jobs not in ("", state.session().study.base.trace.source):
        drop_pending()  # another trace is in use now
        return
    if pending is None:
        return
    nodes, gpus = len(pending.cluster.nodes), pending.cluster.gpus
    size = f"{words.plural(nodes, 'node')} with {words.plural(gpus, 'GPU')}"
    with st.container(border=True, key="pending_cluster_box"):
        st.markdown(
            f"**{words.plain(pending.cluster.name)}: {size}.** Enter the missing speeds to use it."
        )
        for name in pending.names:
            _draw_missing_type(pending, name)
        st.button(
            "Keep the current cluster", key="drop_cluster", on_click=drop_pending, type="tertiary"
        )


def _draw_open_question() -> None:
    """Draw the choice of GPUs per node that the cluster's file leaves open; apply it."""
    digest, questions = st.session_state.get(_OPEN, ("", ()))
    cluster = state.session().study.base.cluster
    if not questions or digest != cluster.digest:
        return
    question = questions[0]
    with st.container(border=True, key="open_cluster_box"):
        current = str(cluster.groups[0].gpus)
        answer = st.segmented_control(
            words.plain(question.text),
            list(question.options),
            default=current if current in question.options else None,
            format_func=lambda value: question.options[value],
            key=state.widget_key("gpus_per_node"),
        )
        if answer is not None and answer != current:
            set_cluster(virtual_clusters.set_node_gpus(cluster, int(answer)), questions=questions)


def _draw_missing_type(pending: PendingCluster, name: str) -> None:
    """Draw fields for a GPU type without speed, and the button for the nearest type."""
    st.warning(words.plain(gpu_types.unknown_type_message(name)), icon=":material/warning:")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        speed, price = draw_fields(f"pending/{name}")
        if (
            st.button("Use these values", key=f"use/{name}", disabled=speed is None)
            and speed is not None
        ):
            _resolve_type(
                pending, name, gpu_types.with_figures(pending.cluster, name, speed, price)
            )
        like = gpu_types.nearest(name)
        if like is not None and st.button(f"Use {like.name.upper()}", key=f"like/{name}"):
            _resolve_type(pending, name, gpu_types.replace_type(pending.cluster, name, like))


def _resolve_type(pending: PendingCluster, name: str, cluster: Cluster) -> None:
    """Use the cluster, or keep it pending, after the GPU type `name` got a speed."""
    names = tuple(other for other in pending.names if other != name)
    set_cluster(cluster, names, pending.news, jobs=pending.jobs)


def draw_fields(key: str) -> tuple[float | None, float | None]:
    """Draw empty fields for a GPU type's speed and price; return both, None if empty."""
    speed = st.number_input(
        "Speed, V100 = 1",
        0.001,
        _FASTEST,
        None,
        format="%g",
        key=f"{key}/speed",
        width=150,
        placeholder="required",
    )
    price = st.number_input(
        "USD per GPU-hour",
        0.01,
        None,
        None,
        format="%.2f",
        key=f"{key}/price",
        width=160,
        placeholder="optional",
    )
    return speed, price


def own_types() -> dict[str, GpuType]:
    """Return the session's own GPU types, name -> type; additions to the dict are kept."""
    types: dict[str, GpuType] = st.session_state.setdefault(_OWN, {})
    return types


def draw_new_type() -> None:
    """Draw the form that adds a GPU type to the session's own types; reject known names."""
    name = st.text_input("Name", "", key="own_type", max_chars=60, placeholder="e.g. rtx6000")
    name = name.strip().lower()
    if name in KNOWN_TYPES:
        st.caption(f"{name.upper()} is already in the list.")
        return
    speed, price = draw_fields("own_type")
    ready = bool(name) and speed is not None
    if st.button("Add to the list", key="add_type", disabled=not ready) and speed is not None:
        try:
            checked = Cluster.parse(f"1x1:{name}").types[0].name
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return
        own_types()[checked] = GpuType(checked, speed, price or 0.0)
        state.session().form_version += 1
        st.rerun()
