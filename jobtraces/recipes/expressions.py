"""Which expressions a recipe may hold: their syntax tree is looked through before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sim.errors import TraceError
from sim.params import did_you_mean

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
