"""The bar at the top of every page: the scenario in four chips, how its results stand, Run, and
Share; and below it one line each for what keeps the scenario from being run.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from sim.trace import Trace
from trainyard.clusters import machines
from trainyard.runs import estimate
from trainyard.study import catalog
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.text import gpu_type
from trainyard.traces import bundle, intake, start
from trainyard.traces.sources import load_source, load_trace
from trainyard.views import charts
from ui import faults, presenting, run_status, server, state, stored_results, words
from ui.choosing import profiles
from ui.comparing import exports

MENU: Final = '<details class="ty-menu"><summary>Scenario</summary></details>'
"""Opens the chips where the window is too narrow for them; the style sheet does the rest."""
FILE: Final = "trainyard-scenario.json"
ARCHIVE: Final = "trainyard-scenario.zip"
TABLES: Final = "trainyard-tables.zip"
REPORT: Final = "trainyard-report.html"
_SHARE: Final = "share"
_LONGEST: Final = 80
"""Characters of a name."""
_CALENDAR: Final = "chip/calendar"
_FIELDS: Final = "chip_fields"
"""Key of the session state: field -> (value, text) that the browser holds, and how often another
value replaced it.
"""
_MOST_REPEATS: Final = 50
_MOST_SEED: Final = 2**31 - 1
_MOST_NODES: Final = 100_000
_GROUPS: Final = 6
"""Node groups that have a field; the Cluster page has all."""
_STEPS_S: Final = tuple(hours * 3600.0 for hours in (1, 2, 3, 6, 12, 24, 48, 168, 720, 8760))
_MOST_STEPS: Final = 60
_CHIP_NAME: Final = 40
"""Characters of a name on a chip."""


def draw(page: str) -> None:
    """Draw the bar of a page, in a place of its own height."""
    session = state.session()
    with st.container(
        key="bar", horizontal=True, vertical_alignment="center", gap="small", wrap=False
    ):
        with st.container(key="chips", horizontal=True, gap="xxsmall", wrap=False):
            _chips(session)
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
            _share(session)


def lines(page: str) -> None:
    """Draw what is said before a run: what it lacks, or how large it is, with the ways out."""
    session = state.session()
    stopped = profiles.stopped(session.study)
    # The page of the performance model has it beside what is missing.
    if stopped is not None and page != "trace":
        with st.container(key="barred"):
            st.markdown(f":material/block: {words.plain(stopped.sentences[0])}")
            profiles.ways_out(stopped, "bar")
            st.page_link("pages/trace.py", label="What is missing", icon=":material/table_view:")
    _size(session)


def _size(session: state.Session) -> None:
    study, pool = session.study, server.pool()
    try:
        estimated = estimate.estimate(study, pool.store, pool.costs, pool.workers)
    except TrainyardError:
        return  # the trace is missing, which is said above
    if not estimated.large or not run_status.would_run(session):
        return
    more = (
        "" if estimated.known else ", roughly, because some of these policies have not run here yet"
    )
    less = estimate.smaller(
        study.base.trace, estimated.jobs, load_trace(study.base.trace, pool.store).span_s
    )
    ways = "" if less or estimated.runs == 1 else " Fewer repeats or policies take less."
    with st.container(key="too_large", horizontal=True, vertical_alignment="center"):
        st.markdown(
            f":material/timer: {words.plural(estimated.jobs, 'job')} in"
            f" {words.plural(estimated.runs, 'run')}: about {words.time(estimated.seconds)},"
            f" {estimated.memory_gb:.1f} GB{more}.{ways}"
        )
        for label, spec in less.items():
            st.button(
                f"Take {label}", key=f"less/{label}", on_click=_with_less, args=(session, spec)
            )


def _with_less(session: state.Session, spec: TraceSpec) -> None:
    session.replace(start.with_trace(session.study, spec, server.store()))


def _share(session: state.Session) -> None:
    """Draw the menu; what is in it is made when it is opened."""
    st.fragment(faults.guarded)(partial(_share_menu, session))


def _share_menu(session: state.Session) -> None:
    # Drawn anew when it is opened: what a page looks at changes without a run of the whole page.
    presenting.open_page()
    with st.popover("Share", icon=":material/ios_share:", key=_SHARE, on_change="rerun") as box:
        if box.open:
            _share_link(session)
            _scenario(session.study)
            _results(session)
            _command(session.study)
            presenting.offer(_SHARE)


def _share_link(session: state.Session) -> None:
    name = st.text_input(
        "Name",
        session.study.base.name,
        max_chars=_LONGEST,
        key=state.widget("name"),
        placeholder="optional",
        help="Shown as the title of the window.",
    )
    if name != session.study.base.name:
        session.name(name)
        st.rerun()
    st.html(
        '<div class="ty-link"><button type="button">Copy link</button>'
        f'<input readonly aria-label="Link" value="{html.escape(state.link())}"></div>'
    )
    days = f"{server.store().keep_days:g} days"
    st.caption(
        f"The jobs are not in the link: the uploaded trace stays on this server for {days}. The"
        " scenario file contains them."
        if session.study.base.trace.source.startswith("store:")
        else f"The link holds the whole scenario; its results are kept for {days}."
    )


def _scenario(study: Study) -> None:
    """Offer the scenario as a file, with the jobs where a link does not bring them."""
    if study.base.trace.source.startswith("store:") and _is_here(study):
        st.download_button(
            "Scenario file, with its jobs",
            lambda: bundle.archive(study, server.store()),
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
        bundle.text(study),
        FILE,
        "application/json",
        key="save",
        icon=":material/download:",
        on_click="ignore",
        type="tertiary",
    )


def _is_here(study: Study) -> bool:
    try:
        load_source(study.base.trace, server.store())
    except TrainyardError:
        return False
    return True


def _results(session: state.Session) -> None:
    """Offer the report and the rows of what is shown, once there is something."""
    shown = stored_results.gather(session.shown) if session.shown is not None else None
    ready = shown if shown is not None and shown.places else None
    reason = None if ready else "There is no complete result yet. Run the scenario first."
    for label, made, file, mime in (
        ("Report (HTML)", exports.report_html, REPORT, "text/html"),
        ("Tables and rows (ZIP)", exports.archive, TABLES, "application/zip"),
    ):
        st.download_button(
            label,
            partial(made, ready) if ready else b"",
            file,
            mime,
            key=f"share_{file}",
            help=reason,
            disabled=not ready,
            icon=":material/download:",
            on_click="ignore",
            type="tertiary",
        )


def _command(study: Study) -> None:
    st.caption("Command line: the scenario file gives the same numbers without a browser")
    st.code(f"python -m trainyard run --scenario {FILE}", language="bash", wrap_lines=True)
    if study.base.trace.source.startswith("store:"):
        st.caption("On another machine, unpack the file with the jobs there:")
        st.code(
            f"python -m trainyard run --scenario {bundle.SCENARIO} --trace {bundle.JOBS} --cpu-jobs"
            " keep",
            language="bash",
            wrap_lines=True,
        )


def _chips(session: state.Session) -> None:
    """Draw the four chips."""
    _trace(session)
    _cluster(session)
    _policies(session)
    _runs(session)


def _chip(name: str, label: str) -> Any:
    return st.popover(label, key=f"chip_{name}", type="tertiary")


def _field(
    name: str,
    value: Any,
    make: Callable[[Any], Study],
    label: Callable[[Any], str] = str,
) -> dict[str, Any]:
    """Return the key and callback of a field that always shows the scenario.

    The browser keeps the value of a field in a closed menu, and sends it again. So a field whose
    value was changed elsewhere, by another trace or by Undo, gets a new key.

    Parameters
    ----------
    name : str
        Of the field.
    value
        What the scenario has.
    make : callable
        Value of the field -> the scenario with it.
    label : callable
        Value of the field -> its text in the browser.
    """
    fields = st.session_state.setdefault(_FIELDS, {})
    held, edition = fields.get(name, ((value, label(value)), 0))
    if held != (value, label(value)):
        edition += 1
    fields[name] = (value, label(value)), edition
    key = f"chip/{name}/{edition}"
    st.session_state[key] = value

    def take() -> None:
        chosen = st.session_state[key]
        fields[name] = (chosen, label(chosen)), edition
        _replace_study(partial(make, chosen))

    return {"key": key, "on_change": take}


def _replace_study(make: Callable[[], Study]) -> None:
    # Forms of the page show the same value, so they begin anew.
    session = state.session()
    try:
        made = make()
    except TrainyardError as error:
        session.notice = str(error)
        return
    if made != session.study:
        session.replace(made)


def _trace(session: state.Session) -> None:
    study = session.study
    try:
        source = load_source(study.base.trace, server.store())
        trace = load_trace(study.base.trace, server.store())
    except TrainyardError as error:
        with _chip("trace", "No trace"):
            if not start.trace_is_gone(study, server.store()):  # else a line under the bar says it
                st.warning(words.plain(str(error)), icon=":material/warning:")
            st.page_link("pages/trace.py", label="Load a trace", icon=":material/upload_file:")
        return
    with _chip("trace", words.plain(charts.visible(trace.name, _CHIP_NAME))):
        st.caption(
            f"{words.plain(trace.name)}: {words.plural(len(trace), 'job')} in"
            f" {words.time(trace.span_s)}"
        )
        st.number_input(
            "Load ×",
            min(0.05, study.base.trace.load),
            max(20.0, study.base.trace.load),
            step=0.05,
            **_field("load", study.base.trace.load, lambda load: _with_load(study, load)),
        )
        _window(study, intake.days(source.trace), session.epoch(source.trace.epoch))
        if source.trace.epoch:
            st.session_state[_CALENDAR] = session.calendar
            st.toggle("Dates instead of days", key=_CALENDAR, on_change=_write_dates)
        st.page_link("pages/trace.py", label="All of the trace", icon=":material/view_timeline:")


def _with_load(study: Study, load: float) -> Study:
    return start.with_trace(study, replace(study.base.trace, load=load), server.store())


def _write_dates() -> None:
    state.session().calendar = bool(st.session_state[_CALENDAR])


def _window(study: Study, days: float, epoch: str) -> None:
    first, last = (day * 86_400.0 for day in intake.window_days(study.base.trace, days))
    whole_s = days * 86_400.0
    step_s = next((one for one in _STEPS_S if whole_s / one <= _MOST_STEPS), _STEPS_S[-1])
    instant = partial(words.instant, epoch=epoch)
    marks = sorted({*(at * step_s for at in range(math.ceil(whole_s / step_s))), first, last})
    with st.container(horizontal=True):
        st.selectbox(
            "Jobs from",
            [mark for mark in marks if mark < last],
            format_func=instant,
            **_field("from", first, lambda one: _with_window(study, (one, last), days), instant),
        )
        st.selectbox(
            "to",
            [*(mark for mark in marks if first < mark < whole_s), whole_s],
            format_func=instant,
            **_field("to", last, lambda one: _with_window(study, (first, one), days), instant),
        )


def _with_window(study: Study, ends_s: tuple[float, float], days: float) -> Study:
    first, last = ends_s
    spec = intake.edited(study.base.trace, (first / 86_400, last / 86_400), days)
    return start.with_trace(study, spec, server.store())


def _cluster(session: state.Session) -> None:
    cluster = session.study.base.cluster
    name = charts.visible(cluster.name, _CHIP_NAME)
    with _chip("cluster", words.plain(f"{name} · {words.plural(cluster.gpus, 'GPU')}")):
        totals = machines.totals(cluster)
        st.caption(
            f"{words.plain(cluster.name)}: {words.plural(totals.nodes, 'node')},"
            f" {words.plural(totals.gpus, 'GPU')}"
        )
        for at, group in enumerate(cluster.groups[:_GROUPS]):
            of = f"{group.gpus} × {gpu_type(group.gpu_type)}" if group.gpus else "no GPUs"
            st.number_input(
                words.plain(f"Nodes of {charts.visible(of, _LONGEST)}"),
                0,
                max(_MOST_NODES, group.count),
                **_field(f"nodes/{at}", group.count, _with_nodes(session.study, at)),
            )
        st.page_link("pages/cluster.py", label="All of the cluster", icon=":material/dns:")


def _with_nodes(study: Study, at: int) -> Callable[[int], Study]:
    def made(count: int) -> Study:
        table = machines.group_table(study.base.cluster)
        table.loc[at, "nodes"] = count
        types = machines.type_table(study.base.cluster)
        return start.with_cluster(
            study, machines.cluster_from_tables(table, types, study.base.cluster)
        )

    return made


def _policies(session: state.Session) -> None:
    study = session.study
    titles = study.titles
    with _chip("policies", words.plural(len(titles), "policy")):
        try:
            trace = load_trace(study.base.trace, server.store())
        except TrainyardError:
            trace = None
        names = _selectable(
            f"{trace.digest if trace is not None else ''} {study.base.perf}", trace, study.base.perf
        )
        chosen = [spec.name for spec in study.allocators]
        offered = {name: title for name, (title, can_run) in names.items() if can_run} | {
            name: names[name][0] for name in chosen
        }
        st.pills(
            "Compared",
            [name for name in names if name in offered],
            selection_mode="multi",
            format_func=lambda name: words.plain(offered[name]),
            **_field(
                "policies", list(dict.fromkeys(chosen)), lambda wanted: _with_names(study, wanted)
            ),
        )
        st.selectbox(
            "Baseline",
            range(len(titles)),
            format_func=titles.__getitem__,
            **_field(
                "baseline",
                study.baseline,
                lambda at: start.with_policies(study, study.allocators, at),
                titles.__getitem__,
            ),
        )
        st.page_link("pages/policies.py", label="All policies", icon=":material/rule:")


@st.cache_data(max_entries=32, show_spinner=False)
def _selectable(mark: str, _trace: Trace | None, _perf: Spec) -> dict[str, tuple[str, bool]]:
    """Return the policies there are: name -> title, and whether it can run on these jobs."""
    del mark
    return {
        one.name: (one.title, not one.reason) for one in catalog.allocator_choices(_trace, _perf)
    }


def _with_names(study: Study, wanted: list[str]) -> Study:
    """Return the study with these policies; variants stay, and so does the last policy."""
    kept = [spec for spec in study.allocators if spec.name in wanted]
    have = {spec.name for spec in kept}
    specs = (*kept, *(Spec(name) for name in wanted if name not in have))
    if not specs:
        return study
    baseline = study.allocators[study.baseline]
    return start.with_policies(study, specs, specs.index(baseline) if baseline in specs else 0)


def _runs(session: state.Session) -> None:
    study = session.study
    with _chip("runs", f"{words.plural(study.repeats, 'run')}, seed {study.base.seed}"):
        # More runs than may wait could not be started with one click.
        most = min(_MOST_REPEATS, server.pool().most_each // len(study.allocators))
        st.number_input(
            "Repeats",
            1,
            max(most, study.repeats),
            help=_REPEATS,
            **_field(
                "repeats",
                study.repeats,
                lambda repeats: state.with_turns(study, study.base.seed, repeats),
            ),
        )
        st.number_input(
            "Seed",
            0,
            _MOST_SEED,
            help=_SEED,
            **_field(
                "seed", study.base.seed, lambda seed: state.with_turns(study, seed, study.repeats)
            ),
        )
        st.page_link("pages/cluster.py", label="Failures and noise", icon=":material/casino:")


_SEED: Final = (
    "All random draws (failures, estimation errors) follow from the seed. Equal scenarios with"
    " equal seeds give equal results."
)
_REPEATS: Final = (
    "Runs of every policy, each with the next seed; Compare then shows intervals. Where nothing is"
    " random, all of them are equal."
)
