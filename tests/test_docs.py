"""The documentation is executed: Python blocks, command lines and the files that they need, page by page and in order; links must lead somewhere.

How a block is treated follows from its info string:

- ``python`` runs in the namespace of its page;
- ``console``: each line that begins with ``$ `` must be ``python -m lab ...`` and end with exit code 0 (``console exit=2``: with 2); lines that follow
  it are its expected output, ``...`` standing for anything;
- any other with ``file=NAME`` is written to that file, beside the others of its page.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sim.faults import Faults
from sim.overheads import Overheads
from sim.params import parameters
from sim.perf import BELIEFS, PERF
from sim.readers import FORMATS
from sim.trace import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    line: int
    language: str
    options: dict[str, str]
    text: str


class Command(NamedTuple):
    words: list[str]
    expected: str


def blocks(path: Path) -> Iterator[Block]:
    """Yield the fenced blocks; `line` is the first line inside the fence."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start, info = 0, None
    for number, line in enumerate(lines, 1):
        if not line.lstrip().startswith("```"):
            continue
        if info is None:
            start, info = number + 1, line.strip().removeprefix("```").split()
        else:
            language, *options = info or ["text"]
            text = "\n".join(lines[start - 1 : number - 1]) + "\n"
            yield Block(start, language, dict(option.split("=", 1) for option in options), text)
            info = None
    assert info is None, f"{path.name}: the block that begins in line {start} is not closed"


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(shlex.split(line[2:]), ""))
        else:
            assert found, f"line {block.line}: output before the first command"
            found[-1] = found[-1]._replace(expected=f"{found[-1].expected}{line}\n")
    return found


def run(command: Command, code: int, folder: Path) -> None:
    assert command.words[:3] == ["python", "-m", "lab"], f"only `python -m lab` can be run here: {command.words}"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "TRAINYARD_STORE": str(folder / "store")}
    done = subprocess.run(
        [sys.executable, *command.words[1:]], cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    got = done.stdout if code == 0 else done.stderr
    assert not command.expected or doctest.OutputChecker().check_output(command.expected, got, LOOSELY), got


def is_executed(block: Block) -> bool:
    return block.language in {"python", "console"} or "file" in block.options


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PAGES if any(map(is_executed, blocks(path)))], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # a page speaks from the checkout, its files lie elsewhere
    page = types.ModuleType("documented_page")
    monkeypatch.setitem(sys.modules, page.__name__, page)
    for block in filter(is_executed, blocks(path)):
        if "file" in block.options:
            Path(block.options["file"]).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            code = "\n" * (block.line - 1) + block.text
            exec(compile(code, str(path), "exec"), page.__dict__)
        elif block.language == "console":
            for command in commands(block):
                run(command, int(block.options.get("exit", "0")), tmp_path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_example_escapes_execution(path: Path) -> None:
    for block in blocks(path):
        if block.language != "console":
            assert "python -m lab" not in block.text or block.language == "python", f"line {block.line}: use a console block"
        else:
            assert commands(block)
        assert block.language not in {"py", "python3", "pycon", "bash", "shell"}, f"line {block.line}: blocks in {block.language} are never executed"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)]
    assert [target for target in targets if target and not (path.parent / target).exists()] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
        todo += [target for link in links if (target := (page.parent / link).resolve()) not in seen and target.exists()]
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md") if path not in seen} == set()


def named_in(page: str) -> set[str]:
    return set(re.findall(r"`([^`\s]+)`", (ROOT / "docs" / page).read_text(encoding="utf-8")))


def test_reference_names_all_models_and_their_parameters() -> None:
    kinds = {**PERF, **BELIEFS}
    known = kinds.keys() | {info.name for kind in (*kinds.values(), Overheads, Faults) for info in parameters(kind)}
    assert known - named_in("reference/models.md") == set()


def test_reference_names_all_columns_and_formats() -> None:
    assert set(COLUMNS) - named_in("reference/native-schema.md") == set()
    assert FORMATS.keys() - named_in("how-to/import-a-trace.md") == set()


def test_reference_names_every_argument_of_the_command_line() -> None:
    known = set(re.findall(r"--[a-z-]+", (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")))
    for command in ("run", "replay", "convert", "generate", "list"):
        text = subprocess.run([sys.executable, "-m", "lab", command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"--[a-z-]+", text)) - known - {"--help"} == set()
