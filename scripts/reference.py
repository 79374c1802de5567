"""Generate pages and tables from the code: contract, policies, glossary and metrics."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import cleandoc, signature
from itertools import groupby
from pathlib import Path
from types import FunctionType
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from allocators import PACKAGES, REGISTRY, make  # noqa: E402 - the checkout, wherever it is started from
from allocators.inner_policies import Composite  # noqa: E402
from jobtraces.readers.cells import OUTCOMES  # noqa: E402
from jobtraces.recipes import engine  # noqa: E402
from sim import contract  # noqa: E402
from sim.contract import Allocator, ParamInfo, Spec, parameters  # noqa: E402
from sim.metrics.registry import METRICS  # noqa: E402
from trainyard.labs.lessons import glossary  # noqa: E402

CONTRACT: Final[Mapping[str, tuple[str, ...]]] = {
    "A policy": ("Allocator", "Needs", "Cadence", "Card", "Plan", "QueueRule"),
    "What it sees": (
        "View",
        "JobTable",
        "Delta",
        "Eviction",
        "FreeResources",
        "Estimates",
        "Resources",
        "Telemetry",
    ),
    "What jobs ask for and hold": (
        "Demand",
        "NodePool",
        "Grant",
        "Gang",
        "Part",
        "Tuning",
        "Shape",
    ),
    "Why a job waits": ("Reason", "Decided"),
    "Parameters": ("param", "Spec"),
}
ELSEWHERE: Final = frozenset(
    {"ContractError", "JobId", "Node", "ParamInfo", "ParameterError", "Ruled", "SolverError"}
    | {"Value"}
)
"""Public types of the contract that need no section."""
OWN: Final = {name: cls for name, cls in REGISTRY.items() if name not in PACKAGES}
"""Policies of this project; other packages document theirs."""
FAMILIES: Final = {
    "queue": "jobs that keep their size",
    "elastic": "jobs that are resized",
    "sites": "schedulers as sites run them",
    "heterogeneous": "several GPU types",
    "parameter_server": "workers and parameter servers, CPUs and GPUs",
    "nested": "wrappers",
}
_MIN_SHARED: Final = 2
_METHODS: Final = (FunctionType, classmethod, property)


def contract_page() -> str:
    """Return the reference of `sim.contract`."""
    lines = [
        "# The contract between simulator and policies",
        "",
        "Generated from `sim.contract` by `scripts/reference.py`. To write a policy step by step:"
        " [add an allocator](../how-to/add-an-allocator.md).",
        *_paragraphs(contract.__doc__)[1:],
    ]
    for title, names in CONTRACT.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"### `{name}`", "", *_describe_object(getattr(contract, name))]
            if name == "Needs":
                lines += _words("reads", contract.READS) + _words("requires", contract.REQUIRES)
    return "\n".join(lines) + "\n"


def policies_page() -> str:
    """Return the reference of all policies."""
    lines = [
        "# Policies",
        "",
        "Generated from the registry by `scripts/reference.py`.",
        "",
        "Shared parameters mean the same in every policy. Brackets hold goals and allowed values.",
        "",
        *_meanings(_shared(), lambda info: f"`{info.name}`"),
    ]
    for family, names in families().items():
        lines += ["", f"## For {family}"]
        for name in names:
            if f"### `{name}`" not in lines:
                lines += ["", f"### `{name}`", "", *_policy(name)]
    return "\n".join(lines) + "\n"


def families() -> dict[str, list[str]]:
    """Return family -> policies, in the order of the registry."""
    found: dict[str, list[str]] = {label: [] for label in FAMILIES.values()}
    for name, cls in OWN.items():
        family = cls.__module__.split(".")[1]
        nested = isinstance(make(Spec(name)), Composite)
        if not (nested and family == "queue"):
            found[FAMILIES[family]].append(name)
        if nested:
            found[FAMILIES["nested"]].append(name)
    return found


def policies_table() -> str:
    """Return README's table of policies."""
    rows = [
        f"| {label} | {', '.join(f'`{name}`' for name in names)} |"
        for label, names in families().items()
    ]
    return "\n".join(["| for | names |", "|---|---|", *rows])


def metrics_table() -> str:
    """Return the table of metrics that `--json` or a comparison shows."""
    rows = [
        f"| `{metric.name}`{'' if metric.in_json else ' *'} | {metric.title} | {metric.help} |"
        for metric in METRICS.values()
        if metric.in_json or metric.is_column
    ]
    return "\n".join(["| key | in the app | definition |", "|---|---|---|", *rows])


def functions_table() -> str:
    """Return the table of names that the expressions and outcomes of a recipe may use."""
    names = sorted(filter(str.isidentifier, engine.FUNCTIONS))
    nested = [name for name in names if name.startswith(("array_", "json_", "list_", "regexp_"))]
    rows = {
        "patterns, JSON, lists": nested,
        "other functions": [name for name in names if name not in nested],
        "with `OVER` (`let`, `columns`)": sorted(engine.WINDOWS),
        "in `join.take`": sorted(engine.AGGREGATES),
        "outcomes of `[status]`": OUTCOMES,
    }
    lines = [f"| {use} | `{' '.join(names)}` |" for use, names in rows.items()]
    return "\n".join(["| use | names |", "|---|---|", *lines])


