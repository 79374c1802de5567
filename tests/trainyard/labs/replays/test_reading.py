from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sim.errors import ParameterError
from sim.params import Spec
from tests.trainyard.labs.replays.replay_cases import BOUNDED, SMALL, small, write
from trainyard.labs.replays.reading import load, names, read_replay
from trainyard.labs.replays.report import (
    CURVE_COLUMNS,
    ROW_KEYS,
    CellResult,
    ClaimRow,
    Pooled,
    Remark,
    ReplayCell,
    ReplayReport,
    band_text,
    cells,
    claim_rows,
    needed_metrics,
    pool,
    report,
    tally,
)
from trainyard.labs.replays.types import (
    AFTER_RESULTS,
    BASE,
    BY_CONSTRUCTION,
    Claim,
    Kind,
    ReplayMeasure,
    ReplayPoint,
)

MEAN = ReplayMeasure("jct_mean_s", "a", "b")


# -- reading
# --------------------------------------------------------------------------------------------------


def test_all_of_a_file_arrives(tmp_path: Path) -> None:
    replay = small(tmp_path)
    assert (replay.name, replay.paper.year, replay.seeds) == ("small", 2020, 4)
    assert [arm.name for arm in replay.arms] == ["fifo", "short", "calm"]
    first, second = replay.axes
    assert (first.values, first.claimed, first.only, first.seeds) == (
        (4, 8, 16),
        (8,),
        ("fifo", "short", "calm"),
        2,
    )
    assert first.sets == (
        ("trace.source.per_h=4",),
        ("trace.source.per_h=8",),
        ("trace.source.per_h=16",),
    )
    assert (second.fixed, second.sets[1]) == (
        ("trace.source.jobs=10",),
        ("overheads.restart_s=600", "overheads.start_s=5"),
    )
    assert (second.only, second.seeds) == (("short",), 1)
    assert [claim.text for claim in replay.claims] == [
        "jct_mean_s short/fifo",
        "jct_mean_s calm-short",
        "preemptions short at per_h=16",
    ]
    assert [claim.band for claim in replay.claims] == [(0.01, 1.2), (-2, -1), None]
    assert (replay.claims[2].at, replay.claims[0].at) == (ReplayPoint("per_h", 16), BASE)
    assert first.measures[0].label == "Mean JCT"
    assert first.measures[1].label == "queue_mean_s short"


