"""The commands `runs` and `compare`: what was run is found, named, tagged, passed on and
deleted.
"""

from __future__ import annotations

import errno
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.errors import TrainyardError
from sim.params import Spec
from trainyard.cli.main import main
from trainyard.library import archive, library
from trainyard.library.library import HERE
from trainyard.results.outcomes import keys
from trainyard.runs.run import run_to_store
from trainyard.store import Store, StoreError
from trainyard.store.entry import to_parquet
from trainyard.study.branch_point import BranchPoint, FromHere
from trainyard.study.study import Study

Call = Callable[..., tuple[int, str, str]]
STUDY = {"base": {"trace": "sample:tiny", "cluster": "2x8:v100"}, "allocators": ["fifo", "srtf"]}
HOSTILE = "=cmd|' /C calc'!A0 <b>%s</b> \u202e../..\\x; DROP TABLE shelf;--"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a comparison whose results are kept whole, a sweep and a search."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "study.json").write_text(json.dumps(STUDY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINYARD_STORE", str(folder / "store"))
        patch.delenv("TRAINYARD_DATABASE", raising=False)
        assert (
            main(
                (
                    "sweep",
                    str(folder / "study.json"),
                    "--axis",
                    "trace.load=1,2",
                    "--executor",
                    "inline",
                )
            )
            == 0
        )
        assert (
            main(("plan", str(folder / "study.json"), "--range", "1..2", "--executor", "inline"))
            == 0
        )
    store, study = Store(folder / "store"), Study.from_json(STUDY)
    for scenario in study.scenarios():
        run_to_store(scenario.to_json(), store.address)
    library.shelve(store, HERE, study, [key for own in keys(study, store) for key in own])
    store.index.close()
    return folder / "store"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copytree(made, tmp_path / "store")
    opened = Store(tmp_path / "store")
    yield opened
    opened.index.close()


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRAINYARD_STORE", str(store.root))
    monkeypatch.delenv("TRAINYARD_DATABASE", raising=False)
    capsys.readouterr()

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return go


def ids(store: Store) -> dict[str, str]:
    return {one.kind: one.id for one in library.items(store, HERE)}


def test_what_was_run_is_listed_and_shown_in_its_own_way(call: Call, store: Store) -> None:
    code, out, _ = call("runs", "list")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["study", "plan", "sweep"]
    listed = json.loads(call("runs", "list", "--json")[1])
    assert {"id", "kind", "title", "name", "tags", "used_s", "runs", "there"} <= set(listed[0])
    assert len(call("runs", "list", "plan")[1].splitlines()) == 2
    assert (
        call("runs", "list", "no such thing")[1]
        == "No item of the library contains: no such thing.\n"
    )
    known = ids(store)
    assert "FIFO, seed 0" in call("runs", "show", known["study"])[1]
    assert "trace.load  FIFO" in call("runs", "show", known["sweep"])[1]
    assert "USD per month" in call("runs", "show", known["plan"])[1]
    bodies = {
        kind: json.loads(call("runs", "show", known[kind], "--json")[1])["kept"] for kind in known
    }
    assert [row["policy"] for row in bodies["study"]] == ["FIFO", "SRTF"]
    assert (bodies["sweep"]["state"], len(bodies["sweep"]["runs"])) == ("done", 4)
    assert [answer["over"] for answer in bodies["plan"]["answers"]] == [True, True]


def test_names_and_tags_however_hostile(call: Call, store: Store) -> None:
    known = ids(store)
    assert (
        call("runs", "name", known["sweep"], "Load", " study")[1]
        == f"{known['sweep'][:12]} is now named Load study\n"
    )
    assert (
        call("runs", "tag", "Load study", "talk, v2", "talk")[1]
        == f"{known['sweep'][:12]} has the tags talk, v2, talk\n"
    )
    assert library.item(store, HERE, "Load study").tags == ("talk", "v2")
    assert call("runs", "name", known["plan"], HOSTILE)[0] == 0
    assert " ".join(HOSTILE.split()) in call("runs", "list")[1]
    assert call("runs", "show", " ".join(HOSTILE.split()))[0] == 0
    assert call("runs", "name", "Load study", "")[1] == f"{known['sweep'][:12]} has no name\n"
    assert call("runs", "tag", known["sweep"], "")[1] == f"{known['sweep'][:12]} has no tags\n"


