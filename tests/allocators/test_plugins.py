"""Policies that other packages bring: found by entry point, listed everywhere, refused in words."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent

import pytest

import allocators
from allocators import registry
from sim.cluster import Cluster
from sim.contract import ParameterError, Spec
from tests.test_docs import blocks
from trainyard.study.catalog import allocator_choices
from trainyard.study.scenario import Scenario, TraceSpec

ROOT = Path(__file__).resolve().parents[2]
GROUP = "trainyard.policies"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which a wheel with the policy of the how-to page was installed."""
    source = tmp_path_factory.mktemp("plugin")
    page = blocks(ROOT / "docs" / "how-to" / "add-an-allocator.md")
    code = next(block.text for block in page if "class Smallest" in block.text)
    (source / "smallest_first.py").write_text(code, "utf-8")
    (source / "pyproject.toml").write_text(
        dedent(f"""\
            [build-system]
            requires = ["setuptools"]
            build-backend = "setuptools.build_meta"
            [project]
            name = "smallest-first"
            version = "1.2"
            [tool.setuptools]
            py-modules = ["smallest_first"]
            [project.entry-points."{GROUP}"]
            smallest = "smallest_first:Smallest"
            fifo = "smallest_first:Smallest"
            """),
        "utf-8",
    )
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    flags = ["--no-build-isolation", "--no-deps", "--no-index"]
    install = ["--no-deps", "--no-index", "--target", "site", "--find-links", "made"]
    for command in (
        ["wheel", *flags, "-w", "made", "."],
        ["install", *install, "smallest-first"],
    ):
        done = subprocess.run(
            [*pip[:3], command[0], *pip[3:], *command[1:]],
            cwd=source,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
    return source / "site"


def run_python(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the package installed, and return what it printed."""
    path = os.pathsep.join((str(site), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": path, "TRAINYARD_STORE": str(site.parent / "store")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


@pytest.mark.slow
def test_command_line_and_api_list_and_run_an_installed_policy(site: Path) -> None:
    shown = run_python(site, "-m", "trainyard", "list", "allocators")
    assert "smallest" in shown.stdout
    # The second entry point asks for a name that a policy of ours has.
    assert "Policy 'fifo' of package smallest-first 1.2 is left out. Its name is taken." in (
        shown.stderr
    )
    code = """\
        import trainyard as ty
        assert ty.policies().loc["smallest", "title"] == "Smallest first"
        study = ty.compare("sample:tiny", "2x8:v100", ["fifo", "smallest:first=most"])
        print(study.table())
        """
    assert "Smallest first" in run_python(site, "-c", dedent(code)).stdout


@pytest.mark.slow
def test_the_app_lists_and_explains_an_installed_policy(site: Path) -> None:
    # The list and the detail, where its example is run, as tests/pages/test_policies.py opens them.
    code = f"""\
        from streamlit.testing.v1 import AppTest
        page = AppTest.from_file("{ROOT}/app.py", default_timeout=300)
        page.switch_page("pages/policies.py")
        page.query_params["policy"] = "smallest"
        page.run()
        assert not page.exception
        print(page.get("bidi_component")[0].proto.json)
        print([one.value for one in page.markdown])
        """
    rows, detail = run_python(site, "-c", dedent(code)).stdout.split("\n", 1)
    assert "Smallest first" in rows
    assert "The job that asks for the fewest GPUs goes first." in detail


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("fifo", "allocators.queue.fifo:Fifo", "Its name is taken."),
        ("all", "allocators.queue.fifo:Fifo", "Its name is taken."),
        ("First-In", "allocators.queue.fifo:Fifo", "form lower_case_1"),
        ("mine", "allocators.queue.nothing:Fifo", "cannot be loaded: No module named"),
        ("mine", "sim.cluster:Cluster", "is no dataclass derived from Allocator"),
        ("mine", "json:dumps", "is no dataclass derived from Allocator"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(name: str, value: str, why: str) -> None:
    with pytest.raises(ParameterError, match=why):
        registry.load_policy(point(name, value))


def test_why_a_policy_is_left_out_is_said_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ends_at_import.py").write_text("raise SystemExit('no license')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = [point("mine", "ends_at_import:Mine"), point("fifo", "allocators.queue.las:Las")]
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    monkeypatch.setattr(registry, "LEFT_OUT", {})
    registry.register_installed()
    assert sorted(registry.LEFT_OUT) == ["fifo", "mine"]
    with pytest.raises(ParameterError, match="It cannot be loaded: no license"):
        allocators.make(Spec("mine"))
    assert type(allocators.make(Spec("fifo"))).__name__ == "Fifo"


def test_a_package_is_listed_and_its_version_is_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = point("mine", "allocators.queue.fifo:Fifo")
    monkeypatch.setattr(registry, "entry_points", lambda group: [mine] if group == GROUP else [])
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    monkeypatch.setattr(registry, "PACKAGES", {})
    monkeypatch.setattr(registry, "LEFT_OUT", {})
    registry.register_installed()
    # Without a distribution the entry point itself stands for its package.
    assert registry.PACKAGES == {"mine": "allocators.queue.fifo:Fifo"}
    nested = Spec.of("partition", inner=Spec("mine"))
    assert registry.packages_of(nested) == registry.PACKAGES
    assert registry.packages_of(Spec("fifo")) == {}
    monkeypatch.setattr(allocators, "REGISTRY", registry.REGISTRY)
    scenario = Scenario(TraceSpec("sample:tiny"), Cluster.parse("1x4:v100"), nested)
    before = scenario.key("e" * 32)
    registry.PACKAGES["mine"] = "mine 2.0"
    assert scenario.key("e" * 32) != before
    assert "mine" in {choice.name for choice in allocator_choices(None)}
