"""The launchers' environment: when it is refused, made, filled, and left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def env(launcher: Callable[[str], ModuleType]) -> ModuleType:
    return launcher("_venv")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "requirements.txt").write_text("numpy>=2\n")
    (tmp_path / "requirements-dev.txt").write_text("# tests\n-r requirements.txt\npytest\n")
    (tmp_path / "constraints.txt").write_text("numpy==2.4.6\n")
    return tmp_path


class Pip:
    """Stands in for `subprocess.run` and for making an environment; `code` is what the installation
    returns.
    """

    def __init__(self, env: ModuleType, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
        self.code = code
        self.installs: list[list[str]] = []
        self.made = 0
        self.env = env
        monkeypatch.setattr(env, "subprocess", SimpleNamespace(run=self.run))
        monkeypatch.setattr(env, "_create", self.create)

    def run(self, command: list[str], **_: object) -> SimpleNamespace:
        if "install" in command:
            self.installs.append(command)
            return SimpleNamespace(returncode=self.code)
        return SimpleNamespace(returncode=0)

    def create(self, home: Path) -> None:
        self.made += 1
        python = self.env.interpreter(home)
        python.parent.mkdir(parents=True)
        python.touch()


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 1), (3, 14, 0), (4, 0, 0)])
def test_new_enough_python_is_accepted(env: ModuleType, version: tuple[int, ...]) -> None:
    assert env.refusal(version) == ""


@pytest.mark.parametrize("version", [(3, 10, 14), (3, 9, 2), (2, 7, 18)])
def test_old_python_is_refused_in_one_sentence(env: ModuleType, version: tuple[int, ...]) -> None:
    reason = env.refusal(version)
    assert reason.startswith(
        f"Trainyard needs Python 3.11 or newer, but this is {'.'.join(map(str, version))}"
    )
    assert "\n" not in reason


def test_old_python_ends_the_launcher_before_anything_is_made(
    env: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "sys", SimpleNamespace(version_info=(3, 10, 4)))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11"):
        env.prepare("requirements.txt", root, root / ".venv")
    assert not (root / ".venv").exists()


def test_interpreter_lies_where_each_system_puts_it(env: ModuleType) -> None:
    assert env.interpreter(Path("x"), "posix") == Path("x/bin/python")
    assert env.interpreter(Path("x"), "nt") == Path("x/Scripts/python.exe")


def test_included_requirement_files_are_followed(env: ModuleType, root: Path) -> None:
    assert [file.name for file in env.requirement_files(root, "requirements-dev.txt")] == [
        "requirements-dev.txt",
        "requirements.txt",
    ]


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt", "constraints.txt"])
def test_fingerprint_changes_with_every_file_that_matters(
    env: ModuleType, root: Path, file: str
) -> None:
    before = env.fingerprint(root, "requirements-dev.txt", (3, 11))
    assert env.fingerprint(root, "requirements-dev.txt", (3, 11)) == before
    assert env.fingerprint(root, "requirements-dev.txt", (3, 12)) != before
    (root / file).write_text((root / file).read_text() + "simpy\n")
    assert env.fingerprint(root, "requirements-dev.txt", (3, 11)) != before


def test_app_does_not_reinstall_when_only_the_test_tools_change(
    env: ModuleType, root: Path
) -> None:
    before = env.fingerprint(root, "requirements.txt", (3, 11))
    (root / "requirements-dev.txt").write_text("-r requirements.txt\npytest\nruff\n")
    assert env.fingerprint(root, "requirements.txt", (3, 11)) == before


def test_first_run_makes_and_fills_and_the_second_does_neither(
    env: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip(env, monkeypatch)
    for _ in range(2):
        assert env.prepare("requirements.txt", root, root / ".venv") == env.interpreter(
            root / ".venv"
        )
    assert pip.made == 1
    assert len(pip.installs) == 1
    assert pip.installs[0][-4:] == ["-r", "requirements.txt", "-c", "constraints.txt"]


def test_changed_requirements_are_installed_into_the_same_environment(
    env: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip(env, monkeypatch)
    env.prepare("requirements.txt", root, root / ".venv")
    (root / "constraints.txt").write_text("numpy==2.5.0\n")
    env.prepare("requirements.txt", root, root / ".venv")
    assert (pip.made, len(pip.installs)) == (1, 2)


def test_test_environment_serves_the_app_too_but_not_the_other_way_round(
    env: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip(env, monkeypatch)
    env.prepare("requirements.txt", root, root / ".venv")
    env.prepare("requirements-dev.txt", root, root / ".venv")
    env.prepare("requirements.txt", root, root / ".venv")
    assert [command[-3] for command in pip.installs] == ["requirements.txt", "requirements-dev.txt"]


def test_failed_installation_is_one_sentence_and_is_tried_again(
    env: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip(env, monkeypatch, code=1)
    for _ in range(2):
        with pytest.raises(SystemExit, match="could not be installed"):
            env.prepare("requirements.txt", root, root / ".venv")
    assert len(pip.installs) == 2
    pip.code = 0
    env.prepare("requirements.txt", root, root / ".venv")
    assert len(pip.installs) == 3


def test_environment_whose_python_is_gone_is_made_again(
    env: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip(env, monkeypatch)
    env.prepare("requirements.txt", root, root / ".venv")
    python = env.interpreter(root / ".venv")
    python.unlink()
    python.parent.rmdir()
    env.prepare("requirements.txt", root, root / ".venv")
    assert (pip.made, len(pip.installs)) == (2, 2)


def test_unwritable_place_is_one_sentence(env: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="could not be created"):
        env._create(tmp_path / "file" / ".venv")


def test_old_python_can_read_the_launchers(env: ModuleType) -> None:
    """The sentence about the version only appears if nothing newer than its grammar stands in these
    files.
    """
    check = (
        "import ast, sys\nfor name in sys.argv[1:]:\n    ast.parse(open(name,"
        " encoding='utf-8').read(), name, feature_version=(3, 7))\n"
    )
    files = [str(path) for path in (env.ROOT / "scripts").glob("*.py")]
    assert len(files) >= 5
    assert subprocess.run([sys.executable, "-c", check, *files], check=False).returncode == 0