def test_two_things_beside_each_other(call: Call, store: Store) -> None:
    known = ids(store)
    code, out, _ = call("compare", known["study"], known["sweep"])
    assert code == 0
    assert "Both have the same settings." in out
    assert "A: FIFO, seed 0" in out
    assert call("compare", known["study"], "0000")[0] == 2


def test_what_is_deleted_takes_only_runs_that_nothing_else_needs(call: Call, store: Store) -> None:
    known = ids(store)
    before = {key: set(store.index.uses(one)) for key, one in known.items()}
    code, out, _ = call("runs", "rm", known["sweep"], known["plan"])
    gone = (before["sweep"] | before["plan"]) - before["study"]
    assert (code, out) == (0, f"2 items removed, and {len(gone)} runs that nothing else uses\n")
    assert store.numbers(gone) == {}
    assert set(store.numbers(before["study"])) == before["study"]
    assert call("runs", "show", known["sweep"])[0] == 2


def test_passed_on_to_another_store_everything_is_the_same_to_the_byte(
    call: Call, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ids(store)
    call("runs", "name", known["study"], HOSTILE)
    call("runs", "tag", known["sweep"], "talk")
    assert call("runs", "export", *known.values(), "-o", "all.zip")[0] == 0
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "other"))
    code, out, _ = call("runs", "import", "all.zip")
    assert (code, out) == (
        0,
        f"all.zip: {', '.join(one[:12] for one in known.values())} imported\n",
    )
    other = Store(tmp_path / "other")
    assert ids(other) == known
    assert library.item(other, HERE, known["study"]).name == " ".join(HOSTILE.split())
    assert library.item(other, HERE, known["sweep"]).tags == ("talk",)
    for key in store.index.uses(known["study"]):
        entries = [one.get(key) for one in (store, other)]
        digests = [entry.result().digest() for entry in entries if entry is not None]
        assert len(digests) == 2
        assert digests[0] == digests[1]
        assert store.pack_files(key) == other.pack_files(key)
    assert call("runs", "export", *known.values(), "-o", "again.zip")[0] == 0
    assert Path("again.zip").read_bytes() == Path("all.zip").read_bytes()
    # Once more changes nothing.
    assert call("runs", "import", "all.zip", "again.zip")[0] == 0
    assert ids(other) == known


