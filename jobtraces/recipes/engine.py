"""Runs the expressions of a recipe: scalar SQL in a DuckDB that can reach no file and no network.

The seal of the connection is one wall; that only known functions are called (`Guard`) is another.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa

from jobtraces.readers.cells import LONGEST_MISSING, MISSING, OFFSET
from jobtraces.recipes.recipe import Join, Recipe
from sim.errors import TraceError, TrainyardError
from sim.params import did_you_mean
from sim.trace import NUMBERS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LONGEST: Final = 2_000
CLASSES: Final = frozenset(
    {
        *("CONSTANT", "COLUMN_REF", "FUNCTION", "COMPARISON", "CONJUNCTION", "OPERATOR"),
        *("CASE", "CAST", "TYPE", "BETWEEN", "LAMBDA"),
    }
)
TYPES: Final = frozenset(
    {"DOUBLE", "BIGINT", "VARCHAR", "BOOLEAN", "TIMESTAMP", "TIMESTAMPTZ", "DATE"}
    | {"TIMESTAMP WITH TIME ZONE"}
)
# What makes a text longer than those it is given is missing on purpose: nine nested replace()
# take gigabytes, whatever the limit on memory. `||` and lists stay within the limit.
FUNCTIONS: Final = frozenset(
    {
        *("+", "-", "*", "/", "%", "//", "||", "~~", "!~~", "~~*", "!~~*", "list_value"),
        *("abs", "ceil", "floor", "round", "greatest", "least", "isfinite", "isnan", "sign"),
        *("coalesce", "nullif", "if", "ifnull", "upper", "lower", "trim", "ltrim", "rtrim"),
        *("length", "len", "left", "right", "substring", "substr", "split_part", "contains"),
        *("starts_with", "prefix", "ends_with", "suffix", "string_split", "instr", "strpos"),
        *("regexp_extract", "regexp_extract_all", "regexp_matches", "regexp_full_match"),
        *("json_extract", "json_extract_string", "json_type", "json_array_length", "json_valid"),
        *("list_transform", "list_filter", "list_first", "list_last", "list_sum", "list_min"),
        *("list_max", "list_contains", "list_distinct", "list_extract", "array_extract"),
        *("epoch", "to_timestamp"),
    }
)
WINDOWS: Final = frozenset({"sum", "lag", "lead", "row_number", "min", "max", "first", "last"})
AGGREGATES: Final = frozenset(
    {"sum", "min", "max", "avg", "count", "count_star", "any_value", "first"}
)


@dataclass(frozen=True)
class Guard:
    """Checks expressions.

    Parameters
    ----------
    serialize : callable
        Expression as text -> the JSON of its syntax tree.
    macros : collection of str
        Functions of our own.
    """

    serialize: Callable[[str], str]
    macros: Collection[str]

    def check(
        self,
        text: str,
        where: str,
        known: Collection[str],
        *,
        windows: bool = False,
        aggregates: bool = False,
    ) -> frozenset[str]:
        """Return the columns that an expression names.

        Parameters
        ----------
        text : str
            The expression.
        where : str
            For messages: recipe and key.
        known : collection of str
            What it may name.
        windows : bool
            Whether it may look at other rows.
        aggregates : bool
            Whether it may make one value of many rows.

        Raises
        ------
        TraceError
            If it is more than one scalar expression of known names and allowed functions.
        """
        if len(text) > LONGEST:
            raise TraceError(f"{where}: an expression may have {LONGEST:,} characters.")
        classes = CLASSES | {"WINDOW"} if windows else CLASSES
        functions = {*FUNCTIONS, *self.macros, *(AGGREGATES if aggregates else ())}
        named: set[str] = set()
        for node, bound in _nodes(self._tree(text, where), frozenset()):
            kind = node["class"]
            if kind not in classes:
                raise TraceError(f"{where}: {kind.lower()} may not be used here.")
            _check_call(node, kind, WINDOWS if kind == "WINDOW" else functions, where)
            if kind == "TYPE" and node.get("type_name", "").upper() not in TYPES:
                raise TraceError(f"{where}: {node.get('type_name')} is no type to cast to.")
            if kind == "COLUMN_REF":
                names = node["column_names"]
                name = names[0].lower()
                if len(names) > 1 or name not in {*known, *bound}:
                    text = f"{where}: {'.'.join(names)} is no known column."
                    raise TraceError(f"{text} {did_you_mean(name, sorted(known))}".rstrip())
                named |= {name} - bound
        return frozenset(named)

    def _tree(self, text: str, where: str) -> Any:
        try:
            said = json.loads(self.serialize(text))
        except (RecursionError, ValueError) as error:
            raise TraceError(f"{where}: the expression is nested too deeply.") from error
        if said.get("error"):
            fault = " ".join(str(said.get("error_message", "")).split())[:120]
            raise TraceError(f"{where}: the expression cannot be read ({fault}).")
        statements = said["statements"]
        node = statements[0]["node"] if len(statements) == 1 else {}
        alone = (
            node.get("type") == "SELECT_NODE"
            and len(node["select_list"]) == 1
            and node["from_table"]["type"] == "EMPTY"
            and not node["modifiers"]
            and not node["cte_map"]["map"]
            and not any(node.get(part) for part in _CLAUSES)
        )
        if not alone:
            raise TraceError(f"{where}: this is more than one expression.")
        return node["select_list"][0]


def _check_call(node: Mapping[str, Any], kind: str, allowed: Collection[str], where: str) -> None:
    if kind not in {"FUNCTION", "WINDOW"}:
        return
    name = node["function_name"].lower()
    if name not in allowed or node.get("schema") or node.get("catalog"):
        hint = did_you_mean(name, sorted(allowed))
        raise TraceError(f"{where}: the function {name} may not be used. {hint}".rstrip())


_CLAUSES: Final = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")


def _nodes(tree: Any, bound: frozenset[str]) -> Iterator[tuple[Mapping[str, Any], frozenset[str]]]:
    """Yield every node of a tree with the names that lambdas around it have bound."""
    if isinstance(tree, list):
        for part in tree:
            yield from _nodes(part, bound)
    elif isinstance(tree, dict):
        if tree.get("class") == "LAMBDA":
            bound |= {name.lower() for name in _names(tree.get("lhs"))}
        if "class" in tree:
            yield tree, bound
        for part in tree.values():
            yield from _nodes(part, bound)


def _names(tree: Any) -> Iterator[str]:
    for node, _ in _nodes(tree, frozenset()):
        if node["class"] == "COLUMN_REF":
            yield from node["column_names"]


TIME_LIMIT_S: Final = 60.0
SEAL: Final[Mapping[str, str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
    "threads": "1",
    # It makes a join of every list of words: planning that takes longer than most files, and
    # running it a quarter longer than comparing does.
    "disabled_optimizers": "in_clause",
}
LEFT_OUT: Final = "left out"
SAID: Final = "said "
ASKED: Final = "asked "
EACH: Final = "each "
ALTERED: Final = "altered "
DETAIL: Final = "detail "
SO_FAR: Final = "so far"
SINCE: Final = "since"
NAIVE: Final = "naive "
MERGED: Final = "merged by"
ANSWER: Final = "answer"
HEADER: Final = "header"
GIVEN: Final = "given"
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
    zone: str,
    told: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    given: Collection[str] = (),
) -> Iterator[DuckDBPyConnection]:
    """Open a database in memory that reaches nothing outside.

    Parameters
    ----------
    zone : str
        IANA name, of times without an offset.
    told : mapping of str to mapping of str to str
        What the functions `ANSWER` and `HEADER` return.
    given : collection of str
        Columns that the file has, for which the function ``given`` returns true.
    """
    # Imported on first use: most runs read no trace by a recipe.
    import duckdb  # noqa: PLC0415

    with duckdb.connect(":memory:", config={**SEAL}) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE MACRO zone() AS {_quoted(zone)}")
        for name in (ANSWER, HEADER):
            cases = " ".join(
                f"WHEN {_quoted(key)} THEN {_quoted(value)}"
                for key, value in told.get(name, {}).items()
            )
            cases = cases or "WHEN NULL THEN NULL"
            database.execute(f"CREATE MACRO {name}(k) AS CASE k {cases} END")
        listed = ", ".join(_quoted(column) for column in given)
        database.execute(f"CREATE MACRO {GIVEN}(k) AS coalesce(k IN ({listed or 'NULL'}), false)")
        for made in _macros():
            database.execute(made)
        database.execute("SET lock_configuration = true")
        done = threading.Event()
        watch = threading.Thread(target=_interrupt_late, args=(database, done), daemon=True)
        watch.start()
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
            done.set()
            watch.join()


def _interrupt_late(database: DuckDBPyConnection, done: threading.Event) -> None:
    """Stop what has taken too much time; on a busy machine only the time of the processor counts,
    so that a large file is not refused for what others do.
    """
    began, left_s = time.process_time(), TIME_LIMIT_S
    while not done.wait(max(left_s, 0.01)):
        left_s = TIME_LIMIT_S - (time.process_time() - began)
        if left_s <= 0:
            database.interrupt()
            return


def run(
    recipe: Recipe,
    rows: pa.RecordBatchReader,
    present: Mapping[str, str],
    zone: str,
    others: Mapping[str, pa.Table] = MappingProxyType({}),
    told: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
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
    told : mapping of str to mapping of str to str
        Answers to the questions of the recipe (`ANSWER`), and what the comments of a log say
        (`HEADER`).

    Returns
    -------
    DataFrame
        Native columns; `LEFT_OUT` holds the place of the rule that leaves a row out, -1 = none;
        `SAID`, `ASKED` or `ALTERED` and a number, whether that rule holds, `DETAIL` and a number
        what is told of it, and `EACH` and a number the value that is asked about; `SO_FAR` and
        `SINCE` those of jobs that still run; `MERGED` what records of one job have in common, where
        no native column says it; `NAIVE` and a number, whether that written time of an item of JSON
        has no offset. The index holds the numbers of rows.

    Raises
    ------
    TrainyardError
        If an expression is not allowed, fails, or takes too much time or memory.
    """
    with sealed(zone, told, present) as database:
        query = compiled(recipe, database, present)
        database.register(_JOBS, rows)
        for table in (*recipe.tables[1:], *recipe.builtin):
            nothing = pa.table({name: pa.array([], pa.string()) for name in table.columns})
            database.register(_joined(table.name), others.get(table.name, nothing))
        found = database.sql(query).to_arrow_table()
        database.unregister(_JOBS)
    # Without a join the rows come in their order, and a copy is spared.
    frame: pd.DataFrame = found.to_pandas(split_blocks=True, self_destruct=True).set_index(ROW)
    frame.index.name = None
    return frame if frame.index.is_monotonic_increasing else frame.sort_index()


