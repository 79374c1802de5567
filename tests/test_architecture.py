"""The rules of the architecture, read from the source with `ast`: who may import whom, and how
large things may grow.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scripts import plain_english
from scripts.size import BUDGETS, imported_modules, measure, syntax_nodes
from sim.trace import COLUMNS

ROOT = Path(__file__).resolve().parents[1]

# Layer -> what it may import: first our own, then everybody else's. The standard library is
# free, a layer may always import itself.
LAYERS = {
    "sim": (set(), {"numpy", "pandas", "simpy", "pyarrow", "psutil", "sklearn", "numba"}),
    "allocators": ({"sim.contract"}, {"numpy", "pulp", "highspy", "scipy", "yaml"}),
    "jobtraces": ({"sim"}, {"numpy", "pandas", "pyarrow", "duckdb"}),
    "trainyard": (
        {"sim", "allocators", "jobtraces"},
        {
            "numpy",
            "pandas",
            "pyarrow",
            "orjson",
            "pebble",
            "psutil",
            "sqlalchemy",
            "fsspec",
            "distributed",
            "yaml",
            "plotly",
        },
    ),
    "ui": ({"trainyard", "sim", "jobtraces"}, {"streamlit", "starlette", "pandas"}),
    "pages": ({"ui", "trainyard", "sim", "jobtraces"}, {"streamlit"}),
    "app": ({"ui", "trainyard"}, {"streamlit"}),
}
# Package -> its rooms, the ground floor first. A room may import rooms on lower floors only.
FLOORS = {
    "allocators": (
        {"placement", "inner_policies", "reasons", "tenants", "quotas"},
        {"toolkit"},
        {"queue", "elastic", "heterogeneous", "parameter_server", "sites"},
        {"registry"},
    ),
    "allocators/sites": ({"manifests"}, {"slurm", "kueue", "kai"}),
    "allocators/heterogeneous": ({"timeshare"}, {"gavel", "hadar"}),
    "trainyard/labs": ({"replays", "lessons", "backtests"},),
    "trainyard": (
        {"formatting", "documentation"},
        {"study"},
        {"store"},
        {"traces"},
        {"clusters", "runs"},
        {"preflight", "results"},
        {"sweeps", "what_if", "library", "labs", "export"},
        {"views"},
        {"api"},
        {"cli"},
    ),
}
# Libraries of their own: they import nothing else of ours.
PUBLISHABLE = ("allocators/heterogeneous/timeshare/", "trainyard/views/charts/")
# Library -> the only places that may import it.
HOMES = {
    "simpy": ("sim/engine/agenda.py",),
    "pulp": ("allocators/elastic/",),
    "highspy": ("allocators/",),
    "yaml": ("allocators/sites/manifests.py", "trainyard/clusters/kubernetes.py"),
    "streamlit": ("app.py", "pages/", "ui/"),
    "starlette": ("ui/headers.py",),
    "sklearn": ("sim/perf/regression.py",),
    "numba": ("sim/engine/fast/compiled.py",),
    "plotly": ("trainyard/views/",),
    "duckdb": ("jobtraces/recipes/engine.py",),
    "sqlalchemy": (
        "trainyard/store/index.py",
        "trainyard/store/schema.py",
    ),
    "fsspec": ("trainyard/store/files.py",),
    "distributed": ("trainyard/runs/executors.py",),
}
# (file, module) pairs that are imported on first use, because most users never need them.
LATE_IMPORTS = frozenset(
    {
        ("allocators/heterogeneous/timeshare/matching.py", "scipy.optimize"),
        ("allocators/heterogeneous/timeshare/shares.py", "scipy.linalg.lapack"),
        ("trainyard/store/store.py", "trainyard.store.index"),
        ("sim/perf/regression.py", "sklearn.ensemble"),
        ("sim/engine/fast/compiled.py", "numba"),
        ("jobtraces/recipes/engine.py", "duckdb"),
        ("trainyard/store/files.py", "fsspec.core"),
        ("trainyard/runs/executors.py", "distributed"),
        *(
            # It starts outside the environment, where there are no packages.
            ("scripts/explore.py", module)
            for module in (
                "fuzz",
                "sim.engine.fast.compiled",
                "tests",
                "tests.properties.test_engines",
                "tests.properties.test_every_run_ends",
                "trainyard.runs.engines",
            )
        ),
    }
)
# Library -> the package that brings it, where the names differ.
PACKAGES = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
OTHER_CODE = ("scripts", "benchmarks")
MAX_LINES, MAX_PAGE_LINES, MAX_FUNCTION_LINES = 750, 120, 100


def tree(path: Path) -> ast.Module:
    module = syntax_nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


def files(*places: str) -> list[Path]:
    return sorted(
        path
        for place in places
        for path in [*ROOT.glob(f"{place}.py"), *ROOT.glob(f"{place}/**/*.py")]
    )


PRODUCT = files(*LAYERS)
ALL = [*PRODUCT, *files(*OTHER_CODE)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    return name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


OWN = {module(path) for path in PRODUCT}


@cache
def imports(path: Path) -> tuple[tuple[int, str], ...]:
    statements = [
        node for node in syntax_nodes(path) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return tuple(
        (node.lineno, target) for node in statements for target in imported_modules(node, OWN)
    )


def is_within(target: str, package: str) -> bool:
    return target == package or target.startswith(f"{package}.")


def test_nothing_is_larger_than_its_budget() -> None:
    # `python3 scripts/size.py` prints what stands behind each figure.
    over = {one.title: (one.value, one.limit) for one in measure() if one.value > one.limit}
    assert over == {}


def test_wording_keeps_to_its_limits() -> None:
    # `python3 scripts/plain_english.py --list` prints each hit with its place.
    counted = plain_english.Tally(plain_english.files_below(plain_english.all_places()))
    over = {
        one.title: (one.value, one.limit)
        for one in plain_english.measure(counted)
        if one.value > one.limit
    }
    assert over == {}


def test_every_package_with_a_budget_says_what_it_is() -> None:
    places = {place for places, _ in BUDGETS.values() for place in places}
    folders = {place for place in places if "." not in place} - {*OTHER_CODE, "pages", "tests"}
    pages = {place: ROOT / place / "README.md" for place in folders}
    assert folders >= {"sim", "jobtraces", "allocators/sites", "ui"}
    parts = ("May import:", "Budget:", "Tests: `python3 scripts/test.py", "Public:")
    assert {
        place
        for place, page in pages.items()
        if not page.is_file() or not all(part in page.read_text("utf-8") for part in parts)
    } == set()


def test_every_layer_exists() -> None:
    assert {name(path).split("/")[0].removesuffix(".py") for path in PRODUCT} == set(LAYERS)


def allowed(path: Path, target: str) -> bool:
    layer, _, _ = module(path).partition(".")
    top, _, _ = target.partition(".")
    own, foreign = LAYERS[layer]
    if top not in LAYERS:
        return top in sys.stdlib_module_names or top in foreign
    return any(is_within(target, package) for package in (layer, *own))


def test_imports_follow_the_layers() -> None:
    wrong = [
        f"{name(path)}:{line} imports {target}"
        for path in PRODUCT
        for line, target in imports(path)
        if not allowed(path, target)
    ]
    assert wrong == []


def room_of(module_name: str, package: str) -> str:
    """``python -m`` enters the command line."""
    room = module_name.removeprefix(f"{package}.").split(".")[0]
    return "cli" if room == "__main__" else room


def test_no_import_goes_up_a_floor() -> None:
    for place, floors in FLOORS.items():
        package = place.replace("/", ".")
        floor = {room: at for at, rooms in enumerate(floors) for room in rooms}
        inside = [path for path in files(place) if module(path) != package]
        assert {room_of(module(path), package) for path in inside} == set(floor)
        wrong = []
        for path in inside:
            room = room_of(module(path), package)
            for line, target in imports(path):
                if target == package or not is_within(target, package):
                    continue
                other = room_of(target, package)
                if other != room and floor[other] >= floor[room]:
                    wrong.append(f"{name(path)}:{line} imports {target}")
        assert wrong == []


def test_what_can_be_published_imports_nothing_of_ours() -> None:
    for place in PUBLISHABLE:
        rooms = [path for path in PRODUCT if name(path).startswith(place)]
        own = place.strip("/").replace("/", ".")
        foreign = {
            f"{name(path)}:{line} imports {target}"
            for path in rooms
            for line, target in imports(path)
            if target.split(".")[0] in LAYERS
            and not is_within(target, own)
            # Charts write instants and durations as sentences do.
            and target != "trainyard.formatting"
        }
        assert rooms
        assert foreign == set()


def test_libraries_stay_at_home() -> None:
    wrong = [
        f"{name(path)} imports {target}"
        for library, homes in HOMES.items()
        for path in PRODUCT
        for _, target in imports(path)
        if is_within(target, library) and not name(path).startswith(homes)
    ]
    assert wrong == []


def lines_of(node: ast.stmt) -> list[int]:
    """Lines of imports at the top of a file, those for annotations alone among them."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [node.lineno]
    if isinstance(node, ast.If | ast.Try):
        return [line for inner in node.body for line in lines_of(inner)]
    return []


