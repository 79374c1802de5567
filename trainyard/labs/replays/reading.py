"""Replays as data: TOML files with published figures and how to repeat them, checked."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import allocators
from sim.errors import ParameterError, TrainyardError
from sim.metrics.registry import NUMBERS
from trainyard.labs.replays.bounds import BOUNDS
from trainyard.labs.replays.explanation import figures
from trainyard.labs.replays.types import (
    BANDS,
    BASE,
    CERTAINTIES,
    KINDS,
    MARGINS,
    Arm,
    Bound,
    CardFigure,
    Claim,
    Paper,
    Replay,
    ReplayAxis,
    ReplayCard,
    ReplayMeasure,
    ReplayPoint,
)
from trainyard.study import toml_values
from trainyard.study.document import number, whole_number
from trainyard.study.scenario import Scenario

__all__ = [
    "BASE",
    "CERTAINTIES",
    "KINDS",
    "Arm",
    "Bound",
    "Claim",
    "Paper",
    "Replay",
    "ReplayAxis",
    "ReplayMeasure",
    "ReplayPoint",
    "load",
    "names",
    "read_replay",
]
FOLDER: Final = Path(__file__).resolve().parent
MAX_SEEDS: Final = 200
DEFAULT_REPLAY: Final = "gavel-physical"
"""Default replay: the authors' code and trace were read, and it takes about a minute."""
CARDS: Final = (
    "huawei-headline",
    "ibm-drop",
    "aiturbo-headline",
    "hadar-ttd",
    "hadare-cru",
    "dlrover-production",
)
"""Replays with a card, in the order of Start."""


def names() -> tuple[str, ...]:
    """Return the names of the shipped replays."""
    return toml_values.file_stems(FOLDER)


@lru_cache(maxsize=32)
def load(name: str) -> Replay:
    """Return a shipped replay.

    Raises
    ------
    ParameterError
        If there is none of that name, or its file is wrong.
    """
    return read_replay(toml_values.find_file("replay", name, FOLDER))


@lru_cache(maxsize=1)
def papers() -> tuple[Paper, ...]:
    """Return the papers of the shipped replays, without building scenarios.

    Raises
    ------
    ParameterError
        If a file is wrong.
    """
    return tuple(dict.fromkeys(_paper(_tables(name)["paper"]) for name in names()))


@lru_cache(maxsize=1)
def cards() -> tuple[ReplayCard, ...]:
    """Return the cards of Start in order, without building scenarios.

    Raises
    ------
    ParameterError
        If a file is wrong.
    """
    return tuple(_card(name, _tables(name)) for name in CARDS)


