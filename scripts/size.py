"""Measure the product against its limits: statements, import circles, class names used twice.

`python3 scripts/size.py` prints the table and exits with 1 above a limit. Limits of statements
stand about 1 % above the count. Lower one when a package gets smaller; only a record in
`docs/decisions/` can raise one. Standard library only.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).resolve().parents[1]
PRODUCT: Final = ("sim", "allocators", "jobtraces", "trainyard", "ui", "pages", "app.py")
AROUND: Final = ("benchmarks", "scripts", "setup.py")

# Package -> its places and the maximum number of statements. A file belongs to the package with
# the longest matching place.
BUDGETS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "sim": (("sim",), 9_700),
    "jobtraces": (("jobtraces",), 5_850),
    "allocators": (("allocators",), 8_690),
    "allocators/sites": (("allocators/sites",), 6_280),
    "trainyard": (("trainyard",), 15_740),
    "trainyard/views": (("trainyard/views",), 3_660),
    "ui, pages, app": (("ui", "pages", "app.py"), 7_990),
    "benchmarks, scripts": (AROUND, 2_830),
    "tests": (("tests",), 42_150),
}
CIRCLES: Final = 0
"""Groups of modules that import each other, imports for annotations included."""
UPWARD: Final = 0
"""Imports between neighbors of one folder that close a loop."""
ONE_IMPORTER: Final = 65
"""Modules that only one other module imports, in the same folder."""
TWICE: Final = 3
"""Class names that two or more modules define."""

Node = TypeVar("Node", bound=Hashable)


@dataclass(frozen=True)
class Measure:
    """One figure of the product with its limit and the items it counts."""

    title: str
    value: int
    limit: int
    items: tuple[str, ...] = ()


@cache
def syntax_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's syntax tree, the module first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def python_files(*places: str, root: Path = ROOT) -> list[Path]:
    """Return the Python files at or below places of the checkout."""
    return sorted(
        {
            path
            for place in places
            for path in ([root / place] if place.endswith(".py") else (root / place).rglob("*.py"))
        }
    )


def count_statements(path: Path) -> int:
    """Return the statements of a file without its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    count = 0
    for node in syntax_nodes(path):
        count += isinstance(node, ast.stmt)
        count -= isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    return count


