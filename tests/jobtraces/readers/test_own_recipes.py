"""Recipes that users write: read by a process of its own, whatever their expressions try."""

from __future__ import annotations

import json
import random
import resource
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from jobtraces import ReadOptions, read, recipes
from jobtraces import sandbox as apart
from jobtraces.readers.content import sample_of
from jobtraces.readers.options import digest_of
from jobtraces.recipes import engine
from jobtraces.recipes.engine import FUNCTIONS
from jobtraces.recipes.recipe import Recipe
from sim.errors import ParameterError, TraceError, TrainyardError
from tests.jobtraces.readers.test_recipes import HOSTILE
from tests.sim import work
from trainyard.cli.main import main
from trainyard.study.scenario import TraceSpec
from trainyard.traces.own_recipes import recipe_for_file
from trainyard.traces.sources import load_source

OURS = """
name = "ours"
title = "Ours"
[recognise]
columns = ["job", "queued_at", "cards", "hours"]
[columns]
job_id = "job"
submit_time_s = "iso(queued_at)"
num_gpus = "num(cards)"
duration_s = "num(hours) * 3600"
"""
DATA = b"Job;Queued at;Cards;Hours\n1;2026-03-02 09:00:00;2;1,5\n2;2026-03-02 09:10:00;4;0,2\n"
GIGABYTE = 1_000_000_000
# What the checks let pass, and what would take gigabytes or hours without the walls behind them.
HEAVY = {
    "doubled": {"x0": "job"} | {f"x{at + 1}": f"x{at} || x{at}" for at in range(40)},
    "lists": {"x0": "[job, job]"}
    | {f"x{at + 1}": f"list_transform(x{at}, lambda a: x{at})" for at in range(13)},
    "regular": {"x0": "regexp_extract(job || job, '(((((a*)*)*)*)*)*(((((a*)*)*)*)*)*b')"},
    "windows": {
        "x0": "sum(num(cards)) OVER (ORDER BY cards ROWS BETWEEN 9 PRECEDING AND 9 FOLLOWING)"
    },
}


def ours(expression: str) -> str:
    return OURS.replace("num(cards)", expression.replace("\\", "\\\\").replace('"', '\\"'))


