"""Runs the expressions of a recipe: scalar SQL in a DuckDB that can reach no file and no network.

The seal of the connection is one wall; that only known functions are called (`Guard`) is another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pandas as pd
import pyarrow as pa

from sim.errors import TrainyardError
from sim.readers.cells import MISSING
from sim.readers.recipes.expressions import Guard
from sim.readers.recipes.recipe import Join, Recipe
from sim.trace import NUMBERS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TIME_LIMIT_S: Final = 60.0
SEAL: Final[Mapping[str, str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
    "threads": "1",
}
LEFT_OUT: Final = "left out"
SAID: Final = "said "
ASKED: Final = "asked "
ANSWER: Final = "answer"
ROW: Final = "row"
JSON: Final = "j"
_JOBS: Final = "jobs_read"


class RecipeError(TrainyardError):
    """An expression fails, or takes too much time or memory."""


@cache
def _macros() -> tuple[str, ...]:
    text = resources.files(__package__).joinpath("functions.sql").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return tuple(made for made in lines.split(";\n") if made.strip())


def macro_names() -> frozenset[str]:
    """Return the functions that `functions.sql` adds to those of DuckDB."""
    return frozenset(made.split("(")[0].split()[-1] for made in _macros())


@contextmanager
def sealed(
    zone: str, answers: Mapping[str, str] = MappingProxyType({})
) -> Iterator[DuckDBPyConnection]:
    """Open a database in memory that reaches nothing outside.

    Parameters
    ----------
    zone : str
        IANA name, of times without an offset.
    answers : mapping of str to str
        What the function ``answer`` returns.
    """
    # Imported on first use: most runs read no trace by a recipe.
    import duckdb  # noqa: PLC0415

    with duckdb.connect(":memory:", config={**SEAL}) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE MACRO zone() AS {_quoted(zone)}")
        told = " ".join(
            f"WHEN {_quoted(key)} THEN {_quoted(answer)}" for key, answer in answers.items()
        )
        database.execute(f"CREATE MACRO {ANSWER}(k) AS CASE k {told or 'WHEN NULL THEN NULL'} END")
        for made in _macros():
            database.execute(made)
        database.execute("SET lock_configuration = true")
        timer = threading.Timer(TIME_LIMIT_S, database.interrupt)
        timer.start()
        try:
            yield database
        except duckdb.InterruptException as error:
            raise RecipeError(
                f"the expressions of the recipe take more than {TIME_LIMIT_S:.0f} s"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise RecipeError("the expressions of the recipe take too much memory") from error
        except duckdb.Error as error:
            fault = " ".join(str(error).split())[:160]
            raise RecipeError(f"an expression of the recipe fails ({fault})") from error
        finally:
            timer.cancel()


def run(
    recipe: Recipe,
    rows: pa.RecordBatchReader,
    present: Mapping[str, str],
    zone: str,
    others: Mapping[str, pa.Table] = MappingProxyType({}),
    answers: Mapping[str, str] = MappingProxyType({}),
) -> pd.DataFrame:
    """Evaluate a recipe.

    Parameters
    ----------
    recipe : Recipe
        What to evaluate.
    rows : RecordBatchReader
        Of texts; the column `ROW` holds their numbers, and `JSON` the items of a JSON file.
    present : mapping of str to str
        Column of the recipe -> column of `rows`; others are empty.
    zone : str
        IANA name, of times without an offset.
    others : mapping of str to Table
        Name of a further source -> its rows of texts, under the names of the recipe; those that
        were not given are empty.
    answers : mapping of str to str
        To the questions of the recipe.

    Returns
    -------
    DataFrame
        Native columns; `LEFT_OUT` holds the place of the rule that leaves a row out, -1 = none;
        `SAID` and a number, whether that sentence holds; `ASKED` and a number, whether the row asks
        that question. The index holds the numbers of rows.

    Raises
    ------
    TrainyardError
        If an expression is not allowed, fails, or takes too much time or memory.
    """
    with sealed(zone, answers) as database:
        query = compiled(recipe, database, present)
        database.register(_JOBS, rows)
        for table in recipe.tables[1:]:
            nothing = pa.table({name: pa.array([], pa.string()) for name in table.columns})
            database.register(_joined(table.name), others.get(table.name, nothing))
        found = database.sql(query).to_arrow_table()
        database.unregister(_JOBS)
    frame: pd.DataFrame = found.to_pandas().set_index(ROW).sort_index()
    frame.index.name = None
    return frame


def check(recipe: Recipe) -> None:
    """Check all expressions of a recipe without any data.

    Raises
    ------
    TrainyardError
        If one of them is not allowed, or calls a function with what that does not take.
    """
    kind = pa.string() if recipe.items is not None else pa.null()
    rows = pa.table({ROW: pa.array([], pa.int64()), JSON: pa.array([], kind)})
    run(recipe, rows.to_reader(), {JSON: JSON} if recipe.items is not None else {}, "UTC")


def compiled(recipe: Recipe, database: DuckDBPyConnection, present: Mapping[str, str]) -> str:
    """Return the query of a recipe, all its expressions checked.

    Raises
    ------
    TraceError
        If one of them is not allowed.
    """
    guard = Guard(lambda text: _tree(database, text), {*macro_names(), ANSWER})
    known = {ROW, *([JSON] if recipe.items is not None else recipe.known)}
    used: set[str] = set()

    def checked(text: str, where: str, *, windows: bool = False) -> str:
        nonlocal used
        used |= guard.check(text, f"{recipe.name}, {where}", known, windows=windows)
        return f"({text}\n)"

    joins = []
    for join in recipe.joins:
        joins.append(_join(recipe, join, guard, checked))
        known |= join.take.keys()
    steps = []
    for name, text in recipe.let.items():
        steps.append((name, checked(text, name, windows=True)))
        known.add(name)
    chosen = [
        f"{_cast(native, checked(text, native, windows=True))} AS {_name(native)}"
        for native, text in recipe.columns.items()
    ]
    cases = " ".join(
        f"WHEN {checked(rule.when, 'leave_out')} THEN {at}"
        for at, rule in enumerate(recipe.leave_out)
    )
    chosen.append(f"CASE {cases or 'WHEN false THEN 0'} ELSE -1 END AS {_name(LEFT_OUT)}")
    chosen += [
        f"coalesce({checked(rule.when, 'say')}, false) AS {_name(f'{SAID}{at}')}"
        for at, rule in enumerate(recipe.say)
    ]
    chosen += [
        f"coalesce({checked(ask.when, 'ask')}, false) AS {_name(f'{ASKED}{at}')}"
        for at, ask in enumerate(recipe.asks)
    ]
    taken = {name for join in recipe.joins for name in join.take}
    columns = sorted(used - recipe.let.keys() - taken - {ROW})
    cells = [f"{_cell(one, present)} AS {_name(one)}" for one in columns]
    query = f"SELECT {', '.join([ROW, *cells])} FROM {_JOBS}"
    for other, on, names in joins:
        kept = ", ".join(f"other.{_name(name)}" for name in names)
        equal = " AND ".join(f"{here} = other.{_name(f'on {nth}')}" for nth, here in enumerate(on))
        query = f"SELECT base.*, {kept} FROM ({query}) base LEFT JOIN ({other}) other ON {equal}"
    for name, text in steps:
        query = f"SELECT *, {text} AS {_name(name)} FROM ({query})"
    return f"SELECT {', '.join([ROW, *chosen])} FROM ({query})"


def _join(
    recipe: Recipe, join: Join, guard: Guard, checked: Callable[[str, str], str]
) -> tuple[str, list[str], list[str]]:
    """Return the query of another table, one row for each of its keys; the keys here; the names
    that come from there.
    """
    table = next(table for table in recipe.tables if table.name == join.table)
    used: set[str] = set()

    def there(text: str, key: str, *, aggregates: bool = False) -> str:
        place = f"{recipe.name}, join {join.table}, {key}"
        used.update(guard.check(text, place, table.columns, aggregates=aggregates))
        return f"({text}\n)"

    on = [checked(text, f"join {join.table}, on") for text in join.on]
    keys = [
        f"{there(text, 'on_other')} AS {_name(f'on {nth}')}"
        for nth, text in enumerate(join.on_other)
    ]
    take = [
        f"{there(text, name, aggregates=True)} AS {_name(name)}" for name, text in join.take.items()
    ]
    where = f" WHERE {there(join.where, 'where')}" if join.where else ""
    cells = ", ".join(f"{_cell(name, {name: name})} AS {_name(name)}" for name in sorted(used))
    rows = f"SELECT {cells or 'NULL'} FROM {_name(_joined(table.name))}"
    groups = ", ".join(str(nth + 1) for nth in range(len(keys)))
    query = f"SELECT {', '.join([*keys, *take])} FROM ({rows}){where} GROUP BY {groups}"
    return query, on, list(join.take)


def _joined(name: str) -> str:
    return f"joined {name}"


def _cell(column: str, present: Mapping[str, str]) -> str:
    if column == JSON:
        # What Python takes for JSON and the database does not becomes a row that says nothing.
        return f"CASE WHEN json_valid({JSON}) THEN {JSON} END"
    if column not in present:
        return "NULL::VARCHAR"
    cell = f"trim({_name(present[column])})"
    nothing = ", ".join(_quoted(word) for word in sorted({*MISSING, "-"}))
    return f"CASE WHEN lower({cell}) NOT IN ({nothing}) THEN {cell} END"


def _cast(native: str, text: str) -> str:
    return f"try_cast({text} AS {'DOUBLE' if native in NUMBERS else 'VARCHAR'})"


def _tree(database: DuckDBPyConnection, text: str) -> str:
    query = "SELECT json_serialize_sql('SELECT (' || ? || '\n) AS v')"
    # All of a result is fetched: the connection takes no other statement before.
    return str(database.execute(query, [text]).fetchall()[0][0])


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
