"""On which machines the jobs of the trace are simulated while nobody has chosen any, beside the
trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.limits import MOST_NODES
from trainyard.clusters import drops
from trainyard.traces import start
from trainyard.traces.fitting import cluster_for, cluster_of, is_guess
from trainyard.traces.sources import Source, load_source
from ui import server, state, words
from ui.choosing import gpu_types


def take_files(session: state.Session, files: Mapping[str, bytes], jobs: str = "") -> None:
    """Make the machines that files describe those of the scenario, and draw the page anew; nothing
    if they describe none. `jobs` = the file of the same drop that the jobs are from.

    Raises
    ------
    TrainyardError
        If it is not clear which of several files is meant.
    """
    try:
        epoch = load_source(session.study.base.trace, server.store()).trace.epoch
    except TrainyardError:
        epoch = ""  # the trace is gone; machines need none
    found = drops.cluster_of_files(files, epoch)
    if found is None:
        return
    name = " and ".join(files)
    cluster, notes, unknown, asked = found
    size = f"{words.plural(len(cluster.nodes), 'node')} with {words.plural(cluster.gpus, 'GPU')}"
    read = (
        f"The jobs are from {jobs}, the cluster from {name}: {size}."
        if jobs
        else f"{name} {'describe' if len(files) > 1 else 'describes'} machines, not jobs: {size}."
        " They are the cluster now; the jobs stay."
    )
    source = session.study.base.trace.source if jobs else ""
    gpu_types.take(cluster, unknown, " ".join([read, *notes]), asked, source)


def draw(session: state.Session, source: Source) -> None:
    """Say on which machines these jobs are simulated and where those come from, with a way to those
    that fit the jobs, and a way back.
    """
    gpu_types.ask()
    cluster = session.study.base.cluster
    try:
        fitting = cluster_for(source)
    except TrainyardError as error:
        st.warning(words.plain(f"No cluster fits these jobs. {error}"), icon=":material/warning:")
        return
    if source.cluster is not None and fitting.cluster == cluster:
        return
    if is_guess(source, cluster):
        _ask_gpus(session, source)
    with st.container(horizontal=True, vertical_alignment="center", key="trace_cluster"):
        if fitting.cluster == cluster:
            st.caption(f":material/dns: Cluster: {words.plain(fitting.how)}")
            earlier = next(
                (
                    study.base.cluster
                    for study in reversed(session.undo_stack)
                    if study.base.cluster != cluster
                ),
                None,
            )
            if earlier is not None:
                _offer(session, earlier, f"Back to “{earlier.name}”", "cluster_before")
            st.page_link("pages/cluster.py", label="Change it", icon=":material/edit:")
            return
        own = (
            f"These jobs come with the cluster “{fitting.cluster.name}”"
            if source.cluster is not None
            else f"One that fits these jobs has {words.plural(fitting.cluster.gpus, 'GPU')}"
        )
        st.caption(
            f":material/dns: Cluster: {words.plain(cluster.name)},"
            f" {words.plural(cluster.gpus, 'GPU')}. {words.plain(own)}."
        )
        _offer(session, fitting.cluster, "Take it", "own_cluster")


def _ask_gpus(session: state.Session, source: Source) -> None:
    """Ask how many GPUs there are, where the size of the cluster is a guess."""
    with (
        st.form(f"gpu_count/{session.study.base.trace.source}", border=False),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        gpus = st.number_input(
            "How many GPUs do you have?",
            1,
            MOST_NODES,
            None,
            placeholder=f"guess: {session.study.base.cluster.gpus:,}",
            help="These jobs do not say when they started, so the size is a guess.",
            width=240,
        )
        if st.form_submit_button("Use this number") and gpus is not None:
            made = cluster_of(source.trace, int(gpus))
            session.replace(start.with_cluster(session.study, made))
            st.rerun()


def _offer(session: state.Session, cluster: Cluster, label: str, key: str) -> None:
    if st.button(words.plain(label), key=key, type="tertiary"):
        session.replace(start.with_cluster(session.study, cluster))
        st.rerun()
