"""Profiles of the user: kept by content, found again, checked against a trace; jobs left out are
accounted for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError, TrainyardError
from sim.params import Spec
from sim.perf.measured import built_in
from sim.trace import Trace
from tests.shared import SetClock
from trainyard.preflight import coverage
from trainyard.results.outcomes import gather, report
from trainyard.runs.run import run, run_to_store, scenario_key
from trainyard.store import Store, StoreError, profiles
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study
from trainyard.traces import new_study
from trainyard.traces.sources import load_source, load_trace

HEADER = "gpu_type,model,batch_size,scale_factor,placement,iterations_per_second\n"
MINE = f"""{HEADER}big,Net,32,1,single,10
big,Net,32,2,consolidated,18
small,Net,32,1,single,4
small,Net,32,2,consolidated,0
big,Huge,8,1,single,2
small,Huge,8,1,single,0
"""
CLUSTER = Cluster.parse("1x4:big,2x2:small")


def trace_of(*rows: tuple[str, float, int], **columns: Any) -> Trace:
    frame = pd.DataFrame(
        {
            "job_id": [f"j{at}" for at in range(len(rows))],
            "submit_time_s": [100.0 * at for at in range(len(rows))],
            "num_gpus": [gpus for _, _, gpus in rows],
            "duration_s": [1000.0] * len(rows),
            "model": [model for model, _, _ in rows],
            "batch_size": [batch for _, batch, _ in rows],
            **columns,
        }
    )
    return Trace.of(frame, name="mine")


JOBS = trace_of(("Net", 32, 1), ("Net", 32, 2), ("Odd", 8, 1), ("Huge", 8, 1), ("Net", 64, 1))
KNOWN = trace_of(("Net", 32, 1), ("Net", 32, 2), ("Net", 32, 1))


def taken(store: Store, text: str = MINE, **more: Any) -> Spec:
    kept = profiles.store_profile(text.encode(), "mine.csv", store)
    return profiles.with_table(Spec.of("profiled", **more), kept, CLUSTER)


def scenario_of(store: Store, trace: Trace, perf: Spec) -> Scenario:
    return Scenario(TraceSpec(f"store:{store.put_trace(trace)}"), CLUSTER, Spec("fifo"), perf)


def test_a_profile_is_kept_by_its_content_and_found_again(store: Store) -> None:
    perf = taken(store)
    source = perf.values["table"]
    assert source.startswith("store:")
    assert taken(store).values["table"] == source
    # The order of columns, the delimiter and columns that are not used are no content.
    reordered = "\n".join(
        ";".join([*reversed(line.split(",")), "x"]) for line in MINE.strip().split("\n")
    )
    assert taken(store, reordered).values["table"] == source
    assert taken(store, MINE.replace(",10\n", ",11\n")).values["table"] != source
    table = profiles.load_profile(source, store)
    assert table.name == "mine.csv"
    assert table.rows == profiles.store_profile(MINE.encode(), "x", store).table.rows
    assert profiles.models_of(perf, store) == ("Huge", "Net")


def test_every_built_in_table_survives_being_kept(store: Store) -> None:
    table = built_in("simulation")
    kept = profiles.store_profile(table.to_frame().to_csv(index=False).encode(), "gavel.csv", store)
    found = profiles.load_profile(kept.source, store)
    assert found.rows.keys() == table.rows.keys()
    assert all(found.rows[key].together == row.together for key, row in table.rows.items())
    assert found.models == table.models
    assert found.types == table.types


def test_sentences_on_how_it_was_read_are_kept(store: Store) -> None:
    lines = [
        f"{line},{name}"
        for line, name in zip(
            MINE.strip().split("\n"), ["source", "a", "a", "a", "a", "b", "b"], strict=True
        )
    ]
    source = taken(store, "\n".join(lines)).values["table"]
    profiles._load_stored.cache_clear()
    assert profiles.load_profile(source, store).notes == (
        "The file holds 2 tables (column source); the first is used: a.",
    )


def test_a_profile_may_begin_with_another_reference_and_stand_in(store: Store) -> None:
    assert taken(store).values["reference"] == "big"
    assert "reference" not in taken(store, MINE.replace("small", "v100")).values
    assert (
        taken(store, MINE.replace("big", "x100").replace("small", "y100")).values["reference"]
        == "x100"
    )
    assert taken(store, stand_in="Net").values["stand_in"] == "Net"
    assert taken(store, stand_in="relative").values["stand_in"] == "relative"
    assert "stand_in" not in taken(store, stand_in="LM").values


def test_the_key_of_a_result_depends_on_the_content(store: Store) -> None:
    one, other = (
        scenario_key(scenario_of(store, KNOWN, taken(store, text)), store)
        for text in (MINE, MINE.replace(",18\n", ",19\n"))
    )
    assert one != other
    assert one == scenario_key(scenario_of(store, KNOWN, taken(store)), store)


def test_a_run_uses_the_measurements(store: Store) -> None:
    scenario = scenario_of(store, KNOWN, taken(store))
    jobs = run(scenario, store=store).jobs
    # The first job starts on the fastest type by price of the cluster's order; 1000 s are meant for
    # the reference, big.
    assert jobs["work"].tolist() == pytest.approx([10_000, 18_000, 10_000])
    assert jobs["ideal_s"].tolist() == pytest.approx([1000, 1000, 1000])
    key = run_to_store(scenario.to_json(), str(store.root))
    said = report(gather(Study(scenario, (scenario.allocator,)), store), store)
    assert store.get(key) is not None
    assert said is not None
    assert any("do not state their iterations" in sentence for sentence in said.assumptions)


def test_a_profile_that_is_gone_is_one_sentence_everywhere(store: Store) -> None:
    scenario = scenario_of(store, KNOWN, Spec.of("profiled", table="store:" + "0" * 32))
    study = Study(scenario, (scenario.allocator,))
    for use in (
        lambda: run(scenario, store=store),
        lambda: new_study.refusal_reason(study, 0, store),
        lambda: coverage.profile_coverage(scenario.perf, KNOWN, CLUSTER, store),
        lambda: profiles.assumptions(scenario.perf, KNOWN, store),
        lambda: coverage.without_unmeasured(study, store),
    ):
        with pytest.raises(
            ParameterError,
            match=(
                r"^The profile 000000000000 is no longer on this machine\. Upload its"
                r" file again, or choose"
            ),
        ):
            use()


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "zz", ""])
def test_a_source_that_is_no_hash_never_leaves_the_store(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="not a hash"):
        profiles.build_model(Spec.of("profiled", table=f"store:{name}"), store)


def test_a_path_in_a_scenario_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(MINE, encoding="utf-8")
    scenario = Scenario(TraceSpec("sample:tiny"), CLUSTER, Spec("fifo"))
    with pytest.raises(ParameterError, match=r"there is no table '.*mine\.csv'"):
        Study.from_json(
            scenario.to_json()
            | {"perf": {"name": "profiled", "params": {"table": str(tmp_path / "mine.csv")}}}
        )


def test_a_changed_profile_is_not_taken_for_the_old_one(store: Store) -> None:
    source = taken(store).values["table"]
    path = next((store.root / "profiles").glob("*/*/profile.csv"))
    path.write_bytes(path.read_bytes().replace(b",10", b",99"))
    profiles._load_stored.cache_clear()
    profiles._LOADED.clear()  # other tests read the same table from a file
    with pytest.raises(ParameterError, match="changed on disk"):
        profiles.load_profile(source, store)


def test_profiles_expire_and_a_new_upload_renews(tmp_path: Path) -> None:
    clock = SetClock()
    store = Store(tmp_path, clock=clock)
    source = taken(store).values["table"]
    folder = next((store.root / "profiles").glob("*/*"))
    clock.go_on(29.0)
    assert store.expire() == 0
    clock.go_on(2.0)
    store.put_numbers("ab" * 16, {}, {})
    assert store.expire() == 1
    assert not folder.exists()
    assert taken(store).values["table"] == source
    assert folder.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "column gpu_type is missing"),
        (HEADER, "no row below it"),
        (MINE.replace(",10\n", ",x\n"), "row 1 has the iterations_per_second 'x'"),
        (MINE + "big,Net,32,1,single,10\n", "row 7 gives Net with batch size 32 on 1 x big again"),
        ("", "column gpu_type is missing"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence_and_not_kept(
    store: Store, text: str, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        profiles.store_profile(text.encode(), "mine.csv", store)
    assert not (store.root / "profiles").exists()


def test_what_is_missing_is_counted_and_named(store: Store) -> None:
    fit = coverage.profile_coverage(taken(store), JOBS, CLUSTER, store)
    assert fit is not None
    assert not fit.runs
    assert fit.unmeasured.tolist() == [False, False, True, False, True]
    assert fit.sentences == (
        (
            "No measurement exists for 2 of 5 jobs on some GPU type that they may use; the first is"
            " job j2. Substitute their throughput or leave these jobs out before the run."
        ),
    )
    rows = {
        (row["model"], row["num_gpus"], row["gpu_type"]): (row["jobs"], row["why"])
        for row in fit.missing.to_dict("records")
    }
    assert rows["Odd", 1, "big"] == (1, "the table lacks this model")
    assert rows["Net", 2, "small"] == (1, "throughput is 0: the job does not fit there")
    assert fit.lines(2)[2] == f"and {len(fit.missing) - 2} combinations more"
    assert "Odd, batch size 8, 1 GPU on big: the table lacks this model (1 job)" in fit.lines(20)


def test_who_is_refused_is_who_the_check_names(store: Store) -> None:
    for stand_in in ("", "relative", "Net"):
        perf = taken(store, stand_in=stand_in)
        fit = coverage.profile_coverage(perf, JOBS, CLUSTER, store)
        assert fit is not None
        count = int(fit.unmeasured.sum())
        assert count == {"": 2, "relative": 1, "Net": 0}[stand_in]
        if count:
            with pytest.raises(
                ParameterError,
                match=f"no throughput was measured of {count} of 5 GPU jobs; the first is job j2",
            ):
                profiles.build_model(perf, store).bind(JOBS, CLUSTER)
        else:
            profiles.build_model(perf, store).bind(JOBS, CLUSTER)


def test_what_helps_is_counted_before_it_is_chosen(store: Store) -> None:
    # Of j2 the model is unknown, of j4 the batch size; a model stands in for both, relative speeds
    # for the second only.
    asked = coverage.profile_coverage(taken(store), JOBS, CLUSTER, store)
    assert asked is not None
    assert dict(asked.helped) == {"relative": 1, "": 2}
    for stand_in, count in (("relative", 1), ("Net", 2)):
        then = coverage.profile_coverage(taken(store, stand_in=stand_in), JOBS, CLUSTER, store)
        assert then is not None
        assert int((asked.unmeasured & ~then.unmeasured).sum()) == count


def test_a_duration_on_a_type_of_throughput_0_is_no_work(store: Store) -> None:
    trace = trace_of(("Huge", 8, 1), ("Huge", 8, 1), gpu_type=["small", "big"])
    fit = coverage.profile_coverage(taken(store), trace, CLUSTER, store)
    assert fit is not None
    assert not fit.runs
    assert dict(fit.helped) == {}
    assert fit.sentences[0].startswith(
        "The work of 1 of 2 jobs is unknown, because the profile has no throughput above 0 on the"
        " GPU type"
    )
    known = coverage.profile_coverage(
        taken(store),
        trace_of(("Huge", 8, 1), gpu_type=["small"], total_steps=[500.0]),
        CLUSTER,
        store,
    )
    assert known is not None
    assert known.runs


def test_jobs_that_run_nowhere_are_counted(store: Store) -> None:
    only_small = Cluster.parse("2x2:small")
    fit = coverage.profile_coverage(
        taken(store), trace_of(("Net", 32, 1), ("Huge", 8, 1)), only_small, store
    )
    assert fit is not None
    assert fit.runs
    assert fit.sentences == (
        (
            "1 job can never start, because the throughput is 0 on every GPU type here; the first"
            f" is job j1. {coverage._NEVER_STARTS_ADVICE}"
        ),
    )


def test_gangs_that_no_type_holds_are_counted(store: Store) -> None:
    # Two GPUs of Net run on the large type only, of which there is one; one CPU job and one that
    # fits change nothing.
    trace = trace_of(("Net", 32, 2), ("", np.nan, 0), ("Net", 32, 1), ("Net", 32, 2))
    fit = coverage.profile_coverage(taken(store), trace, Cluster.parse("1x1:big,2x2:small"), store)
    assert fit is not None
    assert fit.runs
    room = (
        "no GPU type on which they run has room for a gang of that size, unless a policy"
        " mixes types"
    )
    assert fit.sentences == (
        f"2 jobs can never start, because {room}; the first is job j0."
        f" {coverage._NEVER_STARTS_ADVICE}",
    )


def test_gpu_types_that_nobody_knows_are_named_with_their_jobs(store: Store) -> None:
    trace = trace_of(
        *[("Net", 32, 1)] * 4,
        gpu_type=["big", "titan", "titan", ""],
        gpu_types_allowed=["", "", "h100|a100", "big"],
    )
    fit = coverage.profile_coverage(taken(store), trace, CLUSTER, store)
    assert fit is not None
    assert fit.sentences == (
        "The profile lacks GPU types on which jobs were recorded: titan (2 jobs).",
        (
            "The cluster lacks GPU types that jobs request: h100 or a100 (1 job). These jobs count"
            " as impossible: add nodes of such a type, or keep the jobs."
        ),
    )
    more = coverage.profile_coverage(
        taken(store), trace_of(("Net", 32, 1)), Cluster.parse("1x2:big,1x2:t4"), store
    )
    assert more is not None
    assert (
        more.sentences[-1]
        == "The profile has no measurement on t4, of which this cluster has nodes."
    )
    standing = coverage.profile_coverage(
        taken(store, stand_in="relative"),
        trace_of(("Net", 32, 1)),
        Cluster.parse("1x2:big,1x2:t4"),
        store,
    )
    assert standing is not None
    assert standing.runs
    assert (
        standing.sentences[-1]
        == f"{more.sentences[-1]} Those of other types are used, times the relative speed on the"
        " Cluster page."
    )
    many = trace_of(*[("Net", 32, 1)] * 8, gpu_type=[f"kind{at}" for at in range(8)])
    counted = coverage.profile_coverage(taken(store), many, CLUSTER, store)
    assert counted is not None
    assert counted.sentences[0].endswith("kind4 (1 job) and 3 more.")


def test_everything_known_says_nothing(store: Store) -> None:
    fit = coverage.profile_coverage(taken(store), trace_of(("Net", 32, 1)), CLUSTER, store)
    assert fit is not None
    assert (fit.runs, fit.sentences, len(fit.missing)) == (True, (), 0)
    assert coverage.profile_coverage(Spec("rigid"), JOBS, CLUSTER, store) is None


def test_jobs_that_are_left_out_are_in_the_account(store: Store) -> None:
    scenario = scenario_of(store, JOBS, taken(store))
    study = coverage.without_unmeasured(Study(scenario, (scenario.allocator,)), store)
    source = load_source(study.base.trace, store)
    assert source.trace.frame["job_id"].tolist() == ["j0", "j1", "j3"]
    assert source.account["dropped"] == 2
    assert source.account["used"] == 3
    assert source.account["reasons"][-1] == {
        "action": "dropped",
        "reason": "no throughput was measured of such a job",
        "rows": 2,
    }
    fit = coverage.profile_coverage(study.base.perf, source.trace, CLUSTER, store)
    assert fit is not None
    assert fit.runs
    assert study.base.cluster == CLUSTER
    assert run(study.base, store=store).jobs["outcome"].tolist() == ["completed"] * 3
    assert coverage.without_unmeasured(study, store) is study


def test_leaving_the_first_jobs_out_keeps_the_window(store: Store) -> None:
    jobs = trace_of(("Odd", 8, 1), ("Net", 32, 1), ("Net", 32, 1), ("Net", 32, 1))
    scenario = scenario_of(store, jobs, taken(store))
    for from_s, to_s in ((150.0, 250.0), (0.0, 250.0), (0.0, float("inf"))):
        cut = replace(scenario, trace=replace(scenario.trace, from_s=from_s, to_s=to_s))
        expected = [name for name in load_trace(cut.trace, store).frame["job_id"] if name != "j0"]
        study = coverage.without_unmeasured(Study(cut, (cut.allocator,)), store)
        assert load_trace(study.base.trace, store).frame["job_id"].tolist() == expected


def test_leaving_everybody_out_is_refused(store: Store) -> None:
    scenario = scenario_of(store, trace_of(("Odd", 8, 1)), taken(store))
    with pytest.raises(ParameterError, match="The profile covers none of the 1 job of mine"):
        coverage.without_unmeasured(Study(scenario, (scenario.allocator,)), store)


def test_a_file_on_the_command_line_is_named_by_its_content(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(MINE, encoding="utf-8")
    spec = profiles.from_file(Spec.of("profiled", table=str(path), reference="big"))
    assert spec.values["table"] == taken(store).values["table"]
    assert spec.values["reference"] == "big"
    # It is at hand in this process without being kept.
    assert coverage.profile_coverage(spec, KNOWN, CLUSTER, Store(tmp_path / "empty")) is not None
    for other in (Spec("rigid"), Spec("profiled"), Spec.of("profiled", table="physical"), spec):
        assert profiles.from_file(other) is other


def test_documents_name_profiles_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(MINE, encoding="utf-8")
    spec = profiles.from_file(Spec.of("profiled", table=str(path)))
    for perf in (f"profiled:table={path}", {"name": "profiled", "params": {"table": str(path)}}):
        assert profiles.with_contents({"base": {"perf": perf, "seed": 1}, "repeats": 2}) == {
            "base": {"perf": spec.to_json(), "seed": 1},
            "repeats": 2,
        }
    assert profiles.with_contents({"seed": 1}) == {"seed": 1}
    assert profiles.with_contents({"perf": 7}) == {"perf": 7}


@pytest.mark.parametrize("name", ["nowhere.csv", ".", "a\0b", "empty.csv"])
def test_a_file_that_is_none_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    with pytest.raises(TrainyardError) as caught:
        profiles.from_file(Spec.of("profiled", table=name))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_jobs_without_gpus_are_never_unmeasured(store: Store) -> None:
    fit = coverage.profile_coverage(
        taken(store), trace_of(("", np.nan, 0), ("Net", 32, 1)), CLUSTER, store
    )
    assert fit is not None
    assert (fit.runs, fit.sentences) == (True, ())
