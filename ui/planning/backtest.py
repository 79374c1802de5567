"""The tab "Backtest" of Plan: how well a policy reproduces the recorded waits."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import streamlit as st

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.formatting import RunClock
from trainyard.labs.backtests.fit import MAX_RUNS
from trainyard.labs.backtests.proposal import MAX_PROPOSALS
from trainyard.labs.backtests.report import BacktestReport
from trainyard.labs.backtests.run import BacktestRun
from trainyard.library import library
from trainyard.study import catalog
from trainyard.study.check import MAX_REPEATS, Check
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views import backtests, charts
from ui import figure, server, state, stored_results, url_params, words
from ui.planning import run_panel as plan_live
from ui.planning.run_panel import Run

NAME: Final = url_params.PAST
"""Name of the tab in the URL."""
CHECKED: Final = "check"
"""URL parameter: policy index, repeats, warm-up hours, judged days, whether a poor record is
checked, applied findings, whether settings are fitted; "" = defaults.
"""
_ABOUT: Final = (
    "Check against the past: simulate the policy that your cluster used, and compare each wait with"
    " the recorded one."
)
_RECORDED: Final = Spec("recorded")
_WRITTEN: Final = "past_written"
_EDITION: Final = "past_edition"
_HOUR_S, _DAY_S = 3600.0, 86_400.0


class BacktestForm(NamedTuple):
    """Values of the form."""

    policy: int
    repeats: int = 5
    warm_h: float | None = None
    judge_days: float | None = None
    anyway: bool = False
    use: tuple[str, ...] = ()
    fit: bool = False

    def check(self, study: Study) -> Check:
        """Return the backtest of the chosen policy of a study with these values."""
        scenario = study.policy_scenarios(self.policy)[0]
        return Check(
            scenario,
            self.repeats,
            None if self.warm_h is None else _HOUR_S * self.warm_h,
            None if self.judge_days is None else _DAY_S * self.judge_days,
            self.anyway,
            self.use,
            self.fit,
        )

    def to_url(self) -> str:
        """Return the values as URL text, joined by "_", in the order of `CHECKED`."""
        lengths = [
            "" if length is None else f"{length:g}" for length in (self.warm_h, self.judge_days)
        ]
        flags = [str(int(self.anyway)), "+".join(self.use), str(int(self.fit))]
        return "_".join([str(self.policy), str(self.repeats), *lengths, *flags])


def url_parameters(check: Check) -> dict[str, str]:
    """Return the tab and form of a backtest as URL parameters; its study has its own."""
    warm_s, judge_s = check.warm_s, check.judge_s
    form = BacktestForm(
        0,
        check.repeats,
        None if warm_s is None else warm_s / _HOUR_S,
        None if judge_s is None else judge_s / _DAY_S,
        check.anyway,
        check.use,
        check.fit,
    )
    return {url_params.TAB: NAME, CHECKED: form.to_url()}


def draw() -> None:
    """Draw the tab "Backtest": the form, its run and its results, or why none is possible."""
    st.write(_ABOUT)
    session, store = state.session(), server.store()
    study = session.study
    if new_study.is_trace_missing(study, store):
        return  # a warning above the page reports it
    titles: dict[int, str] = {}
    try:
        titles = _backtest_policies(study)
        if not titles:
            st.info(
                "No policy of the scenario can be backtested. Choose the one your cluster used.",
                icon=":material/rule:",
            )
            st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
            return
        check, form_row = _draw_form(study, titles)
        min_runs, max_runs = min(check.repeats, 2) + 2, check.repeats + 2 + MAX_PROPOSALS
        max_runs += (MAX_RUNS + check.repeats) * check.fit
        plan_live.draw(
            plan_live.Panel(
                check,
                "Check",
                max_runs,
                f"{min_runs} to {max_runs} runs (policy, references, variants)",
                partial(_draw_results, check, titles),
                button_place=form_row,
            )
        )
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        form = _parse_form(url_params.get(CHECKED), titles) if titles else None
        if form is not None and form.use and st.button("Apply no findings"):
            url_params.set_param(CHECKED, form._replace(use=()).to_url())
            st.rerun()


def _backtest_policies(study: Study) -> dict[int, str]:
    """Return index -> title of policies that run without the recorded start times."""
    unrunnable = stored_results.unrunnable(study)
    return {
        index: title
        for index, title in enumerate(study.titles)
        if title not in unrunnable
        and "recorded_start" not in catalog.allocator(study.allocators[index]).needs.reads
    }


# -- the form
# --------------------------------------------------------------------------------------------------


def _draw_form(
    study: Study, titles: dict[int, str]
) -> tuple[Check, st.delta_generator.DeltaGenerator]:
    """Draw the form in one row and write it to the URL; return the backtest, and that row."""
    url_text = url_params.get(CHECKED)
    initial = _parse_form(url_text, titles)
    if url_text != st.session_state.get(_WRITTEN):
        # A link was followed: its values replace those in the widgets.
        st.session_state[_EDITION] = int(st.session_state.get(_EDITION, 0)) + 1
    version = st.session_state.get(_EDITION, 0)
    form_row = st.container(horizontal=True, vertical_alignment="bottom", key="past_form")
    with form_row:
        policy = st.selectbox(
            "Policy your cluster used",
            list(titles),
            list(titles).index(initial.policy),
            format_func=lambda index: charts.visible(titles[index]),
            width=300,
            key=f"past/policy/{version}/{'|'.join(titles.values())}",
        )
        with st.popover("More", width="content"):
            repeats = st.number_input(
                "Repeats",
                1,
                MAX_REPEATS,
                initial.repeats,
                key=f"past/repeats/{version}",
                help="Seeds vary when the scheduler's timers tick.",
            )
            warm_h = st.number_input(
                "Warm-up (hours)",
                0.0,
                1e5,
                initial.warm_h,
                placeholder="as long as needed",
                key=f"past/warm/{version}",
                help=(
                    "Simulated but not measured. Empty: the longest of a day, the half-life of"
                    " usage, and the 95th percentile of recorded waits."
                ),
            )
            judge_days = st.number_input(
                "Judged part (days)",
                0.01,
                1e5,
                initial.judge_days,
                placeholder="last 7, at most half",
                key=f"past/judge/{version}",
                help="The last days of the record.",
            )
            anyway = st.toggle(
                "Allow a poor record",
                initial.anyway,
                key=f"past/anyway/{version}",
                help="Preview only: nothing is compared with such a record.",
            )
            fit = st.toggle(
                "Fit open settings",
                initial.fit,
                key=f"past/fit/{version}",
                help=(
                    "Tries settings that no record contains, such as the fair-share rule, on the"
                    f" days before the judged part: at most {MAX_RUNS} more runs."
                ),
            )
    form = BacktestForm(int(policy), int(repeats), warm_h, judge_days, anyway, initial.use, fit)
    url_params.set_param(CHECKED, form.to_url())
    st.session_state[_WRITTEN] = form.to_url()
    return form.check(study), form_row


def _parse_form(written: str, titles: dict[int, str]) -> BacktestForm:
    """Return the form values of a URL text; defaults if it is empty or invalid.

    The policy must be an index in `titles`.
    """
    defaults = BacktestForm(next(iter(titles)))
    parts = written.split("_")
    if len(parts) != 7:
        return defaults
    try:
        lengths = [None if not length else float(length) for length in parts[2:4]]
        form = BacktestForm(int(parts[0]), int(parts[1]), lengths[0], lengths[1], parts[4] == "1")
        form = form._replace(use=tuple(filter(None, parts[5].split("+"))), fit=parts[6] == "1")
    except ValueError:
        return defaults
    is_valid = 1 <= form.repeats <= MAX_REPEATS and all(
        length is None or (math.isfinite(length) and 0 <= length <= 1e5) for length in lengths
    )
    return form if is_valid and form.policy in titles else defaults


# -- results
# --------------------------------------------------------------------------------------------------


def _draw_results(check: Check, able: dict[int, str], run: Run, is_running: bool) -> None:
    """Draw the verdict, charts, tables, findings and fit of a backtest, as far as known."""
    assert isinstance(run, BacktestRun), "made for a check"
    report = run.report
    if report is None:
        if not is_running:
            st.caption(
                "A backtest shows how far to trust simulated waits, and gains over the recorded"
                " schedule."
            )
        return
    if report.past is None:
        st.title("This record does not allow a backtest.", anchor=False)
    else:
        st.title(words.plain(report.past.sentence), anchor=False)
    for fault in report.faults:
        st.warning(words.plain(fault), icon=":material/rule:")
    if report.judged is None:
        return
    _draw_figures(check, report)
    st.html(backtests.table(report, dark=figure.is_dark()))
    if group_table := backtests.groups(report, dark=figure.is_dark()):
        st.html(group_table)
    st.caption(words.plain(" ".join([*_notes(report), *report.remarks])))
    _draw_findings(check, report, is_running=is_running)
    _draw_fit(report)
    if not is_running:
        _draw_apply_button(check, run, report)


def _draw_findings(check: Check, report: BacktestReport, *, is_running: bool) -> None:
    """Draw the findings of the record, each with a checkbox; a change restarts the form.

    A ticked finding is written into the URL as applied.
    """
    if not report.proposals:
        return
    st.subheader("What the record shows", anchor=False)
    for row in report.proposals:
        proposal = row.proposal
        if row.used:
            effect = "Applied."
        elif not proposal.applicable:
            effect = "It cannot be applied here."
        elif math.isfinite(row.effect):
            points = f"{100 * row.effect:+.1f}".replace("-", "−")
            effect = f"Alone it changes the explained share by {points} points."
        else:
            effect = "Its effect is not known yet."
        ticked = st.checkbox(
            words.plain(proposal.what),
            row.used,
            key=f"past/use/{proposal.id}/{library.recipe_id(check)}",
            disabled=is_running or not proposal.applicable,
        )
        st.caption(words.plain(f"{proposal.evidence} {effect}"))
        if ticked != row.used:
            form = _parse_form(url_params.get(CHECKED), {_policy_index(check): ""})
            applied_ids = {*check.use, proposal.id} if ticked else {*check.use} - {proposal.id}
            url_params.set_param(CHECKED, form._replace(use=tuple(sorted(applied_ids))).to_url())
            st.rerun()


def _policy_index(check: Check) -> int:
    """Return the index of a backtest's policy in the scenario of the session."""
    return state.session().study.allocators.index(check.scenario.allocator)


