"""The Policies page: headline, job sizes, baseline, and the list of all policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import streamlit as st

from sim.params import Spec
from sim.trace import Trace
from trainyard.results import simplest_model
from trainyard.results.headline import GOALS
from trainyard.study import catalog
from trainyard.study.catalog import CatalogEntry
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.views import charts
from ui import figure, state, url_params, words
from ui.choosing import policy_detail, policy_results, policy_rows, run_settings
from ui.choosing.policy_results import StoredNote
from ui.choosing.policy_rows import PolicyRow, PolicyRows

_GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "baseline": ("Reference", "what to compare with"),
    "short waits": ("Short waits", "the average job ends sooner"),
    "fairness": ("Fairness", "users or jobs get equal shares"),
    "heterogeneous": ("Mixed GPU types", "each job on the type that suits it"),
    "elastic": ("Elastic jobs", "jobs grow and shrink while they run"),
    "combined": ("Combined policies", "add a rule to the policy you choose"),
}
"""Goal of a card -> (group in the list, its description)."""
_REFERENCE: Final = _GROUPS["baseline"]
_OTHERS: Final = ("Others", "")
_REASONS: Final = {
    "recorded_start": "the trace has no start times",
    "scaling": "jobs must change size",
    "servers": "jobs need parameter servers",
    "profile": "the trace names no models",
}
"""Field of `sim.contract.Needs` -> reason why a policy cannot run, at the end of its line."""
_ROWS: Final = "policy_rows"
_ANSWERED: Final = "policy_list_answered"
_BEFORE: Final = "scaling_before"
"""Session key: performance model before the button "Let jobs change size"."""
_LIST_KEY: Final = "policy_list"
_MAX_TITLE: Final = 200
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
    """Draw the Policies page; `trace` = jobs of the scenario, or None if they are missing."""
    study = state.session().study
    rows = _session_rows(study)
    entries = _catalog_entries(
        f"{'' if trace is None else trace.digest} {study.base.perf}", trace, study.base.perf
    )
    _draw_head(study, rows, entries, trace)
    requested = url_params.get(policy_detail.OPEN)
    open_row = rows.get(requested) or _default_row(rows, study, entries)
    with st.container(key="policies_parts"):
        left, right = st.columns([888, 470], gap="small")
        with left:
            last_answered = st.session_state.get(_ANSWERED, 0)
            _draw_list(_policy_groups(study, rows, entries), open_row.id, last_answered)
        with right:
            if requested and requested != open_row.id:
                unknown_name = charts.visible(requested, 80)
                st.caption(
                    words.plain(f"The link opens “{unknown_name}”, which is not in this list.")
                )
            largest = 1 if trace is None else int(trace.numbers("num_gpus").max(initial=1.0))
            policy_detail.draw(open_row, rows, entries[open_row.spec.name], largest)


@st.cache_resource(max_entries=32, show_spinner=False)
def _catalog_entries(cache_key: str, _trace: Trace | None, _perf: Spec) -> dict[str, CatalogEntry]:
    """Return policy name -> catalog entry, with the reason if it cannot run; cached."""
    del cache_key
    return {choice.name: choice for choice in catalog.allocator_choices(_trace, _perf)}


def _session_rows(study: Study) -> PolicyRows:
    """Return the policy rows of this session, updated to the study."""
    if _ROWS not in st.session_state:
        st.session_state[_ROWS] = PolicyRows(
            [choice.name for choice in catalog.allocator_choices()]
        )
    rows: PolicyRows = st.session_state[_ROWS]
    rows.follow(study)
    return rows


def _on_list_action() -> None:
    """Apply the list's last action: change the compared policies and the open detail."""
    action = _read_action()
    if action is None:
        return
    session = state.session()
    rows = _session_rows(session.study)
    st.session_state[_ANSWERED] = action.number
    session.edit(policy_rows.with_ticks(session.study, rows, action.ticks))
    url_params.set_param(policy_detail.OPEN, action.open)


def _default_row(rows: PolicyRows, study: Study, entries: Mapping[str, CatalogEntry]) -> PolicyRow:
    """Return the row to open by default: compared, preferably no baseline or reference."""
    compared = [row for row in rows.rows if row.study_index is not None]
    # References are of less interest than the policies compared with them.
    return min(
        compared,
        key=lambda row: (
            row.study_index == study.baseline,
            _goal_group(entries[row.spec.name]) == _REFERENCE,
        ),
    )