def _changed(data: bytes, change: Callable[[str, bytes], tuple[str, bytes] | None]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            found = change(name, old.read(name))
            if found is not None:
                new.writestr(*found)
    return made.getvalue()


def _listed(
    change: Callable[[dict[str, Any]], object],
) -> Callable[[str, bytes], tuple[str, bytes]]:
    def made(name: str, data: bytes) -> tuple[str, bytes]:
        if name != "library.json":
            return name, data
        body = json.loads(data)
        change(body)
        return name, json.dumps(body).encode()

    return made


def _manifest(
    change: Callable[[dict[str, Any]], object],
) -> Callable[[str, bytes], tuple[str, bytes]]:
    def made(name: str, data: bytes) -> tuple[str, bytes]:
        if not name.endswith("/manifest.json"):
            return name, data
        about = json.loads(data)
        change(about)
        return name, json.dumps(about).encode()

    return made


SCENARIO = {**STUDY["base"], "allocator": "fifo"}


@pytest.mark.parametrize(
    "change",
    [
        lambda name, data: None if name == "library.json" else (name, data),
        lambda name, data: None if name.endswith("/jobs.parquet") else (name, data),
        lambda name, data: (
            (name, data[:-9] + b"\0" * 9) if name.endswith("/jobs.parquet") else (name, data)
        ),
        lambda name, data: (name.replace("jobs.parquet", ".."), data),
        lambda name, data: (
            (name.replace("runs/", "runs/../"), data)
            if name.endswith("manifest.json")
            else (name, data)
        ),
        lambda name, data: (name, b"[1, 2]") if name.endswith("manifest.json") else (name, data),
        lambda name, data: (name, b"[" * 100_000) if name == "library.json" else (name, data),
        _listed(lambda body: body.update(numbers=[1])),
        _listed(lambda body: body.update(numbers={"../../x": {"summary": {}, "scenario": {}}})),
        _listed(
            lambda body: body.update(numbers={"ab" * 16: {"summary": {}, "scenario": SCENARIO}})
        ),
        _listed(
            lambda body: body.update(
                numbers={
                    "ab" * 16: {
                        "summary": {"jobs": 12, "completed": 12, "jct_mean_s": "fast"},
                        "scenario": SCENARIO,
                    }
                }
            )
        ),
        _listed(
            lambda body: body.update(
                numbers={
                    "ab" * 16: {
                        "summary": {"jobs": 12, "completed": 12, "end_s": [1.0]},
                        "scenario": SCENARIO,
                    }
                }
            )
        ),
        _manifest(lambda about: about["summary"].update(jct_mean_s="\x1b[31m")),
        _manifest(lambda about: about["summary"].update(jct_mean_s=10**400)),
        _manifest(lambda about: about["provenance"].pop("categories")),
        _manifest(lambda about: about["provenance"]["categories"].update({"chart-parts": 1.5})),
        _manifest(
            lambda about: about["provenance"]["categories"]["failures"]["role"].append({"a": 1})
        ),
        _manifest(lambda about: about["provenance"].update(timing={"x": 1})),
        _listed(lambda body: body.update(things=[{"document": []}])),
        _listed(lambda body: body.update(things=7)),
        _listed(lambda body: body.pop("things")),
    ],
)
def test_damaged_and_hostile_archives_are_one_sentence(
    change: Callable[[str, bytes], tuple[str, bytes] | None], store: Store, tmp_path: Path
) -> None:
    data = _changed(archive.pack_items(store, HERE, [ids(store)["study"]])[0], change)
    other = Store(tmp_path / "other")
    with pytest.raises(TrainyardError) as caught:
        archive.import_archive(other, HERE, data, "x.zip", results=True)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert all(entry.result() for entry in other.entries())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "store"]
    other.index.close()


def _swapped(body: dict[str, Any]) -> None:
    """Give the numbers of each run to the next one."""
    keys, bodies = list(body["numbers"]), list(body["numbers"].values())
    body["numbers"] = dict(zip(keys, bodies[1:] + bodies[:1], strict=True))


def _elsewhere(body: dict[str, Any]) -> None:
    for one in body["numbers"].values():
        one["scenario"]["trace"]["source"] = "/etc/hostname"


@pytest.mark.parametrize("change", [_swapped, _elsewhere])
def test_results_under_keys_that_are_not_their_own_are_left_out_and_that_is_said(
    change: Callable[[dict[str, Any]], None],
    call: Call,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = ids(store)
    own = store.index.uses(known["sweep"])
    alone = [key for key, row in store.index.among("run", own).items() if not row.complete]
    assert len(alone) > 1
    data, _ = archive.pack_items(store, HERE, [known["sweep"]])
    (tmp_path / "forged.zip").write_bytes(_changed(data, _listed(change)))
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "other"))
    code, out, _ = call("runs", "import", "forged.zip")
    said = (
        f"{len(alone)} results of the file are computed again here, because a file cannot prove"
        " its results."
    )
    assert (code, out.splitlines()) == (0, [f"forged.zip: {known['sweep'][:12]} imported", said])
    other = Store(tmp_path / "other")
    assert set(other.numbers(own)) == set(own) - set(alone)
    other.index.close()


def test_where_results_are_not_believed_recipes_names_and_tags_are_taken_over(
    store: Store, tmp_path: Path
) -> None:
    known = ids(store)
    library.label_item(store, HERE, known["plan"], name="Mine", tags=["talk"])
    keys = set(store.numbers(key for one in known.values() for key in store.index.uses(one)))
    data, _ = archive.pack_items(store, HERE, list(known.values()))
    other = Store(tmp_path / "other")
    taken = archive.import_archive(other, "ann", data, "x.zip", results=False)
    assert (set(taken.ids), taken.left) == (set(known.values()), len(keys))
    assert (library.item(other, "ann", "Mine").tags, library.item(other, "ann", "Mine").runs) == (
        ("talk",),
        0,
    )
    assert other.numbers(keys) == {}
    other.index.close()


