"""The engine of the recipes: what an expression may do, and what it must not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobtraces import recipes
from jobtraces.recipes import engine
from jobtraces.recipes.engine import FUNCTIONS
from jobtraces.recipes.recipe import Recipe
from sim.errors import TraceError, TrainyardError

WHOLE = """
name = "mine"
title = "Mine"
[recognise]
columns = ["id", "at", "cards", "took"]
[columns]
job_id = "id"
submit_time_s = "num(at)"
num_gpus = "gpus(cards)"
duration_s = "length_s(took)"
"""
HOSTILE = [
    "(SELECT 1)",
    "EXISTS (SELECT 1)",
    "a IN (SELECT content FROM read_text('/etc/passwd'))",
    "a) AS v, (a",
    "a) AS v FROM read_csv('/etc/passwd'); SELECT (1",
    "a) FROM jobs_read WHERE (true",
    "1; DROP VIEW jobs_read",
    "1); COPY (SELECT 1) TO '/tmp/x'; SELECT (1",
    "1 UNION SELECT 2",
    "*",
    "COLUMNS('.*')",
    "$1",
    "?",
    "a /* */; SELECT 1",
    "getenv('HOME')",
    "read_text('/etc/passwd')",
    "read_blob('/etc/passwd')",
    "glob('/etc/*')",
    "query('SELECT 1')",
    "query_table('jobs_read')",
    "getvariable('x')",
    "current_setting('memory_limit')",
    "nextval('s')",
    "main.replace(a, 'x', 'yy')",
    "system.main.upper(a)",
    "jobs_read.a",
    "replace(replace(a, 'a', repeat('a', 1000)), 'a', 'aaaa')",
    "regexp_replace(a, '', a, 'g')",
    "repeat('x', 1000000000)",
    "lpad(a, 1000000000, 'x')",
    "rpad(a, 1000000000, 'x')",
    "range(10000000000)",
    "generate_series(1, 10000000000)",
    "list_resize([1], 10000000000)",
    "array_to_string([a, a], a)",
    "string_agg(a, a)",
    "format('{:1000000000}', 1)",
    "printf('%1000000000d', 1)",
    "list_reduce([1, 2], lambda x, y: x + y)",
    "sum(a)",
    "a::STRUCT(x INT)",
    "a::BLOB",
    "a COLLATE nocase",
    "random()",
    "version()",
    "current_user",
    "now()",
    "nothing",
    "DEFAULT",
    "a[1:2]" + "[1:2]" * 700,
    "(" * 1500 + "a" + ")" * 1500,
]
ASK = "[[ask]]\nid = 'much'\ntext = 'How much?'\n"
ANSWERS: list[tuple[str, Any]] = [
    ("whole('12.0')", "12"),
    ("whole('a-7')", "a-7"),
    ("num('x')", None),
    ("percent('250')", 2.5),
    ("kv('a=1 Resource_List.ngpus=4', 'Resource_List.ngpus')", "4"),
    ("kv('a=1 aa=2', 'a')", "1"),
    ("kv('b=1', 'a')", None),
    ("kv('x; ba=1; a=two words ;c=', 'a', ';')", "two words"),
    ("kv('x;c=', 'c', ';')", None),
    ("without('1,234', ',')", "1234"),
    ("decimal_comma('2,5')", 2.5),
    ("iso('2026-03-02T09:00:00Z')", 1772442000),
    ("iso('2026-03-02 09:00:00+01:00')", 1772438400),
    ("iso('2026-03-02 17:00:00')", 1772442000),
    ("iso('now')", None),
    ("iso('nonsense')", None),
    ("dated('02.03.2026 17:00', '%d.%m.%Y %H:%M')", 1772442000),
    ("unix('0')", None),
    ("unix('5')", 5),
    ("length_s('90061')", 90061),
    ("length_s('25:01:01')", 90061),
    ("length_s('1-01:01:01')", 90061),
    ("length_s('01:05')", 65),
    ("length_s('1 day, 3:04:05')", 97445),
    ("length_s('1h 2m 5s')", 3725),
    ("length_s('2.5h')", 9000),
    ("length_s('500ms')", 0.5),
    ("length_s('soon')", None),
    ("minutes('60')", 3600),
    ("minutes('4294967295')", None),
    ("tres('cpu=8,mem=4G', 'cpu')", 8),
    ("tres_gpus('gres/gpu:a100=4,gres/gpu=4')", 4),
    ("tres_gpus('gres/gpu:a100=4,gres/gpu:t4=2')", 6),
    ("tres_type('cpu=1,gres/gpu:A100_3g.20gb=1')", "a100_3g.20gb"),
    ("tres_gpus('billing=1,cpu=1,mem=1000M,node=1')", None),
    ("tres_gpus('gres/gpumem=40G')", None),
    ("tres_gpus('gres/gpu:a100=4,gres/gpu=4,mem=125G')", 4),
    (f"tres_gpus('gres/gpu:a100={'9' * 400},gres/gpu:t4=2')", float("inf")),
    ("tres_type('gres/gpu:h100-80=1,gres/gpu:a100=3')", "a100"),
    ("tres_type('billing=10,gres/gpu=4')", None),
    ("tres_mem_gb('mem=31000M')", 31000 / 1024),
    ("tres_mem_gb('cpu=1,mem=62.50G')", 62.5),
    ("tres_mem_gb('mem=1T,node=1')", 1024),
    ("tres_mem_gb('mem=2048')", 2),
    ("tres_mem_gb('mem=1048576K')", 1),
    ("reqmem_gb('4000Mn', 2, 8)", 8000 / 1024),
    ("reqmem_gb('4000Mc', 2, 8)", 32000 / 1024),
    ("reqmem_gb('2147486648Mn', 2, 24)", 3000 * 24 / 1024),
    ("reqmem_gb('16G', 2, 8)", 16),
    ("reqmem_gb('0n', 2, 8)", None),
    ("length_s('00:01.500')", 1.5),
    ("length_s('10-13:27:06')", 912426),
    ("length_s('Partition_Limit')", None),
    ("gres_gpus('gpu:P100:2(IDX:0-1)')", 2),
    ("gres_gpus('hbm:0,gpu:4,bandwidth:4G')", 4),
    ("gres_gpus('gpu:0(IDX:N/A)')", 0),
    ("gres_gpus('hbm:0,gpu:P100:2(IDX:1,3)')", 2),
    ("gres_gpus('gpu:a100')", 1),
    ("gres_gpus('hbm:0')", None),
    (f"gres_gpus('gpu:{'9' * 400}')", float("inf")),
    ("gres_gpus('gpu:v100:4(S:0-1),nvme:1')", 4),
    ("gres_gpus('gres:gpu:8')", 8),
    ("gres_gpus('gpu')", 1),
    ("gpus('4')", 4),
    ("gpus('gpu:4')", 4),
    ("gpus('gres/gpu:a100=4')", 4),
    ("gpus('4xA100')", 4),
    ("gpus('A100:4')", 4),
    ("gpus('nvidia.com/gpu: 2')", 2),
    ("gpus('cpu=8')", None),
    ("gpus('4xlarge')", None),
    ("mem_gb('512M')", 0.5),
    ("quantity('7910m')", 7.91),
    ("quantity('1Ki')", 1024),
    ("text('{\"a\": \" None \"}', '$.a')", None),
    ("texts('[{\"a\": 1}, {\"a\": 2}]', '$[*].a')", ["1", "2"]),
    ("len(each('{\"a\": [1, 2]}', '$.a[*]'))", 2),
    ("total([1, 2])", 3),
    ('slurm_number(\'{"n": {"set": true, "infinite": false, "number": 7}}\', \'$.n\')', 7),
    ('slurm_number(\'{"n": {"set": false, "infinite": false, "number": 7}}\', \'$.n\')', None),
    ("slurm_number('{\"n\": 4294967294}', '$.n')", None),
    ("slurm_number('{\"n\": 7}', '$.n')", 7),
    ("notbefore(100, 90)", 100),
    # The clocks of Berlin went back on 25 October 2026: 02:30 is there twice.
]
PODS = {
    "one": ('{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}', 2),
    "sum": (
        '{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}},'
        ' {"resources": {"requests": {"amd.com/gpu": "1"}}}, {}]}}',
        3,
    ),
    "init": (
        '{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}],'
        ' "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}}',
        4,
    ),
    "none": ('{"spec": {"containers": [{}]}}', 0),
}


def values(expressions: Iterable[str], zone: str = "Asia/Shanghai") -> list[Any]:
    """Evaluate expressions over one row in one database."""
    with engine.open_sealed(zone) as database:
        database.register("rows", pa.table({"a": ["x"]}))
        return [
            database.sql(f"SELECT ({expression}) FROM rows").fetchall()[0][0]
            for expression in expressions
        ]


def checked(database: Any, expression: str, *, windows: bool = False) -> str:
    """Compile a recipe that has an expression in a rule, or in a column where windows may be."""
    columns = {"submit_time_s": expression if windows else "1"}
    rule = () if windows else (recipes.recipe.RowRule(expression, "out"),)
    recipe = Recipe("mine", "Mine", required=(("a",),), columns=columns, leave_out=rule)
    return engine.build_query(recipe, database, {"a": "a"})


def test_a_hostile_expression_is_refused_before_it_runs() -> None:
    with engine.open_sealed("UTC") as database:
        for expression in HOSTILE:
            try:
                checked(database, expression)
            except TraceError as error:
                sentence = str(error)
            else:
                pytest.fail(f"{expression} is not refused")
            assert sentence.startswith("mine, leave_out: "), expression
            assert "\n" not in sentence, expression
            assert len(sentence) < 300, expression


def test_only_columns_and_names_look_at_other_rows() -> None:
    with engine.open_sealed("UTC") as database:
        assert "OVER" in checked(database, "sum(num(a)) OVER (ORDER BY row)", windows=True)
        with pytest.raises(TraceError, match="window is not allowed"):
            checked(database, "sum(num(a)) OVER (ORDER BY row) > 1")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM glob('{file}')",
        "SELECT * FROM '{file}'",
        "COPY (SELECT 1) TO '{file}.out'",
        "ATTACH '{file}.db'",
        "EXPORT DATABASE '{file}.dir'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM read_csv('http://127.0.0.1:9/a.csv')",
        "SET memory_limit = '64GB'",
        "SET enable_external_access = true",
        "SELECT * FROM secret",
    ],
)
def test_the_seal_holds_without_the_other_walls(statement: str, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x\n1\n")
    secret = pa.table({"x": [1]})
    with pytest.raises(engine.RecipeError), engine.open_sealed("UTC") as database:
        database.sql(statement.format(file=file)).fetchall()
    assert secret.num_rows == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_memory_has_a_limit() -> None:
    doubled = {f"x{at + 1}": f"x{at} || x{at}" for at in range(20)}
    recipe = Recipe(
        "mine",
        "Mine",
        required=(("a",),),
        let={"x0": "a"} | doubled,
        columns={"job_id": "left(x20, 1)"},
    )
    rows = pa.table({"row": [1], "cell 0": ["x" * 10_000]})
    with pytest.raises(engine.RecipeError, match="too much memory"):
        engine.evaluate(recipe, rows.to_reader(), {"a": "cell 0"}, "UTC")


def test_time_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "TIME_LIMIT_S", 0.2)
    with (
        pytest.raises(engine.RecipeError, match="more than 0 s"),
        engine.open_sealed("UTC") as database,
    ):
        database.sql(
            "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
        ).fetchall()


def test_generated_expressions_touch_nothing(tmp_path: Path) -> None:
    rng = random.Random(20)
    names = [*sorted(FUNCTIONS | engine.macro_names()), "read_text", "replace", "repeat", "glob"]
    names = [name for name in names if name.isidentifier()]
    leaves = ["a", "row", "'x'", "1", "NULL", f"'{tmp_path}/made'", "[a]", "lambda x: x", "b"]

    def grow(depth: int) -> str:
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(leaves)
        parts = [grow(depth - 1) for _ in range(rng.randint(1, 3))]
        form = rng.choice(("call", "call", "call", "case", "join"))
        if form == "call":
            return f"{rng.choice(names)}({', '.join(parts)})"
        return (
            f"CASE WHEN {parts[0]} THEN {parts[-1]} END" if form == "case" else " || ".join(parts)
        )

    ran = 0
    with engine.open_sealed("UTC") as database:
        database.register("jobs_read", pa.table({"row": [1, 2], "cell 0": ["x", "y"]}))
        for _ in range(300):
            recipe = Recipe("mine", "Mine", required=(("a",),), columns={"job_id": grow(3)})
            try:
                database.sql(engine.build_query(recipe, database, {"a": "cell 0"})).fetchall()
                ran += 1
            except (TrainyardError, duckdb.Error):
                continue
    assert ran > 5
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_function_names_the_nearest() -> None:
    with engine.open_sealed("UTC") as database, pytest.raises(TraceError) as caught:
        checked(database, "nuum(a)")
    told = str(caught.value)
    assert told.startswith("mine, leave_out: the function nuum is not allowed. Nearest: num, ")
    assert told.endswith("; docs/reference/recipes.md lists all.")


def test_functions() -> None:
    found = values(text for text, _ in ANSWERS)
    for (expression, answer), value in zip(ANSWERS, found, strict=True):
        expected = pytest.approx(answer) if isinstance(answer, float) else answer
        assert value == expected, expression


def test_clocks_that_were_set_back() -> None:
    # In Berlin it was 02:30 twice on 25 October 2026, at 00:30 and at 01:30 UTC.
    early, late = 1_792_888_200, 1_792_891_800
    once = "iso('2026-10-25 02:30:00')"
    later = f"notbefore({once}, iso('2026-10-25T01:00:00Z'))"
    assert values([once, later], "Europe/Berlin") == [early, late]


def test_gpus_of_a_pod() -> None:
    found = values(f"template_gpus('{pod}')" for pod, _ in PODS.values())
    assert dict(zip(PODS, found, strict=True)) == {name: gpus for name, (_, gpus) in PODS.items()}


def test_every_function_of_ours_is_tested() -> None:
    told = " ".join([*(text for text, _ in ANSWERS), "wall zone gpu_ask template_gpus"])
    told += " condition_at condition_reason notbefore"
    assert {name for name in engine.macro_names() if name not in told} == set()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text + "=", "is not valid TOML"),
        (lambda text: text.replace("title", "titel"), "unknown key titel. Did you mean title?"),
        (lambda text: text.replace('name = "mine"', 'name = "A b"'), "name may contain"),
        (lambda text: text.replace("num_gpus =", "num_gpu ="), "Did you mean num_gpus?"),
        (lambda text: text.replace('duration_s = "length_s(took)"', ""), "duration_s is missing"),
        (lambda text: text.replace('"num(at)"', "5"), "submit_time_s must be a non-empty text"),
        (lambda text: 'zone = "Moon"\n' + text, "unknown time zone 'Moon'"),
        (lambda text: text.replace("columns = [", "colums = ["), "unknown key recognise.colums"),
        (lambda text: text + "[[leave_out]]\nreason = 'x'\n", "when must be a non-empty text"),
        (lambda text: text + "[leave_out]\nreason = 'x'\n", r"Write \[\[leave_out\]\]"),
        (lambda text: text + "#" * 70_000, "64,000 characters"),
        (lambda text: text.replace('"took"]', '"Took"]'), "is not valid. Use lowercase"),
        (lambda text: text + ASK + "free = 'text'\n", "free must be "),
        (lambda text: text + ASK + "free = 'number'\ndefault = '5'\n", "free must be "),
        (lambda text: text + ASK + "options = {a = 'b'}\neach = 'id'\n", "each requires free = "),
    ],
)
def test_a_faulty_recipe_is_one_sentence(change: Callable[[str], str], sentence: str) -> None:
    assert recipes.parse_recipe(WHOLE, "mine.toml").name == "mine"
    with pytest.raises(TraceError, match=sentence) as caught:
        recipes.parse_recipe(change(WHOLE), "mine.toml")
    assert str(caught.value).startswith("mine.toml")
    assert str(caught.value).endswith((".", "?"))


def test_all_shipped_recipes_are_sound_and_their_texts_are_ascii() -> None:
    assert len(recipes.shipped_recipes()) > 15
    with engine.open_sealed("UTC") as database:
        for recipe in recipes.shipped_recipes():
            if not recipe.refuse:
                assert "SELECT" in engine.build_query(recipe, database, {})
    names = [recipe.name for recipe in recipes.shipped_recipes()]
    assert len(set(names)) == len(names)


def test_cells_lose_blanks_around_them_and_words_for_nothing() -> None:
    with engine.open_sealed("UTC") as database:
        cells = [
            " a ",
            "\u00a0b\u3000",
            "c",
            " None ",
            "\u3000n/a",
            "-",
            "",
            "a longer cell than all",
        ]
        database.register("cells", pa.table({"x": cells}))
        found = database.sql(f"SELECT {engine._cell_sql('x', {'x': 'x'})} FROM cells").fetchall()
        database.unregister("cells")
    assert [one for (one,) in found] == ["a", "b", "c", None, None, None, None, cells[-1]]
