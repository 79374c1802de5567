"""Cards of replays: stored figures, and the comparison that a click opens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from trainyard.labs.replays.reading import FOLDER, cards, load
from trainyard.labs.replays.types import CardFigure, ReplayCard
from trainyard.study.study import Study

STORED: Final = FOLDER / "figures.json"
"""Rows that ``python -m trainyard replay all --json`` printed; at least those of the cards."""


@lru_cache(maxsize=1)
def stored_rows() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """Return replay and metric -> the stored row with these names."""
    rows = json.loads(STORED.read_text(encoding="utf-8"))
    return {(row["replay"], row["metric"]): row for row in rows}


def figure_rows(figure: CardFigure) -> list[Mapping[str, Any]]:
    """Return the stored row of each claim of a figure."""
    return [stored_rows()[figure.replay, claim] for claim in figure.claims]


def find_card(policy: str) -> ReplayCard | None:
    """Return the first card with jobs on which a policy acts, or None."""
    return next((card for card in cards() if policy in card.acting), None)


def card_study(card: ReplayCard, policy: str = "") -> Study:
    """Return the comparison of a card, with seed 0, and with a further policy of its replay.

    Raises
    ------
    ParameterError
        If the file of the replay is wrong.
    """
    replay, titles = load(card.replay), dict(card.policies)
    scenarios = {arm.name: replay.scenario(arm.name, card.at) for arm in replay.arms}
    if all(scenarios[arm].allocator.name != policy for arm in titles):
        others = [arm for arm, other in scenarios.items() if other.allocator.name == policy]
        plainest = sorted(others, key=lambda arm: len(scenarios[arm].allocator.params))[:1]
        titles |= dict.fromkeys(plainest, "")
    first = scenarios[next(iter(titles))]
    return Study(
        replace(first, name=card.title),
        tuple(scenarios[arm].allocator for arm in titles),
        names=tuple(titles.values()),
    )