def test_tables_that_would_fill_the_memory_are_refused_before_they_are_read(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = to_parquet(pd.DataFrame({"x": np.zeros(200_000)}))
    study, _ = archive.pack_items(store, HERE, [ids(store)["study"]])

    def put_in(rows: int) -> Callable[[str, bytes], tuple[str, bytes]]:
        def change(name: str, data: bytes) -> tuple[str, bytes]:
            if name.endswith("/jobs.parquet"):
                return name, bomb
            if not name.endswith("/manifest.json"):
                return name, data
            about = json.loads(data)
            about["sizes"]["jobs.parquet"], about["rows"]["jobs"] = len(bomb), rows
            return name, json.dumps(about).encode()

        return change

    def read(*_: object) -> None:
        raise AssertionError("a table was read")

    monkeypatch.setattr(pd, "read_parquet", read)
    monkeypatch.setattr(archive, "MAX_READ_MB", 3.0)
    other = Store(tmp_path / "other")
    # Two results of 200,000 values of 8 bytes each.
    with pytest.raises(StoreError, match="the tables of this archive have more than 3 MB"):
        archive.import_archive(other, HERE, _changed(study, put_in(200_000)), "x.zip", results=True)
    with pytest.raises(StoreError, match="is damaged or edited"):
        archive.import_archive(other, HERE, _changed(study, put_in(5)), "x.zip", results=True)
    assert other.entries() == []
    other.index.close()


def test_what_is_damaged_is_exported_as_numbers_and_that_is_said(
    call: Call, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = ids(store)["study"]
    bad, drawn, *_ = keys = store.index.uses(study)
    for key, name in (
        (bad, "jobs.parquet"),
        (drawn, next(name for name in store.pack_files(drawn) if name.startswith("chart-"))),
    ):
        path = store.root / "runs" / key[:2] / key / name
        path.write_bytes(b"x" * path.stat().st_size)
    code, out, _ = call("runs", "export", study, "-o", "all.zip")
    said = (
        f"2 results ({', '.join(sorted(key[:12] for key in (bad, drawn)))}) were damaged: only"
        " their numbers remain"
    )
    assert code == 0
    assert set(store.numbers(keys)) == set(keys)
    assert out.splitlines()[1].startswith(said)
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "other"))
    assert call("runs", "import", "all.zip")[0] == 0
    other = Store(tmp_path / "other")
    assert set(other.numbers(keys)) == set(keys)
    assert other.get(bad) is None
    other.index.close()


def test_an_archive_that_cannot_be_written_leaves_the_one_before(
    call: Call, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = ids(store)["study"]
    assert call("runs", "export", study, "-o", "all.zip")[0] == 0
    before = Path("all.zip").read_bytes()

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    code, _, err = call("runs", "export", study, "-o", "all.zip")
    assert (code, err) == (
        2,
        "all.zip: the file cannot be written (No space left on device). Choose another place.\n",
    )
    assert Path("all.zip").read_bytes() == before
    assert [path.name for path in Path().glob("*.zip*")] + [
        path.name for path in Path().glob(".*")
    ] == ["all.zip"]


def test_nothing_of_an_archive_commands_a_terminal(
    call: Call, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(body: dict[str, Any]) -> None:
        body["things"][0] |= {"name": "a\x1b[2Jb\x00\n", "tags": ["\x9b31m", "\x07"]}
        body["things"][0]["document"]["base"]["trace"]["source"] = "x\x1b]0;y.csv"

    Path("odd.zip").write_bytes(
        _changed(archive.pack_items(store, HERE, [ids(store)["study"]])[0], _listed(change))
    )
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "other"))
    assert call("runs", "import", "odd.zip")[0] == 0
    code, out, _ = call("runs", "list")
    assert (code, "a [2Jb" in out, "31m" in out) == (0, True, True)
    assert all(letter == "\n" or letter.isprintable() for letter in out)
    (one,) = library.items(Store(tmp_path / "other"), HERE)
    assert one.title.isprintable()


def test_what_is_named_twice_counts_once(call: Call, store: Store) -> None:
    plan = ids(store)["plan"]
    assert call("runs", "export", plan, plan[:12], "-o", "one.zip")[1].startswith(
        "one.zip: 1 item,"
    )
    assert call("runs", "rm", plan, plan[:12])[1].startswith("1 item removed")


