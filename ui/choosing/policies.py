"""The Policies page: how many are compared, what would make more of them selectable, the baseline,
and the list of all: a component that is one tab stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import streamlit as st

from sim.params import Spec
from sim.trace import Trace
from trainyard.results import plainest
from trainyard.results.headline import GOALS
from trainyard.study import catalog
from trainyard.study.catalog import CatalogEntry
from trainyard.study.study import Study
from trainyard.traces import start
from trainyard.views import charts
from ui import figure, state, url_params, words
from ui.choosing import policy_detail, policy_results, policy_rows, run_settings
from ui.choosing.policy_results import StoredNote
from ui.choosing.policy_rows import PolicyRow, PolicyRows

_GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "baseline": ("Reference", "what to compare with"),
    "short waits": ("Short waits", "the average job is done sooner"),
    "fairness": ("Fairness", "users or jobs get equal shares"),
    "heterogeneous": ("Mixed GPU types", "each job on the type that suits it"),
    "elastic": ("Elastic jobs", "jobs grow and shrink while they run"),
}
"""Goal of a card -> the group in the list, and what it means."""
_REFERENCE: Final = _GROUPS["baseline"]
_OTHERS: Final = ("Others", "")
_WHY: Final = {
    "recorded_start": "the trace has no start times",
    "scaling": "jobs must change size",
    "servers": "jobs need parameter servers",
    "profile": "the trace names no models",
}
"""Word of `sim.contract.Needs` -> why a policy cannot run here, at the end of its line."""
_ROWS: Final = "policy_rows"
_ANSWERED: Final = "policy_list_answered"
_BEFORE: Final = "scaling_before"
"""The performance model that *Let jobs change size* has replaced in this session."""
_LIST_KEY: Final = "policy_list"
_LONGEST: Final = 200
"""Characters of a title in the list."""
_HTML: Final = """<div class="ty-policies">
<input type="search" placeholder="Find a policy" aria-label="Find a policy" spellcheck="false" autocomplete="off">
<div class="list" role="listbox" tabindex="0" aria-multiselectable="true" aria-label="Policies: arrows move, Space compares, Enter shows the detail, / searches"></div>
<p class="none" hidden>No policy has these letters.</p><span class="said" aria-live="polite"></span></div>"""  # noqa: E501
_FILES: Final = Path(__file__).parent
_LIST: Final = st.components.v2.component(
    _LIST_KEY,
    html=_HTML,
    css=(_FILES / "policy_list.css").read_text(encoding="utf-8"),
    js=(_FILES / "policy_list.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def draw(trace: Trace | None) -> None:
    """Draw the page; `trace` = the jobs of the scenario, None = they are not here."""
    study = state.session().study
    rows = _rows(study)
    known = _known(
        f"{'' if trace is None else trace.digest} {study.base.perf}", trace, study.base.perf
    )
    _head(study, rows, known, trace)
    asked = url_params.get(policy_detail.OPEN)
    opened = rows.get(asked) or _usual(rows, study, known)
    with st.container(key="policies_parts"):
        left, right = st.columns([888, 470], gap="small")
        with left:
            answered = st.session_state.get(_ANSWERED, 0)
            _draw_list(_groups(study, rows, known), opened.id, answered)
        with right:
            if asked and asked != opened.id:
                strange = charts.visible(asked, 80)
                st.caption(
                    words.plain(f"The address asks for “{strange}”, which is not in this list.")
                )
            largest = 1 if trace is None else int(trace.numbers("num_gpus").max(initial=1.0))
            policy_detail.draw(opened, rows, known[opened.spec.name], largest)


@st.cache_resource(max_entries=32, show_spinner=False)
def _known(mark: str, _trace: Trace | None, _perf: Spec) -> dict[str, CatalogEntry]:
    del mark
    return {choice.name: choice for choice in catalog.allocator_choices(_trace, _perf)}


def _rows(study: Study) -> PolicyRows:
    if _ROWS not in st.session_state:
        st.session_state[_ROWS] = PolicyRows(
            [choice.name for choice in catalog.allocator_choices()]
        )
    rows: PolicyRows = st.session_state[_ROWS]
    rows.follow(study)
    return rows


def _take() -> None:
    """Take over what was done in the list."""
    did = _action()
    if did is None:
        return
    session = state.session()
    rows = _rows(session.study)
    st.session_state[_ANSWERED] = did.number
    session.edit(policy_rows.ticked(session.study, rows, did.ticks))
    url_params.put(policy_detail.OPEN, did.open)


def _usual(rows: PolicyRows, study: Study, known: Mapping[str, CatalogEntry]) -> PolicyRow:
    """Return the row whose detail is shown where none is asked for."""
    compared = [row for row in rows.rows if row.at is not None]
    # What is compared with the references is of more interest than they are.
    return min(
        compared,
        key=lambda row: (row.at == study.baseline, _group(known[row.spec.name]) == _REFERENCE),
    )


def _head(
    study: Study, rows: PolicyRows, known: Mapping[str, CatalogEntry], trace: Trace | None
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="policies_head"):
        with st.container(gap="xxsmall", key="policies_count"):
            count = len(study.allocators)
            st.title(f"{count} of {len(rows.rows)} policies compared", anchor=False)
            more = _next_model(study, known, trace)
            results = GOALS[policy_results.judged_by()]
            st.caption(words.plain(f"{_about_sizes(study, more)} Results: {results}."))
        if trace is not None:
            _sizes(study, more)
        run_settings.estimates()
        _baseline(study)


@dataclass(frozen=True)
class _NextModel:
    """The performance model that lets more policies run.

    Parameters
    ----------
    perf : Spec
        The plainest one that does.
    gained, left : int
        Policies that can run under it in addition, and those that still cannot.
    """

    perf: Spec
    gained: int
    left: int

    @property
    def has_servers(self) -> bool:
        """Whether its jobs have parameter servers."""
        return bool(catalog.instance("perf", self.perf).staffed)


def _can_scale(perf: Spec) -> bool:
    return bool(catalog.instance("perf", perf).scales)


def _about_sizes(study: Study, more: _NextModel | None) -> str:
    """Return the caption on job sizes: what this scenario allows, and what more policies need."""
    model = f"“{catalog.model_title(study.base.perf)}”"
    if more and more.has_servers:
        return (
            f"{more.gained} more need parameter servers, and are compared apart under"
            f" “{catalog.model_title(more.perf)}”."
        )
    if more and _can_scale(study.base.perf):
        return f"{more.gained} more need another rule than {model} of how jobs scale."
    if more:
        servers = f", {more.left} need parameter servers" if more.left else ""
        return (
            f"{more.gained} more need jobs that may change size{servers}; in this scenario every"
            " job keeps its size."
        )
    if _can_scale(study.base.perf):
        return f"Jobs may change size, under {model} of How jobs scale on the Trace page."
    return "Every job keeps its size."


def _next_model(
    study: Study, known: Mapping[str, CatalogEntry], trace: Trace | None
) -> _NextModel | None:
    """Return the plainest performance model that lets more policies run; None = there is none."""
    barred = [choice.name for choice in known.values() if choice.reason]
    if trace is None or not barred:
        return None
    for perf in _models(f"{trace.digest} {study.base.cluster.digest}", trace, study):
        able = _known(f"{trace.digest} {perf}", trace, perf)
        gained = sum(not able[name].reason for name in barred)
        if gained:
            return _NextModel(perf, gained, len(barred) - gained)
    return None


@st.cache_data(max_entries=32, show_spinner=False)
def _models(mark: str, _trace: Trace, _study: Study) -> tuple[Spec, ...]:
    """Return the models of ``--perf auto`` for all policies: without servers, then with them."""
    del mark
    policies = tuple(Spec(choice.name) for choice in catalog.allocator_choices())
    every = Study(replace(_study.base, allocator=policies[0]), policies)
    return tuple(part.perf for part in plainest.arranged(every, _trace))


def _sizes(study: Study, more: _NextModel | None) -> None:
    """Draw the buttons that let jobs change size or have servers, and take that back."""
    now = study.base.perf
    # Callbacks, so that a button already says what the next click does.
    if more:
        label = "Add parameter servers" if more.has_servers else "Let jobs change size"
        icon = ":material/dns:" if more.has_servers else ":material/open_in_full:"
        st.button(label, key="sizes", icon=icon, on_click=_with_perf, args=(more.perf, now))
    if _can_scale(now):
        before = st.session_state.get(_BEFORE, plainest.candidates()[0])
        icon = ":material/close_fullscreen:"
        st.button(
            "Keep job sizes", key="keep_sizes", icon=icon, on_click=_with_perf, args=(before, now)
        )


def _with_perf(perf: Spec, before: Spec) -> None:
    session = state.session()
    if not _can_scale(before):
        st.session_state[_BEFORE] = before
    session.replace(start.with_model(session.study, "perf", perf))


def _baseline(study: Study) -> None:
    titles = study.titles
    # The key holds the names: with other policies in the list it is another choice.
    at = st.selectbox(
        "Baseline",
        range(len(titles)),
        study.baseline,
        key=state.widget_key("baseline", *titles),
        format_func=lambda place: f"Baseline: {titles[place]}",
        label_visibility="collapsed",
        width=250,
    )
    if at != study.baseline:
        state.session().edit(start.with_policies(study, study.allocators, at))
        st.rerun()


@dataclass(frozen=True)
class PolicyLine:
    """What the list shows of one policy.

    Parameters
    ----------
    id : str
        What is sent back.
    title, brief : str
        Its name, and its rule in a few words.
    note : str
        The stored result, or why it cannot run.
    on : bool
        Whether it is compared.
    colour : str
        Of the tick.
    barred : bool
        Whether it cannot run here.
    variant : bool
        Whether it belongs to the policy above.
    old : bool
        Whether the result is that of the scenario shown on Compare, not of the one being edited.
    """

    id: str
    title: str
    brief: str
    note: str = ""
    on: bool = False
    colour: str = ""
    barred: bool = False
    variant: bool = False
    old: bool = False


@dataclass(frozen=True)
class PolicyGroup:
    """Policies of one goal.

    Parameters
    ----------
    title, about : str
        The goal, and what it means in a few words.
    lines : sequence of PolicyLine
        In order.
    """

    title: str
    about: str
    lines: Sequence[PolicyLine]


@dataclass(frozen=True)
class PolicyAction:
    """What a user did in the list.

    Parameters
    ----------
    number : int
        Grows with every action; the list is told which one has been answered.
    ticks : mapping of bool
        Id -> whether it is to be compared: all changes that were not answered yet.
    open : str
        Id of the row whose detail is shown.
    """

    number: int
    ticks: dict[str, bool]
    open: str


def _draw_list(groups: Sequence[PolicyGroup], opened: str, answered: int) -> None:
    """Draw the list, with the detail of `opened`; these groups contain the action `answered`."""
    _LIST(
        key=_LIST_KEY,
        data={
            "answered": answered,
            "open": opened,
            "groups": [
                {
                    "title": group.title,
                    "about": group.about,
                    "rows": [_plain(line) for line in group.lines],
                }
                for group in groups
            ],
        },
        on_did_change=_take,
    )


def _action() -> PolicyAction | None:
    """Return what was done, if the list has been used since the page was drawn."""
    did: Any = st.session_state[_LIST_KEY].did
    if did is None:
        return None
    ticks = {str(name): bool(is_on) for name, is_on in did["ticks"].items()}
    return PolicyAction(int(did["number"]), ticks, str(did["open"]))


def _plain(line: PolicyLine) -> dict[str, Any]:
    title = charts.visible(line.title, _LONGEST)
    return asdict(line) | {"title": title, "full": title}


def _groups(study: Study, rows: PolicyRows, known: Mapping[str, CatalogEntry]) -> list[PolicyGroup]:
    specs = [row.spec for row in rows.rows]
    titles, notes = rows.titles, policy_results.notes(study, specs)
    compared = study.titles
    colours = charts.policy_colours(
        compared, compared[study.baseline], study.slots, dark=figure.is_dark()
    )
    lines: dict[tuple[str, str], list[PolicyLine]] = {place: [] for place in _GROUPS.values()}
    for row, title in zip(rows.rows, titles, strict=True):
        choice = known[row.spec.name]
        note = notes.get(row.spec, StoredNote(""))
        lines.setdefault(_group(choice), []).append(
            PolicyLine(
                row.id,
                title,
                "" if choice.card is None else choice.card.brief,
                _WHY[choice.lacks] if choice.reason else note.text,
                row.at is not None,
                "" if row.at is None else colours[compared[row.at]],
                bool(choice.reason),
                row.is_variant,
                note.old,
            )
        )
    return [PolicyGroup(*place, own) for place, own in lines.items() if own]


def _group(choice: CatalogEntry) -> tuple[str, str]:
    goals = () if choice.card is None else choice.card.goals
    return _GROUPS.get(next(iter(goals), ""), _OTHERS)
