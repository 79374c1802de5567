"""Each page as the first that a process shows: nothing that it needs may have been loaded by
another page only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages.conftest import ROOT
from ui.layout import PAGES

SHOW = """
import os
from types import SimpleNamespace
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest, app_test
from trainyard.runs.estimate import Costs
from trainyard.store import Store
from trainyard.runs.grace_period import GracePeriod
from ui import layout, server

class Navigated(PagesManager):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        PagesManager.uses_pages_directory = False

app_test.PagesManager = Navigated
manifest_scanner.scan_component_manifests = list
quiet = SimpleNamespace(store=Store(), grace=GracePeriod(), costs=Costs(), workers=2, most_each=300, jobs=[])
server.pool = lambda: quiet
server.prepare_sample = lambda: None

def shown(name):
    app = AppTest.from_file("app.py", default_timeout=300)
    if name != "start":
        app.switch_page(f"pages/{name}.py")
    app.run()
    faults = [*app.exception, *(item.proto.body for item in app.get("html") if 'class=\"ty-broken\"' in item.proto.body)]
    print(name, len(app.main.children) > 3, *faults, sep="|", flush=True)

for name in layout.PAGES:
    if os.fork() == 0:
        try:
            shown(name)
        finally:
            os._exit(0)
    os.wait()
"""  # noqa: E501
"""`ui.layout` is what app.py loads; every page then begins in a copy of that process."""


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="pages begin in copies of one process, which only Unix makes"
)
def test_every_page_can_be_the_first_of_a_process(tmp_path: Path) -> None:
    told = os.environ | {"TRAINYARD_STORE": str(tmp_path / "store")}
    made = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=ROOT,
        env=told,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert made.stdout.splitlines() == [f"{name}|True" for name in PAGES], made.stderr
