"""Settings of all tests: hypothesis draws the same examples in every run, without a deadline, and
the body of a test may take `MAX_CPU_S` of processor time.

Exploration selects the profile "explore" instead, with `--hypothesis-profile` and a seed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Some fifty processes of the app start: what the first of them compiles is for all, also where the
# environment asks to keep nothing.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Neither settings of the user's server nor results in the user's home matter: a test that keeps
# results brings a folder of its own.
for name in ("DATABASE", "DEBUG", "EXECUTOR", "MEMORY_LIMIT", "MOST_GPUS", "TIME_LIMIT"):
    os.environ.pop(f"TRAINYARD_{name}", None)
os.environ["TRAINYARD_STORE"] = os.path.join(os.devnull, "store")

# Only tests that ask for the fast engine load it, which takes a third of a second per process.
os.environ["TRAINYARD_ENGINE"] = "kernel"

settings.register_profile(
    "trainyard",
    derandomize=True,
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore",
    settings.get_profile("trainyard"),
    derandomize=False,
    database=None,
    print_blob=True,
    max_examples=200,
)
settings.load_profile("trainyard")

# Tests that depend on a browser or a server of another project may fail once; what passes only on
# the second try is listed as flaky at the end of the run.
RETRIED = ("browser", "dask", "postgres")

# Processor time of a test, ten times what the longest takes: a busy machine does not reach it.
MAX_CPU_S = 600.0


@pytest.fixture(scope="module")
def fast_engine() -> None:
    """Load the fast engine; compile it first, in a minute of CPU, where that was never done."""
    from trainyard.runs import engines  # noqa: PLC0415 - after the environment is set

    assert engines.warm() == ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test whose body takes more than `MAX_CPU_S`; Windows has no such timer.

    Fixtures, child processes and waiting are not limited.
    """
    if sys.platform == "win32":
        return (yield)

    def stop(*_: Any) -> None:
        pytest.fail(f"{item.nodeid} takes more than {MAX_CPU_S:g} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S, MAX_CPU_S)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Retry the tests that drive a browser, Dask or PostgreSQL once."""
    for item in items:
        if any(item.get_closest_marker(name) for name in RETRIED):
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the tests that passed only on the second try."""
    retried = {report.nodeid for report in terminalreporter.stats.get("rerun", ())}
    failed = {
        report.nodeid
        for outcome in ("failed", "error")
        for report in terminalreporter.stats.get(outcome, ())
    }
    if retried - failed:
        terminalreporter.section("flaky")
        for nodeid in sorted(retried - failed):
            terminalreporter.write_line(nodeid)
