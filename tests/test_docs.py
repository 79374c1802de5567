"""The documentation is executed: Python blocks, command lines and the files that they need, page by
page and in order; links must lead somewhere.

How a block is treated follows from its info string:

- ``python`` runs in the namespace of its page;
- ``console``: each line that begins with ``$ `` must be ``python -m trainyard ...`` and end with
  exit code 0 (``console exit=2``: with 2); lines that follow it are its expected output, ``...``
  standing for anything;
- any other with ``file=NAME`` is written to that file, beside the others of its page.
"""

from __future__ import annotations

import doctest
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from jobtraces import FORMATS
from jobtraces.readers.cells import OUTCOMES
from jobtraces.recipes import engine
from sim import contract
from sim.engine.faults import Faults
from sim.overheads import Overheads
from sim.params import parameters
from sim.perf import ESTIMATORS, PERF
from sim.trace import COLUMNS
from trainyard.cli.main import main
from trainyard.labs.lessons.reading import lessons

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MAX_README_LINES = 120
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


def in_a_process(words: list[str]) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words[1:]],
        env=os.environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def called(words: list[str]) -> tuple[int, str, str]:
    """Do what the process would, without starting one."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(words[3:])
        except SystemExit as ended:  # help, or arguments that argparse refuses
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def run(command: Command, code: int, how: Callable[[list[str]], tuple[int, str, str]]) -> None:
    assert command.words[:3] == [
        "python",
        "-m",
        "trainyard",
    ], f"only `python -m trainyard` can be run here: {command.words}"
    ended, out, err = how(command.words)
    assert ended == code, err[-3000:]
    assert "Traceback" not in err
    got = out if code == 0 else err
    assert not command.expected or doctest.OutputChecker().check_output(
        command.expected, got, LOOSELY
    ), got


def is_executed(block: Block) -> bool:
    return block.language in {"python", "console"} or "file" in block.options


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in PAGES if any(map(is_executed, blocks(path)))],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(
        "PYTHONPATH", str(ROOT)
    )  # a page speaks from the checkout, its files lie elsewhere
    monkeypatch.setenv("PYTHONIOENCODING", "utf-8")
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "store"))
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
                run(
                    command,
                    int(block.options.get("exit", "0")),
                    in_a_process if path.name == "README.md" else called,
                )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_example_escapes_execution(path: Path) -> None:
    for block in blocks(path):
        if block.language != "console":
            assert "python -m trainyard" not in block.text or block.language == "python", (
                f"line {block.line}: use a console block"
            )
        else:
            assert commands(block)
        assert block.language not in {
            "py",
            "python3",
            "pycon",
            "bash",
            "shell",
        }, f"line {block.line}: blocks in {block.language} are never executed"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [
        target.split("#")[0]
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"[a-z]+:", target)
    ]
    assert [target for target in targets if target and not (path.parent / target).exists()] == []


def test_every_page_is_reachable_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8"))
        todo += [
            target
            for link in links
            if (target := (page.parent / link).resolve()) not in seen and target.exists()
        ]
    assert {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if path not in seen
    } == set()


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_README_LINES


def test_the_citation_names_the_version_and_license_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {project['version']}" in citation
    assert f"license: {project['license']}" in citation


REGISTERED = """
import sys, types
from allocators import REGISTRY
module = types.ModuleType("allocators.queue.smallest")
sys.modules[module.__name__] = module
exec(compile({code!r}, "smallest.py", "exec"), module.__dict__)
REGISTRY["smallest"] = module.Smallest
"""


@pytest.mark.slow
def test_the_command_of_the_how_to_on_policies_passes(tmp_path: Path) -> None:
    # The policy of the page is registered before tests are collected. Golden summaries are left
    # out, because the page makes them first, and so are the tests that read files of the policy.
    page = list(blocks(ROOT / "docs" / "how-to" / "add-an-allocator.md"))
    code = "\n".join(block.text for block in page if block.language == "python")
    (tmp_path / "how_to.py").write_text(REGISTERED.format(code=code), encoding="utf-8")
    [command] = [line for block in page for line in block.text.splitlines() if " -k " in line]
    chosen = f"({shlex.split(command)[-1]}) and not golden and not architecture"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"),
            *("-p", "how_to", "-k", chosen),
            *("tests/allocators/test_conformance.py", "tests/trainyard/study/test_catalog.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert re.search(r"[1-9]\d* passed", done.stdout), done.stdout[-500:]


def test_the_how_to_on_classes_lists_every_lesson() -> None:
    page = (ROOT / "docs" / "how-to" / "teach-a-class.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+ .*?) \|", page, re.MULTILINE) == [
        f"{lesson.number} {lesson.title}" for lesson in lessons()
    ]


def test_every_file_that_is_named_exists() -> None:
    # Decision records name what was there at their time, and how-tos what the reader will make.
    ours = r"`((?:allocators|docs|jobtraces|pages|scripts|sim|tests|trainyard|ui)/[\w./-]+)`"
    made = {"allocators/queue/smallest.py", "tests/allocators/queue/test_smallest.py"}
    assert [
        f"{page.relative_to(ROOT)}: {name}"
        for page in PAGES
        if "decisions" not in page.parts
        for name in re.findall(ours, page.read_text(encoding="utf-8"))
        if name not in made and not (ROOT / name).exists()
    ] == []


def named_in(pages: str) -> set[str]:
    """Names set as code on the pages that a pattern finds."""
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob(pages)]
    return set(re.findall(r"`([^`\s]+)`", "\n".join(texts)))


def test_reference_names_all_models_and_their_parameters() -> None:
    kinds = {**PERF, **ESTIMATORS}
    known = kinds.keys() | {
        info.name for kind in (*kinds.values(), Overheads, Faults) for info in parameters(kind)
    }
    assert known - named_in("reference/models/*.md") == set()


def test_pages_made_from_the_code_are_up_to_date() -> None:
    where = ROOT / "scripts" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", where)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for path, text in script.pages().items():
        assert path.read_text(encoding="utf-8") == text, "run python3 scripts/reference.py"
    listed = {name for names in script.CONTRACT.values() for name in names}
    assert {one for one in contract.__all__ if isinstance(getattr(contract, one), type)} <= (
        listed | script.ELSEWHERE
    )


def test_reference_names_all_columns_and_formats() -> None:
    assert set(COLUMNS) - named_in("reference/native-schema.md") == set()
    assert FORMATS.keys() - named_in("how-to/import-a-trace.md") == set()


def test_reference_names_every_function_and_outcome_of_recipes() -> None:
    internal = {"wall", "zone"}
    functions = {name for name in engine.FUNCTIONS | engine.macro_names() if name.isidentifier()}
    page = (ROOT / "docs" / "reference" / "recipes.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    named = functions - internal | {engine.ANSWER, engine.HEADER, engine.GIVEN, *OUTCOMES}
    assert named - words == set()


def test_reference_names_every_argument_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = set(
        re.findall(
            r"--[a-z-]+",
            (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8"),
        )
    )
    for command in ("run", "replay", "convert", "generate", "list"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        given = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert "--help" in given
        assert given - known - {"--help"} == set()