def by(text: str, data: bytes = DATA) -> pd.DataFrame:
    return read(data, options=ReadOptions(recipe=text)).trace.frame


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes of users run in this process, for tests of what is made of them."""
    monkeypatch.setattr(recipes, "run_limited", lambda work, *args: work(*args))


def test_a_recipe_of_the_users_own() -> None:
    got = read(DATA, options=ReadOptions(recipe=OURS))
    assert (got.fmt, got.title, got.used) == ("mine/ours", "Ours", 2)
    assert got.trace.frame["duration_s"].tolist() == [5400, 720]
    assert got.trace.frame["num_gpus"].tolist() == [2, 4]
    assert "Times have no offset; they are read as UTC." in got.guesses


@pytest.mark.usefixtures("in_place")
def test_it_reads_as_the_same_recipe_would_that_is_shipped() -> None:
    ray = json.dumps(
        [
            {
                "submission_id": "r",
                "status": "FAILED",
                "entrypoint": "x",
                "start_time": 1_000_000,
                "end_time": 5_000_000,
                "entrypoint_num_gpus": 2,
            }
        ]
    ).encode()
    shipped, own = read(ray), read(ray, options=ReadOptions(recipe=recipes.shipped_text("ray")))
    assert own.fmt == "mine/ray"
    pd.testing.assert_frame_equal(own.trace.frame, shipped.trace.frame)
    assert (own.guesses, own.warnings) == (shipped.guesses, shipped.warnings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mapping": {"num_gpus": "cards"}}, "Remove the mapping"),
        ({"date_format": "%d.%m.%Y"}, "Remove the date format"),
        ({"recipe_digest": "0" * 12}, "differs from the one stored with the scenario"),
    ],
)
def test_choices_that_contradict_a_recipe(options: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        ReadOptions(recipe=OURS, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("in_place")
def test_a_scenario_keeps_the_recipe(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_bytes(DATA)
    spec = TraceSpec.of(str(file), read={"recipe": OURS, "answers": {"a": "b"}})
    kept = json.loads(json.dumps(spec.to_json()))
    assert kept["read"] == {
        "recipe": OURS,
        "recipe_digest": digest_of(OURS),
        "answers": {"a": "b"},
    }
    again = TraceSpec.from_json(kept)
    assert again == spec
    assert load_source(again).trace.frame["duration_s"].tolist() == [5400, 720]
    kept["read"]["recipe"] += "# altered"
    with pytest.raises(ParameterError, match="Use the original"):
        load_source(TraceSpec.from_json(kept))


@pytest.mark.usefixtures("in_place")
def test_a_faulty_recipe_is_found_without_data() -> None:
    assert recipes.check_recipe(OURS, "ours.toml").name == "ours"
    for expression, words in (
        ("num(cards, 2)", "does not support"),
        ("crads", "crads is not a known column. Did you mean cards?"),
    ):
        with pytest.raises(TraceError, match=words):
            recipes.check_recipe(ours(expression), "ours.toml")


def test_a_process_of_its_own_has_limits() -> None:
    assert apart.run_limited(work.greedy, GIGABYTE // 10) == GIGABYTE // 10
    with pytest.raises(apart.SandboxError, match="more than 3 GB"):
        apart.run_limited(work.greedy, 3 * GIGABYTE)
    with pytest.raises(apart.SandboxError, match="exit code 3"):
        apart.run_limited(work.ending, 3)


def test_only_processor_time_counts_against_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "CPU_S", 1)
    apart.run_limited(work.sleeping, 2.5)  # longer than the limit, without computing
    with pytest.raises(apart.SandboxError, match=r"more than 1 s of processor time"):
        apart.run_limited(work.spinning)


def test_work_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "WALL_S", 0.5)
    with pytest.raises(apart.SandboxError, match=r"more than 0.5 s"):
        apart.run_limited(work.sleeping, 600.0)


def test_a_process_of_its_own_writes_no_file(tmp_path: Path) -> None:
    assert apart.run_limited(work.writing, str(tmp_path / "x")) == "OSError"
    assert (tmp_path / "x").read_bytes() == b""


@pytest.mark.slow
@pytest.mark.parametrize("let", HEAVY.values(), ids=HEAVY)
def test_what_takes_too_much_is_stopped_in_a_sentence(let: dict[str, str]) -> None:
    lines = "".join(f'{name} = "{text}"\n' for name, text in let.items())
    last = list(let)[-1]
    text = OURS.replace("[columns]", f"[let]\n{lines}[columns]")
    text = text.replace('"job"\n', f'"left(CAST({last} AS VARCHAR), 9) || job"\n')
    data = DATA + b"".join(
        b"%s%d;2026-03-02 09:00:00;1;1\n" % (b"a" * 9_000, at) for at in range(40)
    )
    try:
        told = f"{len(by(text, data))} jobs"
    except TraceError as error:
        told = str(error)
    assert told == "42 jobs" or "too much memory" in told or "was stopped" in told
    assert "\n" not in told
    assert peak_bytes() < 3 * GIGABYTE


def peak_bytes() -> int:
    """The most that a process of ours has held that has ended; kilobytes on Linux."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1000


LOG = """
name = "lines"
title = "Our log"
[lines]
split = " "
overflow = "note"
layouts = [["at", "id", "note", "cards", "seconds"]]
[lines.cells]
at = '\\d{4}-.*'
cards = '\\d+'
[columns]
job_id = "id"
submit_time_s = 'iso("at")'
num_gpus = "num(cards)"
duration_s = "num(seconds)"
name = "note"
"""
LINES = b"""2026-03-02T09:00:00 a train a big model 2 3600
2026-03-02T09:10:00 b eval 4 1200
2026-03-02T09:20:00 c two  words 1 60
"""
TWO = LOG.replace('layouts = [["at",', 'layouts = [["at", "id", "cards", "seconds"], ["at",')


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize(
    "text", [LOG, TWO, LOG.replace('split = " "', "split = ' '\npattern = true")]
)
def test_surplus_fields_are_folded_before_fields_are_counted(text: str) -> None:
    # 8, 5 and 7 fields: no number is usual.
    frame = by(text, LINES)
    assert frame["name"].tolist() == ["train a big model", "eval", "two  words"]
    assert frame["num_gpus"].tolist() == [2, 4, 1]
    assert frame["duration_s"].tolist() == [3600, 1200, 60]


@pytest.mark.usefixtures("in_place")
def test_an_unknown_number_of_fields_is_no_overflow_of_several_layouts() -> None:
    data = LINES.splitlines()[0] + b"\n"
    with pytest.raises(TraceError, match="not Our log: line 1 has 8 fields instead of 5"):
        by(TWO, data * 3)