def _draw_head(
    study: Study, rows: PolicyRows, entries: Mapping[str, CatalogEntry], trace: Trace | None
) -> None:
    """Draw the count of policies, job sizes, run-time estimates and the baseline."""
    with st.container(horizontal=True, vertical_alignment="center", key="policies_head"):
        with st.container(gap="xxsmall", key="policies_count"):
            count = len(study.allocators)
            st.title(f"{count} of {len(rows.rows)} policies compared", anchor=False)
            next_model = _next_model(study, entries, trace)
            st.caption(words.plain(_sizes_text(study, next_model)))
        if trace is not None:
            _draw_size_buttons(study, next_model)
        run_settings.draw_estimates()
        _draw_baseline(study)


@dataclass(frozen=True)
class _NextModel:
    """The simplest performance model under which more policies run.

    Parameters
    ----------
    perf : Spec
        The model.
    gained, left : int
        Number of policies that can run in addition, and that still cannot.
    """

    perf: Spec
    gained: int
    left: int

    @property
    def has_servers(self) -> bool:
        """Whether jobs have parameter servers under the model."""
        return bool(catalog.instance("perf", self.perf).staffed)


def _can_scale(perf: Spec) -> bool:
    """Return True if jobs can change size under a performance model."""
    return bool(catalog.instance("perf", perf).scales)


def _sizes_text(study: Study, next_model: _NextModel | None) -> str:
    """Return the caption on job sizes: what this scenario allows, what more policies need."""
    model = f"“{catalog.model_title(study.base.perf)}”"
    if next_model and next_model.has_servers:
        return (
            f"{next_model.gained} policies cannot run: they need parameter servers. Compare them"
            " separately."
        )
    if next_model and _can_scale(study.base.perf):
        return f"{next_model.gained} more can run under another performance model than {model}."
    if next_model:
        return (
            f"{next_model.gained + next_model.left} policies cannot run: {next_model.gained} need"
            " jobs that change size"
            + (f", {next_model.left} need parameter servers." if next_model.left else ".")
        )
    if _can_scale(study.base.perf):
        return f"Jobs can change size, under {model} (Trace, Performance model)."
    return "Every job keeps its size."


def _next_model(
    study: Study, entries: Mapping[str, CatalogEntry], trace: Trace | None
) -> _NextModel | None:
    """Return the simplest performance model that lets more policies run, or None."""
    barred = [choice.name for choice in entries.values() if choice.reason]
    if trace is None or not barred:
        return None
    for perf in _models(f"{trace.digest} {study.base.cluster.digest}", trace, study):
        able = _catalog_entries(f"{trace.digest} {perf}", trace, perf)
        gained = sum(not able[name].reason for name in barred)
        if gained:
            return _NextModel(perf, gained, len(barred) - gained)
    return None


@st.cache_data(max_entries=32, show_spinner=False)
def _models(cache_key: str, _trace: Trace, _study: Study) -> tuple[Spec, ...]:
    """Return the simplest models under which all policies run, first without servers; cached."""
    del cache_key
    policies = tuple(Spec(choice.name) for choice in catalog.allocator_choices())
    full_study = Study(replace(_study.base, allocator=policies[0]), policies)
    return tuple(part.perf for part in simplest_model.split_by_model(full_study, _trace))


def _draw_size_buttons(study: Study, next_model: _NextModel | None) -> None:
    """Draw the buttons that let jobs change size, add servers, or keep sizes."""
    perf = study.base.perf
    # Callbacks run before drawing, so each label matches its next click.
    if next_model:
        label = "Add parameter servers" if next_model.has_servers else "Let jobs change size"
        icon = ":material/dns:" if next_model.has_servers else ":material/open_in_full:"
        st.button(
            label, key="sizes", icon=icon, on_click=_on_set_perf, args=(next_model.perf, perf)
        )
    if _can_scale(perf):
        before = st.session_state.get(_BEFORE, simplest_model.candidates()[0])
        icon = ":material/close_fullscreen:"
        st.button(
            "Keep job sizes",
            key="keep_sizes",
            icon=icon,
            on_click=_on_set_perf,
            args=(before, perf),
        )


def _on_set_perf(perf: Spec, before: Spec) -> None:
    """Set the performance model; remember `before`, for Keep job sizes, if sizes were fixed."""
    session = state.session()
    if not _can_scale(before):
        st.session_state[_BEFORE] = before
    session.replace(new_study.with_model(session.study, "perf", perf))