def _tables(name: str) -> dict[str, Any]:
    """Return the tables of a shipped replay's file, not checked."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def read_replay(path: Path) -> Replay:
    """Read and check a replay file.

    Parameters
    ----------
    path : Path
        A TOML file; its stem is the name of the replay.

    Raises
    ------
    ParameterError
        If the file cannot be read, a key is missing or unknown, a value cannot be used, or a
        scenario of it cannot be built; the sentence names the file.
    """
    return toml_values.read_toml("replay", path, _replay)


def _replay(data: Mapping[str, Any], name: str) -> Replay:
    """Return the replay described by a TOML table, checked."""
    table = toml_values.table(
        "replay",
        data,
        (*(item.name for item in fields(Replay)), "axis_seeds"),
        optional=("axes", "axis_seeds", "bounds", "budget", "card", "run_s"),
    )
    for key in ("name", "title", "claim", "known", "reading", "explain", "budget"):
        table[key] = toml_values.text(key, table.get(key, ""))
    table["paper"] = _paper(table["paper"])
    table["arms"] = tuple(
        _arm(name, one) for name, one in toml_values.mapping("arms", table["arms"]).items()
    )
    table["bounds"] = tuple(
        _read_bound(name, one, table["arms"])
        for name, one in toml_values.mapping("bounds", table.get("bounds", {})).items()
    )
    arm_names = tuple(arm.name for arm in (*table["arms"], *table["bounds"]))
    toml_values.check_distinct("arms and bounds", arm_names)
    table["run_s"] = number("run_s", table.get("run_s", 0.0))
    table["seeds"] = _seeds("seeds", table["seeds"])
    spare = _seeds("axis_seeds", table.pop("axis_seeds", table["seeds"]))
    table["axes"] = tuple(
        _axis(one, arm_names, spare) for one in toml_values.as_list("axes", table.get("axes", []))
    )
    toml_values.check_distinct("axes", [axis.name for axis in table["axes"]])
    table["claims"] = tuple(
        _claim(one, arm_names, table["axes"])
        for one in toml_values.as_list("claims", table["claims"])
    )
    table["base"] = _base(table["base"])
    table["card"] = _card(name, data) if "card" in data else None
    replay = Replay(**table)
    if replay.name != name:
        raise ParameterError(f"its name is '{replay.name}', but that of the file is '{name}'.")
    toml_values.check_distinct("claims", [claim.text for claim in replay.claims])
    if not replay.claims:
        raise ParameterError("there is no claim. Add at least one.")
    _check_bounds(replay)
    _check_card(replay)
    _check_quoted(replay)
    _check_scenarios(replay)
    return replay


def _check_quoted(replay: Replay) -> None:
    """Raise ParameterError if the text quotes a number that no claim or curve measures."""
    metrics, runs = set(), set()
    for claim in replay.claims:
        metrics.add(claim.measure.metric)
        runs |= {(at, arm) for at in claim.points for arm in claim.measure.arms}
    for axis in replay.axes:
        metrics |= {measure.metric for measure in axis.measures}
        arms = {arm for measure in axis.measures for arm in measure.arms}
        runs |= {(ReplayPoint(axis.name, value), arm) for value in axis.values for arm in arms}
    for text, claim in figures(replay.explain).items():
        if claim.measure.metric not in metrics or any(
            (claim.at, arm) not in runs for arm in claim.measure.arms
        ):
            raise ParameterError(f"explain: {text}: no claim and no curve measures this.")


def _check_bounds(replay: Replay) -> None:
    """Raise ParameterError for measures that a bound does not provide."""
    for measure in (
        *(claim.measure for claim in replay.claims),
        *(measure for axis in replay.axes for measure in axis.measures),
    ):
        for bound in filter(None, map(replay.find_bound, measure.arms)):
            if measure.metric not in BOUNDS[bound.by].metrics:
                raise ParameterError(
                    f"{measure.text}: the bound '{bound.by}' is one of"
                    f" {', '.join(BOUNDS[bound.by].metrics)} only."
                )


def _check_card(replay: Replay) -> None:
    """Raise ParameterError for an arm, claim or point of the card that the replay lacks."""
    if replay.card is None:
        return
    points = [ReplayPoint(axis.name, value) for axis in replay.axes for value in axis.values]
    if replay.card.at not in (BASE, *points):
        raise ParameterError(f"card: {replay.card.at} is not a value of an axis.")
    arms, claims = [arm.name for arm in replay.arms], [claim.text for claim in replay.claims]
    shown = [
        text
        for figure in replay.card.figures
        if figure.replay == replay.name
        for text in figure.claims
    ]
    for text, choices in (
        *((name, arms) for name, _ in replay.card.policies),
        *((text, claims) for text in shown),
    ):
        if text not in choices:
            raise ParameterError(f"card: there is no '{text}'. There are: {', '.join(choices)}.")


def _check_scenarios(replay: Replay) -> None:
    """Build every scenario once, so that mistakes surface when the file is read."""
    for at in (
        BASE,
        *(ReplayPoint(axis.name, value) for axis in replay.axes for value in axis.values),
    ):
        for arm in replay.arms:
            try:
                replay.scenario(arm.name, at)
            except TrainyardError as error:
                raise ParameterError(
                    f"arm {arm.name}{f' at {at}' if at.axis else ''}:"
                    f" {str(error).removeprefix('--set ')}"
                ) from error


def _base(data: Any) -> Scenario:
    """Return the base scenario of a replay, with any policy: every arm sets its own."""
    given = toml_values.mapping("base", data)
    # The allocator here is a placeholder: every arm names its own.
    return Scenario.from_json({**given, "allocator": next(iter(allocators.REGISTRY))})


def _paper(data: Any) -> Paper:
    """Return the paper described by a table."""
    table = toml_values.table("paper", data, [item.name for item in fields(Paper)])
    texts = {
        key: toml_values.text(f"paper.{key}", table[key])
        for key in ("title", "authors", "venue", "link")
    }
    return Paper(**texts, year=whole_number("paper.year", table["year"]))


def _arm(name: str, data: Any) -> Arm:
    """Return the arm described by a table; it must set a policy."""
    table = toml_values.table(f"arm {name}", data, ("title", "set"))
    arm = Arm(
        name,
        toml_values.text("title", table["title"]),
        toml_values.changes(f"arm {name}", table["set"]),
    )
    if not any(change.startswith("allocator=") for change in arm.set):
        raise ParameterError(f"arm {name} names no policy. Begin its 'set' with allocator=NAME.")
    return arm


def _card(replay: str, data: Mapping[str, Any]) -> ReplayCard:
    """Return the card described by the tables of a replay's file."""
    keys = ("title", "note", "policies", "figures", "at")
    table = toml_values.table("card", data["card"], keys, optional=("at",))
    policies = toml_values.mapping("card: policies", table["policies"])
    figures = toml_values.as_list("card: figures", table["figures"])
    changes = [change for arm in data["arms"].values() for change in arm["set"]]
    return ReplayCard(
        replay,
        toml_values.text("card: title", table["title"]),
        toml_values.text("card: note", table["note"]),
        tuple((arm, toml_values.text(f"card: {arm}", title)) for arm, title in policies.items()),
        tuple(_card_figure(replay, one) for one in figures),
        frozenset(
            change.removeprefix("allocator=").partition(":")[0]
            for change in changes
            if change.startswith("allocator=")
        ),
        ReplayPoint(*next(iter(toml_values.mapping("card: at", table.get("at", {})).items()), ())),
    )