def pages() -> dict[Path, str]:
    """Return the text of each page that is generated in full or in part."""
    reference = ROOT / "docs" / "reference"
    return {
        reference / "contract.md": contract_page(),
        reference / "policies.md": policies_page(),
        reference / "glossary.md": glossary.markdown(),
        reference / "recipes.md": _with_table(reference / "recipes.md", functions_table()),
        reference / "metrics.md": _with_table(reference / "metrics.md", metrics_table()),
        ROOT / "README.md": _with_table(ROOT / "README.md", policies_table()),
    }


def _with_table(page: Path, table: str) -> str:
    """Return a page with its table of the same header replaced."""
    head = re.escape(table.partition("\n")[0])
    text = page.read_text(encoding="utf-8")
    return re.sub(rf"^{head}\n(\|.*\n)*", lambda _: f"{table}\n", text, flags=re.MULTILINE)


def _policy(name: str) -> Iterator[str]:
    made: Allocator = make(Spec(name))
    card, needs = made.card, made.needs
    yield f"**{card.title}** ({card.goals[0]}). {card.what} {card.cost} {card.limits}"
    yield ""
    yield f"Source: {card.source}. Certainty: {card.certainty}."
    words = [*sorted(needs.reads), *sorted(needs.requires)]
    if words:
        yield f"Needs {', '.join(f'`{word}`' for word in words)}."
    shared = {(info.name, info.help) for info in _shared()}
    declared = parameters(REGISTRY[name])
    common = [info for info in declared if (info.name, info.help) in shared]
    if common:
        yield ""
        yield f"Shared: {', '.join(map(_setting, common))}."
    own = [info for info in declared if info not in common]
    if own:
        yield ""
        yield from _meanings(own, _setting)


def _meanings(infos: Iterable[ParamInfo], label: Callable[[ParamInfo], str]) -> Iterator[str]:
    """Yield a list item per parameter; neighbors with the same meaning share one."""
    for meaning, alike in groupby(infos, lambda info: f"{_range(info)}: {_plain(info.help)}"):
        yield f"- {', '.join(map(label, alike))}{meaning}"


def _shared() -> list[ParamInfo]:
    """Return the parameters that several policies declare with one meaning."""
    found = {(info.name, info.help): info for cls in OWN.values() for info in parameters(cls)}
    times = Counter((info.name, info.help) for cls in OWN.values() for info in parameters(cls))
    return [info for key, info in found.items() if times[key] >= _MIN_SHARED]


def _range(info: ParamInfo) -> str:
    """Return the values of a parameter in brackets; "" if default or help states them."""
    values = [f"`{choice}`" for choice in info.choices if f"{choice}: " not in info.help]
    if info.kind == "file":
        values.append(f"a {info.file}")
    elif info.kind == "spec":
        values.append("a policy")
    else:
        ends = [f"{end:,.12g}" for end in (info.low, info.high) if end is not None]
        bounds = "..".join(ends) if len(ends) != 1 else f"from {ends[0]}"
        values += [f"{bounds} {info.unit}".strip()] if ends else []
    return f" ({', '.join(values)})" if values else ""


def _setting(info: ParamInfo) -> str:
    """Return a parameter with its default, as the command line takes it."""
    return f"`{Spec.of('x', **{info.name: info.default})}`".replace("`x:", "`")


def _describe_object(thing: Any) -> list[str]:
    """Return the text of a docstring, and a list of its fields and methods."""
    text = cleandoc(thing.__doc__ or "")
    lines = _paragraphs(text.split("\nParameters\n")[0])
    rows = [f"- `{names}`: {_plain(what)}" for names, what in _fields(text)]
    named = {name for names, _ in _fields(text) for name in names.split(", ")}
    if isinstance(thing, type):
        fields = [
            f"`{name}: {getattr(kind, '__forward_arg__', kind)}`"
            for name, kind in getattr(thing, "__annotations__", {}).items()
            if name not in named
        ]
        lines += ["", f"Fields: {', '.join(fields)}."] if fields else []
        rows += [
            f"- `{_call_text(name, value)}`: {_first(value)}"
            for name, value in vars(thing).items()
            if not name.startswith("_") and name not in named and isinstance(value, _METHODS)
        ]
    return [*lines, "", *rows] if rows else lines


def _call_text(name: str, value: Any) -> str:
    if isinstance(value, property):
        return name
    function = getattr(value, "__func__", value)
    _, *arguments = [one for one in signature(function).parameters if one != "/"]
    return f"{name}({', '.join(arguments)})"


def _first(value: Any) -> str:
    """Return the summary of a docstring, without "Return"."""
    target = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    summary = _plain(cleandoc(target.__doc__ or "").split("\n\n")[0]).removeprefix("Return ")
    return summary[:1].upper() + summary[1:]


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Walk the parameters of a docstring, as (names, description)."""
    body = text.partition("\nParameters\n")[2].partition("\n\n")[0]
    for found in re.finditer(r"^([\w, ]+) :[^\n]*\n((?:    [^\n]*\n?)+)", body, re.MULTILINE):
        yield found[1], found[2]


def _words(field: str, known: Mapping[str, str]) -> list[str]:
    rows = [f"- `{word}`: {meaning}" for word, meaning in known.items()]
    return ["", f"Words of `{field}`:", "", *rows]


def _plain(text: str) -> str:
    """Return a docstring or help text as one line of Markdown."""
    return " ".join(text.replace("``", "`").split())


def _paragraphs(text: str | None) -> list[str]:
    parts = cleandoc(text or "").replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts).split("\n")


def main() -> int:
    """Write the pages that differ."""
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT).as_posix())
    return 0


if __name__ == "__main__":
    sys.exit(main())
