from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.errors import ParameterError
from sim.params import Spec
from tests.trainyard.labs.replays.replay_cases import SMALL, write
from trainyard.clusters.machines import offered_load
from trainyard.labs.replays.cards import card_study, figure_rows, find_card, stored_rows
from trainyard.labs.replays.reading import CARDS, cards, load, names, read_replay
from trainyard.labs.replays.report import ClaimRow, Pooled, cells, claim_rows, needed_metrics
from trainyard.labs.replays.run import run_cell
from trainyard.labs.replays.types import CardFigure, Claim, Replay, ReplayCard
from trainyard.results.validity import OVERLOAD
from trainyard.runs.run import run
from trainyard.study import catalog
from trainyard.traces import new_study
from trainyard.traces.samples import SAMPLES
from trainyard.traces.sources import load_trace
from trainyard.views.replays import card_line

CARD = """
[card]
title = "Short jobs first"
note = "Twelve jobs."
policies = { fifo = "In order", short = "Short first" }

[[card.figures]]
title = "Completion, short / in order"
claims = ["jct_mean_s short/fifo"]

[base]
"""
FIGURES = {
    (figure.replay, text) for card in cards() for figure in card.figures for text in figure.claims
}


def claim_of(replay: Replay, text: str) -> Claim:
    return next(claim for claim in replay.claims if claim.text == text)


def test_every_card_is_on_start() -> None:
    assert tuple(card.replay for card in cards()) == CARDS
    assert {name for name in names() if load(name).card} == set(CARDS)
    assert [load(name).card for name in CARDS] == list(cards())


@pytest.mark.parametrize(("name", "text"), sorted(FIGURES))
def test_the_figures_of_a_card_are_stored_rows_of_its_claims(name: str, text: str) -> None:
    replay, row = load(name), stored_rows()[name, text]
    claim = claim_of(replay, text)
    low, high = row["ci95"] or (math.nan, math.nan)
    pooled = Pooled(row["simulated"], low, high, row["seeds"])
    assert ClaimRow(claim, pooled, row["cpu_s"]).to_json(name) == row
    assert row["seeds"] == replay.seeds


@pytest.mark.slow
def test_stored_figures_are_those_of_a_run() -> None:
    """The other replays take many minutes; `replay all --json` writes their rows."""
    name = "hadare-cru"
    shown = tuple(claim for claim in load(name).claims if (name, claim.text) in FIGURES)
    replay = replace(load(name), claims=shown)
    keys, recipes = cells(replay, curves=False)
    results = {
        key: run_cell(recipes[cell.at, cell.arm].to_json(), cell.seed, needed_metrics(replay))
        for cell, key in keys.items()
    }
    for row in claim_rows(replay, keys, results):
        stored = stored_rows()[name, row.claim.text]
        assert math.isclose(row.pooled.value, stored["simulated"], rel_tol=1e-6)
        assert np.allclose([row.pooled.low, row.pooled.high], stored["ci95"], rtol=1e-6)


@pytest.mark.parametrize("card", cards(), ids=CARDS)
def test_kind_and_published_figure_of_a_card_are_those_of_its_claims(card: ReplayCard) -> None:
    for figure in card.figures:
        claims = [claim_of(load(figure.replay), text) for text in figure.claims]
        assert {claim.measure.kind for claim in claims} == {figure.kind}
        assert len({claim.published for claim in claims}) == 1
        assert all(row["published"] is not None for row in figure_rows(figure))


@pytest.mark.parametrize(
    "card",
    [
        pytest.param(card, id=card.replay, marks=marks)
        for card in cards()
        for marks in [[pytest.mark.slow] if card.replay == "dlrover-production" else []]
    ],
)
def test_the_policies_of_a_card_change_the_schedule(card: ReplayCard) -> None:
    study = card_study(card)
    assert study.titles == tuple(title for _, title in card.policies)
    assert study.baseline == 0
    trace = load_trace(study.base.trace)
    # Above this load Compare shows no results.
    assert not OVERLOAD < offered_load(trace, study.base.cluster) < math.inf
    ends = [
        run(scenario, trace=trace).jobs["finish_s"].to_numpy() for scenario in study.scenarios()
    ]
    assert not any(np.array_equal(ends[0], other, equal_nan=True) for other in ends[1:])


def test_every_policy_that_is_locked_on_the_samples_acts_on_the_jobs_of_a_card() -> None:
    for name in SAMPLES:
        sample = new_study.sample_study(name)
        for choice in catalog.allocator_choices(load_trace(sample.base.trace), sample.base.perf):
            if not choice.reason:
                continue
            card = find_card(choice.name)
            assert card is not None, choice.name
            study = card_study(card, choice.name)
            index = [spec.name for spec in study.allocators].index(choice.name)
            assert new_study.refusal_reason(study, index) == ""


def test_a_policy_that_is_not_on_the_card_is_added_with_fewest_settings() -> None:
    card = find_card("optimus")
    assert card is not None
    assert card_study(card, "optimus").allocators[-1] == Spec("optimus")
    assert card_study(card, "aiturbo") == card_study(card)
    assert find_card("recorded") is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('note = "Twelve jobs."', "", "the card has no 'note'"),
        ("short =", "long =", "card: there is no 'long'. There are: fifo, short, calm."),
        ('["jct_mean_s short/fifo"]', '["jct_mean_s a/b"]', "card: there is no 'jct_mean_s a/b'"),
        ("claims =", 'kind = "value"\nclaims =', "kind = value is not one of ratio, difference"),
        (
            "note =",
            "at = { per_h = 5 }\nnote =",
            "card: per_h=5 is not a value of an axis",
        ),
        ("claims =", "color = 1\nclaims =", "the figure of card has no setting 'color'"),
    ],
)
def test_a_wrong_card_is_one_sentence(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = SMALL.replace("[base]\n", CARD)
    replay = read_replay(write(tmp_path, text))
    assert replay.card is not None
    assert replay.card.acting == {"fifo", "srtf", "sjf"}
    with pytest.raises(ParameterError) as caught:
        read_replay(write(tmp_path, text.replace(old, new)))
    assert message in str(caught.value)


def test_the_texts_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"published": 1.5, "simulated": 1.234, "ci95": [1.1, 1.4], "verdict": "undecided"}
    rows = {
        ("x", "one"): row | {"mark": None},
        ("x", "sure"): row | {"verdict": "in", "mark": "range set after results"},
        ("x", "far"): row | {"simulated": 12.34, "verdict": "out", "mark": None},
        ("x", "less"): row | {"simulated": -0.021, "ci95": None, "mark": None},
    }
    monkeypatch.setattr("trainyard.labs.replays.cards.stored_rows", lambda: rows)

    def line(*claims: str, **settings: str) -> tuple[str, ...]:
        return card_line(CardFigure("t", "x", claims, **settings))  # type: ignore[arg-type]

    assert line("one") == ("1.5", "1.23", "undecided", "95 %: 1.10–1.40")
    assert line("sure") == ("1.5", "1.23", "in", "range set later")
    assert line("one", "far") == ("1.5", "1.23–12.3", "undecided", "")
    assert line("sure", finding="it depends") == ("1.5", "1.23", "undecided", "95 %: 1.10–1.40")
    assert line("less", kind="difference") == ("+150", "−2.10", "undecided", "")
