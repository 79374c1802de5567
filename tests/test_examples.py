"""The notebooks under examples/ run from the first cell to the last, in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MAX_S = 60
# Runs cells in one namespace and shows the last expression of each, as a notebook does.
RUN = """
import ast, json, sys

names = {"__name__": "__main__"}
for cell in json.loads(sys.argv[1]):
    body = ast.parse(cell).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        print(getattr(value, "_repr_html_", value.__repr__)())
"""


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    own = {"TRAINYARD_STORE": str(tmp_path / "store"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(code)],
        cwd=tmp_path,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * MAX_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not [cell for cell in cells if cell.get("outputs")]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 5