WRONG: list[tuple[str, str, str]] = [
    ('title = "Small"', "", "the replay has no 'title'"),
    ('title = "Small"', 'title = "Small"\ncolour = 1', "the replay has no setting 'colour'"),
    ('title = "Small"', "title = 3", "title is not text but '3'"),
    ("seeds = 4", "seeds = 0", "seeds = 0 is outside 1 to 200"),
    ("seeds = 4", "seeds = many", "small.toml: "),
    ('name = "small"', 'name = "large"', "its name is 'large', but that of the file is 'small'"),
    ("year = 2020", 'year = "soon"', "paper.year = soon is not a number"),
    ('cluster = "2x8:v100"', "cluster = 5", "The cluster is no table"),
    (
        'cluster = "2x8:v100"',
        'cluster = "2x8:v100"\ncolour = 1',
        "The scenario has no setting 'colour'",
    ),
    ('set = ["allocator=srtf"]', 'set = ["seed=1"]', "arm short names no policy"),
    (
        'set = ["allocator=srtf"]',
        'set = ["allocator=nobody"]',
        "arm short: There is no policy 'nobody'",
    ),
    (
        'set = ["allocator=srtf"]',
        'set = ["allocator=srtf", "faults.mtbf=1"]',
        "has no parameter 'mtbf'",
    ),
    (
        'set = ["allocator=srtf"]',
        'set = ["allocator"]',
        "'allocator' is not of the form path=value",
    ),
    ('set = ["allocator=srtf"]', 'set = "allocator=srtf"', "is not a list"),
    (
        "trace.source.per_h",
        "trace.source.per_year",
        "arm fifo at per_h=4: elastic-nodes has no parameter 'per_year'",
    ),
    ("values = [4, 8, 16]", "values = [8, 4, 16]", "its values must ascend"),
    ("values = [4, 8, 16]", "values = []", "its values must ascend"),
    ("claimed = [8]", "claimed = [9]", "9 is claimed, but none of its values"),
    (
        "values = [30, 600]",
        "values = [30, 60, 600]",
        "3 values want as many lists in 'sets', not 2",
    ),
    ("fixed =", 'path = "seed"\nfixed =', "give either 'path'"),
    ('only = ["short"]', 'only = ["long"]', "there is no arm 'long'"),
    ('name = "restart"', 'name = "per_h"', "axes: per_h occurs twice"),
    ('metric = "preemptions"', 'metric = "beauty"', "there is no metric 'beauty'"),
    ('arm = "calm"', 'arm = "wild"', "there is no arm 'wild'"),
    ('kind = "difference"', 'kind = "sum"', "kind = sum is not one of ratio, difference, value"),
    (
        'kind = "difference"',
        'kind = "value"',
        "a ratio or a difference needs 'against', a value has none",
    ),
    ('against = "short"', "", "needs 'against'"),
    ("band = [-2, -1]", "band = [-1, -2]", "its band is not [low, high]"),
    ("band = [-2, -1]", "band = [1]", "its band is not [low, high]"),
    (
        'certainty = "our reading"',
        'certainty = "sure"',
        "certainty = sure is not one of read in the abstract, read in code",
    ),
    (
        'band_from = "direction"',
        "",
        "a band needs band_from, where it comes from: one of published ± 20 %, ",
    ),
    ('band_from = "direction"', 'band_from = "a guess"', "a band needs band_from"),
    (
        'band_from = "prototype"',
        'band_from = "published ± 20 %"',
        "its band is not published ± 20 %",
    ),
    ('band_from = "direction"', 'band_from = "published ± 5 %"', "its band is not published ± 5 %"),
    ("at = { per_h = 16 }", "at = { per_h = 15 }", "is not one value of one axis"),
    ("at = { per_h = 16 }", "at = { per_h = 16, restart = 30 }", "is not one value of one axis"),
    ('published_text = "up to 50 % shorter"', "", "a published figure needs its words"),
    (
        'arm = "calm"\nagainst = "short"\nkind = "difference"',
        'arm = "short"\nagainst = "fifo"',
        "claims: jct_mean_s short/fifo occurs twice",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    WRONG,
    ids=[f"{new or 'without'} <- {old}"[:60] for old, new, _ in WRONG],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ParameterError) as caught:
        read_replay(write(tmp_path, SMALL.replace(old, new)))
    text = str(caught.value)
    assert text.startswith("small.toml: ")
    assert message in text
    assert text.endswith(".")
    assert "--set" not in text


WRONGLY_BOUNDED: list[tuple[str, str, str]] = [
    (
        'of = "fifo"',
        'of = "nobody"',
        "bound least: there is no arm 'nobody'. There are: fifo, short, calm",
    ),
    ('by = "capacity"', 'by = "magic"', "bound least: by = magic is not one of fluid, capacity"),
    ("[bounds.least]", "[bounds.calm]", "arms and bounds: calm occurs twice"),
    (
        'metric = "makespan_s"\narm = "fifo"',
        'metric = "queue_mean_s"\narm = "fifo"',
        "the bound 'capacity' is one of makespan_s only",
    ),
    (
        "from = { per_h = 4 }",
        "from = { per_h = 16 }",
        "'from' and 'at' are not two values of one axis",
    ),
    (
        "from = { per_h = 4 }",
        "from = { restart = 30 }",
        "'from' and 'at' are not two values of one axis",
    ),
    ("from = { per_h = 4 }", "from = { per_h = 5 }", "is not one value of one axis"),
]


@pytest.mark.parametrize(
    ("old", "new", "message"), WRONGLY_BOUNDED, ids=[new[:60] for _, new, _ in WRONGLY_BOUNDED]
)
def test_a_wrong_bound_or_change_is_one_sentence(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in BOUNDED
    with pytest.raises(ParameterError, match=re.escape(message)):
        read_replay(write(tmp_path, BOUNDED.replace(old, new)))


def test_a_bound_stands_beside_the_arms(tmp_path: Path) -> None:
    replay = read_replay(write(tmp_path, BOUNDED))
    (least,) = replay.bounds
    assert (least.of, least.by, least.set, replay.arm("least")) == (
        "fifo",
        "capacity",
        ("allocator=fifo",),
        least,
    )
    assert [arm.name for arm in replay.arms] == ["fifo", "short", "calm"]
    axis = replay.axis("per_h")
    assert [replay.is_line(measure) for measure in axis.measures] == [True, False, False]
    assert axis.only == ("fifo", "short", "calm", "least")
    assert replay.scenario("least", ReplayPoint("per_h", 4), 2) == replay.scenario(
        "fifo", ReplayPoint("per_h", 4), 2
    )
    # Computed from the same scenario, but not the same cell.
    keys = cells(replay).keys
    assert (
        keys[ReplayCell(ReplayPoint("per_h", 4), "least", 0)]
        != keys[ReplayCell(ReplayPoint("per_h", 4), "fifo", 0)]
    )
    assert (
        len([cell for cell in keys if cell.at == ReplayPoint("per_h", 4) and cell.arm == "fifo"])
        == 4
    )  # a claim is about the change from there
    claim = replay.claims[-1]
    assert (claim.text, replay.label(claim)) == (
        "jct_mean_s fifo from per_h=4 to per_h=16",
        "jct_mean_s fifo, from 4 to 16 jobs/h",
    )
    assert (claim.figure.kind, claim.measure.kind, replay.claims[0].figure.kind) == (
        "ratio",
        "value",
        "ratio",
    )
    assert replay.label(replay.claims[2]) == "preemptions short, at 16 jobs/h"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="this replay cannot be read"):
        read_replay(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    with pytest.raises(ParameterError, match=r"binary\.toml: "):
        read_replay(tmp_path / "binary.toml")


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(
        ParameterError, match=f"There is no replay 'nobody'. There are: {', '.join(names())}"
    ):
        load("nobody")


@pytest.mark.parametrize("name", names())
def test_shipped_replays_are_complete(name: str) -> None:
    replay = load(name)
    assert all(
        (replay.title, replay.claim, replay.known, replay.reading, replay.explain, replay.budget)
    )
    assert replay.paper.link.startswith("https://")
    assert replay.seeds >= 20 or "seeds" in replay.budget
    # Some say that no published figure is known well enough to be shown.
    assert (
        any(claim.published is not None for claim in replay.claims)
        or "no figure" in replay.claim.lower()
    )
    assert any(claim.band for claim in replay.claims)
    # What is read where the authors wrote it to three digits is quoted so; anything else says how
    # it was published.
    quoted = [
        claim
        for claim in replay.claims
        if claim.published is not None and claim.certainty != "read in code or notebooks"
    ]
    assert all(
        any(word in claim.published_text for word in ("up to", "about", "mean", "abstract"))
        for claim in quoted
    )
    assert replay.axes
    assert all(axis.measures for axis in replay.axes)


# -- scenarios and cells
# --------------------------------------------------------------------------------------------------


def test_overrides_of_arm_and_axis(tmp_path: Path) -> None:
    replay = small(tmp_path)
    base = replay.scenario("fifo")
    assert (base.allocator, base.trace.source, base.overheads) == (
        Spec("fifo"),
        "made:elastic-nodes:jobs=12,per_h=8",
        Spec.of("overheads", restart_s=60.0),
    )
    assert replay.scenario("short").allocator == Spec("srtf")
    assert (
        replay.scenario("fifo", ReplayPoint("per_h", 16), 3).trace.source
        == "made:elastic-nodes:jobs=12,per_h=16,seed=3"
    )
    slow = replay.scenario("short", ReplayPoint("restart", 600))
    assert slow.overheads == Spec.of("overheads", restart_s=600.0, start_s=5.0)
    assert slow.trace.source == "made:elastic-nodes:jobs=10,per_h=8"
    # The pause is about the arm "short" only, the number of jobs about all.
    assert replay.scenario("fifo", ReplayPoint("restart", 600)).overheads == base.overheads
    assert replay.scenario("fifo", ReplayPoint("restart", 600)).trace == slow.trace


def test_all_arms_meet_the_same_jobs_and_every_seed_others(tmp_path: Path) -> None:
    replay = small(tmp_path)
    for seed in (0, 1, 7):
        made = [replay.scenario(arm.name, ReplayPoint("per_h", 4), seed) for arm in replay.arms]
        assert len({(one.trace, one.seed, one.cluster) for one in made}) == 1
        assert made[0].seed == seed
    assert len({replay.scenario("fifo", seed=seed).trace for seed in range(5)}) == 5


def test_jobs_that_are_not_made_keep_their_source(tmp_path: Path) -> None:
    text = (
        SMALL.replace('"made:elastic-nodes:jobs=12,per_h=8"', '"sample:tiny"')
        .replace("trace.source.per_h", "trace.load")
        .replace("trace.source.jobs=10", "trace.load=2")
    )
    replay = read_replay(write(tmp_path, text))
    one = replay.scenario("fifo", ReplayPoint("per_h", 16), 2)
    assert (one.trace.source, one.trace.load, one.seed) == ("sample:tiny", 16, 2)


def test_made_jobs_without_a_seed_are_the_same_in_every_run(tmp_path: Path) -> None:
    text = (
        SMALL.replace('"made:elastic-nodes:jobs=12,per_h=8"', '"made:gavel-physical"')
        .replace("trace.source.per_h", "trace.load")
        .replace("trace.source.jobs=10", "trace.load=2")
    )
    one = read_replay(write(tmp_path, text)).scenario("fifo", ReplayPoint("per_h", 16), 2)
    assert (one.trace.source, one.seed) == ("made:gavel-physical", 2)


def test_cells_are_what_claims_and_curves_need(tmp_path: Path) -> None:
    replay = small(tmp_path)
    wanted, recipes = cells(replay)
    runs = {
        (str(at), arm): len([cell for cell in wanted if (cell.at, cell.arm) == (at, arm)])
        for at, arm, _ in wanted
    }
    assert runs == {
        ("", "short"): 4,
        ("", "fifo"): 4,
        ("", "calm"): 4,
        ("per_h=16", "short"): 4,  # claimed there
        ("per_h=16", "fifo"): 2,
        ("per_h=4", "short"): 2,
        ("per_h=4", "fifo"): 2,
        ("per_h=8", "short"): 4,  # equals the base scenario, so all its runs are there anyway
        ("per_h=8", "fifo"): 4,
        ("restart=30", "short"): 1,
        ("restart=30", "fifo"): 1,
        ("restart=600", "short"): 1,
        ("restart=600", "fifo"): 1,
    }
    assert [cell.seed for cell in wanted] == sorted(cell.seed for cell in wanted)
    assert recipes[BASE, "fifo"] == replay.scenario("fifo")
    assert (
        wanted[ReplayCell(BASE, "fifo", 2)]
        == wanted[ReplayCell(ReplayPoint("per_h", 8), "fifo", 2)]
        != wanted[ReplayCell(BASE, "fifo", 1)]
    )
    assert {cell.at.axis for cell in cells(replay, curves=False).keys} == {"", "per_h"}
    assert max(cell.seed for cell in cells(replay, 1).keys) == 0
    assert (
        len([cell for cell in cells(replay, 9).keys if cell.at == ReplayPoint("per_h", 4)]) == 2 * 2
    )
    assert str(ReplayCell(ReplayPoint("per_h", 4), "fifo", 1)) == "arm fifo at per_h=4, seed 1"
    assert needed_metrics(replay) == ["jct_mean_s", "preemptions", "queue_mean_s"]


# -- pooling
# --------------------------------------------------------------------------------------------------


def test_a_ratio_of_pooled_means_is_not_a_mean_of_ratios() -> None:
    # (10 + 30) / (20 + 20) = 1; the mean of 10/20 and 30/20 would be 1 too, of 10/40 and 30/10 not:
    # 40/50 against 1.625.
    assert pool(MEAN, [10, 30], [40, 10]).value == pytest.approx(0.8)
    assert pool(replace(MEAN, kind="difference"), [10, 30], [40, 10]).value == pytest.approx(-5)
    assert pool(
        ReplayMeasure("jct_mean_s", "a", kind="value"), [10, 30], ()
    ).value == pytest.approx(20)


def test_a_change_along_an_axis_is_a_ratio_or_a_difference_of_figures() -> None:
    # Means 20 and 40 there, 10 and 80 before: 0.5 against 0.125 as ratios; -20 against -70 as
    # differences; 20 against 10 as values.
    there, before = ([10, 30], [40, 40]), ([5, 15], [80, 80])
    assert pool(MEAN, *there, before).value == pytest.approx(4)
    assert pool(replace(MEAN, kind="difference"), *there, before).value == pytest.approx(50)
    assert pool(
        ReplayMeasure("jct_mean_s", "a", kind="value"), [10, 30], (), [[5, 15]]
    ).value == pytest.approx(2)
    # Every seed doubles, so does whatever is drawn.
    steady = pool(ReplayMeasure("jct_mean_s", "a", kind="value"), [10, 30, 80], (), [[5, 15, 40]])
    assert tuple(steady) == pytest.approx((2, 2, 2, 3))
    assert pool(MEAN, [10, 30], [40, 40], ([5, np.nan], [80, 80])).seeds == 1


def test_intervals_come_from_paired_seeds() -> None:
    # In every seed exactly half: whatever is drawn, the ratio is 0.5, although the seeds differ a
    # hundredfold.
    found = pool(MEAN, [1, 10, 100, 50], [2, 20, 200, 100])
    assert tuple(found) == pytest.approx((0.5, 0.5, 0.5, 4))
    loose = pool(MEAN, [1, 2, 3, 2, 1], [2, 2, 2, 2, 2])
    assert loose.value == pytest.approx(0.9)
    assert 0.5 <= loose.low < 0.9 < loose.high <= 1.5
    assert loose == pool(MEAN, [1, 2, 3, 2, 1], [2, 2, 2, 2, 2])


def test_the_interval_is_that_of_a_mean() -> None:
    values = np.random.default_rng(1).normal(10, 2, 50)
    found = pool(ReplayMeasure("jct_mean_s", "a", kind="value"), list(values), ())
    # Half the width of a 95 % interval of a mean: 1.96 x s / sqrt(n).
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * values.std() / 50**0.5, rel=0.1)


def test_few_seeds_have_no_interval_and_seeds_without_a_figure_count_in_neither() -> None:
    assert np.isnan(pool(MEAN, [1, 2], [2, 2]).low)
    found = pool(MEAN, [1, np.nan, 3], [2, 50, np.nan])
    assert (found.value, found.seeds) == (0.5, 1)
    assert pool(MEAN, [], []).seeds == 0
    assert np.isnan(pool(MEAN, [1], [0]).value)


def test_a_report_of_numbers_by_hand(tmp_path: Path) -> None:
    replay = small(tmp_path)
    keys = cells(replay).keys
    jct = {"fifo": 200.0, "short": 100.0, "calm": 98.5}
    found = {
        keys[cell]: CellResult(
            {
                "jct_mean_s": jct[cell.arm] + (cell.arm != "calm") * cell.seed,
                "preemptions": 7.0,
                "queue_mean_s": 1.0,
                "cell_cpu_s": 0.25,
            }
        )
        for cell in keys
    }
    whole = report(replay, keys, found, 3.0)
    assert whole.complete
    assert whole.cpu_s == pytest.approx(0.25 * len(found))
    one, two, three = (row.to_json("small") for row in whole.rows)
    assert tuple(one) == ROW_KEYS
    # Seeds 0 to 3: (100 + 1.5) / (200 + 1.5).
    assert one["simulated"] == pytest.approx(101.5 / 201.5)
    assert (one["published"], one["band"], one["verdict"], one["seeds"], one["cpu_s"]) == (
        0.5,
        [0.01, 1.2],
        "in",
        4,
        2.0,
    )
    assert (one["mark"], two["mark"], three["mark"]) == (AFTER_RESULTS, AFTER_RESULTS, None)
    assert one["ci95"][0] < one["simulated"] < one["ci95"][1]
    assert (two["simulated"], two["verdict"]) == (pytest.approx(98.5 - 101.5), "undecided")
    assert (three["metric"], three["simulated"], three["verdict"], three["published"]) == (
        "preemptions short at per_h=16",
        7,
        "no band",
        None,
    )
    assert tuple(whole.curves.columns) == CURVE_COLUMNS
    first = whole.curves[
        (whole.curves["axis"] == "per_h") & (whole.curves["measure"] == "Mean JCT")
    ]
    assert first["value"].tolist() == [4, 8, 16]
    assert first["seeds"].tolist() == [2, 4, 2]
    assert first["estimate"].tolist() == pytest.approx(
        [100.5 / 200.5, 101.5 / 201.5, 100.5 / 200.5]
    )


def test_a_partial_report_uses_the_seeds_that_all_arms_have(tmp_path: Path) -> None:
    replay = small(tmp_path)
    keys = cells(replay).keys
    have = [ReplayCell(BASE, "fifo", 0), ReplayCell(BASE, "short", 0), ReplayCell(BASE, "fifo", 1)]
    found = {
        keys[cell]: CellResult(
            {
                "jct_mean_s": 10.0 + 5 * (cell.arm == "short"),
                "preemptions": 0.0,
                "queue_mean_s": 0.0,
                "cell_cpu_s": 1.0,
            }
        )
        for cell in have
    }
    part = report(replay, keys, found)
    assert not part.complete
    assert (part.rows[0].pooled.value, part.rows[0].pooled.seeds, part.rows[0].cpu_s) == (
        1.5,
        1,
        2.0,
    )
    assert claim_rows(replay, keys, found) == part.rows
    assert [row.verdict for row in part.rows] == ["undecided", "not yet", "not yet"]
    assert part.rows[1].to_json("small")["simulated"] is None
    assert set(part.curves["value"]) == {8.0}
    assert report(replay, keys, {}).curves.empty


def test_remarks_are_told_once_per_arm_and_of_how_many_runs(tmp_path: Path) -> None:
    replay = small(tmp_path)
    keys = {cell: key for cell, key in cells(replay).keys.items() if cell.at == BASE}
    said = {"fifo": "CBC solves.", "short": "{} jobs were turned away.", "calm": ""}
    found = {}
    for cell, key in keys.items():
        text = said[cell.arm].format(cell.seed + 1) if cell.arm == "fifo" or cell.seed < 2 else ""
        found[key] = CellResult(
            dict.fromkeys(("jct_mean_s", "preemptions", "queue_mean_s", "cell_cpu_s"), 1.0),
            (text,) if text else (),
        )
    whole = report(replay, keys, found)
    assert whole.remarks == (
        Remark("In order", "CBC solves.", 4, 4, False),
        Remark("Shortest first", "1 jobs were turned away.", 2, 4, True),
    )
    assert whole.sentences == (
        "In order: CBC solves.",
        "Shortest first: 1 jobs were turned away. (In 2 of 4 runs; the numbers differ.)",
    )
    assert report(replay, keys, {}).sentences == ()


def test_no_more_remarks_are_told_than_can_be_read() -> None:
    many = tuple(
        Remark("A", f"Sentence {letter}.", 1, 1, False) for letter in "abcdefghijklmnopqrst"
    )
    said = ReplayReport((), (), pd.DataFrame(), True, 0.0, 0.0, many).sentences
    assert len(said) == 13
    assert (said[0], said[-1]) == ("A: Sentence a.", "And 8 other remarks.")


@pytest.mark.parametrize(
    ("kind", "band", "words"),
    [
        ("ratio", (0.55, 0.9), "0.55 to 0.9"),
        ("ratio", (0, 0.9), "below 0.9"),
        ("value", (0, 2), "below 2"),
        ("difference", (-1, 0), "-1 to 0"),
        ("ratio", (1, np.inf), "above 1"),
        ("ratio", None, ""),
    ],
)
def test_a_band_that_begins_where_nothing_can_be_has_one_side(
    kind: Kind, band: tuple[float, float] | None, words: str
) -> None:
    assert (
        band_text(
            ReplayMeasure("jct_mean_s", "a", "" if kind == "value" else "b", kind),
            band,
            "{:g}".format,
        )
        == words
    )


def test_what_is_fixed_along_an_axis_is_no_part_of_its_unit() -> None:
    axis = load("huawei-headline").axis("lookahead")
    assert axis.label == "Look-ahead of the optimal allocator (s)"
    assert axis.heading == "Look-ahead of the optimal allocator (s), at 12 jobs/h"
    assert axis.place(900.0) == "Look-ahead of the optimal allocator 900 s, at 12 jobs/h"
    assert load("huawei-headline").axis("per_h").heading == "Arrival rate (jobs/h)"
    assert axis.spot(900.0) == "at 900 s (look-ahead of the optimal allocator), at 12 jobs/h"
    assert [load("hadare-cru").axis("jobs").spot(*values) for values in ((1,), (5,), (1, 5))] == [
        "at 1 job, AWS nodes",
        "at 5 jobs, AWS nodes",
        "from 1 to 5 jobs, AWS nodes",
    ]


# -- verdicts --------------------------------------------------------------------------------------


def row(low: float, high: float, **claim: object) -> ClaimRow:
    """A figure with an interval, claimed to lie between 1 and 2, as published unless said
    otherwise.
    """
    given = {"published_text": "1.5", "band_from": "published ± 20 %", "band": (1.0, 2.0)} | claim
    made = Claim(MEAN, BASE, 1.5, certainty="from memory", **given)  # type: ignore[arg-type]
    return ClaimRow(made, Pooled((low + high) / 2, low, high, 4), 0.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.0, 2.0, "in"),
        (1.2, 1.3, "in"),
        (0.2, 0.9, "out"),
        (2.1, 9.0, "out"),
        (0.9, 1.1, "undecided"),
        (1.9, 2.1, "undecided"),
        (0.5, 3.0, "undecided"),
        (0.5, 1.0, "undecided"),
        (np.nan, np.nan, "not yet"),
    ],
)
def test_the_interval_decides_and_not_the_figure(low: float, high: float, verdict: str) -> None:
    assert row(low, high).verdict == verdict


