"""The bar on every page: scenario menus, status, Run and Share; warnings below it."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.formatting import gpu_type
from trainyard.results.outcomes import StudyResults
from trainyard.runs import estimate
from trainyard.study import catalog
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import bundle, intake, new_study
from trainyard.traces.sources import load_source, load_trace
from trainyard.views import charts
from ui import error_boundary, presentation, run_status, server, state, stored_results, words
from ui.choosing import profiles
from ui.comparing import exports, slide

_OWN_HOST: Final = re.compile(r"localhost|127\..*|::1|0\.0\.0\.0")
"""Addresses that other computers do not reach."""
MENU: Final = '<details class="ty-menu"><summary>Scenario</summary></details>'
"""Opens the chips in narrow windows; see the style sheet."""
FILE: Final = "trainyard-scenario.json"
ARCHIVE: Final = "trainyard-scenario.zip"
TABLES: Final = "trainyard-tables.zip"
REPORT: Final = "trainyard-report.html"
_SHARE: Final = "share"
_MAX_NAME: Final = 80
"""Characters of a name."""
_CALENDAR: Final = "chip/calendar"
_FIELDS: Final = "chip_fields"
"""Session key: field -> (value, text) in the browser, and how often code replaced it."""
_MAX_REPEATS: Final = 50
_MAX_SEED: Final = 2**31 - 1
_MAX_NODES: Final = 100_000
_GROUPS: Final = 6
"""Node groups that have a field; the Cluster page has all."""
_STEPS_S: Final = tuple(hours * 3600.0 for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720, 8760))
_MAX_STEPS: Final = 60
_CHIP_NAME: Final = 40
"""Characters of a name on a chip."""


def draw(page: str) -> None:
    """Draw the bar of a page: menus of the scenario, status, Run, Share."""
    session = state.session()
    with st.container(
        key="bar", horizontal=True, vertical_alignment="center", gap="small", wrap=False
    ):
        with st.container(key="chips", horizontal=True, gap="xxsmall", wrap=False):
            _draw_chips(session)
        with st.container(
            key="bar_end",
            horizontal=True,
            horizontal_alignment="right",
            vertical_alignment="center",
            gap="xsmall",
            wrap=False,
            width="content",
        ):
            run_status.draw(page)
            _draw_share(session)


def draw_warnings(page: str) -> None:
    """Draw what keeps the scenario from running, and the time of a large one, with fixes."""
    session = state.session()
    stopped = profiles.blocking_coverage(session.study)
    # The Trace page shows it next to the missing profiles.
    if stopped is not None and page != "trace":
        with st.container(key="barred"):
            st.markdown(f":material/block: {words.plain(stopped.sentences[0])}")
            profiles.draw_suggestions(stopped, "bar")
            st.page_link("pages/trace.py", label="What is missing", icon=":material/table_view:")
    _draw_estimate(session)


def _draw_estimate(session: state.Session) -> None:
    """Draw time and memory of a large study, and buttons for parts of its trace.

    Nothing is drawn for small studies, or if Run would change nothing.
    """
    study, pool = session.study, server.pool()
    try:
        estimated = estimate.estimate(study, pool.store, pool.costs, pool.workers)
    except TrainyardError:
        return  # the trace is missing; a warning above reports it
    if not estimated.large or not run_status.needs_run(session):
        return
    accuracy = (
        "" if estimated.is_measured else " (a rough estimate: some policies have not run here yet)"
    )
    smaller_specs = estimate.smaller_traces(
        study.base.trace, estimated.jobs, load_trace(study.base.trace, pool.store).span_s
    )
    advice = "" if smaller_specs or estimated.runs == 1 else " Fewer repeats or policies take less."
    with st.container(key="too_large", horizontal=True, vertical_alignment="center"):
        st.markdown(
            f":material/timer: {words.plural(estimated.jobs, 'job')} in"
            f" {words.plural(estimated.runs, 'run')}: about {words.time(estimated.seconds)},"
            f" {estimated.memory_gb:.1f} GB{accuracy}.{advice}"
        )
        for label, spec in smaller_specs.items():
            st.button(
                f"Use {label}", key=f"less/{label}", on_click=_on_use_smaller, args=(session, spec)
            )


def _on_use_smaller(session: state.Session, spec: TraceSpec) -> None:
    """Replace the trace of the scenario by one of its parts."""
    session.replace(new_study.with_trace(session.study, spec, server.store()))


def _draw_share(session: state.Session) -> None:
    """Draw the Share menu as a fragment; its contents are built when it opens."""
    st.fragment(error_boundary.run_guarded)(partial(_draw_share_menu, session))


def _draw_share_menu(session: state.Session) -> None:
    """Draw Share: slide, link, scenario file, results, command line, presentation."""
    # Built when it opens: the view of a page changes without a run of the whole page.
    presentation.open_if_requested()
    with st.popover("Share", icon=":material/ios_share:", key=_SHARE, on_change="rerun") as box:
        if box.open:
            exported = _exported_results(session)
            if exported is not None and session.page == "compare":
                slide.draw_buttons(exported)
            _draw_share_link(session)
            _draw_scenario_file(session.study)
            _draw_result_files(exported)
            _draw_command(session.study)
            presentation.draw_button(_SHARE)


def _draw_share_link(session: state.Session) -> None:
    """Draw the field for the scenario's name, which is saved, and the link to copy."""
    name = st.text_input(
        "Scenario name",
        session.study.base.name,
        max_chars=_MAX_NAME,
        key=state.widget_key("name"),
        placeholder="optional",
        help="The window title.",
    )
    if name != session.study.base.name:
        session.name(name)
        st.rerun()
    link = state.link()
    st.html(
        '<div class="ty-link"><button type="button">Copy link</button>'
        f'<input readonly aria-label="Link" value="{html.escape(link)}"></div>'
    )
    if _OWN_HOST.fullmatch(urlsplit(link).hostname or ""):
        st.caption("The link opens on this computer only. For others, send the scenario file.")
    days = f"{server.store().keep_days:g} days"
    st.caption(
        f"This server keeps link, results and uploaded jobs for {days}. The scenario file contains"
        " the jobs."
        if session.study.base.trace.source.startswith("store:")
        else f"This server keeps link and results for {days}. The scenario file stays valid."
    )


