"""The view of Compare, without a page; numbers are worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sim.params import Spec
from trainyard.results import outcomes
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from trainyard.views import comparison, ledger
from trainyard.views.compared_runs import ComparedRuns, compare_runs
from trainyard.views.comparison import ComparisonChoice, build
from trainyard.views.slide import slide_contents

SRTF = ComparisonChoice("jct_mean_s", "SRTF")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> ComparedRuns:
    """FIFO and SRTF on the twelve jobs of the tiny sample."""
    store = Store(tmp_path_factory.mktemp("comparison") / "store")
    study = new_study.with_policies(new_study.sample_study("tiny"), (Spec("fifo"), Spec("srtf")))
    trace = load_trace(study.base.trace)
    for scenario in study.scenarios():
        store_result(
            store, scenario_key(scenario, store), scenario, run(scenario, trace=trace), trace
        )
    made = compare_runs(outcomes.gather(study, store), store)
    assert made is not None
    return made


def with_report(compared: ComparedRuns, **changes: Any) -> ComparedRuns:
    return replace(compared, report=replace(compared.report, **changes))


def figures(fifo: float, srtf: float, change: float, verdict: str) -> pd.DataFrame:
    """The average completion time alone, in seconds."""
    nan = float("nan")
    common = {"metric": "jct_mean_s", "low": nan, "high": nan, "best": False}
    rows = [
        common | {"label": "FIFO", "value": fifo, "change": nan, "verdict": ""},
        common | {"label": "SRTF", "value": srtf, "change": change, "verdict": verdict},
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("fifo_s", "srtf_s", "value", "base", "line"),
    [
        # 18,000 s of 36,000 s are half as much.
        (36_000.0, 18_000.0, "5 h", "FIFO 10 h", ("▾ 50 % better", "better")),
        # 45,000 s are a quarter more.
        (36_000.0, 45_000.0, "12.5 h", "FIFO 10 h", ("▴ 25 % worse", "worse")),
        (36_000.0, 36_100.0, "10.0 h", "FIFO 10 h", ("about the same", "")),
    ],
)
def test_a_tile_has_the_value_the_baseline_and_the_change(
    compared: ComparedRuns,
    fifo_s: float,
    srtf_s: float,
    value: str,
    base: str,
    line: tuple[str, str],
) -> None:
    change = srtf_s / fifo_s - 1
    verdict = "better" if change < 0 else "worse"
    table = figures(fifo_s, srtf_s, change, verdict)
    tile = build(with_report(compared, table=table, changes={}), SRTF, None).tiles[0]
    plain = str.maketrans("\u202f\u00a0", "  ")
    assert (tile.value.translate(plain), tile.base.translate(plain)) == (value, base)
    assert [(text.translate(plain), word) for text, word in tile.lines] == [line]
    assert (tile.goal, tile.chosen) == ("jct_mean_s", True)


@pytest.mark.parametrize(
    ("jobs", "faster", "slower"), [(12, "6 faster", "3 slower"), (40, "50 % faster", "25 % slower")]
)
def test_the_tile_of_shares_counts_jobs_where_they_are_few(
    compared: ComparedRuns, jobs: int, faster: str, slower: str
) -> None:
    change = replace(compared.report.changes["SRTF"], faster=0.5, slower=0.25, jobs=jobs)
    tiles = build(with_report(compared, changes={"SRTF": change}), SRTF, None).tiles
    tile = next(one for one in tiles if one.parts)
    assert tile.parts == (0.5, 0.25, 0.25)
    lines = [text.replace("\u202f", " ") for text, _ in tile.lines]
    assert [lines[0], lines[-1]] == [faster, slower]
    assert "parts" in tile.to_json()
    assert not any("parts" in one.to_json() for one in tiles if one is not tile)


def test_the_baseline_is_not_compared_with_itself(compared: ComparedRuns) -> None:
    tiles = build(compared, ComparisonChoice("jct_mean_s", "FIFO"), None).tiles
    assert tiles
    assert not any(tile.base or tile.lines for tile in tiles)


def test_jobs_that_did_not_complete_are_in_the_notes(compared: ComparedRuns) -> None:
    counts = compared.report.counts.assign(
        repeats=2, failed=[0, 3], unfinished=[1, 0], why=["", "out of memory"]
    )
    notes = build(with_report(compared, counts=counts), SRTF, None).notes
    assert (
        "Not completed, so not in the means (of 2 repeats together): FIFO 1 unfinished;"
        " SRTF 3 failed (out of memory)."
    ) in notes
    assert "Not completed" not in build(compared, SRTF, None).notes


def test_a_group_has_its_own_facts_figures_and_completion_times(compared: ComparedRuns) -> None:
    trace = compared.details.trace
    way = compared.details.groupings["size"]
    for at, name in enumerate(way.names):
        members = way.codes == at
        group = compared.details.of_jobs((way.title, name))
        choice = replace(SRTF, group=(way.title, name))
        view = build(compared, choice, group)
        # Every job of the sample completes under both policies.
        assert int(group.counts["completed"].iloc[0]) == members.sum()
        assert view.facts.startswith(f"{way.title} {name}: {members.sum()} of {len(trace)} jobs")
        assert len(view.group_runs.frames["cdf"]["SRTF"]) <= members.sum() + 1
        assert view.runs.frames["cdf"] is compared.report.frames["cdf"]
        # Fewer than ten jobs have no percentages.
        assert members.sum() < 10
        assert view.table["change"].isna().all()


def test_the_goal_of_whole_runs_keeps_the_headline_of_all_jobs(compared: ComparedRuns) -> None:
    way = compared.details.groupings["size"]
    choice = ComparisonChoice("makespan_s", "SRTF", (way.title, way.names[0]))
    view = build(compared, choice, compared.details.of_jobs((way.title, way.names[0])))
    assert view.facts == f"All jobs: {compared.report.facts}"
    assert view.headline == compared.report.headline_of("SRTF", "makespan_s")


def test_an_overload_has_no_tiles_and_a_draft_keeps_their_place(compared: ComparedRuns) -> None:
    first, headline = next(iter(compared.report.headlines.items()))
    overloaded = with_report(compared, headlines={first: replace(headline, verdict="overload")})
    view = build(overloaded, SRTF, None)
    assert view.is_overloaded
    assert view.tiles == ()
    assert {one.name for one in view.columns(usual=True)} <= set(ledger.OVERLOADED)
    draft = build(overloaded, SRTF, None, is_draft=True)
    assert draft.tiles == comparison.EMPTY_TILES
    assert [tile.value for tile in draft.tiles] == [""] * 6


def test_a_policy_without_a_new_result_waits_for_the_slider(compared: ComparedRuns) -> None:
    entry = compared.runs.entries[1][0]
    view = build(replace(compared, earlier={"SRTF": entry}), SRTF, None, is_draft=True)
    assert view.headline.text == "SRTF runs when the slider rests."
    assert view.tiles == comparison.EMPTY_TILES


def _with_cluster_name(compared: ComparedRuns, name: str) -> ComparedRuns:
    study = compared.runs.study
    cluster = replace(study.base.cluster, name=name)
    named = replace(study, base=replace(study.base, cluster=cluster))
    return replace(compared, runs=replace(compared.runs, study=named))


def test_the_key_holds_every_choice_and_the_keys_of_incomplete_runs(
    compared: ComparedRuns,
) -> None:
    views = [
        build(compared, SRTF, None),
        build(compared, replace(SRTF, high="FIFO"), None),
        build(compared, replace(SRTF, goal="makespan_s"), None),
        build(compared, replace(SRTF, window=(600.0, 1800.0)), None),
        build(compared, replace(SRTF, group=("Size of job", "1 GPU")), None),
        build(compared, SRTF, None, is_draft=True),
        build(replace(compared, epoch="2024-01-01T00:00:00"), SRTF, None),
        # Pictures name the cluster, which no result depends on.
        build(_with_cluster_name(compared, "Another name"), SRTF, None),
        build(
            replace(
                compared, runs=replace(compared.runs, keys=(*compared.runs.keys[:1], ("other",)))
            ),
            SRTF,
            None,
        ),
    ]
    assert len({view.key for view in views}) == len(views)
    assert build(compared, SRTF, None).key == views[0].key
    assert views[3].runs.window == (600.0, 1800.0)


def test_tabs_are_those_with_something_to_show(compared: ComparedRuns) -> None:
    # One GPU type: no tabs of types and costs.
    assert build(compared, SRTF, None).tabs == ("jobs", "time", "tenants", "accuracy", "export")


def test_twelve_lines_are_the_nearest_of_each_colour() -> None:
    """P0 is gray; P12 and P1 are blue, P13 and P2 vermilion; P13 takes longest."""
    titles = tuple(f"P{at}" for at in range(14))
    values = [{"metric": "jct_mean_s", "label": f"P{at}", "value": 100.0 * at} for at in range(14)]
    named = SimpleNamespace(name="")
    base = SimpleNamespace(cluster=named)
    study = SimpleNamespace(slots=(1, *range(1, 12), 1, 2), base=base)
    many: Any = ComparedRuns(
        SimpleNamespace(titles=titles, baseline=0, study=study),  # type: ignore[arg-type]
        SimpleNamespace(labels=titles, baseline="P0", table=pd.DataFrame(values)),  # type: ignore[arg-type]
        SimpleNamespace(trace=named),  # type: ignore[arg-type]
        {},
        {},
    )
    look = many.look("P13")
    assert list(look.colours) == ["P0", *titles[3:]]
    assert (look.more, look.more_note) == (2, "2 more in the table")
    # Neither baseline nor highlighted policy can be hidden, nor what is gone.
    look = many.look("P13", hidden=("P12", "P0", "P13", "gone"))
    assert list(look.colours) == ["P0", "P1", *titles[3:12], "P13"]
    assert look.more == 1


def test_hidden_policies_have_no_line_and_a_hollow_box(compared: ComparedRuns) -> None:
    choice = ComparisonChoice("jct_mean_s", "FIFO", hidden=("SRTF",))
    view = build(compared, choice, None)
    for figure in (view.queue().figure, view.done_within().figure):
        assert {line.legendgroup for line in figure.data} - {None} == {"FIFO"}
    rows = view.ledger([], ledger.State("FIFO", hidden=("SRTF",))).to_json()["rows"]
    assert [row["hidden"] for row in rows] == [None, True]
    shown = build(compared, replace(choice, high="SRTF"), None)
    assert {line.legendgroup for line in shown.queue().figure.data} >= {"FIFO", "SRTF"}
    assert shown.ledger([], ledger.State("SRTF", hidden=("SRTF",))).rows[1].hidden is None


def test_a_highlight_leaves_the_readout_as_it_is_and_a_zoom_window_does_not(
    compared: ComparedRuns,
) -> None:
    readouts = [
        build(compared, choice, None).ledger([], ledger.State(choice.high)).readout
        for choice in (
            ComparisonChoice("jct_mean_s", "FIFO"),
            ComparisonChoice("jct_mean_s", "SRTF"),
            ComparisonChoice("jct_mean_s", "SRTF", window=(0.0, 3600.0)),
        )
    ]
    assert set(readouts[0]["rows"]) == {"FIFO", "SRTF"}
    assert readouts[0] == readouts[1]
    assert readouts[0]["mark"] != readouts[2]["mark"]


def test_a_slide_has_three_tiles_two_charts_and_what_was_simulated(compared: ComparedRuns) -> None:
    contents = slide_contents(build(compared, SRTF, None))
    json.dumps(contents, allow_nan=False)  # the browser reads it
    assert [tile["title"] for tile in contents["tiles"]] == [
        "Average completion time",
        "Average wait",
        "Cost per job",
    ]
    assert contents["high"] == "SRTF"
    assert contents["high"] in contents["headline"]
    assert contents["accent"] == compared.colours()["SRTF"]
    assert contents["source"] == f"{compared.details.trace.name} · {compared.cluster.name}"
    names = [
        {one["name"] for one in chart["layout"]["annotations"] if one.get("name")}
        for chart in contents["charts"]
    ]
    assert names == [{"FIFO", "SRTF"}] * 2
    # Sizes of text are 1.35 times those of the page, whose axes have 13 px.
    assert [chart["layout"]["xaxis"]["tickfont"]["size"] for chart in contents["charts"]] == [
        pytest.approx(17.55)
    ] * 2
    assert "yaxis2" not in contents["charts"][0]["layout"]


def test_a_slide_says_which_jobs_it_leaves_out_and_what_is_assumed(compared: ComparedRuns) -> None:
    counts = compared.report.counts.assign(unfinished=[3, 0])
    view = build(with_report(compared, counts=counts), SRTF, None)
    note = slide_contents(view)["note"]
    assert note.startswith("Not completed, so not in the means: FIFO 3 unfinished.")
    assert "Assumed: " in note


def test_the_tile_of_the_goal_comes_first_on_a_slide(compared: ComparedRuns) -> None:
    view = build(compared, replace(SRTF, goal="jct_p95_s"), None)
    titles = [tile["title"] for tile in slide_contents(view)["tiles"]]
    assert titles == ["95 % completed within", "Average completion time", "Average wait"]


def test_a_slide_in_the_dark_has_the_colors_of_the_theme(compared: ComparedRuns) -> None:
    contents = slide_contents(build(compared, SRTF, None), dark=True)
    assert contents["accent"] == compared.colours(dark=True)["SRTF"]
    assert contents["accent"] in json.dumps(contents["charts"])


def test_a_window_is_of_the_jobs_submitted_in_it(compared: ComparedRuns) -> None:
    jobs = {
        title: compared.runs.entries[at][0].jobs() for at, title in enumerate(compared.runs.titles)
    }
    submit_s = jobs["FIFO"]["submit_s"]
    # From the fourth submission, which is the third's too, until just before the tenth.
    window = float(submit_s.iloc[3]), float(submit_s.iloc[9])
    inside = submit_s.between(*window, inclusive="left")
    assert inside.sum() == 7
    group = compared.details.of_jobs(None, window)
    view = build(compared, replace(SRTF, window=window), group)
    cells = ledger.by_place(view.table)
    for title, own in jobs.items():
        spent_s = (own["finish_s"] - own["submit_s"])[inside]
        assert cells[title, "jct_mean_s"]["value"] == pytest.approx(spent_s.mean())
        assert view.runs.loads.runs[title].peak <= len(submit_s)
    assert view.facts.startswith("7 of 12 jobs, submitted day 1, ")
    assert view.tiles[-1].title == "Longest queue"
    assert view.tiles[-1].value == f"{view.runs.loads.runs['SRTF'].peak:.0f}"
    assert "utilisation" not in set(view.table["metric"])
    shown = view.ledger(view.columns(usual=True), ledger.State("SRTF"))
    assert shown.over.startswith("Jobs submitted in this window")
    assert len(view.group_runs.frames["cdf"]["SRTF"]) <= 8


def test_a_window_without_submissions_says_that_figures_are_of_the_whole_run(
    compared: ComparedRuns,
) -> None:
    last_s = float(compared.runs.entries[0][0].jobs()["submit_s"].max())
    window = last_s + 1.0, last_s + 2.0
    assert compared.details.of_jobs(None, window) is None
    view = build(compared, replace(SRTF, window=window), None)
    assert view.facts.endswith(
        "No such job was submitted in this window: all figures are of all jobs of the whole run"
    )
    report = replace(compared.report, baseline="")
    unfinished = build(replace(compared, report=report), replace(SRTF, window=window), None)
    assert "The baseline has no result: all figures are of all jobs" in unfinished.facts
    assert view.of_what == "Whole run"
    assert "Longest queue" not in {tile.title for tile in view.tiles}
