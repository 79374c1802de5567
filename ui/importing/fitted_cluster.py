"""The cluster of the jobs on Trace: from files of the drop, or fitted to the trace."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from sim.cluster import Cluster
from sim.errors import TrainyardError
from sim.limits import MAX_NODES
from trainyard.clusters import uploads
from trainyard.traces import new_study
from trainyard.traces.fitting import cluster_with_gpus, fit_cluster, is_guessed_cluster
from trainyard.traces.sources import Source, load_source
from ui import server, state, words
from ui.choosing import gpu_types


def use_machine_files(session: state.Session, files: Mapping[str, bytes], jobs: str = "") -> None:
    """Set the cluster from files that describe one; `jobs` = trace file of the drop.

    Raises
    ------
    TrainyardError
        If several files describe different clusters.
    """
    try:
        epoch = load_source(session.study.base.trace, server.store()).trace.epoch
    except TrainyardError:
        epoch = ""  # the trace is gone; machines need none
    described = uploads.read_cluster_files(files, epoch)
    if described is None:
        return
    name = " and ".join(files)
    cluster, notes, unknown, questions = described
    size = f"{words.plural(len(cluster.nodes), 'node')} with {words.plural(cluster.gpus, 'GPU')}"
    message = (
        f"The jobs are from {jobs}, the cluster from {name}: {size}."
        if jobs
        else f"{name} {'describe' if len(files) > 1 else 'describes'} machines, not jobs: {size}."
        " They are the cluster now; the jobs stay."
    )
    source = session.study.base.trace.source if jobs else ""
    gpu_types.set_cluster(cluster, unknown, " ".join([message, *notes]), questions, source)


def draw(session: state.Session, source: Source) -> None:
    """Draw the cluster of these jobs, with buttons for the fitting one or the earlier one.

    Nothing more than open questions is drawn if the cluster is the one of the source.
    """
    gpu_types.draw_questions()
    cluster = session.study.base.cluster
    try:
        fitting = fit_cluster(source)
    except TrainyardError as error:
        st.warning(words.plain(f"No cluster fits these jobs. {error}"), icon=":material/warning:")
        return
    if source.cluster is not None and fitting.cluster == cluster:
        return
    if is_guessed_cluster(source, cluster):
        _draw_gpu_count(session, source)
    with st.container(horizontal=True, vertical_alignment="center", key="trace_cluster"):
        if fitting.cluster == cluster:
            st.caption(f":material/dns: Cluster: {words.plain(fitting.origin)}")
            earlier = next(
                (
                    study.base.cluster
                    for study in reversed(session.undo_stack)
                    if study.base.cluster != cluster
                ),
                None,
            )
            if earlier is not None:
                _draw_cluster_button(
                    session, earlier, f"Back to “{earlier.name}”", "cluster_before"
                )
            st.page_link("pages/cluster.py", label="Change it", icon=":material/edit:")
            return
        fitting_note = (
            f"These jobs come with the cluster “{fitting.cluster.name}”"
            if source.cluster is not None
            else f"These jobs would fit on {words.plural(fitting.cluster.gpus, 'GPU')}"
        )
        st.caption(
            f":material/dns: Cluster: {words.plain(cluster.name)},"
            f" {words.plural(cluster.gpus, 'GPU')}. {words.plain(fitting_note)}."
        )
        use = "it" if source.cluster is not None else words.plural(fitting.cluster.gpus, "GPU")
        _draw_cluster_button(session, fitting.cluster, f"Use {use}", "own_cluster")


def _draw_gpu_count(session: state.Session, source: Source) -> None:
    """Draw the form for the number of GPUs; its button replaces the guessed cluster."""
    with (
        st.form(f"gpu_count/{session.study.base.trace.source}", border=False),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        gpus = st.number_input(
            "How many GPUs do you have?",
            1,
            MAX_NODES,
            None,
            placeholder=f"guess: {session.study.base.cluster.gpus:,}",
            help="The trace has no start times, so the size is a guess.",
            width=240,
        )
        if st.form_submit_button("Use this number") and gpus is not None:
            cluster = cluster_with_gpus(source.trace, int(gpus))
            session.replace(new_study.with_cluster(session.study, cluster))
            st.rerun()


def _draw_cluster_button(session: state.Session, cluster: Cluster, label: str, key: str) -> None:
    """Draw a button with a label; a click makes `cluster` the scenario's, and reruns."""
    if st.button(words.plain(label), key=key, type="tertiary"):
        session.replace(new_study.with_cluster(session.study, cluster))
        st.rerun()
