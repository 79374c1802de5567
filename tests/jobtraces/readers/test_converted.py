"""Workbooks, Feather files and JSON objects read as the tables that they are."""

from __future__ import annotations

import io
import json
import random
import zipfile
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather

from jobtraces import ReadOptions, peek, read
from jobtraces.readers import items as json_items
from jobtraces.readers.items import read_items
from sim.errors import ParameterError, TraceError
from tests.jobtraces.readers.account import checked

ROWS = [
    {"id": "a", "submitted_at": "2026-03-02T09:00:00Z", "gpus": 2, "duration": 90.5},
    {"id": "b", "submitted_at": "2026-03-02T09:01:00Z", "gpus": 8, "duration": 60},
]
MAIN = '<?xml version="1.0"?>'
SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def workbook(**sheets: list[list[Any]]) -> bytes:
    """The smallest workbook that holds these cells; times of a day are fractions with a style."""
    names = list(sheets)
    parts = {
        "[Content_Types].xml": f'{MAIN}<Types xmlns="{PACKAGE}/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/></Types>',
        "_rels/.rels": f'{MAIN}<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r"'
        f' Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'{MAIN}<workbook xmlns="{SPREADSHEET}" xmlns:r="{OFFICE}"><sheets>'
        + "".join(
            f'<sheet name="{name}" sheetId="{at + 1}" r:id="r{at}"/>'
            for at, name in enumerate(names)
        )
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'{MAIN}<Relationships xmlns="{PACKAGE}/relationships">'
        + "".join(
            f'<Relationship Id="r{at}" Type="{OFFICE}/worksheet" Target="worksheets/{at}.xml"/>'
            for at in range(len(names))
        )
        + "</Relationships>",
    }
    for at, rows in enumerate(sheets.values()):
        lines = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
        parts[f"xl/worksheets/{at}.xml"] = (
            f'{MAIN}<worksheet xmlns="{SPREADSHEET}"><sheetData>{lines}</sheetData></worksheet>'
        )
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return made.getvalue()


def cell(value: Any) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value}</v></c>"


TABLE = [list(ROWS[0]), *(list(row.values()) for row in ROWS)]


def facts(data: bytes, **options: Any) -> list[list[float]]:
    frame = read(data, options=ReadOptions(**options)).trace.frame
    return frame[["submit_time_s", "num_gpus", "duration_s"]].to_numpy().tolist()


TRUTH = [[0, 2, 90.5], [60, 8, 60]]


def test_a_workbook() -> None:
    assert facts(workbook(Jobs=TABLE)) == TRUTH
    assert read(workbook(Jobs=TABLE)).trace.frame["job_id"].tolist() == ["a", "b"]


def test_ids_of_a_workbook_keep_their_digits() -> None:
    rows = [TABLE[0], [1000, *TABLE[1][1:]], [1001, *TABLE[2][1:]]]
    assert read(workbook(Jobs=rows)).trace.frame["job_id"].tolist() == ["1000", "1001"]


def test_which_sheet_is_asked() -> None:
    other = [TABLE[0], ["c", "2026-03-02T09:00:00Z", 1, 5]]
    data = workbook(Notes=[["hello"]], Jobs=TABLE, Old=other)
    got = read(data)
    assert got.used == len(TRUTH)
    # The sheet does not say in which unit its durations are.
    assert [(one.id, list(one.options), one.default) for one in got.questions][1:] == [
        ("sheet", ["Jobs", "Old"], "Jobs")
    ]
    other_sheet = read(data, options=ReadOptions(answers={"sheet": "Old", "duration_unit": "s"}))
    assert (other_sheet.used, other_sheet.questions) == (1, ())
    assert other_sheet.trace.frame["duration_s"].tolist() == [5]
    with pytest.raises(ParameterError, match="not one of Jobs, Old"):
        facts(data, answers={"sheet": "Notes"})


def test_a_feather_file_keeps_its_types() -> None:
    frame = pd.DataFrame(ROWS).assign(
        submitted_at=pd.to_datetime([row["submitted_at"] for row in ROWS]),
        duration=pd.to_timedelta([90.5, 60], unit="s"),
    )
    made = io.BytesIO()
    feather.write_feather(frame, made)
    assert facts(made.getvalue()) == TRUTH