def _draw_scenario_file(study: Study) -> None:
    """Draw the download of the scenario: ZIP with uploaded jobs, else JSON."""
    if study.base.trace.source.startswith("store:") and _has_trace(study):
        st.download_button(
            "Scenario file, with its jobs",
            lambda: bundle.scenario_archive(study, server.store()),
            ARCHIVE,
            "application/zip",
            key="save",
            icon=":material/download:",
            on_click="ignore",
            type="tertiary",
        )
        return
    st.download_button(
        "Scenario file",
        bundle.scenario_text(study),
        FILE,
        "application/json",
        key="save",
        icon=":material/download:",
        on_click="ignore",
        type="tertiary",
    )


def _has_trace(study: Study) -> bool:
    """Return True if the trace of a study can be loaded."""
    try:
        load_source(study.base.trace, server.store())
    except TrainyardError:
        return False
    return True


def _exported_results(session: state.Session) -> StudyResults | None:
    """Return the displayed results; None without a complete policy."""
    if session.displayed_study is None:
        return None
    stored = stored_results.gather(session.displayed_study)
    return stored if stored.places else None


def _draw_result_files(exported: StudyResults | None) -> None:
    """Draw the downloads of report and tables; disabled without results."""
    reason = None if exported else "No complete result yet. Run the scenario first."
    for label, export, file, mime in (
        ("Report (HTML)", exports.report_html, REPORT, "text/html"),
        ("Tables and job data (ZIP)", exports.archive, TABLES, "application/zip"),
    ):
        st.download_button(
            label,
            partial(export, exported) if exported else b"",
            file,
            mime,
            key=f"share_{file}",
            help=reason,
            disabled=not exported,
            icon=":material/download:",
            on_click="ignore",
            type="tertiary",
        )


def _draw_command(study: Study) -> None:
    """Draw the command line that runs the scenario, and the one for uploaded jobs."""
    st.caption("Same results from the command line")
    st.code(f"python -m trainyard run --scenario {FILE}", language="bash", wrap_lines=True)
    if study.base.trace.source.startswith("store:"):
        st.caption("On another machine, unpack the scenario file first:")
        st.code(
            f"python -m trainyard run --scenario {bundle.SCENARIO_FILE} --trace {bundle.JOBS_FILE}"
            " --cpu-jobs keep",
            language="bash",
            wrap_lines=True,
        )


def _draw_chips(session: state.Session) -> None:
    """Draw the four menus: trace, cluster, policies, runs."""
    _draw_trace_chip(session)
    _draw_cluster_chip(session)
    _draw_policies_chip(session)
    _draw_runs_chip(session)


def _chip_popover(name: str, label: str) -> Any:
    """Return a popover in the bar, to draw the menu `name` in."""
    return st.popover(label, key=f"chip_{name}", type="tertiary")


