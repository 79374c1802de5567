"""What stands between a cluster and the scenario while a GPU type of it has no figures: a speed and
a price to enter, or the nearest known type to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from jobtraces.readers.options import Question
from sim.cluster import KNOWN_TYPES, Cluster, GpuType
from sim.errors import TrainyardError
from trainyard.clusters import homes
from trainyard.study import gpu_types
from trainyard.traces import start
from ui import state, words

_PENDING: Final = "pending_cluster"
_OPEN: Final = "open_cluster"
_OWN: Final = "own_gpu_types"
_FASTEST: Final = 1000.0


@dataclass(frozen=True)
class PendingCluster:
    """A cluster that cannot be used yet.

    Parameters
    ----------
    cluster : Cluster
        The machines.
    names : tuple of str
        Its GPU types without figures.
    news : str
        What is said once it is in use.
    jobs : str
        Source of the trace that it came with; "" = none.
    """

    cluster: Cluster
    names: tuple[str, ...]
    news: str = ""
    jobs: str = ""


def take(
    cluster: Cluster,
    unknown: tuple[str, ...] = (),
    news: str = "",
    asked: tuple[Question, ...] = (),
    jobs: str = "",
) -> None:
    """Make a cluster that of the scenario, or ask for the figures that it lacks first; what its
    file leaves open is asked as long as it is the cluster. `jobs` as of `PendingCluster`.
    """
    session = state.session()
    st.session_state[_OPEN] = (cluster.digest, asked)
    if unknown:
        st.session_state[_PENDING] = PendingCluster(cluster, unknown, news, jobs)
        session.form_version += 1
    else:
        drop()
        session.news = news or session.news
        session.replace(start.with_cluster(session.study, cluster))
    st.rerun()


def drop() -> None:
    """Forget a cluster that cannot be used."""
    st.session_state.pop(_PENDING, None)


def ask() -> None:
    """Draw what the pending cluster lacks; nothing if there is none."""
    _ask_open()
    pending: PendingCluster | None = st.session_state.get(_PENDING)
    if pending is not None and pending.jobs not in ("", state.session().study.base.trace.source):
        drop()  # other jobs have come since
        return
    if pending is None:
        return
    nodes, gpus = len(pending.cluster.nodes), pending.cluster.gpus
    size = f"{words.plural(nodes, 'node')} with {words.plural(gpus, 'GPU')}"
    with st.container(border=True, key="pending_cluster_box"):
        st.markdown(
            f"**{words.plain(pending.cluster.name)}: {size}.** Not the cluster yet: speeds are"
            " missing."
        )
        for name in pending.names:
            _figures(pending, name)
        st.button("Keep the cluster as it was", key="drop_cluster", on_click=drop, type="tertiary")


def _ask_open() -> None:
    """Draw what the file of the cluster leaves open, with the answer that was taken."""
    of, asked = st.session_state.get(_OPEN, ("", ()))
    cluster = state.session().study.base.cluster
    if not asked or of != cluster.digest:
        return
    one = asked[0]
    with st.container(border=True, key="open_cluster_box"):
        taken = str(cluster.groups[0].gpus)
        answer = st.segmented_control(
            words.plain(one.text),
            list(one.options),
            default=taken if taken in one.options else None,
            format_func=lambda value: one.options[value],
            key=state.widget_key("gpus_per_node"),
        )
        if answer is not None and answer != taken:
            take(homes.of_nodes(cluster, int(answer)), asked=asked)


def _figures(pending: PendingCluster, name: str) -> None:
    st.warning(words.plain(gpu_types.sentence(name)), icon=":material/warning:")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        speed, price = fields(f"pending/{name}")
        if (
            st.button("Use these figures", key=f"use/{name}", disabled=speed is None)
            and speed is not None
        ):
            _settle(pending, name, gpu_types.with_figures(pending.cluster, name, speed, price))
        like = gpu_types.nearest(name)
        if like is not None and st.button(f"Take {like.name.upper()}", key=f"like/{name}"):
            _settle(pending, name, gpu_types.taken_for(pending.cluster, name, like))


def _settle(pending: PendingCluster, name: str, cluster: Cluster) -> None:
    names = tuple(one for one in pending.names if one != name)
    take(cluster, names, pending.news, jobs=pending.jobs)


def fields(key: str) -> tuple[float | None, float | None]:
    """Draw the speed and the price of a GPU type, both empty at first, and return them."""
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
        placeholder="none: no cost",
    )
    return speed, price


def own() -> dict[str, GpuType]:
    """Return the types that this session has described and may choose for nodes."""
    found: dict[str, GpuType] = st.session_state.setdefault(_OWN, {})
    return found


def describe() -> None:
    """Draw the form for a type that is not in the list."""
    name = st.text_input("Name", "", key="own_type", max_chars=60, placeholder="e.g. rtx6000")
    name = name.strip().lower()
    if name in KNOWN_TYPES:
        st.caption(f"{name.upper()} is in the list already.")
        return
    speed, price = fields("own_type")
    ready = bool(name) and speed is not None
    if st.button("Add to the list", key="add_type", disabled=not ready) and speed is not None:
        try:
            checked = Cluster.parse(f"1x1:{name}").types[0].name
        except TrainyardError as error:
            st.error(words.plain(str(error)), icon=":material/error:")
            return
        own()[checked] = GpuType(checked, speed, price or 0.0)
        state.session().form_version += 1
        st.rerun()
