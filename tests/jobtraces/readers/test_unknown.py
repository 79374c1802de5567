"""One truth of 24 jobs in many spellings: each is read right, at once or with its question open,
or the question is answered by what the user would see.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobtraces import Import, ReadOptions, read
from jobtraces.readers import cells as values
from jobtraces.readers.cells import column_kinds
from jobtraces.readers.columns import guess_mapping
from jobtraces.readers.options import OpenQuestionError
from sim.errors import ParameterError, TraceError

BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)
RUNS = (61, 600, 3725, 7384, 90_061, 183_845)
GPUS = (1, 8, 2, 4, 16, 8, 1, 2)
WAITS = (5, 4000, 0, 600)
WORDS = ("COMPLETED", "FAILED", "CANCELLED")
Row = tuple[int, datetime, datetime, datetime, int, int, str, str]


def jobs() -> list[Row]:
    made = []
    for at in range(24):
        submit = BEGIN + timedelta(seconds=137 * at)
        start = submit + timedelta(seconds=WAITS[at * 7 % 4])
        run = RUNS[at * 5 % 6]
        end = start + timedelta(seconds=run)
        made.append(
            (1000 + at, submit, start, end, GPUS[at % 8], run, "abc"[at % 3], WORDS[at % 3])
        )
    return made


TRUTH = jobs()
Cell = Callable[[Row], object]


def iso(at: int, form: str = "%Y-%m-%dT%H:%M:%SZ") -> Cell:
    return lambda row: f"{row[at]:{form}}"


def run(form: Callable[[int], object]) -> Cell:
    return lambda row: form(row[5])


def hms(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def words(seconds: int) -> str:
    return f"{seconds // 3600}h {seconds // 60 % 60}m {seconds % 60}s"


BASE: Mapping[str, Cell] = {
    "id": lambda row: row[0],
    "submitted_at": iso(1),
    "gpus": lambda row: row[4],
    "duration_s": run(int),
    "user": lambda row: row[6],
}


def table(changed: Mapping[str, Cell | None] | None = None, sign: str = ",") -> str:
    """Write the truth with some columns replaced, added or left out (None)."""
    columns = {name: cell for name, cell in {**BASE, **(changed or {})}.items() if cell is not None}
    return written(columns, sign)


def written(columns: Mapping[str, Cell], sign: str = ",") -> str:
    rows = [sign.join(str(cell(row)) for cell in columns.values()) for row in TRUTH]
    return "\n".join([sign.join(columns), *rows, ""])


GERMAN = {"COMPLETED": "abgeschlossen", "FAILED": "fehlgeschlagen", "CANCELLED": "abgebrochen"}
CHINESE = {"COMPLETED": "已完成", "FAILED": "失败", "CANCELLED": "已取消"}
DOTS = "%d.%m.%Y %H:%M:%S"


def german() -> str:
    return written(
        {
            "Auftrag": BASE["id"],
            "Benutzer": BASE["user"],
            "Eingereicht am": iso(1, DOTS),
            "Gestartet am": iso(2, DOTS),
            "Beendet am": iso(3, DOTS),
            "Karten": BASE["gpus"],
            "Dauer (h)": run(lambda s: f"{s / 3600:.4f}".replace(".", ",")),
            "Zustand": lambda row: GERMAN[row[7]],
        },
        ";",
    )


def chinese() -> str:
    return written(
        {
            "作业编号": BASE["id"],
            "用户": BASE["user"],
            "提交时间": iso(1, "%Y/%-m/%-d %H:%M:%S"),
            "GPU数量": BASE["gpus"],
            "运行时长(秒)": run(int),
            "状态": lambda row: CHINESE[row[7]],
        }
    )


def french() -> str:
    return written(
        {
            "Identifiant": BASE["id"],
            "Utilisateur": BASE["user"],
            "Date de soumission": iso(1, "%d/%m/%Y %H:%M:%S"),
            "Date de début": iso(2, "%d/%m/%Y %H:%M:%S"),
            "Date de fin": iso(3, "%d/%m/%Y %H:%M:%S"),
            "Nombre de GPU": BASE["gpus"],
        },
        ";",
    )


def spanish() -> str:
    return written(
        {
            "Identificador": BASE["id"],
            "Usuario": BASE["user"],
            "Fecha de envío": iso(1),
            "Número de GPU": BASE["gpus"],
            "Duración (min)": run(lambda s: repr(s / 60)),
            "Estado": lambda row: row[7].title(),
        }
    )


def japanese() -> str:
    return written(
        {
            "ジョブID": BASE["id"],
            "ユーザー": BASE["user"],
            "投入日時": iso(1, "%Y年%m月%d日 %H:%M:%S"),
            "GPU台数": BASE["gpus"],
            "実行時間(秒)": run(int),
        }
    )


def json_lines() -> bytes:
    return "\n".join(
        json.dumps({name: cell(row) for name, cell in BASE.items()}) for row in TRUTH
    ).encode()


def parquet() -> bytes:
    frame = pd.DataFrame({name: [cell(row) for row in TRUTH] for name, cell in BASE.items()})
    frame["submitted_at"] = pd.to_datetime(frame["submitted_at"])
    frame = frame.rename(columns={"duration_s": "duration"})
    frame["duration"] = pd.to_timedelta(frame["duration"], unit="s")
    out = io.BytesIO()
    frame.to_parquet(out)
    return out.getvalue()


def without_duration(**more: Cell) -> str:
    return table({"duration_s": None, **more})


# Spelling -> file, and ids of the questions that stay open, with other answers than the default.
SPELLINGS: dict[str, tuple[str | bytes, Mapping[str, str]]] = {
    "plain": (table(), {}),
    "tabs": (table(sign="\t"), {}),
    "semicolons, hours, German": (german(), {"zone": ""}),
    "Chinese": (chinese(), {"zone": ""}),
    "Chinese in GBK": (chinese().encode("gb18030"), {"zone": ""}),
    "French": (french(), {"zone": "", "date_order": ""}),
    "Spanish": (spanish(), {}),
    "Japanese": (japanese(), {"zone": ""}),
    "UTF-16": (table().encode("utf-16"), {}),
    "title lines": ("Report of March\n\n" + table(), {}),
    "sep=": ("sep=;\n" + table(sign=";"), {}),
    "seconds since 1970": (table({"submitted_at": lambda row: int(row[1].timestamp())}), {}),
    "milliseconds": (
        without_duration(
            submitted_at=lambda row: int(row[1].timestamp()) * 1000,
            duration=run(lambda s: s * 1000),
        ),
        {"duration_unit": ""},
    ),
    "no unit": (without_duration(duration=run(int)), {"duration_unit": ""}),
    "hours without a name": (
        without_duration(elapsed=run(lambda s: repr(s / 3600))),
        {"duration_unit": ""},
    ),
    "HH:MM:SS": (without_duration(duration=run(hms)), {}),
    "HH:MM": (
        without_duration(duration=run(lambda s: hms(s)[:5]), ended=iso(3), began=iso(2)),
        {},
    ),
    "words": (without_duration(runtime=run(words)), {}),
    "ends": (without_duration(started=iso(2), finished=iso(3)), {}),
    "GPU notation": (table({"gpus": lambda row: f"gres/gpu:a100={row[4]}"}), {}),
    "GPUs times type": (table({"gpus": lambda row: f"{row[4]}xA100"}), {}),
    "nodes": (
        table(
            {
                "gpus": None,
                "nodes": lambda row: max(row[4] // 8, 1),
                "gpus_per_node": lambda row: min(row[4], 8),
            }
        ),
        {},
    ),
    "workers": (
        table({"gpus": lambda row: min(row[4], 8), "workers": lambda row: max(row[4] // 8, 1)}),
        {"gpus_per.workers": "each"},
    ),
    "American": (
        table({"submitted_at": iso(1, "%m/%d/%Y %I:%M:%S %p")}),
        {"zone": "", "date_order": "month"},
    ),
    "thousands": (
        without_duration(**{"duration (s)": run(lambda s: f'"{s:,}"')}),
        {"separator.duration_s": ""},
    ),
    "JSON lines": (json_lines(), {}),
    "Parquet": (parquet(), {}),
}


def answered(content: str | bytes, answers: Mapping[str, str]) -> Import:
    data = content.encode() if isinstance(content, str) else content
    given = {key: answer for key, answer in answers.items() if answer}
    return read(data, name="x", options=ReadOptions(answers=given))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_the_same_jobs(spelling: str) -> None:
    content, answers = SPELLINGS[spelling]
    first = answered(content, {})
    assert {one.id for one in first.questions} == set(answers)
    # No column is two facts, but that the nodes of a job are a factor of its GPUs, too.
    sources = [part for one in first.columns.values() for part in one.split("*")]
    sources = [part for part in sources if part != "nodes"]
    assert len(sources) == len(set(sources))
    got = answered(content, answers)
    frame = got.trace.frame
    assert got.used == len(TRUTH)
    assert frame["job_id"].astype("int").tolist() == [row[0] for row in TRUTH]
    assert frame["num_gpus"].tolist() == [row[4] for row in TRUTH]
    assert frame["duration_s"].tolist() == pytest.approx([row[5] for row in TRUTH])
    assert frame["user"].tolist() == [row[6] for row in TRUTH]
    span = [(row[1] - BEGIN).total_seconds() for row in TRUTH]
    assert frame["submit_time_s"].tolist() == pytest.approx(span)
    assert pd.Timestamp(got.trace.epoch) == pd.Timestamp(BEGIN)


def test_few_spellings_need_a_question() -> None:
    asked = [spelling for spelling, (_, answers) in SPELLINGS.items() if answers]
    assert len(SPELLINGS) >= 26
    assert len(asked) <= 16


def test_words_of_a_status_in_other_languages() -> None:
    for content in (german(), chinese()):
        frame = answered(content, {}).trace.frame
        assert frame["status"].tolist() == [row[7].lower() for row in TRUTH]


# What is not told is asked, and each answer is another trace --------------------------------------


def test_the_unit_is_asked_with_the_median_of_each() -> None:
    content, _ = SPELLINGS["no unit"]
    (question,) = answered(content, {}).questions
    assert question.default == "s"
    assert question.options["s"] == "seconds: median 1.54 h"
    assert question.options["min"] == "minutes: median 3.86 d"
    got = answered(content, {"duration_unit": "min"})
    assert got.questions == ()
    assert got.answered == ((question, "min"),)
    assert got.trace.frame["duration_s"].iloc[0] == TRUTH[0][5] * 60


def test_start_and_end_tell_the_unit() -> None:
    got = answered(
        table({"duration_s": None, "took": run(int), "start": iso(2), "end": iso(3)}), {}
    )
    assert got.questions == ()
    assert any("took is read in seconds" in one for one in got.guesses)


def test_order_of_rows_decides_between_day_and_month() -> None:
    rows = [f"{at},0{at}/02/2026 10:00:00 UTC,1,60" for at in range(1, 10)]
    got = answered("\n".join(["id,submitted,gpus,runtime_s", *rows]), {})
    # As months the days would be a month apart each: both orders rise.
    assert {one.id for one in got.questions} == {"date_order"}
    mixed = ["01/02/2026", "02/02/2026", "01/03/2026", "02/03/2026"]
    rows = [f"{at},{day} 10:00:00 UTC,1,60" for at, day in enumerate(mixed)]
    got = answered("\n".join(["id,submitted,gpus,runtime_s", *rows]), {})
    assert got.questions == ()
    assert any("day first" in one for one in got.guesses)
    assert got.trace.span_s == 29 * 86_400


def test_a_comma_may_separate_thousands_or_decimals() -> None:
    text = 'id,submitted_s,gpus,runtime_s\n1,0,1,"86,461"\n2,5,1,"12,500"\n'
    got = answered(text, {})
    (question,) = got.questions
    assert (question.id, question.default) == ("separator.duration_s", "thousands")
    assert got.trace.frame["duration_s"].tolist() == [86_461, 12_500]
    got = answered(text, {"separator.duration_s": "decimal"})
    assert got.trace.frame["duration_s"].tolist() == [86.461, 12.5]


def test_two_parts_of_a_clock_are_asked() -> None:
    text = "id,submitted_s,gpus,runtime\n1,0,1,12:30\n2,5,1,00:45\n"
    got = answered(text, {})
    assert [one.id for one in got.questions] == ["clock.duration_s"]
    assert got.trace.frame["duration_s"].tolist() == [45_000, 2700]
    got = answered(text, {"clock.duration_s": "m:s"})
    assert got.trace.frame["duration_s"].tolist() == [750, 45]


def test_an_unknown_status_is_asked() -> None:
    text = "id,submitted_s,gpus,runtime_s,status\n1,0,1,60,kaputt\n2,5,1,60,done\n"
    got = answered(text, {})
    assert [one.id for one in got.questions] == ["status.kaputt"]
    assert got.trace.frame["status"].tolist() == ["kaputt", "completed"]
    got = answered(text, {"status.kaputt": "failed"})
    assert got.trace.frame["status"].tolist() == ["failed", "completed"]


# Never --------------------------------------------------------------------------------------------


def test_a_start_is_no_submission_without_asking() -> None:
    got = answered(table({"submitted_at": None, "started": iso(2)}), {})
    assert [one.id for one in got.questions] == ["column.submit_time_s"]
    assert not got.trace.has("start_time_s")
    assert any("recorded waits are unknown" in one for one in got.guesses)
    answers = {"column.submit_time_s": "started"}
    known = table({"submitted_at": None, "duration_s": None, "started": iso(2), "ended": iso(3)})
    got = answered(known, answers)
    assert got.questions == ()
    assert sorted(got.trace.frame["duration_s"]) == sorted(row[5] for row in TRUTH)


def test_end_minus_submission_is_no_duration() -> None:
    with pytest.raises(OpenQuestionError) as caught:
        answered(without_duration(finished=iso(3)), {})
    (question,) = caught.value.questions
    assert (question.id, list(question.options)) == ("column.duration_s", ["end-submission"])
    answers = {"column.duration_s": "end-submission"}
    got = answered(without_duration(finished=iso(3)), answers)
    assert got.trace.frame["duration_s"].tolist() == [
        (row[3] - row[1]).total_seconds() for row in TRUTH
    ]
    assert "so they include waits" in got.warnings[0]


def test_figures_of_queueing_are_no_queue() -> None:
    head = pd.DataFrame({"queue": ["17", "3"], "vc_time": ["5", "6"], "user": ["1", "2"]})
    assert guess_mapping(head) == {"user": "user"}
    many = pd.DataFrame({"user": [str(at) for at in range(1001)]})
    assert guess_mapping(many) == {}
    assert guess_mapping(pd.DataFrame({"queue": ["long", "short"]})) == {"vc": "queue"}


def test_times_and_parts_of_gpus_are_no_number_of_gpus() -> None:
    assert guess_mapping(["gpu_milli", "GPUs (h)", "gpu_s"]) == {}
    assert guess_mapping(["duration_ms", "gpus"]) == {
        "duration_s": "duration_ms",
        "num_gpus": "gpus",
    }


# The same jobs however the file is written --------------------------------------------------------


def same(data: bytes, base: Import) -> None:
    got = read(data, name="x")
    assert got.trace.digest == base.trace.digest
    assert {one.id for one in got.questions} == {one.id for one in base.questions}


@pytest.mark.parametrize("content", [german(), chinese(), table()], ids=["de", "zh", "en"])
def test_writing_it_otherwise_changes_nothing(content: str) -> None:
    base = answered(content, {})
    sign = ";" if ";" in content else ","
    cells = [line.split(sign) for line in content.splitlines()]

    def lines(rows: list[list[str]], mark: str = sign, quote: str = "") -> bytes:
        return "\n".join(
            mark.join(f"{quote}{cell}{quote}" for cell in row) for row in rows
        ).encode()

    same(lines([row[::-1] for row in cells]), base)
    same(lines([[*row, "x" if at else "weather"] for at, row in enumerate(cells)]), base)
    same(lines(cells, "\t"), base)
    same(lines(cells, "|"), base)
    same(lines(cells, quote='"'), base)
    same(gzip.compress(content.encode()), base)
    same(content.encode("utf-16"), base)
    same(content.replace("\n", "\r\n").encode(), base)


@pytest.mark.parametrize("column", ["submitted_at", "gpus", "duration_s"])
def test_a_needed_column_of_another_name_is_never_another_trace(column: str) -> None:
    renamed = table().replace(column, "zzz", 1)
    with pytest.raises(TraceError) as caught:
        read(renamed.encode(), name="x")
    if isinstance(caught.value, OpenQuestionError):
        ids = [one.id for one in caught.value.questions]
        got = answered(renamed, {ids[0]: "zzz"} | {"duration_unit": "s"})
        assert got.trace.digest == answered(table(), {}).trace.digest


OWN = "id;wann;gpus;dauer_s\n1;2026.03.02-09h59;1;600\n2;2026.03.02-10h11;2;1200\n3;bald;2;60\n"


def test_dates_in_a_spelling_of_their_own() -> None:
    data, chosen = OWN.encode(), {"mapping": {"submit_time_s": "wann"}}
    with pytest.raises(
        TraceError, match=r"reason .3 rows.: the submission time is missing or cannot"
    ):
        read(data, options=ReadOptions(**chosen))
    got = read(data, options=ReadOptions(**chosen, date_format="%Y.%m.%d-%Hh%M", zone="UTC"))
    assert (got.used, got.dropped) == (2, 1)
    assert got.trace.epoch == "2026-03-02T09:59:00+00:00"
    assert got.trace.numbers("submit_time_s").tolist() == [0, 720]
    for pattern in ("%Q", "dd.mm.yyyy"):
        with pytest.raises(ParameterError, match=r"is not a date pattern\. Use one such as"):
            ReadOptions(date_format=pattern)
    with pytest.raises(TraceError, match="no column holds dates written as %d/%m/%Y"):
        read(data, options=ReadOptions(date_format="%d/%m/%Y"))
    with pytest.raises(TraceError, match=r"Trainyard table .* already defines its date format"):
        read(data, fmt="native", options=ReadOptions(date_format="%d/%m/%Y"))


def test_full_width_figures_and_midnight_as_24() -> None:
    rows = ["id,submitted (UTC),gpus,runtime_s", "1,2026-03-02 24:00:00,２,６０"]
    text = "\n".join([*rows, "2,2026-03-03 00:00:05,1,60"])
    frame = answered(text, {}).trace.frame
    assert frame["submit_time_s"].tolist() == [0, 5]
    assert frame["num_gpus"].tolist() == [2, 1]


def test_starts_that_stand_for_submissions_and_cannot_be_read() -> None:
    content = b"id,started,gpus,duration_s\na,soon,1,60\nb,later,2,60\n"
    options = ReadOptions(mapping={"submit_time_s": "started", "start_time_s": "started"})
    with pytest.raises(TraceError):
        read(content, name="x.csv", options=options)


def test_truth_values_of_a_typed_table_beside_empty_cells() -> None:
    made = io.BytesIO()
    table = {
        "创建时间": [45, 18, 39],
        "num_gpus": [8, 28, 2],
        "duration_s": [8, 32, 7],
        "preemptible": pa.array([None, False, True]),
    }
    pq.write_table(pa.table(table), made)
    found = read(made.getvalue()).trace.frame.set_index("num_gpus")["preemptible"]
    assert found[[28, 2]].tolist() == [0, 1]
    assert np.isnan(found[8])


def test_no_date_is_looked_for_in_a_long_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr(values, "_month_as_number", lambda cell: searched.append(cell) or cell)
    found = column_kinds(pd.Series(["2 Mar 2026", "script" * 1_500]))
    assert (found.moments, found.lengths, found.gpus) == (False, False, False)
    assert searched == ["2 Mar 2026"]