def _field_options(
    name: str,
    value: Any,
    make_study: Callable[[Any], Study],
    label: Callable[[Any], str] = str,
) -> dict[str, Any]:
    """Return key and callback of a widget that always shows the scenario's value.

    The browser keeps the value of a field in a closed menu and sends it again. So a field whose
    value changed elsewhere, by another trace or by Undo, gets a new key.

    Parameters
    ----------
    name : str
        Field name.
    value
        Value in the scenario.
    make_study : callable
        Field value -> the study with it.
    label : callable
        Field value -> its text in the browser.
    """
    fields = st.session_state.setdefault(_FIELDS, {})
    browser_value, version = fields.get(name, ((value, label(value)), 0))
    if browser_value != (value, label(value)):
        version += 1
    fields[name] = (value, label(value)), version
    key = f"chip/{name}/{version}"
    st.session_state[key] = value

    def on_change() -> None:
        """Put the chosen value of the field into the scenario."""
        chosen = st.session_state[key]
        fields[name] = (chosen, label(chosen)), version
        _replace_study(partial(make_study, chosen))

    return {"key": key, "on_change": on_change}


def _replace_study(make_study: Callable[[], Study]) -> None:
    """Replace the scenario and reset all forms, or set a notice that the value is invalid."""
    # Forms on the page show the same value, so all widgets are reset.
    session = state.session()
    try:
        study = make_study()
    except TrainyardError as error:
        session.notice = str(error)
        return
    if study != session.study:
        session.replace(study)


def _draw_trace_chip(session: state.Session) -> None:
    """Draw the trace menu: load factor, range of submissions, dates or days.

    Without a trace it only links to the Trace page.
    """
    study = session.study
    try:
        source = load_source(study.base.trace, server.store())
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        with _chip_popover("trace", "No trace"):
            if not new_study.is_trace_missing(
                study, server.store()
            ):  # else a line below reports it
                st.warning(words.plain(str(error)), icon=":material/warning:")
            st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")
        return
    with _chip_popover("trace", words.plain(charts.visible(trace.name, _CHIP_NAME))):
        st.caption(
            f"{words.plain(trace.name)}: {words.plural(len(trace), 'job')} in"
            f" {words.time(trace.span_s)}"
        )
        st.number_input(
            "Load multiplier",
            min(0.05, study.base.trace.load),
            max(20.0, study.base.trace.load),
            step=0.05,
            **_field_options("load", study.base.trace.load, lambda load: _with_load(study, load)),
        )
        _draw_window(study, intake.span_days(source.trace), session.epoch(source.trace.epoch))
        if source.trace.epoch:
            st.session_state[_CALENDAR] = session.calendar
            st.toggle("Show calendar dates", key=_CALENDAR, on_change=_on_toggle_dates)
        st.page_link("pages/trace.py", label="Open Trace page", icon=":material/view_timeline:")


def _with_load(study: Study, load: float) -> Study:
    """Return the study with another load factor."""
    return new_study.with_trace(study, replace(study.base.trace, load=load), server.store())


def _on_toggle_dates() -> None:
    """Store in the session whether instants are written as dates."""
    state.session().calendar = bool(st.session_state[_CALENDAR])


def _draw_window(study: Study, days: float, epoch: str) -> None:
    """Draw the first and last submission to simulate as two select boxes.

    `days` = length of the whole trace.
    """
    first, last = (day * 86_400.0 for day in intake.window_days(study.base.trace, days))
    whole_s = days * 86_400.0
    step_s = next((step for step in _STEPS_S if whole_s / step <= _MAX_STEPS), _STEPS_S[-1])
    instant = partial(words.run_time, epoch=epoch)
    times_s = sorted(
        {*(index * step_s for index in range(math.ceil(whole_s / step_s))), first, last}
    )
    with st.container(horizontal=True):
        st.selectbox(
            "Submitted from",
            [time_s for time_s in times_s if time_s < last],
            format_func=instant,
            **_field_options(
                "from", first, lambda step: _with_window(study, (step, last), days), instant
            ),
        )
        st.selectbox(
            "To",
            [*(time_s for time_s in times_s if first < time_s < whole_s), whole_s],
            format_func=instant,
            **_field_options(
                "to", last, lambda step: _with_window(study, (first, step), days), instant
            ),
        )


def _with_window(study: Study, ends_s: tuple[float, float], days: float) -> Study:
    """Return the study with a range of submissions; `days` = length of the whole trace."""
    first, last = ends_s
    spec = intake.cut_to_window(study.base.trace, (first / 86_400, last / 86_400), days)
    return new_study.with_trace(study, spec, server.store())