def test_imports_stand_at_the_top() -> None:
    late = set()
    for path in ALL:
        top = {line for node in tree(path).body for line in lines_of(node)}
        late |= {(name(path), target) for line, target in imports(path) if line not in top}
    assert late - LATE_IMPORTS == set()


def test_charts_are_drawn_by_views_only() -> None:
    charts = {
        node.name
        for path in files("trainyard/views/charts")
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.returns is not None
        and ast.unparse(node.returns) == "go.Figure"
    }
    wrong = []
    for path in PRODUCT:
        if name(path).startswith("trainyard/views/"):
            continue
        for node in syntax_nodes(path):
            used = []
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "charts":
                used = [node.attr]
            elif isinstance(node, ast.ImportFrom) and is_within(
                node.module or "", "trainyard.views.charts"
            ):
                used = [alias.name for alias in node.names]
            wrong += [f"{name(path)}: {chart}" for chart in used if chart in charts]
    assert len(charts) > 20
    assert wrong == []


def test_no_python_object_is_read_by_threads_of_arrow() -> None:
    """Such a thread can abort the process at its end: jobtraces.readers.parquet.copy_to_arrow."""
    readers = {"pd.read_parquet", "pq.read_table", "pq.ParquetFile"}
    files_read = [
        ast.unparse(node.args[0])
        for path in PRODUCT
        for node in syntax_nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in readers
    ]
    assert len(files_read) >= 5
    assert {text for text in files_read if not text.startswith("copy_to_arrow(")} == {
        "path",
        "source",
    }


