"""What stands between a cluster and the scenario while a GPU type of it has no figures: a speed and
a price to enter, or the nearest known type to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import streamlit as st

from sim.cluster import KNOWN_TYPES, Cluster, GpuType
from sim.errors import TrainyardError
from trainyard.study import gpu_types
from trainyard.traces import start
from ui import state, words

_PENDING: Final = "pending_cluster"
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
    """

    cluster: Cluster
    names: tuple[str, ...]
    news: str = ""


def take(cluster: Cluster, unknown: tuple[str, ...] = (), news: str = "") -> None:
    """Make a cluster that of the scenario, or ask for the figures that it lacks first."""
    session = state.session()
    if unknown:
        st.session_state[_PENDING] = PendingCluster(cluster, unknown, news)
        session.edition += 1
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
    pending: PendingCluster | None = st.session_state.get(_PENDING)
    if pending is None:
        return
    with st.container(border=True, key="pending_cluster_box"):
        for name in pending.names:
            _figures(pending, name)
        st.button("Keep the cluster as it was", key="drop_cluster", on_click=drop, type="tertiary")


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
    take(cluster, tuple(one for one in pending.names if one != name), pending.news)


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
        state.session().edition += 1
        st.rerun()
