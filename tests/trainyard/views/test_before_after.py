"""A comparison before and after a change; figures are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.params import Spec
from trainyard.results import outcomes, preview
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from trainyard.views import before_after, charts, ledger
from trainyard.views.before_after import scenarios
from trainyard.views.compared_runs import ComparedRuns, compare_runs
from trainyard.views.comparison import ComparisonChoice, ComparisonView, build

PLAIN = str.maketrans("\u202f\u00a0", "  ")
SRTF = ComparisonChoice("jct_mean_s", "SRTF")
COLUMNS = [ledger.ALL[name] for name in ("jct_mean_s", "utilisation")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("before") / "store")


def of_nodes(count: int) -> Study:
    """The twelve jobs under FIFO and SRTF on nodes of eight V100 for 20 dollars an hour."""
    study = new_study.with_policies(new_study.sample_study("tiny"), (Spec("fifo"), Spec("srtf")))
    cluster = Cluster.parse("1x8:v100")
    group = replace(cluster.groups[0], count=count, price_per_hour=20.0)
    return new_study.with_cluster(study, replace(cluster, groups=(group,)))


def compared(study: Study, store: Store) -> ComparedRuns:
    trace = load_trace(study.base.trace)
    for scenario in study.scenarios():
        key = scenario_key(scenario, store)
        store_result(store, key, scenario, run(scenario, trace=trace), trace)
    made = compare_runs(outcomes.gather(study, store), store)
    assert made is not None
    return made


def with_figures(
    runs: ComparedRuns, fifo: tuple[float, float], srtf: tuple[float, float]
) -> ComparedRuns:
    """Runs whose table has only average completion (s) and GPUs busy of each policy."""
    nan = float("nan")
    rows = [
        {"label": label, "metric": metric, "value": value}
        | {"change": nan, "low": nan, "high": nan, "best": False, "verdict": ""}
        for label, values in (("FIFO", fifo), ("SRTF", srtf))
        for metric, value in zip(("jct_mean_s", "utilisation"), values, strict=True)
    ]
    return replace(runs, report=replace(runs.report, table=pd.DataFrame(rows)))


@pytest.fixture(scope="module")
def view(store: Store) -> ComparisonView:
    """One node before, two after: FIFO 10 h -> 8 h and 90 % -> 50 %, SRTF 5 h -> 5 h."""
    one = with_figures(compared(of_nodes(1), store), (36_000, 0.9), (18_000, 0.8))
    two = with_figures(compared(of_nodes(2), store), (28_800, 0.5), (18_050, 0.5))
    return build(replace(two, before=one), SRTF, None)


def test_what_changed_and_what_it_did_is_told(view: ComparisonView) -> None:
    change = view.change
    assert change is not None
    assert change.changes == "1 → 2 V100 nodes"
    figures = [[text.translate(PLAIN) for text in one] for one in change.figures]
    assert figures == [["SRTF", "5 h", "5.0 h"], ["FIFO", "10 h", "8 h"]]
    # One node more for 20 dollars an hour, 730 hours a month.
    assert change.cost == "$14,600 more a month."
    tile = view.tiles[0]
    assert [text.translate(PLAIN) for text, _ in tile.lines] == ["was 5 h"]


def test_the_way_back_costs_less(store: Store) -> None:
    one, two = (compared(of_nodes(count), store) for count in (1, 2))
    change = build(replace(one, before=two), SRTF, None).change
    assert change is not None
    assert (change.changes, change.cost) == ("2 → 1 V100 nodes", "$14,600 less a month.")


def test_the_ledger_of_both_has_a_before_b_and_the_difference(view: ComparisonView) -> None:
    assert view.change is not None
    own = ledger.ledger_of(view.runs, view.table, COLUMNS, ledger.State("SRTF"))
    both = scenarios(own, COLUMNS, view.change)
    cells = {
        row.title: [(cell.text.translate(PLAIN), cell.change, cell.verdict) for cell in row.cells]
        for row in both.rows
    }
    assert cells == {
        # 28,800 s are four fifths of 36,000 s; a lower share of busy GPUs is not judged.
        "FIFO": [("10 h → 8 h", "−20\u202f%", "better"), ("90 % → 50 %", "−40 pt", "")],
        "SRTF": [("5 h → 5.0 h", "≈", ""), ("80 % → 50 %", "−30 pt", "")],
    }


def test_strong_lines_of_before_are_dotted_and_named(view: ComparisonView) -> None:
    look = view.runs.look("SRTF")
    assert look.before == {"was FIFO": "FIFO", "was SRTF": "SRTF"}
    for figure in (view.queue().figure, view.done_within().figure):
        dotted = [
            trace
            for trace in figure.data
            if trace.line is not None and trace.line.dash == charts.lines.DOTTED
        ]
        assert {trace.legendgroup for trace in dotted} == {"was FIFO", "was SRTF"}
        names = {note.name for note in figure.layout.annotations if note.name}
        assert names == {"FIFO", "SRTF", "was FIFO", "was SRTF"}
    # The queue of one node is the longer one, and not cut off.
    top = view.queue().figure.layout.yaxis.range[1]
    assert view.runs.before is not None
    assert top >= float(view.runs.before.loads.runs["FIFO"].waiting.max())


def test_equal_results_and_results_of_earlier_settings_are_no_change(
    store: Store, view: ComparisonView
) -> None:
    two = compared(of_nodes(2), store)
    assert build(replace(two, before=two), SRTF, None).change is None
    assert replace(two, before=two).look("SRTF").before == {}
    entry = two.runs.entries[1][0]
    late = replace(view.runs, earlier={"SRTF": entry})
    assert late.look("SRTF").before == {"was FIFO": "FIFO"}


def test_a_group_without_its_figures_before_tells_none(view: ComparisonView) -> None:
    way = view.runs.details.groupings["size"]
    group = view.runs.details.of_jobs((way.title, way.names[0]))
    choice = replace(SRTF, group=(way.title, way.names[0]))
    assert build(view.runs, choice, group).change is None
    before = view.runs.before
    assert before is not None
    told = build(view.runs, choice, group, before.details.of_jobs((way.title, way.names[0])))
    assert told.change is not None
    assert told.change.changes == "1 → 2 V100 nodes"


def test_a_window_without_jobs_compares_whole_runs_with_whole_runs(view: ComparisonView) -> None:
    before = view.runs.before
    assert before is not None
    way = before.details.groupings["size"]
    some = before.details.of_jobs((way.title, way.names[0]))
    assert some is not None
    told = build(view.runs, SRTF, None, some)
    assert told.change is not None
    assert view.change is not None
    assert told.change.figures == view.change.figures


def test_from_nothing_is_no_percentage_but_not_the_same(view: ComparisonView) -> None:
    assert view.change is not None
    wait = ledger.ALL["wait_mean_s"]
    zero = {("FIFO", wait.name): {"value": 0.0, "change": float("nan")}}
    cell = ledger.LedgerCell("2 h", value=7200.0)
    both = before_after._both(replace(view.change, cells=zero), "FIFO", wait, cell)
    assert (both.text.translate(PLAIN), both.change, both.verdict) == ("0 s → 2 h", "", "worse")


def test_a_node_without_a_price_has_no_cost_a_month(store: Store) -> None:
    one, two = (of_nodes(count).base.cluster for count in (1, 2))
    (group,) = two.groups
    unknown = replace(two, groups=(replace(group, gpu_type="x9", price_per_hour=None),), types=())
    assert before_after._cost(one, two) == "$14,600 more a month."
    assert before_after._cost(one, unknown) == before_after._cost(unknown, one) == ""


def test_a_draft_back_at_the_old_value_is_no_change(store: Store, view: ComparisonView) -> None:
    two = compared(of_nodes(2), store)
    keys = tuple(tuple(f"{preview.MARK}{key}" for key in own) for own in two.runs.keys)
    draft = replace(two, runs=replace(two.runs, keys=keys), before=two)
    assert build(draft, SRTF, None, is_draft=True).change is None
    assert view.runs.before is not None
    five = replace(view.runs.before.runs.study, repeats=5)
    before = replace(view.runs.before, runs=replace(view.runs.before.runs, study=five))
    told = build(replace(view.runs, before=before), SRTF, None, is_draft=True).change
    assert told is not None
    assert told.changes == "1 → 2 V100 nodes"


def test_names_of_dotted_lines_differ_where_their_beginnings_are_equal() -> None:
    titles = ["was Conservative backfilling", "was LAS (Tiresias) · Threshold 1 h"]
    names = charts.lines.short_names([*titles, "was LAS (Tiresias) · Threshold 8 h"])
    assert len(set(names.values())) == 3
    assert not any(name == "was" for name in names.values())


def test_overload_before_or_after_is_not_judged(store: Store, view: ComparisonView) -> None:
    before = view.runs.before
    assert before is not None
    lines = {
        goal: replace(headline, verdict="overload")
        for goal, headline in before.report.headlines.items()
    }
    report = replace(before.report, headlines=lines)
    assert (
        build(replace(view.runs, before=replace(before, report=report)), SRTF, None).change is None
    )