def registered() -> set[str]:
    """Keys of the literal REGISTRY, but "partition", because a column has that name too."""
    body = tree(ROOT / "allocators" / "registry.py").body
    values = [
        node.value
        for node in body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and "REGISTRY" in ast.unparse(node).split("=")[0]
    ]
    keys = [key for value in values if isinstance(value, ast.Dict) for key in value.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant)} - set(COLUMNS)


def test_registry_is_one_literal_that_can_be_searched() -> None:
    assert {"recorded", "fifo", "sjf", "easy", "srtf", "las"} <= registered()


def compared_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Text constants that a comparison, a prefix test or a `match` case decides by."""
    for node in syntax_nodes(path):
        decides = isinstance(node, ast.Compare | ast.MatchValue)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            decides = node.func.attr in {"startswith", "endswith"}
        if decides:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_nobody_asks_which_policy_it_is() -> None:
    policies, wrong = registered(), []
    for path in PRODUCT:
        if name(path).startswith("allocators/"):
            continue
        wrong += [
            f"{name(path)}:{line} {text}" for line, text in compared_texts(path) if text in policies
        ]
        wrong += [
            f"{name(path)} imports {target}"
            for _, target in imports(path)
            if is_within(target, "allocators") and target.split(".")[-1] in policies
        ]
    assert wrong == []


def test_the_page_on_the_architecture_names_every_room() -> None:
    page = (ROOT / "docs" / "background" / "architecture.md").read_text(encoding="utf-8")
    rooms = {room for floors in FLOORS.values() for floor in floors for room in floor}
    names = {room for room in rooms | set(LAYERS) if not room.startswith("__")}
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", page)) == []


def test_files_and_functions_stay_small() -> None:
    wrong = []
    for path in ALL:
        limit = MAX_PAGE_LINES if name(path).startswith("pages/") else MAX_LINES
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > limit:
            wrong.append(f"{name(path)}: {lines} lines")
        wrong += [
            f"{name(path)}: {node.name}"
            for node in syntax_nodes(path)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
        ]
    assert wrong == []


def declared(file: str) -> set[str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return {re.split(r"[^A-Za-z0-9_-]", line)[0].lower() for line in lines if line[:1].isalpha()}


def test_every_foreign_import_is_a_declared_requirement() -> None:
    app = declared("requirements.txt") | declared("requirements-scale.txt")
    dev = app | declared("requirements-dev.txt")
    own = {*LAYERS, *OTHER_CODE, "tests", *(path.stem for path in files("scripts"))}
    for paths, known in ((PRODUCT, app), (files("tests", *OTHER_CODE), dev)):
        modules = {target.split(".")[0] for path in paths for _, target in imports(path)}
        used = {PACKAGES.get(one, one) for one in modules}
        assert used - known - own - sys.stdlib_module_names == set()


def test_constraints_name_every_requirement_and_no_place() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)
    pinned = {line.split("==")[0].lower() for line in lines}
    asked = [
        line
        for file in ("requirements.txt", "requirements-scale.txt", "requirements-dev.txt")
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines()
    ]
    assert {re.split(r"[<>=]", line)[0] for line in asked if line[:1].isalpha()} <= pinned