def _draw_cluster_chip(session: state.Session) -> None:
    """Draw the cluster menu: totals, and node counts of the first six groups."""
    cluster = session.study.base.cluster
    name = charts.visible(cluster.name, _CHIP_NAME)
    with _chip_popover("cluster", words.plain(f"{name} · {words.plural(cluster.gpus, 'GPU')}")):
        totals = machines.cluster_totals(cluster)
        st.caption(
            f"{words.plain(cluster.name)}: {words.plural(totals.nodes, 'node')},"
            f" {words.plural(totals.gpus, 'GPU')}"
        )
        for row, group in enumerate(cluster.groups[:_GROUPS]):
            gpus = f"{group.gpus} × {gpu_type(group.gpu_type)}" if group.gpus else "no GPUs"
            st.number_input(
                words.plain(f"Nodes of {charts.visible(gpus, _MAX_NAME)}"),
                0,
                max(_MAX_NODES, group.count),
                **_field_options(f"nodes/{row}", group.count, _node_setter(session.study, row)),
            )
        st.page_link("pages/cluster.py", label="Open Cluster page", icon=":material/dns:")


def _node_setter(study: Study, row: int) -> Callable[[int], Study]:
    """Return a function from a node count to the study with it in a row of the cluster."""

    def with_count(count: int) -> Study:
        """Return the study with a number of nodes in the row."""
        table = machines.group_table(study.base.cluster)
        table.loc[row, "nodes"] = count
        types = machines.type_table(study.base.cluster)
        return new_study.with_cluster(
            study, machines.cluster_from_tables(table, types, study.base.cluster)
        )

    return with_count


def _draw_policies_chip(session: state.Session) -> None:
    """Draw the policies menu: the compared policies and the baseline."""
    study = session.study
    titles = study.titles
    with _chip_popover("policies", words.plural(len(titles), "policy")):
        try:
            trace = load_trace(study.base.trace, server.store())
        except TrainyardError:
            trace = None
        names = _policy_choices(
            f"{trace.digest if trace is not None else ''} {study.base.perf}", trace, study.base.perf
        )
        chosen = [spec.name for spec in study.allocators]
        labels = {name: title for name, (title, can_run) in names.items() if can_run} | {
            name: names[name][0] for name in chosen
        }
        st.pills(
            "Compared",
            [name for name in names if name in labels],
            selection_mode="multi",
            format_func=lambda name: words.plain(labels[name]),
            **_field_options(
                "policies",
                list(dict.fromkeys(chosen)),
                lambda chosen_names: _with_names(study, chosen_names),
            ),
        )
        if hidden := len(names) - len(labels):
            st.caption(f"{words.plural(hidden, 'more policy')} cannot run here; see Policies.")
        st.selectbox(
            "Baseline",
            range(len(titles)),
            format_func=titles.__getitem__,
            **_field_options(
                "baseline",
                study.baseline,
                lambda index: new_study.with_policies(study, study.allocators, index),
                titles.__getitem__,
            ),
        )
        st.page_link("pages/policies.py", label="Open Policies page", icon=":material/rule:")


@st.cache_data(max_entries=32, show_spinner=False)
def _policy_choices(
    cache_key: str, _trace: Trace | None, _perf: Spec
) -> dict[str, tuple[str, bool]]:
    """Return policy name -> (title, whether it can run on these jobs); cached."""
    del cache_key
    return {
        choice.name: (choice.title, not choice.reason)
        for choice in catalog.allocator_choices(_trace, _perf)
    }


def _with_names(study: Study, names: list[str]) -> Study:
    """Return the study with these policies; unchanged without any. Variants are kept."""
    kept_specs = [spec for spec in study.allocators if spec.name in names]
    kept_names = {spec.name for spec in kept_specs}
    specs = (*kept_specs, *(Spec(name) for name in names if name not in kept_names))
    if not specs:
        return study
    baseline = study.allocators[study.baseline]
    return new_study.with_policies(study, specs, specs.index(baseline) if baseline in specs else 0)


def _draw_runs_chip(session: state.Session) -> None:
    """Draw the runs menu: number of repeats and seed."""
    study = session.study
    with _chip_popover("runs", f"{words.plural(study.repeats, 'run')}, seed {study.base.seed}"):
        # One click cannot submit more runs than the queue admits.
        max_repeats = min(_MAX_REPEATS, server.pool().most_each // len(study.allocators))
        st.number_input(
            "Repeats",
            1,
            max(max_repeats, study.repeats),
            help=_REPEATS,
            **_field_options(
                "repeats",
                study.repeats,
                lambda repeats: state.with_seed_and_repeats(study, study.base.seed, repeats),
            ),
        )
        st.number_input(
            "Seed",
            0,
            _MAX_SEED,
            help=_SEED,
            **_field_options(
                "seed",
                study.base.seed,
                lambda seed: state.with_seed_and_repeats(study, seed, study.repeats),
            ),
        )
        st.page_link("pages/cluster.py", label="Restarts and failures", icon=":material/casino:")


_SEED: Final = (
    "Sets all random draws (failures, estimation errors). Equal scenarios with equal seeds give"
    " equal results."
)
_REPEATS: Final = (
    "Runs per policy, each with the next seed. Compare then shows intervals; without random"
    " draws all runs are equal."
)