def test_a_figure_without_an_interval_decides_nothing_unless_nothing_is_random(
    tmp_path: Path,
) -> None:
    values = {"jct_mean_s": 10.0, "preemptions": 0.0, "queue_mean_s": 0.0, "cell_cpu_s": 1.0}
    for seeds, verdict in ((4, "undecided"), (1, "in")):
        text = SMALL.replace("seeds = 4", f"seeds = {seeds}").replace(
            "axis_seeds = 2", "axis_seeds = 1"
        )
        replay = read_replay(write(tmp_path, text))
        keys = cells(replay, 1).keys
        first = report(replay, keys, {key: CellResult(values) for key in keys.values()}).rows[0]
        assert (first.pooled.value, first.verdict) == (1.0, verdict)


def test_what_proves_nothing_is_not_counted() -> None:
    unpublished = row(1.2, 1.3, band_from="direction", published_text="")
    assert unpublished.claim.mark == AFTER_RESULTS
    assert row(1.2, 1.3, band_from="direction").claim.mark == ""
    assert row(1.2, 1.3, band_from="prototype").claim.mark == AFTER_RESULTS
    assert row(1.2, 1.3, by_construction=True).claim.mark == BY_CONSTRUCTION
    rows = [
        row(1.2, 1.3),
        row(3, 4),
        row(3, 5),
        row(0.9, 1.1),
        unpublished,
        row(1.2, 1.3, by_construction=True),
    ]
    assert (
        tally(rows)
        == "Of 4 figures with an expected range that counts: 1 in the range, 2 outside, 1"
        " undecided. 1 not counted, because a setting was chosen to match it;"
        " 1 not counted, because its range was set after the results."
    )
    assert tally([]) == ""
    assert tally([unpublished]) == "1 not counted, because its range was set after the results."


def test_what_the_replays_themselves_call_met_by_construction_is_marked() -> None:
    marked = {name: sum(claim.by_construction for claim in load(name).claims) for name in names()}
    assert {name: count for name, count in marked.items() if count} == {
        "dlrover-hot-ps": 1,
        "dlrover-stragglers": 6,
    }
