from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sim.errors import TrainyardError
from sim.trace import Trace
from trainyard.store import Store
from trainyard.study.scenario import TraceSpec
from trainyard.study.study import Study
from trainyard.traces import bundle, new_study
from trainyard.traces.samples import SAMPLES, load_sample
from trainyard.traces.sources import load_source

ACCOUNT = {
    "format": "table",
    "file": "mine.csv",
    "read": 3,
    "used": 2,
    "dropped": 1,
    "altered": 0,
    "reasons": [{"action": "dropped", "reason": "no end", "rows": 1}],
    "guesses": [],
    "warnings": ["Times were taken for seconds."],
}


@pytest.fixture
def study(store: Store) -> Study:
    frame = pd.DataFrame(
        {
            "job_id": ["b", "a"],
            "submit_time_s": [0.0, 1 / 3],
            "num_gpus": [1, 2],
            "duration_s": [5.5, 7.25],
            "user": [None, None],
        }
    )
    digest = store.put_trace(
        Trace.of(frame, name="my month", epoch="2026-01-05T00:00:00+00:00"), ACCOUNT
    )
    base = new_study.sample_study("tiny").base
    return Study(
        replace(base, trace=TraceSpec(f"store:{digest}", load=2.0)), (base.allocator,)
    ).with_name("mine")


def archive(**changed: str | bytes | None) -> Callable[[Study, Store], bytes]:
    """An archive with some of its files replaced, or, if None, left out."""

    def make(study: Study, store: Store) -> bytes:
        made = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(bundle.scenario_archive(study, store))) as old,
            zipfile.ZipFile(made, "w") as new,
        ):
            for name in old.namelist():
                content = changed.get(name.replace(".", "_"), old.read(name))
                if content is not None:
                    new.writestr(name, content)
        return made.getvalue()

    return make


def test_an_archive_restores_scenario_jobs_and_account_elsewhere(
    study: Study, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Store(tmp_path_factory.mktemp("other"))
    data = bundle.scenario_archive(study, store)
    assert data == bundle.scenario_archive(study, store)
    found = bundle.open_scenario_file(data, "mine.zip", new_study.sample_study("tiny"), other)
    assert (found.study, found.missing_trace, found.jobs) == (study, "", 2)
    there, here = load_source(study.base.trace, other), load_source(study.base.trace, store)
    assert (there.trace.digest, there.trace.name, there.trace.epoch) == (
        here.trace.digest,
        "my month",
        here.trace.epoch,
    )
    assert there.account == ACCOUNT


@pytest.mark.parametrize(
    "name", [name for name, sample in SAMPLES.items() if sample.suffix == ".parquet"][:2]
)
def test_jobs_of_a_sample_come_out_as_they_went_in(name: str, store: Store) -> None:
    study = new_study.sample_study(name)
    found = bundle.open_scenario_file(
        bundle.scenario_archive(study, store), "sample.zip", study, store
    )
    digest = load_sample(name)[0].digest
    assert found.study == study
    assert store.get_trace(digest).digest == digest


def test_a_trace_that_was_read_from_a_file_becomes_an_upload(study: Study, store: Store) -> None:
    away = replace(
        study,
        base=replace(
            study.base,
            trace=replace(study.base.trace, source="/data/month.txt", read=(("cpu_jobs", "keep"),)),
        ),
    )
    found = bundle.open_scenario_file(
        archive(scenario_json=bundle.scenario_text(away))(study, store), "mine.zip", study, store
    )
    assert found.study == study


def test_a_scenario_alone_keeps_the_trace_that_was_there_if_its_own_is_a_file(
    study: Study, store: Store
) -> None:
    away = replace(study, base=replace(study.base, trace=TraceSpec("/data/month.txt"), seed=9))
    found = bundle.open_scenario_file(bundle.scenario_text(away).encode(), "cli.json", study, store)
    assert (found.missing_trace, found.jobs, found.study.base.seed) == ("/data/month.txt", 0, 9)
    assert found.study.base.trace == study.base.trace
    assert (
        bundle.open_scenario_file(
            bundle.scenario_text(study).encode(), "mine.json", new_study.sample_study("tiny"), store
        ).study
        == study
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda study, store: b"PK\x03\x04 and no more", "damaged or locked"),
        (archive(scenario_json=None), "has no scenario.json"),
        (archive(trace_parquet=None), "has no trace.parquet"),
        (archive(scenario_json="{"), "this is not JSON"),
        (archive(trace_parquet=b"job_id,submit_time_s"), "Parquet file is damaged"),
        (archive(scenario_json=b" " * 2_100_000), "takes more than the limit"),
        (lambda study, store: bundle.scenario_archive(study, store)[:-30], "damaged or locked"),
    ],
    ids=["stump", "no scenario", "no jobs", "no json", "no parquet", "bomb", "cut"],
)
def test_a_wrong_archive_gets_one_sentence(
    make: Callable[[Study, Store], bytes], message: str, study: Study, store: Store
) -> None:
    with pytest.raises(TrainyardError, match=message) as caught:
        bundle.open_scenario_file(make(study, store), "mine.zip", study, store)
    assert "mine.zip" in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"account": [1]},
        {"account": {**ACCOUNT, "read": "<b>"}},
        {"account": {**ACCOUNT, "reasons": [{"rows": 1}]}},
        {"epoch": "soon", "name": "x" * 900},
        {"epoch": "9999-12-31"},
        {"doubts": [5]},
        {"doubts": [None, True, "ab", {"a": 1, "b": 2}, ["a", "b", "c"]]},
        {"doubts": {"a": "b"}},
    ],
)
def test_what_is_said_beside_the_jobs_is_checked(
    wrong: dict[str, object], study: Study, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Store(tmp_path_factory.mktemp("other"))
    data = archive(trace_json=json.dumps({"name": "n", "epoch": "", "account": ACCOUNT} | wrong))(
        study, store
    )
    bundle.open_scenario_file(data, "mine.zip", study, other)
    source = load_source(study.base.trace, other)
    assert source.account == ({} if "account" in wrong else ACCOUNT)
    assert (len(source.trace.name), source.trace.epoch) == (200 if "name" in wrong else 1, "")


def test_the_id_of_a_scenario_leaves_its_name_out(study: Study) -> None:
    assert study.digest == study.with_name("other").digest != replace(study, repeats=2).digest
    assert len(study.digest) == 16


def test_the_command_line_reads_the_jobs_of_an_archive_as_they_were(
    tmp_path: Path, store: Store
) -> None:
    study = new_study.sample_study("week")
    with zipfile.ZipFile(io.BytesIO(bundle.scenario_archive(study, store))) as file:
        file.extract(bundle.JOBS_FILE, tmp_path)
    spec = TraceSpec.of(str(tmp_path / bundle.JOBS_FILE), read={"cpu_jobs": "keep"})
    assert load_source(spec).trace.digest == load_source(study.base.trace).trace.digest
