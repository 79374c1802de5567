"""What `scripts/size.py` counts in a small product, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import size

FILES = {
    "core/__init__.py": "",
    # A docstring does not count, the text below an attribute does: import, class, attribute, text.
    "core/job.py": (
        '"""Jobs."""\nimport core.node\nclass Job:\n    """One."""\n    x = 1\n    """In s."""\n'
    ),
    # import, if, import: the module that is imported for annotations alone closes a circle.
    "core/node.py": "import typing\nif typing.TYPE_CHECKING:\n    from core.job import Job\n",
    "core/leaf.py": "class Job: ...\n",
    "app/__init__.py": "from core import leaf\n",
    "app/page.py": "from app import part\nfrom core import job\n",
    "app/part.py": "def f():\n    return g()\n",
}
MODULES = ["app.page", "app.part", "app", "core", "core.job", "core.leaf", "core.node"]


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return size.python_files("app", "core", root=tmp_path)


def test_statements_are_counted_without_docstrings(tmp_path: Path, paths: list[Path]) -> None:
    counted = {size.module_name(path, tmp_path): size.count_statements(path) for path in paths}
    assert counted == {
        "app": 1,
        "app.page": 2,
        "app.part": 2,
        "core": 0,
        "core.job": 4,
        "core.leaf": 2,
        "core.node": 3,
    }


def test_circles_and_single_importers(tmp_path: Path, paths: list[Path]) -> None:
    graph = size.import_graph(paths, tmp_path)
    assert sorted(graph) == sorted(MODULES)
    assert size.components(graph) == [{"core.job", "core.node"}]
    # core.job and core.leaf have more importers, or one in another folder.
    assert size.one_importer(graph, {"app", "core"}) == ["app.part", "core.node"]


def test_what_two_modules_define(paths: list[Path]) -> None:
    assert size.names_used_twice(paths) == ["Job"]


def test_imports_against_most_others_are_upward() -> None:
    graph = {
        "a.x": {"b.x", "c"},
        "a.y": {"b.x"},
        "b.x": {"a.x", "b.y"},
        "b.y": {"b.x"},
        "c": set[str](),
    }
    # Two imports lead from a to b and one back; b.x and b.y import each other once.
    found = size.upward_imports(graph, ["a", "b"])
    assert found == ["b imports a", "b.x imports b.y"]


@pytest.mark.parametrize(("limit", "code", "line"), [(3, 0, ""), (2, 1, "one importer: core.node")])
def test_a_figure_above_its_limit_is_explained(
    monkeypatch: pytest.MonkeyPatch, limit: int, code: int, line: str
) -> None:
    found = size.Measure("one importer", 3, limit, ("core.node",))
    monkeypatch.setattr(size, "measure", lambda: [size.Measure("sim", 5, 5), found])
    lines: list[str] = []
    assert size.main(lines.append) == code
    assert ("too many" in lines[1]) == bool(code)
    assert lines[-1].endswith(line)