SPELLINGS = {
    "lines": "\n".join(map(json.dumps, ROWS)),
    "list": json.dumps(ROWS),
    "in an object": json.dumps({"version": 3, "notes": ["x"], "data": ROWS}, indent=1),
    "in an object on one line": json.dumps({"version": 3, "data": ROWS}),
    "nested": json.dumps(
        [
            {
                "id": row["id"],
                "submitted_at": row["submitted_at"],
                "gpus": row["gpus"],
                "config": {"seed": 1},
                "tags": ["x"],
                "duration": row["duration"],
            }
            for row in ROWS
        ]
    ),
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_objects_of_json_are_rows(text: str) -> None:
    got = checked(text.encode())
    assert facts(text.encode()) == TRUTH
    assert "The JSON objects are read as rows of a table." in got.guesses
    assert {"id", "gpus", "duration"} <= set(peek(text.encode()).columns)


def test_the_last_line_may_be_cut_off() -> None:
    whole = "\n".join(json.dumps(row) for row in [*ROWS, *ROWS])
    got = read((whole[:-30]).encode())
    assert (got.read, got.used) == (4, 2)
    found = list(read_items('{"a": 1}\n{"a": 2', "", "x"))
    assert [value for _, value in found] == [{"a": 1}, None]
    with pytest.raises(TraceError, match="incomplete or not valid"):
        list(read_items('{"a": 1}\n{"a": \n{"a": 2}\n', "", "x"))


BAD = {
    "no workbook": (workbook(Jobs=TABLE)[:300], "damaged|locked"),
    "no table": (workbook(Jobs=[["only"]]), "no sheet of the workbook"),
    "feather": (b"ARROW1\x00\x00" + b"x" * 100, "Feather file is damaged"),
    "two lists": (json.dumps({"a": ROWS, "b": ROWS}).encode(), "not a known trace"),
    "numbers": (b'{"data": [1, 2]}', "not a known trace"),
    "keys": (json.dumps([{f"k{at}": 1 for at in range(1_001)}]).encode(), "more than 1,000 keys"),
}


@pytest.mark.parametrize(("data", "words"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        read(data, name="upload")
    assert "\n" not in str(caught.value)


def test_a_workbook_that_unfolds_to_too_much() -> None:
    rows = [*TABLE, *([f"j{at}", "x" * 100, 1, 1] for at in range(5_000))]
    data = workbook(Jobs=rows)
    assert len(data) < 100_000
    with pytest.raises(TraceError, match="unpacked"):
        read(data, options=ReadOptions(max_bytes=200_000))


def test_feather_that_unfolds_to_too_much() -> None:
    made = io.BytesIO()
    numbers = dict.fromkeys(("submit_time_s", "num_gpus", "duration_s"), [1] * 1_500)
    table = pa.table({"user": ["x" * 9_000] * 1_500, **numbers})
    feather.write_feather(table, made, compression="zstd")
    assert len(made.getvalue()) < 1_000_000
    with pytest.raises(TraceError, match="unpacked"):
        read(made.getvalue(), options=ReadOptions(max_bytes=10_000_000))


@pytest.mark.parametrize("seed", range(3))
def test_json_in_parts_is_the_same_as_a_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_items, "LOOK_AHEAD", 3)
    rng = random.Random(seed)
    job = {"a": 'x\\"]}', "b": [1.5, -2e3, True], "c": {"d": None, "e": "\u00e4\U0001f600"}}
    jobs = [job | {"a": "y" * rng.randrange(9)} for _ in range(4)]
    lists = json.dumps(
        {"kind": "x", "more": {"jobs": [1]}, "jobs": jobs, "z": 1}, indent=rng.choice((None, 2))
    )
    whole = [(json.dumps(jobs), ""), (lists, "jobs"), ("\n".join(map(json.dumps, jobs)), "")]
    whole += [(text[: rng.randrange(len(text))], key) for text, key in whole for _ in range(40)]
    for text, key in whole:
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(8)))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert told(parts, key) == told(text, key)


def told(text: str | list[str], key: str) -> list[object]:
    found: list[object] = []
    try:
        found += read_items(text, key, "f")
    except TraceError as error:
        found.append(str(error))
    return found
