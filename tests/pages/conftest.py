from __future__ import annotations

import atexit
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest, app_test

from sim.engine.simulator import Progress
from trainyard.results.preview import Previews
from trainyard.runs.engines import SETTING
from trainyard.runs.estimate import Costs
from trainyard.runs.grace_period import GracePeriod
from trainyard.runs.run import run, scenario_key, store_result
from trainyard.store import Store
from trainyard.store.files import MANIFEST
from trainyard.study.scenario import Scenario
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_trace
from ui import server
from ui.what_if import slider

ROOT = Path(__file__).resolve().parents[2]
SCANNED = cache(manifest_scanner.scan_component_manifests)
"""Every AppTest reads the metadata of all installed packages, which took a third of the time of
these tests; they do not change meanwhile.
"""


@cache
def previews() -> Previews:
    """Return the worker process behind the slider, one for all tests."""
    made = Previews()
    atexit.register(made.close)
    return made


class Navigated(PagesManager):
    """What a server has once app.py has run on it; AppTest otherwise begins every run as a fresh
    server, where pages/ makes it run a page's file alone.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        PagesManager.uses_pages_directory = False


@dataclass(eq=False)
class FakeJob:
    """A run that does what the test says, without a process."""

    scenario: Scenario
    key: str
    state: str = "running"
    error: str = ""
    progress: Progress | None = None
    place: int = 0
    starts_in_s: float = 0.0
    elapsed_s: float = 0.0
    details: dict[str, object] = field(default_factory=dict)
    watcher: str = ""
    seconds = math.inf  # nobody waits for it

    @property
    def has_ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def share(self) -> float:
        return 0.0 if self.progress is None else self.progress.done / self.progress.jobs

    def cancel(self) -> None:
        if not self.has_ended:
            self.state = "cancelled"


@dataclass(eq=False)
class FakePool:
    """Takes runs and leaves them where they are."""

    store: Store
    jobs: list[FakeJob] = field(default_factory=list)
    grace: GracePeriod = field(default_factory=GracePeriod)
    costs: Costs = field(default_factory=Costs)
    workers: int = 2
    most_each: int = 300

    def submit(self, scenario: Scenario, watcher: str = "", *, again: bool = False) -> FakeJob:
        key = scenario_key(scenario, self.store)
        self.jobs.append(
            FakeJob(
                scenario,
                key,
                "done" if self.store.has(key) and not again else "running",
                watcher=watcher,
            )
        )
        return self.jobs[-1]

    def is_going(self, scenario: Scenario) -> bool:
        return any(
            job.key == scenario_key(scenario, self.store) and not job.has_ended for job in self.jobs
        )

    def watchers(self, source: str) -> set[str]:
        return {
            job.watcher
            for job in self.jobs
            if not job.has_ended and job.scenario.trace.source == source
        }

    def stop(self, watcher: str, source: str = "") -> None:
        for job in self.jobs:
            if job.watcher == watcher and source in ("", job.scenario.trace.source):
                job.cancel()


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePool]:
    made = FakePool(Store(tmp_path / "store"))
    monkeypatch.setattr(server, "pool", lambda: made)
    monkeypatch.setattr(server, "prepare_sample", lambda: None)
    monkeypatch.setattr(slider, "_previews", previews)
    monkeypatch.setattr(app_test, "PagesManager", Navigated)
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", SCANNED)
    st.cache_data.clear()
    st.cache_resource.clear()
    yield made
    st.cache_data.clear()
    st.cache_resource.clear()


Open = Callable[..., AppTest]
RESULTS: dict[tuple[str, str], dict[str, bytes]] = {}
"""Files of each result that a test of this process has computed, by key and engine."""


@pytest.fixture
def visit(pool: FakePool) -> Open:
    """Open a page, with a study in the address or none; nothing on it may have failed."""

    def go(name: str = "start", study: Study | None = None) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=300)
        if study is not None:
            app.query_params["s"] = study.pack()
        if name != "start":
            app.switch_page(f"pages/{name}.py")
        app.run()
        sound(app)
        return app

    return go


@pytest.fixture
def tiny() -> Study:
    return new_study.sample_study("tiny")


def drop(app: AppTest, name: str, data: bytes) -> AppTest:
    """Drop a file on the field of Start or Trace."""
    field = next(one for one in app.file_uploader if str(one.key).startswith("trace_file/"))
    return field.set_value([(name, data, "application/octet-stream")]).run()


def sound(app: AppTest) -> None:
    """No exception, and no panel for a fault of ours."""
    assert not app.exception
    assert not broken(app)


def told_times(app: AppTest) -> set[str]:
    """Cells of tables in which a duration stands as text, which sorts by its first digit."""
    return {
        cell
        for table in app.dataframe
        for _, column in table.value.items()
        for cell in column[column.map(lambda cell: isinstance(cell, str))]
        if re.fullmatch(r"[+−-]?[\d.,]+\s(s|min|h|days?)", cell)
    }


def broken(app: AppTest) -> list[str]:
    """The panels for faults on the page."""
    return [item.proto.body for item in app.get("html") if 'class="ty-broken"' in item.proto.body]


def finish(pool: FakePool, study: Study, places: list[int] | None = None) -> None:
    """Put the results of policies of a study into the store; equal scenarios run once."""
    for at in range(len(study.allocators)) if places is None else places:
        for scenario in study.policy_scenarios(at):
            key = scenario_key(scenario, pool.store)
            computed = key, os.environ[SETTING]
            if computed not in RESULTS:
                trace = load_trace(scenario.trace, pool.store)
                store_result(pool.store, key, scenario, run(scenario, trace=trace), trace)
                RESULTS[computed] = pool.store.pack_files(key)
            elif not pool.store.has(key):
                about = json.loads(RESULTS[computed][MANIFEST])
                about["scenario"] = scenario.to_json()
                about["provenance"]["created_s"] = time.time()
                manifest = json.dumps(about).encode()
                pool.store._files["run"].write(key, RESULTS[computed] | {MANIFEST: manifest})
                assert pool.store.adopt("run", key)


def texts(app: AppTest) -> str:
    """Everything a user could read on the page, roughly."""
    parts = [
        *app.title,
        *app.subheader,
        *app.markdown,
        *app.caption,
        *app.error,
        *app.warning,
        *app.info,
        *app.success,
    ]
    labels = [block.proto.popover.label for block in app.get("popover")]
    bodies = [item.proto.body for item in app.get("html")]
    bodies += [item.proto.json for item in app.get("bidi_component")]
    return "\n".join([*(str(part.value) for part in parts), *labels, *bodies])


def chip(fields: Any, name: str) -> Any:
    """The field of a chip of the scenario bar, among those of its kind on the page."""
    return next(one for one in fields if str(one.key).rpartition("/")[0] == f"chip/{name}")


def own(app: AppTest) -> list[Any]:
    """The select boxes of the page itself, without those of the scenario bar."""
    return [box for box in app.selectbox if not str(box.key).startswith("chip/")]


def study_of(app: AppTest, parameter: str = "s") -> Study:
    """The study in the address."""
    text = app.query_params[parameter]
    return Study.unpack(text if isinstance(text, str) else text[0])
