"""The rules of the architecture, read from the source with `ast`: who may import whom, and how large things may grow."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sim.trace import COLUMNS

ROOT = Path(__file__).resolve().parents[1]

# Layer -> what it may import: first our own, then everybody else's. The standard library is free, a layer may always import itself.
LAYERS = {
    "sim": (set(), {"numpy", "pandas", "simpy", "pyarrow", "psutil", "sklearn"}),
    "allocators": ({"sim.contract"}, {"numpy", "pulp", "highspy", "scipy"}),
    "lab": ({"sim", "allocators"}, {"numpy", "pandas", "pyarrow", "orjson", "pebble", "psutil", "sqlalchemy", "fsspec", "distributed"}),
    "charts": (set(), {"numpy", "pandas", "plotly"}),
    "report": ({"charts", "lab"}, {"numpy", "pandas", "plotly"}),
    "ui": ({"lab", "charts", "report"}, {"streamlit", "pandas"}),
    "pages": ({"ui", "charts", "lab"}, {"streamlit"}),
    "app": ({"ui", "charts", "lab"}, {"streamlit"}),
}
# (file, module) pairs outside the layers: the command line is an entrance like a page, and writes reports.
ENTRANCES = frozenset({("trainyard/__main__.py", "report")})
# Library -> the only places that may import it.
HOMES = {
    "simpy": ("sim/simulator.py", "sim/faults.py", "sim/instant.py"),
    "pulp": ("allocators/",),
    "highspy": ("allocators/",),
    "streamlit": ("app.py", "pages/", "ui/"),
    "sklearn": ("sim/perf/trained.py",),
    "sqlalchemy": ("trainyard/store/index.py", "trainyard/store/tables.py"),
    "fsspec": ("trainyard/store/files.py",),
    "distributed": ("trainyard/runs/executors.py",),
}
# (file, module) pairs that are imported on first use, because most users never need them.
LATE_IMPORTS = frozenset(
    {
        ("allocators/timeshare/matching.py", "scipy.optimize"),
        ("sim/perf/trained.py", "sklearn.ensemble"),
        ("trainyard/store/files.py", "fsspec.core"),
        ("trainyard/runs/executors.py", "distributed"),
    }
)
# Library -> the package that brings it, where the names differ.
PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn"}
OTHER_CODE = ("scripts", "benchmarks")
MAX_LINES, MAX_PAGE_LINES, MAX_FUNCTION_LINES = 400, 120, 60


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def files(*places: str) -> list[Path]:
    return sorted(path for place in places for path in [*ROOT.glob(f"{place}.py"), *ROOT.glob(f"{place}/**/*.py")])


PRODUCT = files(*LAYERS)
ALL = [*PRODUCT, *files(*OTHER_CODE)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    return name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


OWN = {module(path) for path in PRODUCT}


def targets(node: ast.AST) -> list[str]:
    """Modules that one import statement reads; `from a import b` reads a.b if that is a module of ours."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative import"
        base = node.module or ""
        return [f"{base}.{alias.name}" if f"{base}.{alias.name}" in OWN else base for alias in node.names]
    return []


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        for target in targets(node):
            yield node.lineno, target  # type: ignore[attr-defined]