def _card_figure(replay: str, data: Any) -> CardFigure:
    """Return the figure of a card described by a table."""
    keys = [item.name for item in fields(CardFigure)]
    table = toml_values.table("figure of card", data, keys, ("replay", "kind", "finding"))
    claims = toml_values.as_list("card: claims", table.pop("claims"))
    texts = {key: toml_values.text(f"card: {key}", value) for key, value in table.items()}
    if texts.setdefault("kind", "ratio") not in ("ratio", "difference"):
        raise ParameterError(f"card: kind = {texts['kind']} is not one of ratio, difference.")
    texts.setdefault("replay", replay)
    return CardFigure(
        claims=tuple(toml_values.text("card: claims", one) for one in claims),
        **texts,  # type: ignore[arg-type]
    )


def _read_bound(name: str, data: Any, arms: Sequence[Arm]) -> Bound:
    """Return the bound described by a table; its `of` must be an arm, its `by` in `BOUNDS`."""
    table = toml_values.table(f"bound {name}", data, ("title", "of", "by"))
    title, of, by = (
        toml_values.text(f"bound {name}: {key}", table[key]) for key in ("title", "of", "by")
    )
    arm = next((arm for arm in arms if arm.name == of), None)
    if arm is None:
        raise ParameterError(
            f"bound {name}: there is no arm '{of}'. There are:"
            f" {', '.join(arm.name for arm in arms)}."
        )
    if by not in BOUNDS:
        raise ParameterError(f"bound {name}: by = {by} is not one of {', '.join(BOUNDS)}.")
    return Bound(name, title, arm.set, of, by)