def _draw_fit(report: BacktestReport) -> None:
    """Draw the result of fitting open settings, and the settings tried."""
    if report.fit is None:
        return
    st.subheader("Fit of open settings", anchor=False)
    verdict = report.fit.past
    verdict_text = f" {verdict.sentence}" if verdict is not None and report.fit.chosen else ""
    st.write(words.plain(f"{report.fit.sentence}{verdict_text}"))
    st.html(backtests.steps(report.fit, dark=figure.is_dark()))


def _draw_apply_button(check: Check, run: BacktestRun, report: BacktestReport) -> None:
    """Draw the button that puts applied and fitted settings into the scenario.

    Drawn only if a finding is applied, or a fit holds on the judged part.
    """
    fit = report.fit
    is_fitted = fit is not None and bool(fit.chosen) and fit.carries
    if not is_fitted and not check.use:
        return
    scenario = fit.scenario if fit is not None and is_fitted else run.scenario
    if st.button("Use these settings in the scenario", icon=":material/input:"):
        session = state.session()
        study, index = session.study, _policy_index(check)
        policies = (*study.allocators[:index], scenario.allocator, *study.allocators[index + 1 :])
        base = replace(study.base, cluster=scenario.cluster)
        session.replace(replace(study, base=base, allocators=policies))
        url_params.set_param(CHECKED, "")
        st.rerun()