def type_only(path: Path) -> set[str]:
    """Modules that are imported for annotations alone; they exist for the type checker and cannot close a cycle when the program runs."""
    guarded = [node for node in tree(path).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {target for block in guarded for node in ast.walk(block) for target in targets(node)}


def is_within(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


def test_every_layer_exists() -> None:
    assert {name(path).split("/")[0].removesuffix(".py") for path in PRODUCT} == set(LAYERS)


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_imports_follow_the_layers(path: Path) -> None:
    layer = module(path).split(".")[0]
    own, foreign = LAYERS[layer]
    wrong = []
    for line, target in imports(path):
        top = target.split(".")[0]
        if top in LAYERS:
            allowed = (name(path), target) in ENTRANCES or is_within(target, layer) or any(is_within(target, package) for package in own)
        else:
            allowed = top in sys.stdlib_module_names or top in foreign
        if not allowed:
            wrong.append(f"{name(path)}:{line} imports {target}")
    assert wrong == []


@pytest.mark.parametrize("library", HOMES)
def test_library_stays_at_home(library: str) -> None:
    users = {name(path) for path in PRODUCT if any(is_within(target, library) for _, target in imports(path))}
    assert {user for user in users if not user.startswith(HOMES[library])} == set()


@pytest.mark.parametrize("path", ALL, ids=name)
def test_imports_stand_at_the_top(path: Path) -> None:
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    late = {(name(path), target) for function in functions for node in ast.walk(function) for target in targets(node)}
    assert late - LATE_IMPORTS == set()


def test_no_import_cycles() -> None:
    graph = {module(path): {target for _, target in imports(path) if target in OWN} - {module(path)} - type_only(path) for path in PRODUCT}
    while True:
        leaves = {node for node, needs in graph.items() if not needs & graph.keys()}
        if not leaves:
            break
        graph = {node: needs for node, needs in graph.items() if node not in leaves}
    assert sorted(graph) == []


def registered() -> set[str]:
    """Keys of the dictionary literal REGISTRY; "partition" is left out, because a column has that name too."""
    registry = ROOT / "allocators" / "__init__.py"
    if not registry.exists():
        return set()
    values = [node.value for node in tree(registry).body if isinstance(node, ast.Assign | ast.AnnAssign) and "REGISTRY" in ast.unparse(node).split("=")[0]]
    keys = [key for value in values if isinstance(value, ast.Dict) for key in value.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant)} - set(COLUMNS)


POLICIES = registered()


def test_registry_is_one_literal_that_can_be_searched() -> None:
    assert {"recorded", "fifo", "sjf", "easy", "srtf", "las"} <= POLICIES


def compared_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Text constants that a comparison, a membership test, a prefix test or a `match` case decides by."""
    for node in ast.walk(tree(path)):
        decides = isinstance(node, ast.Compare | ast.MatchValue)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            decides = node.func.attr in {"startswith", "endswith"}
        if decides:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


@pytest.mark.parametrize("path", [path for path in PRODUCT if not name(path).startswith("allocators/")], ids=name)
def test_nobody_asks_which_policy_it_is(path: Path) -> None:
    assert [f"{name(path)}:{line} {text}" for line, text in compared_texts(path) if text in POLICIES] == []
    assert [target for _, target in imports(path) if target in {f"allocators.{policy}" for policy in POLICIES}] == []


@pytest.mark.parametrize("path", ALL, ids=name)
def test_files_and_functions_stay_small(path: Path) -> None:
    limit = MAX_PAGE_LINES if name(path).startswith("pages/") else MAX_LINES
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= limit
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES] == []


def test_every_foreign_import_is_a_declared_requirement() -> None:
    def declared(file: str) -> set[str]:
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        return {re.split(r"[^A-Za-z0-9_-]", line)[0].lower() for line in lines if line[:1].isalpha()}

    app = declared("requirements.txt") | declared("requirements-scale.txt")
    dev = app | declared("requirements-dev.txt")
    own = {*LAYERS, *OTHER_CODE, "tests", "_venv", "_inputs"}
    for paths, known in ((PRODUCT, app), (files("tests", *OTHER_CODE), dev)):
        modules = {target.split(".")[0] for path in paths for _, target in imports(path)}
        used = {PACKAGES.get(name, name) for name in modules}
        assert used - known - own - sys.stdlib_module_names == set()


def test_constraints_name_every_requirement_and_no_place() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    pinned = {line.split("==")[0].lower() for line in lines}
    asked = [
        line
        for file in ("requirements.txt", "requirements-scale.txt", "requirements-dev.txt")
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
    ]
    assert {re.split(r"[<>=]", line)[0] for line in asked if line[:1].isalpha()} <= pinned