def test_files_that_are_no_archives(store: Store) -> None:
    for data in (b"", b"PK\x05\x06" + b"\0" * 18, b"PK\x03\x04 not really", b"\0" * 1000):
        with pytest.raises(
            StoreError, match=r"x: this is not a library archive, or it is damaged\."
        ):
            archive.import_archive(store, HERE, data, "x", results=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show"], "runs show needs 1 argument"),
        (["show", "a", "b"], "runs show needs 1 argument"),
        (["name", "x"], "runs name needs 2 arguments"),
        (["show", "nothing"], "has the name or id 'nothing'"),
        (["rm", "nothing"], "has the name or id 'nothing'"),
        (["export", "nothing"], "has the name or id 'nothing'"),
        (["export", "nothing", "-o", "x.tar"], "must end in .zip"),
        (["import", "nowhere.zip"], "cannot be read"),
        (["forget"], "invalid choice"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(call: Call, words: list[str], said: str) -> None:
    code, out, err = call("runs", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert err.strip().endswith(".")


def test_a_run_is_kept_with_its_jobs_on_request(call: Call, store: Store) -> None:
    assert call("convert", "--trace", "sample:tiny", "--out", "mine.csv")[0] == 0
    before = len(library.items(store, HERE))
    arguments = (
        "run",
        "--trace",
        "mine.csv",
        "--cluster",
        "1x8:v100",
        "--allocator",
        "fifo",
        "--allocator",
        "srtf",
        "--set",
        "trace.load=2",
    )
    assert call(*arguments)[0] == 0
    assert len(library.items(store, HERE)) == before
    code, out, err = call(*arguments, "--keep", "--json")
    assert code == 0
    Path("mine.csv").unlink()
    made = library.items(store, HERE)[0]
    assert f"Kept in the library: python -m trainyard runs show {made.id[:12]}" in err
    runs = json.loads(out)["runs"]
    assert sorted(run["key"] for run in runs) == store.index.uses(made.id)
    shown = json.loads(call("runs", "show", made.id, "--json")[1])["kept"]
    assert [row["jct_mean_s"] for row in shown] == [run["jct_mean_s"] for run in runs]
    assert all(
        entry is not None and entry.result() for entry in map(store.get, store.index.uses(made.id))
    )


def test_nothing_yet(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_STORE", str(tmp_path / "empty"))
    assert call("runs", "list") == (0, "The library is empty.\n", "")
    assert json.loads(call("runs", "list", "--json")[1]) == []
    assert "There is no sweep with that id to continue" in call("sweep", "--resume")[2]


def test_a_run_that_changes_at_an_instant_is_shown_exported_and_set_beside_the_comparison(
    call: Call, store: Store, tmp_path: Path
) -> None:
    asked = FromHere(
        Study.from_json(STUDY), 1, BranchPoint(300.0, Spec("fifo"), lost=("v100-1-2",))
    )
    scenarios = (asked.branch.was, asked.branch.here)
    made = library.shelve(
        store,
        HERE,
        asked,
        [run_to_store(scenario.to_json(), store.address) for scenario in scenarios],
    )
    assert "what-if" in library.KINDS[library.item(store, HERE, made).kind]
    assert [one.id for one in library.items(store, HERE, "what-if 00:05:00")] == [made]
    shown = call("runs", "show", made)[1]
    assert shown.startswith("SRTF on ")
    assert ", from day 1, 00:05:00 on with FIFO and without v100-1-2 (id " in shown
    assert "SRTF, seed 0" in shown
    assert "SRTF, from here on, seed 0" in shown
    (other,) = [one for one in library.items(store, HERE) if one.kind == "study"]
    means = library.compare_items(store, other, library.item(store, HERE, made)).means()
    assert means[means["policy"] == "SRTF"]["change"].fillna(0).eq(0).all()
    data, damaged = archive.pack_items(store, HERE, [made])
    assert not damaged
    there = Store(tmp_path / "other")
    assert archive.import_archive(there, "me", data, "x.zip", results=True).left == 0
    (taken,) = library.items(there, "me")
    assert taken.recipe() == asked
    assert (taken.runs, taken.there) == (2, 2)
    there.index.close()
