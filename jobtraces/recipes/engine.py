"""Evaluate the expressions of a recipe: scalar SQL in an isolated DuckDB connection.

Two walls: the connection reaches no file or network, and `Guard` allows only known functions.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa

from jobtraces.readers.cells import MAX_MISSING_CHARS, MISSING, OFFSET
from jobtraces.recipes.recipe import Join, Recipe
from sim.errors import TraceError, TrainyardError
from sim.params import did_you_mean
from sim.trace import NUMBERS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MAX_EXPRESSION_CHARS: Final = 2_000
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
# No function that multiplies the length of a text: nine nested replace() take gigabytes despite
# the memory limit. `||` and lists stay within the limit.
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
    """Checks that expressions use only allowed syntax, functions and columns.

    Parameters
    ----------
    serialize : callable
        Returns the JSON syntax tree of an expression.
    macros : collection of str
        Names of the functions in `functions.sql`.
    """

    serialize: Callable[[str], str]
    macros: Collection[str]

    def check(
        self,
        text: str,
        where: str,
        allowed_names: Collection[str],
        *,
        windows: bool = False,
        aggregates: bool = False,
    ) -> frozenset[str]:
        """Return the columns that an expression uses, after checking it.

        Parameters
        ----------
        text : str
            The expression.
        where : str
            For messages: recipe and key.
        allowed_names : collection of str
            Columns it may use.
        windows : bool
            Whether window functions are allowed.
        aggregates : bool
            Whether aggregate functions are allowed.

        Raises
        ------
        TraceError
            If it is not a single scalar expression of allowed names and functions.
        """
        if len(text) > MAX_EXPRESSION_CHARS:
            raise TraceError(
                f"{where}: the expression has more than {MAX_EXPRESSION_CHARS:,} characters."
                " Shorten it."
            )
        classes = CLASSES | {"WINDOW"} if windows else CLASSES
        functions = {*FUNCTIONS, *self.macros, *(AGGREGATES if aggregates else ())}
        columns: set[str] = set()
        for node, bound in _walk_tree(self._tree(text, where), frozenset()):
            kind = node["class"]
            if kind not in classes:
                raise TraceError(f"{where}: {kind.lower()} is not allowed here.")
            _check_call(node, kind, WINDOWS if kind == "WINDOW" else functions, where)
            if kind == "TYPE" and node.get("type_name", "").upper() not in TYPES:
                raise TraceError(f"{where}: {node.get('type_name')} is not an allowed type.")
            if kind == "COLUMN_REF":
                names = node["column_names"]
                name = names[0].lower()
                if len(names) > 1 or name not in {*allowed_names, *bound}:
                    text = f"{where}: {'.'.join(names)} is not a known column."
                    raise TraceError(f"{text} {did_you_mean(name, sorted(allowed_names))}".rstrip())
                columns |= {name} - bound
        return frozenset(columns)

    def _tree(self, text: str, where: str) -> Any:
        """Return the syntax tree of a single scalar expression.

        Raises
        ------
        TraceError
            If the text cannot be parsed, or is not a single expression.
        """
        try:
            parsed = json.loads(self.serialize(text))
        except (RecursionError, ValueError) as error:
            raise TraceError(
                f"{where}: the expression is nested too deeply. Simplify it."
            ) from error
        if parsed.get("error"):
            fault = " ".join(str(parsed.get("error_message", "")).split())[:120]
            raise TraceError(f"{where}: the expression cannot be read ({fault}).")
        statements = parsed["statements"]
        node = statements[0]["node"] if len(statements) == 1 else {}
        is_single_expression = (
            node.get("type") == "SELECT_NODE"
            and len(node["select_list"]) == 1
            and node["from_table"]["type"] == "EMPTY"
            and not node["modifiers"]
            and not node["cte_map"]["map"]
            and not any(node.get(part) for part in _CLAUSES)
        )
        if not is_single_expression:
            raise TraceError(
                f"{where}: this is not a single expression. Write one expression without clauses."
            )
        return node["select_list"][0]


def _check_call(node: Mapping[str, Any], kind: str, allowed: Collection[str], where: str) -> None:
    """Raise an error if a node calls a function that is not allowed."""
    if kind not in {"FUNCTION", "WINDOW"}:
        return
    name = node["function_name"].lower()
    if name not in allowed or node.get("schema") or node.get("catalog"):
        nearest = ", ".join(
            get_close_matches(name, filter(str.isidentifier, sorted(allowed)), 3, 0)
        )
        raise TraceError(
            f"{where}: the function {name} is not allowed. Nearest: {nearest};"
            " docs/reference/recipes.md lists all."
        )


_CLAUSES: Final = ("where_clause", "group_expressions", "group_sets", "having", "sample", "qualify")


def _walk_tree(
    tree: Any, bound: frozenset[str]
) -> Iterator[tuple[Mapping[str, Any], frozenset[str]]]:
    """Yield every node of a syntax tree with the lambda parameters in scope, parents first."""
    if isinstance(tree, list):
        for part in tree:
            yield from _walk_tree(part, bound)
    elif isinstance(tree, dict):
        if tree.get("class") == "LAMBDA":
            bound |= {name.lower() for name in _column_names(tree.get("lhs"))}
        if "class" in tree:
            yield tree, bound
        for part in tree.values():
            yield from _walk_tree(part, bound)


def _column_names(tree: Any) -> Iterator[str]:
    """Yield the column names in a syntax tree."""
    for node, _ in _walk_tree(tree, frozenset()):
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
    # It turns every list of words into a join, which is slower to plan and to run.
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
    """Return the CREATE MACRO statements of `functions.sql`."""
    text = resources.files(__package__).joinpath("functions.sql").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return tuple(macro for macro in lines.split(";\n") if macro.strip())


def macro_names() -> frozenset[str]:
    """Return the names of the functions that `functions.sql` defines."""
    return frozenset(macro.split("(")[0].split()[-1] for macro in _macros())


@contextmanager
def open_sealed(
    zone: str,
    functions: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    columns: Collection[str] = (),
) -> Iterator[DuckDBPyConnection]:
    """Open an in-memory database without access to files or the network.

    It has the functions of `functions.sql`, ``zone``, ``answer``, ``header`` and ``given``.

    Parameters
    ----------
    zone : str
        IANA time zone of times without an offset.
    functions : mapping of str to mapping of str to str
        Argument -> result of the functions `ANSWER` and `HEADER`.
    columns : collection of str
        Columns of the file: the function ``given`` returns true for them.

    Raises
    ------
    RecipeError
        If a query fails, or exceeds the limits of time or memory.
    """
    # Imported on first use: most runs read no trace by a recipe.
    import duckdb  # noqa: PLC0415

    with duckdb.connect(":memory:", config={**SEAL}) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE MACRO zone() AS {_quote_text(zone)}")
        for name in (ANSWER, HEADER):
            cases = " ".join(
                f"WHEN {_quote_text(key)} THEN {_quote_text(value)}"
                for key, value in functions.get(name, {}).items()
            )
            cases = cases or "WHEN NULL THEN NULL"
            database.execute(f"CREATE MACRO {name}(k) AS CASE k {cases} END")
        listed = ", ".join(_quote_text(column) for column in columns)
        database.execute(f"CREATE MACRO {GIVEN}(k) AS coalesce(k IN ({listed or 'NULL'}), false)")
        for macro in _macros():
            database.execute(macro)
        database.execute("SET lock_configuration = true")
        is_done = threading.Event()
        watch = threading.Thread(target=_interrupt_late, args=(database, is_done), daemon=True)
        watch.start()
        try:
            yield database
        except duckdb.InterruptException as error:
            raise RecipeError(
                f"the expressions of the recipe take more than {TIME_LIMIT_S:.0f} s. Simplify them"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise RecipeError(
                "the expressions of the recipe take too much memory. Simplify them"
            ) from error
        except duckdb.Error as error:
            fault = " ".join(str(error).split())[:160]
            raise RecipeError(f"an expression of the recipe fails ({fault})") from error
        finally:
            is_done.set()
            watch.join()


def _interrupt_late(database: DuckDBPyConnection, is_done: threading.Event) -> None:
    """Interrupt a query after the time limit, counted in processor time of this process.

    Wall time would refuse large files on a busy machine. Returns early once `is_done` is set.
    """
    start_s, left_s = time.process_time(), TIME_LIMIT_S
    while not is_done.wait(max(left_s, 0.01)):
        left_s = TIME_LIMIT_S - (time.process_time() - start_s)
        if left_s <= 0:
            database.interrupt()
            return


def evaluate(
    recipe: Recipe,
    rows: pa.RecordBatchReader,
    present: Mapping[str, str],
    zone: str,
    others: Mapping[str, pa.Table] = MappingProxyType({}),
    functions: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> pd.DataFrame:
    """Evaluate a recipe over the rows of a file.

    Parameters
    ----------
    recipe : Recipe
        Expressions to evaluate.
    rows : RecordBatchReader
        Columns of text; `ROW` holds row numbers, and `JSON` the items of a JSON file.
    present : mapping of str to str
        Column of the recipe -> column of `rows`; other columns are empty.
    zone : str
        IANA time zone of times without an offset.
    others : mapping of str to Table
        Name of another source table -> its rows, as texts; missing tables are empty.
    functions : mapping of str to mapping of str to str
        Answers to the recipe's questions (`ANSWER`), and values in a log's comments (`HEADER`).

    Returns
    -------
    DataFrame
        Indexed by row number: the native columns and `LEFT_OUT` (index of the rule that drops the
        row, -1 = none). With a rule's index appended: `SAID`, `ASKED`, `ALTERED` (whether the rule
        matches), `DETAIL` (detail to report), `EACH` (value to ask about) and `NAIVE` (whether a
        written time in JSON lacks an offset). `SO_FAR` and `SINCE` of running jobs; `MERGED`, the
        key of records of one job, unless that is a native column.

    Raises
    ------
    TrainyardError
        If an expression is not allowed, fails, or takes too much time or memory.
    """
    with open_sealed(zone, functions, present) as database:
        query = build_query(recipe, database, present)
        database.register(_JOBS, rows)
        for table in (*recipe.tables[1:], *recipe.builtin):
            empty = pa.table({name: pa.array([], pa.string()) for name in table.columns})
            database.register(_registered_name(table.name), others.get(table.name, empty))
        result = database.sql(query).to_arrow_table()
        database.unregister(_JOBS)
    # Without a join rows arrive in order: no copy is needed.
    frame: pd.DataFrame = result.to_pandas(split_blocks=True, self_destruct=True).set_index(ROW)
    frame.index.name = None
    return frame if frame.index.is_monotonic_increasing else frame.sort_index()


def distinct_keys(
    recipe: Recipe, rows: pa.RecordBatchReader, present: Mapping[str, str], join: Join
) -> pd.DataFrame:
    """Return the distinct keys of a join as texts, one row per key; see `evaluate`.

    Columns are named 0, 1, ... in the order of `join.on`; rows are sorted.
    """
    with open_sealed("UTC", {}, present) as database:
        guard = Guard(lambda text: _serialize_tree(database, text), macro_names())
        allowed_names = {ROW, *recipe.source_columns}
        used = [
            guard.check(text, f"{recipe.name}, join {join.table}", allowed_names)
            for text in join.on
        ]
        cells = [
            f"{_cell_sql(column, present)} AS {_quote_name(column)}"
            for column in sorted({ROW}.union(*used))
        ]
        on = [f"{text} AS {_quote_name(str(index))}" for index, text in enumerate(join.on)]
        database.register(_JOBS, rows)
        query = f"SELECT DISTINCT {', '.join(on)} FROM (SELECT {', '.join(cells)} FROM {_JOBS})"
        frame: pd.DataFrame = database.sql(query).to_arrow_table().to_pandas()
        database.unregister(_JOBS)
    return frame.sort_values([*frame.columns], ignore_index=True)


def check(recipe: Recipe) -> None:
    """Check all expressions of a recipe without data.

    Raises
    ------
    TrainyardError
        If an expression is not allowed, or calls a function with wrong arguments.
    """
    kind = pa.string() if recipe.items is not None else pa.null()
    rows = pa.table({ROW: pa.array([], pa.int64()), JSON: pa.array([], kind)})
    evaluate(recipe, rows.to_reader(), {JSON: JSON} if recipe.items is not None else {}, "UTC")


def build_query(recipe: Recipe, database: DuckDBPyConnection, present: Mapping[str, str]) -> str:
    """Return the SQL query of a recipe, with all expressions checked.

    Raises
    ------
    TraceError
        If an expression is not allowed.
    """
    guard = Guard(
        lambda text: _serialize_tree(database, text), {*macro_names(), ANSWER, HEADER, GIVEN}
    )
    allowed_names = {ROW, *([JSON] if recipe.items is not None else recipe.source_columns)}
    used: set[str] = set()

    def check_expression(text: str, where: str, *, windows: bool = False) -> str:
        """Return an expression in parentheses, after checking it."""
        nonlocal used
        used |= guard.check(text, f"{recipe.name}, {where}", allowed_names, windows=windows)
        return f"({text}\n)"

    joins = []
    for join in recipe.joins:
        joins.append(_join_query(recipe, join, guard, check_expression))
        allowed_names |= join.take.keys()
    let_columns = []
    for name, text in recipe.let.items():
        let_columns.append((name, check_expression(text, name, windows=True)))
        allowed_names.add(name)
    selected = [
        f"{_cast_sql(native, check_expression(text, native, windows=True))} AS"
        f" {_quote_name(native)}"
        for native, text in recipe.columns.items()
    ]
    cases = " ".join(
        f"WHEN {check_expression(rule.when, 'leave_out')} THEN {index}"
        for index, rule in enumerate(recipe.leave_out)
    )
    selected.append(f"CASE {cases or 'WHEN false THEN 0'} ELSE -1 END AS {_quote_name(LEFT_OUT)}")
    conditions = [(SAID, "say", [rule.when for rule in recipe.say])]
    conditions += [(ASKED, "ask", [ask.when for ask in recipe.asks])]
    conditions += [(ALTERED, "alter", [rule.when for rule in recipe.alter])]
    selected += [
        f"coalesce({check_expression(when, key)}, false) AS {_quote_name(f'{prefix}{index}')}"
        for prefix, key, rules in conditions
        for index, when in enumerate(rules)
    ]
    selected += [
        f"{_cast_sql('', check_expression(rule.detail, 'alter'))} AS"
        f" {_quote_name(f'{DETAIL}{index}')}"
        for index, rule in enumerate(recipe.alter)
        if rule.detail
    ]
    selected += [
        f"try_cast({check_expression(text, name)} AS {kind}) AS {_quote_name(name)}"
        for text, name, kind in _extra_columns(recipe)
    ]
    if recipe.items is not None:
        selected += [
            f"NOT regexp_matches({check_expression(text, 'time')}, {_quote_text(OFFSET)}) AS"
            f" {_quote_name(f'{NAIVE}{index}')}"
            for index, text in enumerate(recipe.written_times())
        ]
    join_names = {name for join in recipe.joins for name in join.take}
    columns = sorted(used - recipe.let.keys() - join_names - {ROW})
    cells = [f"{_cell_sql(column, present)} AS {_quote_name(column)}" for column in columns]
    query = f"SELECT {', '.join([ROW, *cells])} FROM {_JOBS}"
    for other, on, names in joins:
        added = ", ".join(f"other.{_quote_name(name)}" for name in names)
        equal = " AND ".join(
            f"{here} = other.{_quote_name(f'on {nth}')}" for nth, here in enumerate(on)
        )
        query = f"SELECT base.*, {added} FROM ({query}) base LEFT JOIN ({other}) other ON {equal}"
    for name, text in let_columns:
        query = f"SELECT *, {text} AS {_quote_name(name)} FROM ({query})"
    return f"SELECT {', '.join([ROW, *selected])} FROM ({query})"


def _extra_columns(recipe: Recipe) -> list[tuple[str, str, str]]:
    """Return (expression, name, SQL type) of the values needed in addition to native columns.

    For running jobs, questions asked per value, and the merge key.
    """
    extras = [(rule.so_far, SO_FAR, "DOUBLE") for rule in recipe.leave_out if rule.so_far]
    extras += [(rule.since, SINCE, "DOUBLE") for rule in recipe.leave_out if rule.since]
    extras += [
        (ask.each, f"{EACH}{index}", "VARCHAR") for index, ask in enumerate(recipe.asks) if ask.each
    ]
    if recipe.merge and recipe.merge.by not in recipe.columns:
        extras.append((recipe.merge.by, MERGED, "VARCHAR"))
    return extras


def _join_query(
    recipe: Recipe, join: Join, guard: Guard, check_expression: Callable[[str, str], str]
) -> tuple[str, list[str], list[str]]:
    """Return the query of a joined table, the jobs' key expressions, and the added columns.

    The query yields one row per key.
    """
    tables = (*recipe.tables, *recipe.builtin)
    table = next(table for table in tables if table.name == join.table)
    used: set[str] = set()

    def check_other(text: str, key: str, *, aggregates: bool = False) -> str:
        """Return an expression over the other table in parentheses, after checking it."""
        place = f"{recipe.name}, join {join.table}, {key}"
        used.update(guard.check(text, place, table.columns, aggregates=aggregates))
        return f"({text}\n)"

    on = [check_expression(text, f"join {join.table}, on") for text in join.on]
    keys = [
        f"{check_other(text, 'on_other')} AS {_quote_name(f'on {nth}')}"
        for nth, text in enumerate(join.on_other)
    ]
    take = [
        f"{check_other(text, name, aggregates=True)} AS {_quote_name(name)}"
        for name, text in join.take.items()
    ]
    where = f" WHERE {check_other(join.where, 'where')}" if join.where else ""
    cells = ", ".join(
        f"{_cell_sql(name, {name: name})} AS {_quote_name(name)}" for name in sorted(used)
    )
    rows = f"SELECT {cells or 'NULL'} FROM {_quote_name(_registered_name(table.name))}"
    groups = ", ".join(str(nth + 1) for nth in range(len(keys)))
    query = f"SELECT {', '.join([*keys, *take])} FROM ({rows}){where} GROUP BY {groups}"
    return query, on, list(join.take)


def _registered_name(name: str) -> str:
    """Return the name under which a joined table is registered."""
    return f"joined {name}"


def _cell_sql(column: str, present: Mapping[str, str]) -> str:
    """Return the SQL of a trimmed cell, NULL for missing-value words and absent columns.

    The item of a JSON file is NULL if it is not valid JSON.
    """
    if column == JSON:
        # JSON that Python accepts and DuckDB does not becomes an empty row.
        return f"CASE WHEN json_valid({JSON}) THEN {JSON} END"
    if column not in present:
        return "NULL::VARCHAR"
    cell = _quote_name(present[column])
    missing_words = ", ".join(_quote_text(word) for word in sorted({*MISSING, "-"}))
    # Lowering and trimming take most of the time, and few cells need them. Non-ASCII blanks occur
    # only in texts with more bytes than characters.
    blanks = f"prefix({cell}, ' ') OR suffix({cell}, ' ') OR strlen({cell}) <> length({cell})"
    return (
        f"CASE WHEN {blanks} THEN CASE WHEN lower(trim({cell})) NOT IN ({missing_words}) THEN"
        f" trim({cell}) END WHEN strlen({cell}) > {MAX_MISSING_CHARS} OR lower({cell}) NOT IN"
        f" ({missing_words}) THEN {cell} END"
    )


def _cast_sql(native: str, text: str) -> str:
    """Return SQL that casts an expression to the type of a native column."""
    return f"try_cast({text} AS {'DOUBLE' if native in NUMBERS else 'VARCHAR'})"


def _serialize_tree(database: DuckDBPyConnection, text: str) -> str:
    """Return the syntax tree of an expression as JSON text."""
    query = "SELECT json_serialize_sql('SELECT (' || ? || '\n) AS v')"
    # Fetch the whole result: the connection accepts no other statement before.
    return str(database.execute(query, [text]).fetchall()[0][0])


def _quote_name(text: str) -> str:
    """Return a quoted SQL identifier."""
    return '"' + text.replace('"', '""') + '"'


def _quote_text(text: str) -> str:
    """Return a quoted SQL string."""
    return "'" + text.replace("'", "''") + "'"