def _axis(data: Any, arms: Sequence[str], spare: int) -> ReplayAxis:
    """Return the axis described by a table, checked; `spare` is its default number of seeds."""
    keys = (
        "name",
        "title",
        "unit",
        "values",
        "path",
        "sets",
        "fixed",
        "only",
        "claimed",
        "measures",
        "seeds",
        "where",
    )
    table = toml_values.table(
        "axis",
        data,
        keys,
        optional=("unit", "path", "sets", "fixed", "only", "claimed", "seeds", "where"),
    )
    name = toml_values.text("axis.name", table["name"])
    where = f"axis {name}"
    values = toml_values.numbers(f"{where}: values", table["values"])
    if list(values) != sorted(set(values)) or not values:
        raise ParameterError(f"{where}: its values must ascend.")
    claimed = toml_values.numbers(f"{where}: claimed", table.get("claimed", []))
    if missing := [value for value in claimed if value not in values]:
        raise ParameterError(f"{where}: {missing[0]:g} is claimed, but none of its values.")
    only = tuple(
        toml_values.text(f"{where}: only", one)
        for one in toml_values.as_list(f"{where}: only", table.get("only", list(arms)))
    )
    if strange := [one for one in only if one not in arms]:
        raise ParameterError(
            f"{where}: there is no arm '{strange[0]}'. There are: {', '.join(arms)}."
        )
    return ReplayAxis(
        name,
        toml_values.text(f"{where}: title", table["title"]),
        toml_values.text(f"{where}: unit", table.get("unit", "")),
        values,
        toml_values.changes(where, table.get("fixed", [])),
        _axis_changes(where, table, values),
        only,
        claimed,
        tuple(
            _measure(where, one, arms)
            for one in toml_values.as_list(f"{where}: measures", table["measures"])
        ),
        _seeds(f"{where}: seeds", table.get("seeds", spare)),
        toml_values.text(f"{where}: where", table.get("where", "")),
    )


def _axis_changes(
    where: str, table: Mapping[str, Any], values: Sequence[float]
) -> tuple[tuple[str, ...], ...]:
    """Return the scenario changes at each axis value, from a path or from a list."""
    if ("path" in table) == ("sets" in table):
        raise ParameterError(
            f"{where}: give either 'path', which takes each value, or 'sets', a list of changes per"
            " value."
        )
    if "path" in table:
        return tuple(
            (f"{toml_values.text(f'{where}: path', table['path'])}={value:.12g}",)
            for value in values
        )
    sets = toml_values.as_list(f"{where}: sets", table["sets"])
    if len(sets) != len(values):
        raise ParameterError(
            f"{where}: {len(values)} values want as many lists in 'sets', not {len(sets)}."
        )
    return tuple(toml_values.changes(where, one) for one in sets)


def _claim(data: Any, arms: Sequence[str], axes: Sequence[ReplayAxis]) -> Claim:
    """Return the claim described by a table; raise ParameterError if its parts disagree."""
    compared = ("metric", "arm", "against", "kind", "title")
    keys = (
        *compared,
        "at",
        "from",
        "published",
        "published_text",
        "band",
        "band_from",
        "certainty",
        "by_construction",
    )
    table = toml_values.table(
        "claim", data, keys, optional=set(keys) - {"metric", "arm", "certainty"}
    )
    measure = _measure("claim", {key: table[key] for key in compared if key in table}, arms)
    where = f"claim {measure.text}"
    if table["certainty"] not in CERTAINTIES:
        raise ParameterError(
            f"{where}: certainty = {table['certainty']} is not one of {', '.join(CERTAINTIES)}."
        )
    published = number(f"{where}: published", table["published"]) if "published" in table else None
    text = toml_values.text(f"{where}: published_text", table.get("published_text", ""))
    if published is not None and not text:
        raise ParameterError(f"{where}: a published figure needs its words, published_text.")
    at = _point(where, table.get("at", {}), axes)
    since = _point(where, table["from"], axes) if "from" in table else None
    if since is not None and (since.axis != at.axis or since == at):
        raise ParameterError(f"{where}: 'from' and 'at' are not two values of one axis.")
    band = _band(where, table, published)
    by_construction = table.get("by_construction", False)
    if not isinstance(by_construction, bool):
        raise ParameterError(f"{where}: by_construction is neither true nor false.")
    band_from = table["band_from"] if band else ""
    return Claim(
        measure, at, published, text, band, table["certainty"], band_from, since, by_construction
    )


