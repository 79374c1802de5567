"""Generate pages and tables from code: contract, policies, metrics, and README's policies."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from inspect import cleandoc, signature
from pathlib import Path
from types import FunctionType
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from allocators import PACKAGES, REGISTRY, make  # noqa: E402 - the checkout, wherever it is started from
from allocators.nesting import Composite  # noqa: E402
from sim import contract  # noqa: E402
from sim.contract import Allocator, ParamInfo, Spec, parameters  # noqa: E402
from sim.metrics.registry import METRICS  # noqa: E402

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
"""Public types of the contract without a section."""
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
        "",
        *_join_paragraphs(contract.__doc__),
    ]
    for title, names in CONTRACT.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"### `{name}`", "", *_describe_object(getattr(contract, name))]
            if name == "Needs":
                lines += _list_words("reads", contract.READS) + _list_words(
                    "requires", contract.REQUIRES
                )
    return "\n".join(lines) + "\n"


def policies_page() -> str:
    """Return the reference of all policies."""
    lines = [
        "# Policies",
        "",
        "Generated from the registry by `scripts/reference.py`.",
        "",
        "| goal | policies |",
        "|---|---|",
        *(f"| {goal} | {', '.join(names)} |" for goal, names in _names_by_goal().items()),
        "",
        "These parameters mean the same in every policy that lists them as shared:",
        "",
        *(
            f"- `{info.name}`{_values_text(info)}: {_join_lines(info.help)}"
            for info in _shared_parameters()
        ),
    ]
    for family, names in families().items():
        lines += ["", f"## For {family}"]
        for name in names:
            if f"### `{name}`" not in lines:
                lines += ["", f"### `{name}`", "", *_describe_policy(name)]
    return "\n".join(lines) + "\n"


def _names_by_goal() -> dict[str, list[str]]:
    """Return the names of the policies of each main goal."""
    goals: dict[str, list[str]] = {}
    for name in OWN:
        goals.setdefault(make(Spec(name)).card.goals[0], []).append(f"`{name}`")
    return goals


def families() -> dict[str, list[str]]:
    """Return family -> policies, in the order of the registry."""
    by_family: dict[str, list[str]] = {label: [] for label in FAMILIES.values()}
    for name, cls in OWN.items():
        family = cls.__module__.split(".")[1]
        nested = isinstance(make(Spec(name)), Composite)
        if not (nested and family == "queue"):
            by_family[FAMILIES[family]].append(name)
        if nested:
            by_family[FAMILIES["nested"]].append(name)
    return by_family


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


def pages() -> dict[Path, str]:
    """Return the text of each page that is generated in full or in part."""
    reference = ROOT / "docs" / "reference"
    return {
        reference / "contract.md": contract_page(),
        reference / "policies.md": policies_page(),
        reference / "metrics.md": _replace_table(reference / "metrics.md", metrics_table()),
        ROOT / "README.md": _replace_table(ROOT / "README.md", policies_table()),
    }


def _replace_table(page: Path, table: str) -> str:
    """Return the page with the table of equal head replaced."""
    head = re.escape(table.partition("\n")[0])
    text = page.read_text(encoding="utf-8")
    return re.sub(rf"^{head}\n(\|.*\n)*", lambda _: f"{table}\n", text, flags=re.MULTILINE)


def _describe_policy(name: str) -> Iterator[str]:
    """Yield the lines of a policy: its card, needs and parameters."""
    policy: Allocator = make(Spec(name))
    card, needs = policy.card, policy.needs
    yield f"**{card.title}.** {card.what} {card.cost} {card.limits}"
    yield ""
    yield f"Source: {card.source}. Certainty: {card.certainty}."
    words = [*sorted(needs.reads), *sorted(needs.requires)]
    if words:
        yield f"Needs {', '.join(f'`{word}`' for word in words)}."
    shared = {(info.name, info.help) for info in _shared_parameters()}
    declared = parameters(REGISTRY[name])
    common = [info for info in declared if (info.name, info.help) in shared]
    if common:
        yield ""
        yield f"Shared parameters: {', '.join(map(_default_text, common))}."
    own = [info for info in declared if info not in common]
    if own:
        yield ""
        for info in own:
            yield f"- {_default_text(info)}{_values_text(info)}: {_join_lines(info.help)}"


def _shared_parameters() -> list[ParamInfo]:
    """Return the parameters with equal help in several policies."""
    unique = {(info.name, info.help): info for cls in OWN.values() for info in parameters(cls)}
    times = Counter((info.name, info.help) for cls in OWN.values() for info in parameters(cls))
    return [info for key, info in unique.items() if times[key] >= _MIN_SHARED]


def _values_text(info: ParamInfo) -> str:
    """Return the values of a parameter in brackets; "" if default or help states them."""
    values = [f"`{choice}`" for choice in info.choices if f"{choice}: " not in info.help]
    if info.kind == "file":
        values.append(f"a {info.file}")
    elif info.kind == "spec":
        values.append("a policy")
    else:
        ends = [f"{end:g}" for end in (info.low, info.high) if end is not None]
        bounds = " to ".join(ends) if len(ends) != 1 else f"from {ends[0]}"
        values += [f"{bounds} {info.unit}".strip()] if ends else []
    return f" ({', '.join(values)})" if values else ""


def _default_text(info: ParamInfo) -> str:
    """Return a parameter with its default, in the form of the command line."""
    return f"`{Spec.of('x', **{info.name: info.default})}`".replace("`x:", "`")


def _describe_object(thing: Any) -> list[str]:
    """Return the docstring of an object, with a list of its fields and methods."""
    text = cleandoc(thing.__doc__ or "")
    lines = _join_paragraphs(text.split("\nParameters\n")[0])
    rows = [f"- `{names}`: {_join_lines(what)}" for names, what in _read_fields(text)]
    named = {name for names, _ in _read_fields(text) for name in names.split(", ")}
    if isinstance(thing, type):
        fields = [
            f"`{name}: {getattr(kind, '__forward_arg__', kind)}`"
            for name, kind in getattr(thing, "__annotations__", {}).items()
            if name not in named
        ]
        lines += ["", f"Fields: {', '.join(fields)}."] if fields else []
        rows += [
            f"- `{_call_text(name, value)}`: {_join_lines(_summary(value))}"
            for name, value in vars(thing).items()
            if not name.startswith("_") and name not in named and isinstance(value, _METHODS)
        ]
    return [*lines, "", *rows] if rows else lines


def _call_text(name: str, value: Any) -> str:
    """Return a method with its arguments, or the name of a property."""
    if isinstance(value, property):
        return name
    function = getattr(value, "__func__", value)
    _, *arguments = [one for one in signature(function).parameters if one != "/"]
    return f"{name}({', '.join(arguments)})"


def _summary(value: Any) -> str:
    """Return the docstring summary of a method or property."""
    target = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return cleandoc(target.__doc__ or "").split("\n\n")[0]


def _read_fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a docstring as (names, description)."""
    body = text.partition("\nParameters\n")[2].partition("\n\n")[0]
    for match in re.finditer(r"^([\w, ]+) :[^\n]*\n((?:    [^\n]*\n?)+)", body, re.MULTILINE):
        yield match[1], match[2]


def _list_words(field: str, meanings: Mapping[str, str]) -> list[str]:
    """Return the list of a field's words with their meanings."""
    rows = [f"- `{word}`: {meaning}" for word, meaning in meanings.items()]
    return ["", f"Words of `{field}`:", "", *rows]


def _join_lines(text: str) -> str:
    """Return a docstring or help text as one line of Markdown."""
    return " ".join(text.replace("``", "`").split())


def _join_paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a docstring, one line each."""
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
