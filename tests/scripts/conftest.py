"""Loads the launchers the way Python does when it runs them: with their own folder first on the
path.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Load ``scripts/<name>.py`` under a name of its own, so that `test.py` does not hide the
    standard library's `test`.
    """
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"launcher_{name}", SCRIPTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