def _band(
    where: str, table: Mapping[str, Any], published: float | None
) -> tuple[float, float] | None:
    """Return (low, high) of a claim's band, or None; check it against its source.

    A band with a margin of `MARGINS` must be the published figure plus and minus that margin.
    """
    if "band" not in table:
        return None
    band = toml_values.numbers(f"{where}: band", table["band"])
    if len(band) != 2 or band[0] > band[1]:
        raise ParameterError(f"{where}: its band is not [low, high].")
    source = table.get("band_from")
    if source not in BANDS:
        raise ParameterError(
            f"{where}: a band needs band_from, where it comes from: one of {', '.join(BANDS)}."
        )
    margin = MARGINS.get(source)
    if margin is not None and (
        published is None
        or any(
            abs(end - published * side) > 0.005 * published
            for end, side in zip(band, (1 - margin, 1 + margin), strict=True)
        )
    ):
        raise ParameterError(f"{where}: its band is not {source}.")
    return band[0], band[1]


def _point(where: str, data: Any, axes: Sequence[ReplayAxis]) -> ReplayPoint:
    """Return the axis point described by a table, such as {axis: value}; empty = `BASE`."""
    pairs = list(toml_values.mapping(f"{where}: at", data).items())
    if not pairs:
        return BASE
    by_name = {axis.name: axis for axis in axes}
    name, value = pairs[0][0], number(f"{where}: at", pairs[0][1])
    if len(pairs) > 1 or name not in by_name or value not in by_name[name].values:
        raise ParameterError(f"{where}: at = {data} is not one value of one axis.")
    return ReplayPoint(name, value)


def _measure(where: str, data: Any, arms: Sequence[str]) -> ReplayMeasure:
    """Return the measure described by a table; metric, kind and arms must exist.

    Ratio and difference need `against`, a plain value has none.
    """
    table = toml_values.table(
        f"measure of {where}",
        data,
        [item.name for item in fields(ReplayMeasure)],
        optional=[i.name for i in fields(ReplayMeasure) if i.default is not MISSING],
    )
    measure = ReplayMeasure(
        **{  # type: ignore[arg-type]
            key: toml_values.text(f"{where}: {key}", value) for key, value in table.items()
        }
    )
    if measure.metric not in NUMBERS:
        raise ParameterError(
            f"{where}: there is no metric '{measure.metric}'. There are: {', '.join(NUMBERS)}."
        )
    if measure.kind not in KINDS:
        raise ParameterError(f"{where}: kind = {measure.kind} is not one of {', '.join(KINDS)}.")
    if bool(measure.against) == (measure.kind == "value"):
        raise ParameterError(f"{where}: a ratio or a difference needs 'against', a value has none.")
    if strange := [one for one in measure.arms if one not in arms]:
        raise ParameterError(
            f"{where}: there is no arm '{strange[0]}'. There are: {', '.join(arms)}."
        )
    return measure


def _seeds(what: str, data: Any) -> int:
    """Return a number of seeds; raise ParameterError outside 1 to `MAX_SEEDS`."""
    count = whole_number(what, data)
    if not 1 <= count <= MAX_SEEDS:
        raise ParameterError(f"{what} = {count} is outside 1 to {MAX_SEEDS}.")
    return count
