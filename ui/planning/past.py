"""The tab "Check against the past" of the Plan page: how far a policy of the scenario reproduces
the recorded waits, and what follows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import streamlit as st

from sim.errors import TrainyardError
from trainyard.labs.backtests.fit import MOST_RUNS
from trainyard.labs.backtests.proposal import MOST_PROPOSALS
from trainyard.labs.backtests.report import BacktestReport
from trainyard.labs.backtests.run import BacktestRun
from trainyard.library import library
from trainyard.study import catalog
from trainyard.study.check import MOST_REPEATS, Check
from trainyard.study.study import Study
from trainyard.text import RunClock
from trainyard.traces import start
from trainyard.views import charts, pasts
from ui import figure, server, state, stored_results, url_params, words
from ui.planning import live as plan_live
from ui.planning.live import Run

NAME: Final = url_params.PAST
"""Of the tab, in the address."""
CHECKED: Final = "check"
"""Parameter of the address: place of the policy, repeats, warm-up in hours, judged part in days,
whether a record that is no yardstick is checked, what of the record is applied, and whether
settings are fitted; "" = as is usual.
"""
_ABOUT: Final = (
    "A policy that was really in force is simulated on the recorded jobs, and each wait is compared"
    " with the recorded one."
)
_WRITTEN: Final = "past_written"
_EDITION: Final = "past_edition"
_HOUR_S, _DAY_S = 3600.0, 86_400.0


class PastForm(NamedTuple):
    """What the form holds."""

    policy: int
    repeats: int = 5
    warm_h: float | None = None
    judge_days: float | None = None
    anyway: bool = False
    use: tuple[str, ...] = ()
    fit: bool = False

    def check(self, study: Study) -> Check:
        """Return what is asked."""
        scenario = study.repeated(self.policy)[0]
        return Check(
            scenario,
            self.repeats,
            None if self.warm_h is None else _HOUR_S * self.warm_h,
            None if self.judge_days is None else _DAY_S * self.judge_days,
            self.anyway,
            self.use,
            self.fit,
        )

    def written(self) -> str:
        """Return it as the address holds it."""
        lengths = ["" if one is None else f"{one:g}" for one in (self.warm_h, self.judge_days)]
        more = [str(int(self.anyway)), "+".join(self.use), str(int(self.fit))]
        return "_".join([str(self.policy), str(self.repeats), *lengths, *more])


def parameters(check: Check) -> dict[str, str]:
    """Return what the address holds of a check, beside its study."""
    warm_s, judge_s = check.warm_s, check.judge_s
    asked = PastForm(
        0,
        check.repeats,
        None if warm_s is None else warm_s / _HOUR_S,
        None if judge_s is None else judge_s / _DAY_S,
        check.anyway,
        check.use,
        check.fit,
    )
    return {url_params.TAB: NAME, CHECKED: asked.written()}


def draw() -> None:
    """Draw the tab."""
    st.write(_ABOUT)
    session, store = state.session(), server.store()
    study = session.study
    if start.trace_is_gone(study, store):
        return  # said above the page
    able: dict[int, str] = {}
    try:
        able = _able(study)
        if not able:
            st.info(
                "No policy of the scenario can be checked: choose the one that was in force.",
                icon=":material/rule:",
            )
            st.page_link("pages/policies.py", label="Choose policies", icon=":material/rule:")
            return
        check, place = _form(study, able)
        least, most = min(check.repeats, 2) + 2, check.repeats + 2 + MOST_PROPOSALS
        most += (MOST_RUNS + check.repeats) * check.fit
        plan_live.draw(
            plan_live.Panel(
                check,
                "Check",
                most,
                f"{least} to {most} runs",
                partial(_draw, check, able),
                place=place,
            )
        )
    except TrainyardError as error:
        st.error(words.plain(str(error)), icon=":material/error:")
        asked = _read(url_params.asked(CHECKED), able) if able else None
        if asked is not None and asked.use and st.button("Apply nothing of the record"):
            url_params.put(CHECKED, asked._replace(use=()).written())
            st.rerun()


def _able(study: Study) -> dict[int, str]:
    """Return the policies that can be checked: place in the study -> title."""
    barred = stored_results.barred(study)
    return {
        at: title
        for at, title in enumerate(study.titles)
        if title not in barred
        and "recorded_start" not in catalog.allocator(study.allocators[at]).needs.reads
    }


# -- what is asked
# --------------------------------------------------------------------------------------------------


def _form(study: Study, able: dict[int, str]) -> tuple[Check, st.delta_generator.DeltaGenerator]:
    """Draw the form in one line; return what is asked, and where the button stands."""
    written = url_params.asked(CHECKED)
    before = _read(written, able)
    if written != st.session_state.get(_WRITTEN):
        # A link was followed: its values are not to be hidden by those of the form before.
        st.session_state[_EDITION] = int(st.session_state.get(_EDITION, 0)) + 1
    edition = st.session_state.get(_EDITION, 0)
    place = st.container(horizontal=True, vertical_alignment="bottom", key="past_form")
    with place:
        policy = st.selectbox(
            "Policy that was in force",
            list(able),
            list(able).index(before.policy),
            format_func=lambda at: charts.visible(able[at]),
            width=300,
            key=f"past/policy/{edition}/{'|'.join(able.values())}",
        )
        with st.popover("More", width="content"):
            repeats = st.number_input(
                "Repeats",
                1,
                MOST_REPEATS,
                before.repeats,
                key=f"past/repeats/{edition}",
                help="Other seeds draw when the timers of a scheduler tick.",
            )
            warm_h = st.number_input(
                "Warm-up (hours)",
                0.0,
                1e5,
                before.warm_h,
                placeholder="as long as needed",
                key=f"past/warm/{edition}",
                help=(
                    "Simulated and not measured. Empty: the longest of a day, the half-life of"
                    " usage, and 95 % of the recorded waits."
                ),
            )
            judge_days = st.number_input(
                "Judged part (days)",
                0.01,
                1e5,
                before.judge_days,
                placeholder="the last 7, at most half",
                key=f"past/judge/{edition}",
                help="The last days of the record.",
            )
            anyway = st.toggle(
                "Check a poor record, too",
                before.anyway,
                key=f"past/anyway/{edition}",
                help="Preview only.",
            )
            fit = st.toggle(
                "Fit open settings",
                before.fit,
                key=f"past/fit/{edition}",
                help=(
                    "What no record tells, such as the kind of fair share, is tried on the part"
                    f" before the judged one, in at most {MOST_RUNS} more runs."
                ),
            )
    asked = PastForm(int(policy), int(repeats), warm_h, judge_days, anyway, before.use, fit)
    url_params.put(CHECKED, asked.written())
    st.session_state[_WRITTEN] = asked.written()
    return asked.check(study), place


def _read(written: str, able: dict[int, str]) -> PastForm:
    """Return what the address holds; what it does not hold, or cannot, as is usual."""
    usual = PastForm(next(iter(able)))
    parts = written.split("_")
    if len(parts) != 7:
        return usual
    try:
        lengths = [None if not one else float(one) for one in parts[2:4]]
        read = PastForm(int(parts[0]), int(parts[1]), lengths[0], lengths[1], parts[4] == "1")
        read = read._replace(use=tuple(filter(None, parts[5].split("+"))), fit=parts[6] == "1")
    except ValueError:
        return usual
    sound = 1 <= read.repeats <= MOST_REPEATS and all(
        one is None or (math.isfinite(one) and 0 <= one <= 1e5) for one in lengths
    )
    return read if sound and read.policy in able else usual


# -- what came of it
# --------------------------------------------------------------------------------------------------


def _draw(check: Check, able: dict[int, str], run: Run, going: bool) -> None:
    assert isinstance(run, BacktestRun), "made for a check"
    report = run.report
    if report is None:
        if not going:
            st.caption(
                "The check shows how far the waits of this policy can be believed, and whether"
                " you can quote gains over the recorded schedule."
            )
        return
    if report.past is None:
        st.title("This record cannot be checked against.", anchor=False)
    else:
        st.title(words.plain(report.past.sentence), anchor=False)
    for one in report.faults:
        st.warning(words.plain(one), icon=":material/rule:")
    if report.judged is None:
        return
    _figures(check, report)
    st.html(pasts.table(report, dark=figure.dark()))
    if of_groups := pasts.groups(report, dark=figure.dark()):
        st.html(of_groups)
    st.caption(words.plain(" ".join([*_notes(report), *report.remarks])))
    _proposals(check, report, going=going)
    _fit(report)
    if not going:
        _take_over(check, run, report)


def _proposals(check: Check, report: BacktestReport, *, going: bool) -> None:
    """Draw what the record shows; a tick applies it."""
    if not report.proposals:
        return
    st.subheader("What the record shows", anchor=False)
    for row in report.proposals:
        one = row.proposal
        if row.used:
            effect = "Applied."
        elif not one.applicable:
            effect = "Shown only: it cannot be applied here."
        elif math.isfinite(row.effect):
            points = f"{100 * row.effect:+.1f}".replace("-", "−")
            effect = f"Applied alone, it changes the explained share by {points} points."
        else:
            effect = "Its effect is not known yet."
        ticked = st.checkbox(
            words.plain(one.what),
            row.used,
            key=f"past/use/{one.id}/{library.identity(check)}",
            disabled=going or not one.applicable,
        )
        st.caption(words.plain(f"{one.evidence} {effect}"))
        if ticked != row.used:
            asked = _read(url_params.asked(CHECKED), {_place(check): ""})
            use = {*check.use, one.id} if ticked else {*check.use} - {one.id}
            url_params.put(CHECKED, asked._replace(use=tuple(sorted(use))).written())
            st.rerun()


def _place(check: Check) -> int:
    """Return the place of the policy of a check in the scenario."""
    return state.session().study.allocators.index(check.scenario.allocator)


def _fit(report: BacktestReport) -> None:
    """Draw what a fit has tried and come to."""
    if report.fit is None:
        return
    st.subheader("Fit of open settings", anchor=False)
    verdict = report.fit.past
    more = f" {verdict.sentence}" if verdict is not None and report.fit.chosen else ""
    st.write(words.plain(f"{report.fit.sentence}{more}"))
    st.html(pasts.steps(report.fit, dark=figure.dark()))


def _take_over(check: Check, run: BacktestRun, report: BacktestReport) -> None:
    """Draw the way from what was found to the scenario."""
    fit = report.fit
    fitted = fit is not None and bool(fit.chosen) and fit.carries
    if not fitted and not check.use:
        return
    found = fit.scenario if fit is not None and fitted else run.scenario
    if st.button("Take these settings into the scenario", icon=":material/input:"):
        session = state.session()
        study, at = session.study, _place(check)
        policies = (*study.allocators[:at], found.allocator, *study.allocators[at + 1 :])
        base = replace(study.base, cluster=found.cluster)
        session.replace(replace(study, base=base, allocators=policies))
        url_params.put(CHECKED, "")
        st.rerun()


def _figures(check: Check, report: BacktestReport) -> None:
    """Draw waits and use beside each other, in the colour that the policy has everywhere."""
    study, mark = state.session().study, library.identity(check)
    colours = charts.policy_colours(study.titles, "", study.slots)
    colour = colours[study.titles[study.allocators.index(check.scenario.allocator)]]
    epoch = state.epoch()
    grid = st.grid(2, min_column_width=480)
    for name, make in (("waits", pasts.waits), ("use", pasts.use)):
        view = figure.kept(
            (name, mark, report.headline, colour, epoch),
            partial(make, report, mark, colour, epoch),
        )
        if view is not None:
            with grid.container():
                figure.draw(view)


def _notes(report: BacktestReport) -> list[str]:
    """Return what was measured, in sentences."""
    if report.split is None or report.judged is None:
        return []
    parts, clock = report.split, RunClock(state.epoch())
    said = [
        f"Judged are the jobs submitted from {clock.at(max(parts.judge_s, parts.warm_s))} on;"
        f" those before {clock.at(parts.warm_s)} are the warm-up."
    ]
    if report.opens_s:
        said.append(f"Until {clock.at(report.opens_s)} jobs run as recorded.")
    if report.repeats > 1:
        low, high = report.judged.low, report.judged.high
        said.append(
            f"Figures are means over {report.repeats} repeats, between which the median error is"
            f" {words.time(low.error_s)} to {words.time(high.error_s)}."
        )
    else:
        said.append("One run: seeds change nothing here.")
    said.append(
        "Gains over the recorded schedule are told on Compare."
        if report.comparable
        else "No gain over the recorded schedule is told on Compare."
    )
    return said
