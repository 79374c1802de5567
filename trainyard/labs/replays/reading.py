"""Replays of papers as data: TOML files that say what was published and how it is repeated, read
and fully checked.
"""

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
from trainyard.labs.replays.explained import figures
from trainyard.labs.replays.types import (
    BANDS,
    BASE,
    CERTAINTIES,
    KINDS,
    MARGINS,
    Arm,
    Bound,
    Claim,
    Paper,
    Replay,
    ReplayAxis,
    ReplayMeasure,
    ReplayPoint,
)
from trainyard.study import parsing
from trainyard.study.document import number, whole
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
MOST_SEEDS: Final = 200


FIRST: Final = "huawei-headline"
"""The replay that somebody sees who asks for none: it has a published figure and takes less than a
minute.
"""


def names() -> tuple[str, ...]:
    """Return the names of the replays that ship."""
    return parsing.stems(FOLDER)


@lru_cache(maxsize=32)
def load(name: str) -> Replay:
    """Return a replay that ships.

    Raises
    ------
    ParameterError
        If there is none of that name, or its file is wrong.
    """
    return read_replay(parsing.one_of("replay", name, FOLDER))


@lru_cache(maxsize=1)
def papers() -> tuple[Paper, ...]:
    """Return where the replays that ship were published, without building a scenario.

    Raises
    ------
    ParameterError
        If a file is wrong.
    """
    return tuple(
        dict.fromkeys(
            _paper(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))["paper"])
            for name in names()
        )
    )