JSON = OURS.replace("[recognise]", 'items = "jobs"\n[recognise]').replace(
    'columns = ["job", "queued_at", "cards", "hours"]', 'paths = ["id", "meta.at|meta.queued"]'
)
HEADER = b"job,queued_at,cards,hours\n1,2026-03-02,2,1\n"


@pytest.mark.parametrize(
    ("text", "data", "reason"),
    [
        (OURS, HEADER, ""),
        (OURS, HEADER.replace(b"cards", b"gpus"), "the first line lacks cards"),
        (OURS, b"job\n1\n", "the first line has a single field"),
        (OURS, b"[{}]", "it is json instead of text"),
        (
            OURS.replace("[columns]", 'without = ["hours"]\n[columns]'),
            HEADER,
            "the first line has hours, which no such file has",
        ),
        (
            OURS.replace("[columns]", "fields = [5, 6]\n[columns]"),
            HEADER,
            "the first line has 4 fields instead of 5 or 6",
        ),
        (
            OURS.replace("[columns]", "first_cell = '\\d+'\n[columns]"),
            HEADER,
            "its first cell 'job' does not match first_cell",
        ),
        (JSON, HEADER, "it is text instead of json"),
        (JSON, b'{"jobs": [{"id": 1}]}', "the first item of 'jobs' lacks meta.at|meta.queued"),
        (LOG, LINES, ""),
        (LOG, b"2026 a b 1 2\n" * 3, "line 1, at: '2026' does not match \\d{4}-.*"),
        (LOG, LINES + b"2026 a b\n" * 4, "line 4 has 3 fields instead of 5"),
    ],
)
def test_why_a_recipe_does_not_recognize_a_file(text: str, data: bytes, reason: str) -> None:
    assert recipes.misfit(recipes.parse_recipe(text, "x"), sample_of(data.decode())) == reason


def test_outcomes_are_checked() -> None:
    with pytest.raises(TraceError, match=r"status.OK = 'fine' is not an outcome. Use completed, "):
        recipes.check_recipe(OURS + "[status]\nok = 'fine'\n", "ours.toml")


@pytest.mark.usefixtures("in_place")
def test_a_log_recipe_of_the_folder_reads_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path))
    folder, log, table = tmp_path / "recipes", tmp_path / "jobs.log", tmp_path / "jobs.csv"
    folder.mkdir()
    (folder / "lines.toml").write_text(LOG, encoding="utf-8")
    log.write_bytes(LINES)
    table.write_bytes(DATA)
    found = recipe_for_file(log)
    assert found is not None
    assert found.name == "lines"
    assert recipe_for_file(table) is None
    other = LOG.replace('"lines"', '"other"')
    (folder / "other.toml").write_text(other, encoding="utf-8")
    with pytest.raises(TraceError, match=r"mine/lines and mine/other fit equally. Choose one"):
        recipe_for_file(log)
    # Without patterns of cells a layout says nothing about a file.
    free = other.partition("[lines.cells]")[0] + "[columns]" + other.partition("[columns]")[2]
    (folder / "other.toml").write_text(free, encoding="utf-8")
    assert recipe_for_file(log) == found


@pytest.mark.slow
# All of them are refused in `test_recipes`; these go the whole way through a process of their own.
@pytest.mark.parametrize("expression", HOSTILE[::5], ids=[text[:40] for text in HOSTILE[::5]])
def test_a_hostile_recipe_reads_nothing_and_writes_nothing(
    expression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary").write_text("nightingale", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TraceError) as caught:
        by(ours(expression.replace("a", "job") if expression == "a" else expression))
    assert "nightingale" not in str(caught.value)
    assert "root:" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["canary"]
    assert peak_bytes() < 3 * GIGABYTE


def grown(rng: random.Random, depth: int, folder: str) -> str:
    """An expression of allowed and forbidden parts."""
    leaves = ["a", "b", "row", "'x'", "1", "1e9", "NULL", "[a, b]", "'a*'", f"'{folder}/canary'"]
    names = [*sorted(FUNCTIONS | engine.macro_names()), "read_text", "replace", "repeat", "glob"]
    names = [name for name in names if name.isidentifier()]
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves)
    parts = [grown(rng, depth - 1, folder) for _ in range(rng.randint(1, 3))]
    form = rng.choice(("call", "call", "call", "case", "join", "list", "cast"))
    if form == "call":
        return f"{rng.choice(names)}({', '.join(parts)})"
    if form == "list":
        return f"list_transform([{', '.join(parts)}], lambda x: {parts[0]} || x)"
    if form == "cast":
        return f"CAST({parts[0]} AS {rng.choice(('VARCHAR', 'DOUBLE', 'BIGINT', 'BLOB'))})"
    return f"CASE WHEN {parts[0]} THEN {parts[-1]} END" if form == "case" else " || ".join(parts)