def module_name(path: Path, root: Path = ROOT) -> str:
    """Return the dotted module name of a file."""
    relative = path.relative_to(root).as_posix()
    return relative.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported_modules(node: ast.AST, own: Iterable[str]) -> list[str]:
    """Return the modules that an import statement names.

    Parameters
    ----------
    node : AST
        Any node; without an import statement the list is empty.
    own : iterable of str
        Modules of the product: `from a import b` names `a.b` if that is one of them, else `a`.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        base = node.module or ""
        full = [f"{base}.{alias.name}" for alias in node.names]
        return [name if name in own else base for name in full]
    return []


def import_graph(paths: Sequence[Path], root: Path = ROOT) -> dict[str, set[str]]:
    """Return for each module the other modules of `paths` that it imports."""
    own = {module_name(path, root): path for path in paths}
    return {
        name: {
            target for node in syntax_nodes(path) for target in imported_modules(node, own.keys())
        }
        & own.keys() - {name}
        for name, path in own.items()
    }


def components(graph: Mapping[Node, set[Node]]) -> list[set[Node]]:
    """Return the groups of two or more nodes that reach each other, by repeated merging."""
    groups: dict[Node, frozenset[Node]] = {node: frozenset({node}) for node in graph}
    while True:
        merged = {
            group: {groups[target] for node in group for target in graph[node]} - {group}
            for group in set(groups.values())
        }
        try:
            TopologicalSorter(merged).prepare()
        except CycleError as error:
            whole = frozenset(node for group in error.args[1] for node in group)
            groups.update(dict.fromkeys(whole, whole))
        else:
            return [set(group) for group in merged if len(group) > 1]


def upward_imports(graph: Mapping[str, set[str]], packages: Iterable[str]) -> list[str]:
    """Return the imports between neighbors of one folder that close a loop.

    Parameters
    ----------
    graph : mapping
        Module -> the modules it imports.
    packages : iterable of str
        Modules that are packages; files and folders directly inside one are neighbors.
    """
    upward = []
    for package in ["", *packages]:
        prefix = f"{package}." if package else ""
        pairs: Counter[tuple[str, str]] = Counter()
        for name, targets in graph.items():
            for target in targets:
                if name.startswith(prefix) and target.startswith(prefix):
                    ends = [one[len(prefix) :].split(".")[0] for one in (name, target)]
                    pairs[ends[0], ends[1]] += ends[0] != ends[1]
        neighbors: dict[str, set[str]] = defaultdict(set)
        for (one, other), times in pairs.items():
            if times:
                neighbors[one].add(other)
                neighbors[other].update(())
        for loop in components(neighbors):
            # In a loop, the neighbor that imports most others is the highest.
            height = {
                neighbor: len(neighbors[neighbor] & loop)
                - sum(neighbor in neighbors[other] for other in loop)
                for neighbor in loop
            }
            upward += [
                f"{prefix}{one} imports {prefix}{other}"
                for one in sorted(loop)
                for other in sorted(neighbors[one] & loop)
                if (height[one], pairs[one, other], one) < (height[other], pairs[other, one], other)
            ]
    return upward


def one_importer(graph: Mapping[str, set[str]], packages: Iterable[str]) -> list[str]:
    """Return the modules with a single importer, which lies in the same folder.

    Parameters
    ----------
    graph : mapping
        Module -> the modules it imports.
    packages : iterable of str
        Modules that are packages: their folder is their own name.
    """
    folders = {name: name if name in packages else name.rpartition(".")[0] for name in graph}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph.items():
        for target in targets:
            importers[target].add(name)
    return sorted(
        name
        for name, users in importers.items()
        if len(users) == 1 and folders[name] == folders[next(iter(users))]
    )


def names_used_twice(paths: Iterable[Path]) -> list[str]:
    """Return the class names that two or more files define."""
    defined: dict[str, set[Path]] = defaultdict(set)
    for path in paths:
        for node in syntax_nodes(path):
            if isinstance(node, ast.ClassDef):
                defined[node.name].add(path)
    return sorted(name for name, places in defined.items() if len(places) > 1)


def package_of(name: str) -> str:
    """Return the package of `BUDGETS` with a file; "" if none has it."""
    places = {place: package for package, (places, _) in BUDGETS.items() for place in places}
    own = [place for place in places if name == place or name.startswith(f"{place}/")]
    return places[max(own, key=len)] if own else ""


def package_sizes(root: Path = ROOT) -> Counter[str]:
    """Return the statements of each package of `BUDGETS`."""
    sizes: Counter[str] = Counter()
    for path in python_files(
        *(place for places, _ in BUDGETS.values() for place in places), root=root
    ):
        sizes[package_of(path.relative_to(root).as_posix())] += count_statements(path)
    return sizes


def measure(root: Path = ROOT) -> list[Measure]:
    """Return all figures of a checkout with their limits."""
    sizes = package_sizes(root)
    paths = python_files(*PRODUCT, root=root)
    graph = import_graph(paths, root)
    packages = {module_name(path, root) for path in paths if path.name == "__init__.py"}
    lists: list[tuple[str, Sequence[str], int]] = [
        ("circles", [" - ".join(sorted(one)) for one in components(graph)], CIRCLES),
        ("upward imports", upward_imports(graph, packages), UPWARD),
        ("one importer", one_importer(graph, packages), ONE_IMPORTER),
        ("class names used twice", names_used_twice(paths), TWICE),
    ]
    return [
        *(Measure(name, sizes[name], limit) for name, (_, limit) in BUDGETS.items()),
        *(Measure(title, len(items), limit, tuple(items)) for title, items, limit in lists),
    ]


def main(write: Callable[[str], object] = print) -> int:
    """Print each figure with its limit and the items of exceeded limits; return 1 if any."""
    measures = measure()
    over = [one for one in measures if one.value > one.limit]
    for one in measures:
        write(f"{one.title:24}{one.value:8,}{one.limit:8,}{'  too many' if one in over else ''}")
    product = sum(one.value for one in measures if one.title in BUDGETS and one.title != "tests")
    core = sum(one.value for one in measures if one.title in ("sim", "allocators"))
    write(f"{'product':24}{product:8,}\n{'core':24}{core:8,}")
    for one in over:
        for item in one.items:
            write(f"{one.title}: {item}")
    return int(bool(over))


if __name__ == "__main__":
    raise SystemExit(main())