def read_replay(path: Path) -> Replay:
    """Read and check a replay.

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
    return parsing.file("replay", path, _replay)


def _replay(data: Mapping[str, Any], name: str) -> Replay:
    known = parsing.table(
        "replay",
        data,
        (*(item.name for item in fields(Replay)), "axis_seeds"),
        optional=("axes", "axis_seeds", "bounds", "budget", "run_s"),
    )
    for key in ("name", "title", "claim", "known", "reading", "explain", "budget"):
        known[key] = parsing.text(key, known.get(key, ""))
    known["paper"] = _paper(known["paper"])
    known["arms"] = tuple(
        _arm(name, one) for name, one in parsing.mapping("arms", known["arms"]).items()
    )
    known["bounds"] = tuple(
        _bound(name, one, known["arms"])
        for name, one in parsing.mapping("bounds", known.get("bounds", {})).items()
    )
    arm_names = tuple(arm.name for arm in (*known["arms"], *known["bounds"]))
    parsing.distinct("arms and bounds", arm_names)
    known["run_s"] = number("run_s", known.get("run_s", 0.0))
    known["seeds"] = _seeds("seeds", known["seeds"])
    spare = _seeds("axis_seeds", known.pop("axis_seeds", known["seeds"]))
    known["axes"] = tuple(
        _axis(one, arm_names, spare) for one in parsing.listed("axes", known.get("axes", []))
    )
    parsing.distinct("axes", [axis.name for axis in known["axes"]])
    known["claims"] = tuple(
        _claim(one, arm_names, known["axes"]) for one in parsing.listed("claims", known["claims"])
    )
    known["base"] = _base(known["base"])
    replay = Replay(**known)
    if replay.name != name:
        raise ParameterError(f"its name is '{replay.name}', but that of the file is '{name}'.")
    parsing.distinct("claims", [claim.text for claim in replay.claims])
    if not replay.claims:
        raise ParameterError("there is no claim. Add at least one.")
    _within_bounds(replay)
    _measured(replay)
    _build_all(replay)
    return replay


def _measured(replay: Replay) -> None:
    """Refuse numbers in the text that no claim and no curve measures."""
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


def _within_bounds(replay: Replay) -> None:
    """Refuse measures of what a bound does not give."""
    for measure in (
        *(claim.measure for claim in replay.claims),
        *(measure for axis in replay.axes for measure in axis.measures),
    ):
        for bound in filter(None, map(replay.bound, measure.arms)):
            if measure.metric not in BOUNDS[bound.by].metrics:
                raise ParameterError(
                    f"{measure.text}: the bound '{bound.by}' is one of"
                    f" {', '.join(BOUNDS[bound.by].metrics)} only."
                )


def _build_all(replay: Replay) -> None:
    """Build every scenario once, so that a mistake is found when the file is read."""
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
    given = parsing.mapping("base", data)
    # Which allocator stands here plays no part: every arm names its own.
    return Scenario.from_json({**given, "allocator": next(iter(allocators.REGISTRY))})


def _paper(data: Any) -> Paper:
    known = parsing.table("paper", data, [item.name for item in fields(Paper)])
    texts = {
        key: parsing.text(f"paper.{key}", known[key])
        for key in ("title", "authors", "venue", "link")
    }
    return Paper(**texts, year=whole("paper.year", known["year"]))


def _arm(name: str, data: Any) -> Arm:
    known = parsing.table(f"arm {name}", data, ("title", "set"))
    arm = Arm(
        name, parsing.text("title", known["title"]), parsing.changes(f"arm {name}", known["set"])
    )
    if not any(change.startswith("allocator=") for change in arm.set):
        raise ParameterError(f"arm {name} names no policy. Begin its 'set' with allocator=NAME.")
    return arm


def _bound(name: str, data: Any, arms: Sequence[Arm]) -> Bound:
    known = parsing.table(f"bound {name}", data, ("title", "of", "by"))
    title, of, by = (
        parsing.text(f"bound {name}: {key}", known[key]) for key in ("title", "of", "by")
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
    known = parsing.table(
        "axis",
        data,
        keys,
        optional=("unit", "path", "sets", "fixed", "only", "claimed", "seeds", "where"),
    )
    name = parsing.text("axis.name", known["name"])
    where = f"axis {name}"
    values = parsing.numbers(f"{where}: values", known["values"])
    if list(values) != sorted(set(values)) or not values:
        raise ParameterError(f"{where}: its values must ascend.")
    claimed = parsing.numbers(f"{where}: claimed", known.get("claimed", []))
    if missing := [value for value in claimed if value not in values]:
        raise ParameterError(f"{where}: {missing[0]:g} is claimed, but none of its values.")
    only = tuple(
        parsing.text(f"{where}: only", one)
        for one in parsing.listed(f"{where}: only", known.get("only", list(arms)))
    )
    if strange := [one for one in only if one not in arms]:
        raise ParameterError(
            f"{where}: there is no arm '{strange[0]}'. There are: {', '.join(arms)}."
        )
    return ReplayAxis(
        name,
        parsing.text(f"{where}: title", known["title"]),
        parsing.text(f"{where}: unit", known.get("unit", "")),
        values,
        parsing.changes(where, known.get("fixed", [])),
        _axis_changes(where, known, values),
        only,
        claimed,
        tuple(
            _measure(where, one, arms)
            for one in parsing.listed(f"{where}: measures", known["measures"])
        ),
        _seeds(f"{where}: seeds", known.get("seeds", spare)),
        parsing.text(f"{where}: where", known.get("where", "")),
    )


def _axis_changes(
    where: str, known: Mapping[str, Any], values: Sequence[float]
) -> tuple[tuple[str, ...], ...]:
    """Return the changes at each value: a path that takes the value, or a list of its own."""
    if ("path" in known) == ("sets" in known):
        raise ParameterError(
            f"{where}: give either 'path', which takes each value, or 'sets', a list of changes per"
            " value."
        )
    if "path" in known:
        return tuple(
            (f"{parsing.text(f'{where}: path', known['path'])}={value:.12g}",) for value in values
        )
    sets = parsing.listed(f"{where}: sets", known["sets"])
    if len(sets) != len(values):
        raise ParameterError(
            f"{where}: {len(values)} values want as many lists in 'sets', not {len(sets)}."
        )
    return tuple(parsing.changes(where, one) for one in sets)


def _claim(data: Any, arms: Sequence[str], axes: Sequence[ReplayAxis]) -> Claim:
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
    known = parsing.table("claim", data, keys, optional=set(keys) - {"metric", "arm", "certainty"})
    measure = _measure("claim", {key: known[key] for key in compared if key in known}, arms)
    where = f"claim {measure.text}"
    if known["certainty"] not in CERTAINTIES:
        raise ParameterError(
            f"{where}: certainty = {known['certainty']} is not one of {', '.join(CERTAINTIES)}."
        )
    published = number(f"{where}: published", known["published"]) if "published" in known else None
    text = parsing.text(f"{where}: published_text", known.get("published_text", ""))
    if published is not None and not text:
        raise ParameterError(f"{where}: a published figure needs its words, published_text.")
    at = _at(where, known.get("at", {}), axes)
    since = _at(where, known["from"], axes) if "from" in known else None
    if since is not None and (since.axis != at.axis or since == at):
        raise ParameterError(f"{where}: 'from' and 'at' are not two values of one axis.")
    band = _band(where, known, published)
    by_construction = known.get("by_construction", False)
    if not isinstance(by_construction, bool):
        raise ParameterError(f"{where}: by_construction is neither true nor false.")
    band_from = known["band_from"] if band else ""
    return Claim(
        measure, at, published, text, band, known["certainty"], band_from, since, by_construction
    )


def _band(
    where: str, known: Mapping[str, Any], published: float | None
) -> tuple[float, float] | None:
    """Return a band that says where it comes from; one that says it lies around the published
    figure must do so.
    """
    if "band" not in known:
        return None
    band = parsing.numbers(f"{where}: band", known["band"])
    if len(band) != 2 or band[0] > band[1]:
        raise ParameterError(f"{where}: its band is not [low, high].")
    source = known.get("band_from")
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


def _at(where: str, data: Any, axes: Sequence[ReplayAxis]) -> ReplayPoint:
    pairs = list(parsing.mapping(f"{where}: at", data).items())
    if not pairs:
        return BASE
    known = {axis.name: axis for axis in axes}
    name, value = pairs[0][0], number(f"{where}: at", pairs[0][1])
    if len(pairs) > 1 or name not in known or value not in known[name].values:
        raise ParameterError(f"{where}: at = {data} is not one value of one axis.")
    return ReplayPoint(name, value)


def _measure(where: str, data: Any, arms: Sequence[str]) -> ReplayMeasure:
    known = parsing.table(
        f"measure of {where}",
        data,
        [item.name for item in fields(ReplayMeasure)],
        optional=[i.name for i in fields(ReplayMeasure) if i.default is not MISSING],
    )
    measure = ReplayMeasure(
        **{  # type: ignore[arg-type]
            key: parsing.text(f"{where}: {key}", value) for key, value in known.items()
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
    made = whole(what, data)
    if not 1 <= made <= MOST_SEEDS:
        raise ParameterError(f"{what} = {made} is outside 1 to {MOST_SEEDS}.")
    return made
