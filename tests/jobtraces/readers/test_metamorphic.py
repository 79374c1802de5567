"""Known formats, however the same file is written: the same trace, or a question, or a refusal."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from jobtraces import ReadOptions, read, recipes
from jobtraces.readers.files import open_all
from jobtraces.recipes import Recipe
from sim.errors import TraceError
from sim.trace import Trace
from tests.jobtraces.readers.account import FIXTURES
from tests.jobtraces.readers.test_exports import CASES, JSON, RUNAI, TABLES

Cells = list[list[str]]
SEED = 20
NATIVE = (
    "job_id,submit_time_s,num_gpus,duration_s,start_time_s,user\n"
    "a,0,1,60,5,ann\nb,7,8,3600,7,bob\nc,9.5,2,61.5,,ann\n"
)
ANSWERS = {"wait": "included"}
TEXTS = {name: text for name, (text, _, _) in TABLES.items()} | {"native": NATIVE, "runai": RUNAI}
SHIFTED = {
    "native": ("submit_time_s", "start_time_s"),
    "itp": ("submission_time",),
    "tiresias": ("submit_time",),
    "helios-list": ("arrival_s",),
    "rubick": ("submission_time",),
    "elasticflow": ("submission_time", "deadline"),
}


def read_so(data: bytes | str) -> tuple[str, Trace, set[str]]:
    """Format, trace and open questions of a file."""
    content = data.encode() if isinstance(data, str) else data
    got = read(content, name="f", options=ReadOptions(answers=ANSWERS))
    return got.fmt, got.trace, {one.id for one in got.questions}


def same(data: bytes | str, base: tuple[str, Trace, set[str]]) -> bool:
    fmt, trace, questions = read_so(data)
    return (fmt, trace.digest, questions) == (base[0], base[1].digest, base[2])


def cells_of(text: str) -> Cells:
    return list(csv.reader(io.StringIO(text)))


def written(rows: Cells, sign: str = ",", quoting: Any = csv.QUOTE_MINIMAL) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=sign, quoting=quoting, lineterminator="\n").writerows(rows)
    return out.getvalue()


def permuted(rows: Cells) -> Cells:
    order = list(range(len(rows[0])))
    random.Random(SEED).shuffle(order)
    return [[row[at] for at in order] for row in rows]


def widened(rows: Cells) -> Cells:
    return [[*row, f"x{at}" if at else "weather"] for at, row in enumerate(rows)]


WAYS: dict[str, Callable[[Cells], str | bytes]] = {
    "columns in another order": lambda rows: written(permuted(rows)),
    "one more column": lambda rows: written(widened(rows)),
    "tabs": lambda rows: written(rows, "\t"),
    "semicolons": lambda rows: written(rows, ";"),
    "bars": lambda rows: written(rows, "|"),
    "every cell quoted": lambda rows: written(rows, quoting=csv.QUOTE_ALL),
    "gzip": lambda rows: gzip.compress(written(rows).encode()),
    "UTF-16": lambda rows: written(rows).encode("utf-16"),
    "UTF-8 with a mark": lambda rows: written(rows).encode("utf-8-sig"),
    "lines of Windows": lambda rows: written(rows).replace("\n", "\r\n"),
    "names in capitals": lambda rows: written([[cell.upper() for cell in rows[0]], *rows[1:]]),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_table_written_otherwise_is_the_same_trace(way: str) -> None:
    # Each format is written in about four of the ways.
    place = list(WAYS).index(way)
    exact = {one.name for one in recipes.shipped_recipes() if one.exact}
    for at, fmt in enumerate(TEXTS):
        if (at - place) % len(WAYS) in {0, 3, 6, 9} and not (
            way == "one more column" and fmt in exact
        ):
            assert same(WAYS[way](cells_of(TEXTS[fmt])), read_so(TEXTS[fmt])), fmt


@pytest.mark.slow
def test_an_exact_format_with_one_more_column_is_any_table() -> None:
    # Recognised by having no other columns: with one it is any table, whose unit is asked.
    exact = [one.name for one in recipes.shipped_recipes() if one.exact and one.name in TEXTS]
    assert exact
    for fmt in exact:
        data = WAYS["one more column"](cells_of(TEXTS[fmt]))
        assert read_so(data)[2] == {"duration_unit"}, fmt


@pytest.mark.slow
@pytest.mark.parametrize("fmt", SHIFTED)
def test_times_later_by_a_constant_are_the_same_trace(fmt: str) -> None:
    rows = cells_of(TEXTS[fmt])
    later = [
        [
            str(float(cell) + 86_400) if name in SHIFTED[fmt] and cell not in ("", name) else cell
            for name, cell in zip(rows[0], row, strict=True)
        ]
        for row in rows
    ]
    assert later != rows
    found, whole = (read_so(text)[1].frame for text in (written(later), TEXTS[fmt]))
    assert found.equals(whole)


@pytest.mark.slow
@pytest.mark.parametrize("fmt", TEXTS)
def test_a_column_of_another_name_is_never_another_trace(fmt: str) -> None:
    rows = cells_of(TEXTS[fmt])
    whole = read_so(TEXTS[fmt])[1].frame
    for at, name in enumerate(rows[0]):
        renamed = [[*rows[0][:at], "zzz", *rows[0][at + 1 :]], *rows[1:]]
        try:
            _, trace, questions = read_so(written(renamed))
        except TraceError:
            continue
        assert questions or of_those(trace.frame, whole), name


def of_those(found: pd.DataFrame, whole: pd.DataFrame) -> bool:
    """Tell whether jobs are the same, or the same without some that were left out for a reason."""
    facts = ["num_gpus", "duration_s"]
    rows = [list(map(tuple, one[facts].to_numpy())) for one in (found, whole)]
    if len(found) == len(whole):
        return bool(found["submit_time_s"].equals(whole["submit_time_s"])) and rows[0] == rows[1]
    return not Counter(rows[0]) - Counter(rows[1])


def reordered(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return [reordered(one, rng) for one in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    rng.shuffle(keys)
    return {key: reordered(value[key], rng) for key in keys}


def more(value: Any, items: str) -> Any:
    jobs = value[items] if items else value
    for job in jobs:
        job["weather"] = {"sunny": [1, 2]}
    return value


@pytest.mark.slow
@pytest.mark.parametrize("fmt", JSON)
def test_json_written_otherwise_is_the_same_trace(fmt: str) -> None:
    data = JSON[fmt][0]
    base = read_so(data)
    key = next(one.items for one in recipes.shipped_recipes() if one.name == fmt) or ""
    value = json.loads(data)
    assert same(json.dumps(reordered(value, random.Random(SEED))), base)
    assert same(json.dumps(more(json.loads(data), key)), base)
    assert same(json.dumps(value, indent=4), base)
    assert same(gzip.compress(data), base)
    assert same(json.dumps(value, ensure_ascii=False).encode("utf-16"), base)


# Recognition --------------------------------------------------------------------------------------


def winners(data: bytes) -> list[Recipe]:
    return recipes.best_recipes(open_all(data, "f", ReadOptions())[0].sample)


@pytest.mark.parametrize("path", sorted(FIXTURES.iterdir()), ids=lambda path: path.name)
def test_at_most_one_recipe_wins_for_every_fixture(path: Any) -> None:
    assert len(winners(path.read_bytes())) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("fmt", CASES)
def test_a_lost_column_never_makes_another_recipe_win_silently(fmt: str) -> None:
    if fmt not in TABLES:
        lost_keys(fmt)
        return
    rows = cells_of(TEXTS[fmt])
    for at in range(len(rows[0])):
        check_other(fmt, written([[*row[:at], *row[at + 1 :]] for row in rows]))
        check_other(fmt, written([[*rows[0][:at], "zzz", *rows[0][at + 1 :]], *rows[1:]]))


def lost_keys(fmt: str) -> None:
    recipe = next(one for one in recipes.shipped_recipes() if one.name == fmt)
    for path in sorted(recipe.paths):
        value = json.loads(CASES[fmt][0])
        for job in value[recipe.items] if recipe.items else value:
            drop(job, path.partition("=")[0].split("|")[0].split("."))
        check_other(fmt, json.dumps(value))


def drop(job: Any, keys: list[str]) -> None:
    for key in keys[:-1]:
        job = job.get(key, {})
    job.pop(keys[-1], None)


def check_other(fmt: str, text: str) -> None:
    """Another recipe may win only if it asks, refuses or reads the same jobs."""
    won = winners(text.encode())
    if not won or won[0].name == fmt:
        return
    try:
        _, trace, questions = read_so(text)
    except TraceError:
        return
    whole = read_so(CASES[fmt][0])[1].frame
    assert questions or of_those(trace.frame, whole), (won[0].name, text[:80])