def _draw_figures(check: Check, report: BacktestReport) -> None:
    """Draw waits and GPU use of a backtest side by side, in the colors of Compare."""
    identity, epoch = library.recipe_id(check), state.epoch()
    colours = _line_colors(state.session().study, check.scenario.allocator)
    grid = st.grid(2, min_column_width=480)
    for name, make_view in (("waits", backtests.waits), ("use", backtests.use)):
        view = figure.cached_view(
            (name, identity, report.headline, colours, epoch),
            partial(make_view, report, identity, colours, epoch),
        )
        if view is not None:
            with grid.container():
                figure.draw(view)


def _line_colors(study: Study, policy: Spec) -> tuple[str, str]:
    """Return the colors of a policy and of the recorded schedule, compared or not."""
    if _RECORDED not in study.allocators:
        study = study.choosing((*study.allocators, _RECORDED), study.baseline)
    titles = study.titles
    colours = charts.policy_colours(titles, titles[study.baseline], study.slots)
    policy_color, recorded_color = (
        colours[titles[study.allocators.index(spec)]] for spec in (policy, _RECORDED)
    )
    return policy_color, recorded_color


def _notes(report: BacktestReport) -> list[str]:
    """Return sentences on the judged part, the repeats, and whether Compare shows gains."""
    if report.split is None or report.judged is None:
        return []
    split, clock = report.split, RunClock(state.epoch())
    notes = [
        f"Judged: jobs submitted from {clock.format(max(split.judge_s, split.warm_s))};"
        f" warm-up: before {clock.format(split.warm_s)}."
    ]
    if report.opens_s:
        notes.append(f"Until {clock.format(report.opens_s)} jobs run as recorded.")
    if report.repeats > 1:
        low, high = report.judged.low, report.judged.high
        notes.append(
            f"Means over {report.repeats} repeats; their median errors are"
            f" {words.time(low.error_s)} to {words.time(high.error_s)}."
        )
    else:
        notes.append("One run, because seeds have no effect here.")
    notes.append(
        "Compare shows gains over the recorded schedule."
        if report.comparable
        else "Compare shows no gains over the recorded schedule."
    )
    return notes