def tried(seed: int, count: int, folder: str) -> tuple[int, list[str]]:
    """Evaluate generated expressions; return how many ran, and all that they gave."""
    rng = random.Random(seed)
    rows = pa.table({"row": [1, 2], "cell 0": ["a" * 10_000, "2"], "cell 1": ["x", None]})
    present = {"a": "cell 0", "b": "cell 1"}
    ran, told = 0, []
    for _ in range(count):
        columns = {"job_id": grown(rng, 4, folder)}
        recipe = Recipe("mine", "Mine", required=(("a",), ("b",)), columns=columns)
        try:
            found = engine.evaluate(recipe, rows.to_reader(), present, "UTC")
        except TrainyardError as error:
            told.append(str(error)[:300])
        else:
            ran += 1
            told += [str(cell)[:300] for cell in found["job_id"]]
    return ran, told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_generated_recipes_read_nothing_and_write_nothing(seed: int, tmp_path: Path) -> None:
    # A hundred each, together within the time and memory that one recipe may take.
    (tmp_path / "canary").write_text("nightingale", encoding="utf-8")
    ran, told = apart.run_limited(tried, seed, 100, str(tmp_path))
    assert ran >= 1
    assert not any("nightingale" in text for text in told)
    assert [path.name for path in tmp_path.iterdir()] == ["canary"]
    assert peak_bytes() < 3 * GIGABYTE


@pytest.mark.usefixtures("in_place")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, data, out = tmp_path / "ours.toml", tmp_path / "jobs.csv", tmp_path / "out.csv"
    recipe.write_text(OURS, encoding="utf-8")
    data.write_bytes(DATA)

    def told(*words: object, code: int = 0) -> str:
        assert main([str(word) for word in words]) == code
        caught = capsys.readouterr()
        return caught.err if code else caught.out

    assert "k8s-pods " in told("recipes", "list")
    assert told("recipes", "show", "ray") == recipes.shipped_text("ray").rstrip() + "\n"
    assert f"valid, digest {digest_of(OURS)}" in told("recipes", "check", recipe)
    assert "2 rows read, 2 used" in told("recipes", "try", recipe, data)
    assert "2 rows read, 2 used" in told("convert", data, "--recipe", recipe, "--out", out)
    assert pd.read_csv(out)["duration_s"].tolist() == [5400, 720]
    assert "no recipe 'rya'" in told("recipes", "show", "rya", code=2)
    assert "takes FILE and DATA" in told("recipes", "try", recipe, code=2)
    recipe.write_text(OURS.replace("[columns]", 'without = ["job"]\n[columns]'), encoding="utf-8")
    assert "[recognise] does not fit: the first line has job," in told(
        "recipes", "try", recipe, data
    )
    expressions = ("job", "iso(queued_at)", "num(cards)", "num(hours) * 3600")
    text = JSON
    for expression in expressions:
        text = text.replace(f'"{expression}"', "\"num(text(j, '$.x'))\"")
    recipe.write_text(text, encoding="utf-8")
    data.write_bytes(b'{"jobs": [{"id": 1}]}')
    assert "[recognise] does not fit: the first item of 'jobs' lacks meta." in told(
        "recipes", "try", recipe, data, code=2
    )
    recipe.write_text(OURS, encoding="utf-8")
    data.write_bytes(DATA)
    assert "no such recipe" in told("convert", data, "--recipe", "rya", "--out", out, code=2)
    assert "Keep one of them" in told(
        "convert", data, "--recipe", recipe, "--format", "ray", "--out", out, code=2
    )


@pytest.mark.usefixtures("in_place")
def test_recipes_of_the_folder_are_known_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path))
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "ours.toml").write_text(OURS, encoding="utf-8")
    data = tmp_path / "jobs.csv"
    data.write_bytes(DATA)
    assert main(["recipes", "list"]) == 0
    assert "mine/ours            Ours\n" in capsys.readouterr().out
    out = str(tmp_path / "out.csv")
    assert main(["convert", str(data), "--recipe", "mine/ours", "--out", out]) == 0
    assert len(pd.read_csv(out)) == 2