def _draw_baseline(study: Study) -> None:
    """Draw the choice of the baseline policy; save a new choice and rerun."""
    titles = study.titles
    # The key has the titles, so that other policies give a new widget.
    index = st.selectbox(
        "Baseline",
        range(len(titles)),
        study.baseline,
        key=state.widget_key("baseline", *titles),
        format_func=lambda index: f"Baseline: {titles[index]}",
        label_visibility="collapsed",
        width=250,
    )
    if index != study.baseline:
        state.session().edit(new_study.with_policies(study, study.allocators, index))
        st.rerun()


@dataclass(frozen=True)
class PolicyLine:
    """A line of the list.

    Parameters
    ----------
    id : str
        Row id, sent back by the script.
    title, brief : str
        Title of the policy, and its rule in a few words.
    note, change : str
        Stored result, or the reason why the policy cannot run; change to the baseline.
    on : bool
        Whether the policy is compared.
    colour : str
        Color of the tick.
    barred : bool
        Whether the policy cannot run here.
    variant : bool
        Whether the line is a variant of the policy above.
    old : bool
        Whether the result is of the scenario on Compare, not of the edited one.
    """

    id: str
    title: str
    brief: str
    note: str = ""
    change: str = ""
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
        The goal and its description.
    lines : sequence of PolicyLine
        Lines in order.
    """

    title: str
    about: str
    lines: Sequence[PolicyLine]


@dataclass(frozen=True)
class PolicyAction:
    """A user's action in the list.

    Parameters
    ----------
    number : int
        Serial number; the list gets the number of the last applied action.
    ticks : mapping of bool
        Row id -> whether to compare the policy, for all changes not applied yet.
    open : str
        Id of the row with the open detail.
    """

    number: int
    ticks: dict[str, bool]
    open: str


def _draw_list(groups: Sequence[PolicyGroup], opened: str, answered: int) -> None:
    """Draw the list; `opened` = row with the open detail, `answered` = last applied action."""
    _LIST(
        key=_LIST_KEY,
        data={
            "answered": answered,
            "open": opened,
            "results": GOALS[policy_results.judging_metric()],
            "groups": [
                {
                    "title": group.title,
                    "about": group.about,
                    "rows": [_line_data(line) for line in group.lines],
                }
                for group in groups
            ],
        },
        on_did_change=_on_list_action,
    )


def _read_action() -> PolicyAction | None:
    """Return the last action that the list's script reported, or None."""
    message: Any = st.session_state[_LIST_KEY].did
    if message is None:
        return None
    ticks = {str(name): bool(is_on) for name, is_on in message["ticks"].items()}
    return PolicyAction(int(message["number"]), ticks, str(message["open"]))


def _line_data(line: PolicyLine) -> dict[str, Any]:
    """Return a line as data of the list's script, with its title shortened."""
    title = charts.visible(line.title, _MAX_TITLE)
    return asdict(line) | {"title": title, "full": title}


def _policy_groups(
    study: Study, rows: PolicyRows, entries: Mapping[str, CatalogEntry]
) -> list[PolicyGroup]:
    """Return the lines of the list grouped by goal, with stored results and colors."""
    specs = [row.spec for row in rows.rows]
    titles, notes = rows.titles, policy_results.notes(study, specs)
    compared = study.titles
    colours = charts.policy_colours(
        compared, compared[study.baseline], study.slots, dark=figure.is_dark()
    )
    lines: dict[tuple[str, str], list[PolicyLine]] = {group: [] for group in _GROUPS.values()}
    for row, title in zip(rows.rows, titles, strict=True):
        choice = entries[row.spec.name]
        note = notes.get(row.spec, StoredNote(""))
        lines.setdefault(_goal_group(choice), []).append(
            PolicyLine(
                row.id,
                title,
                "" if choice.card is None else choice.card.brief,
                _REASONS[choice.lacks] if choice.reason else note.text,
                "" if choice.reason else note.change,
                row.study_index is not None,
                "" if row.study_index is None else colours[compared[row.study_index]],
                bool(choice.reason),
                row.is_variant,
                note.old,
            )
        )
    return [PolicyGroup(*group, group_lines) for group, group_lines in lines.items() if group_lines]


def _goal_group(choice: CatalogEntry) -> tuple[str, str]:
    """Return (title, description) of a policy's group, by the first goal of its card."""
    goals = () if choice.card is None else choice.card.goals
    return _GROUPS.get(next(iter(goals), ""), _OTHERS)
