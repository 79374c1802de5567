"""Tests of tests/conftest.py: which tests are retried, how a flaky one is reported, and that none
computes forever.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"
CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
CASES = """
import pytest
from pathlib import Path


def fails_once(name):
    mark = Path(name)
    seen = mark.exists()
    mark.touch()
    assert seen


@pytest.mark.{marker}
def test_fails_once():
    fails_once("once")


@pytest.mark.{marker}
def test_fails_always():
    assert False


def test_without_a_server_fails_once():
    fails_once("plain")
"""


@pytest.mark.parametrize("marker", ["browser", "dask", "postgres"])
def test_servers_get_a_second_try_and_are_listed_as_flaky(
    pytester: pytest.Pytester, marker: str
) -> None:
    pytester.makeconftest(CONFTEST.read_text("utf-8"))
    pytester.makepyfile(CASES.format(marker=marker))
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-W", "ignore")
    assert result.parseoutcomes() == {"passed": 1, "failed": 2, "rerun": 2}
    flaky = ["*= flaky =*", "*::test_fails_once", "*= short test summary info =*"]
    result.stdout.fnmatch_lines(flaky, consecutive=True)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such timer")
def test_a_test_that_never_ends_fails(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        CONFTEST.read_text("utf-8").replace("MAX_CPU_S = 600.0", "MAX_CPU_S = 0.05")
    )
    pytester.makepyfile(
        "def test_loops():\n    while True:\n        pass\n\n\ndef test_ends(): ...\n"
    )
    result = pytester.runpytest_inprocess("-p", "no:randomly", "-W", "ignore")
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    result.stdout.fnmatch_lines(["*test_loops takes more than 0.05 s of processor time*"])