def kinds(
    recipe: Recipe, rows: pa.RecordBatchReader, present: Mapping[str, str], join: Join
) -> pd.DataFrame:
    """Return the different rows of what a join compares, as texts; arguments as of `run`."""
    with sealed("UTC", {}, present) as database:
        guard = Guard(lambda text: _tree(database, text), macro_names())
        known = {ROW, *recipe.known}
        used = [guard.check(text, f"{recipe.name}, join {join.table}", known) for text in join.on]
        cells = [f"{_cell(one, present)} AS {_name(one)}" for one in sorted({ROW}.union(*used))]
        on = [f"{text} AS {_name(str(at))}" for at, text in enumerate(join.on)]
        database.register(_JOBS, rows)
        query = f"SELECT DISTINCT {', '.join(on)} FROM (SELECT {', '.join(cells)} FROM {_JOBS})"
        found: pd.DataFrame = database.sql(query).to_arrow_table().to_pandas()
        database.unregister(_JOBS)
    return found.sort_values([*found.columns], ignore_index=True)


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
    guard = Guard(lambda text: _tree(database, text), {*macro_names(), ANSWER, HEADER, GIVEN})
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
    told = [(SAID, "say", [rule.when for rule in recipe.say])]
    told += [(ASKED, "ask", [ask.when for ask in recipe.asks])]
    told += [(ALTERED, "alter", [rule.when for rule in recipe.alter])]
    chosen += [
        f"coalesce({checked(when, key)}, false) AS {_name(f'{begins}{at}')}"
        for begins, key, rules in told
        for at, when in enumerate(rules)
    ]
    chosen += [
        f"{_cast('', checked(rule.detail, 'alter'))} AS {_name(f'{DETAIL}{at}')}"
        for at, rule in enumerate(recipe.alter)
        if rule.detail
    ]
    chosen += [
        f"try_cast({checked(text, name)} AS {kind}) AS {_name(name)}"
        for text, name, kind in _beside(recipe)
    ]
    if recipe.items is not None:
        chosen += [
            f"NOT regexp_matches({checked(text, 'time')}, {_quoted(OFFSET)}) AS"
            f" {_name(f'{NAIVE}{at}')}"
            for at, text in enumerate(recipe.written_times())
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


def _beside(recipe: Recipe) -> list[tuple[str, str, str]]:
    """Return expression, name and type of what is needed of each row beside its native columns."""
    found = [(rule.so_far, SO_FAR, "DOUBLE") for rule in recipe.leave_out if rule.so_far]
    found += [(rule.since, SINCE, "DOUBLE") for rule in recipe.leave_out if rule.since]
    found += [
        (ask.each, f"{EACH}{at}", "VARCHAR") for at, ask in enumerate(recipe.asks) if ask.each
    ]
    if recipe.merge and recipe.merge.by not in recipe.columns:
        found.append((recipe.merge.by, MERGED, "VARCHAR"))
    return found


def _join(
    recipe: Recipe, join: Join, guard: Guard, checked: Callable[[str, str], str]
) -> tuple[str, list[str], list[str]]:
    """Return the query of another table, one row for each of its keys; the keys here; the names
    that come from there.
    """
    others = (*recipe.tables, *recipe.builtin)
    table = next(table for table in others if table.name == join.table)
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
    cell = _name(present[column])
    nothing = ", ".join(_quoted(word) for word in sorted({*MISSING, "-"}))
    # Copies in small letters and without blanks take most of the time, and few cells need them;
    # blanks of other scripts are in texts of more bytes than letters.
    blanks = f"prefix({cell}, ' ') OR suffix({cell}, ' ') OR strlen({cell}) <> length({cell})"
    return (
        f"CASE WHEN {blanks} THEN CASE WHEN lower(trim({cell})) NOT IN ({nothing}) THEN"
        f" trim({cell}) END WHEN strlen({cell}) > {LONGEST_MISSING} OR lower({cell}) NOT IN"
        f" ({nothing}) THEN {cell} END"
    )


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
