"""Profiled jobs: rates by hand from the published table, spans, mixed types, copies, what stands in
for what was not measured.
"""

from __future__ import annotations

import pickle
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from sim.cluster import Cluster
from sim.conditions import Conditions
from sim.engine.simulator import Simulator
from sim.errors import ContractError, ParameterError
from sim.grants import Gang, Grant, Part, Shape
from sim.perf.copy_cost import FREE
from sim.perf.lookup import Combination, Finder, missing_combinations, used_types
from sim.perf.measured import Key, Measured, ProfileTable, built_in, read_profile
from sim.perf.profiled import Profiled
from sim.trace import Trace
from tests.sim.scripted import across, jobs, on

# Nodes 0, 1 of 4 V100; 2 of 8 P100; 3..6 of one K80; 7 of CPUs. Types in the order v100, p100, k80.
CLUSTER = Cluster.parse("2x4:v100,1x8:p100,4x1:k80,1x0:cpu")
V100, P100, K80 = (0, 1), 2, (3, 4, 5, 6)
# Throughputs of LM with batch size 5 and of ResNet-50 with batch size 64 and 128, simulation table,
# as published.
LM_V100 = {1: 109.16661771207029, 2: 185.72383101933428, 4: 126.71571815404346, 8: 698.773292956699}
LM_P100 = {1: 90.77591199634988, 2: 76.92190129668617, 4: 110.21661082949367, 8: 133.5240899561302}
LM_K80 = {1: 25.485501277170847, 2: 32.38551179103253, 4: 44.08947633248205}
LM_V100_SPREAD = {2: 40.35214697555348, 4: 44.89558237657379}
LM_K80_SPREAD_2 = 22.128257109587743
RESNET_V100 = {1: 4.394774823323071, 4: 9.451949566394442}
RESNET_V100_SPREAD_4 = 11.136430014818272


def trace(*rows: tuple[str, float, int], **columns: Any) -> Trace:
    """Jobs of (model, batch size, GPUs), all of 100 s."""
    return jobs(
        *((0, gpus, 100) for _, _, gpus in rows),
        model=[model for model, _, _ in rows],
        batch_size=[batch for _, batch, _ in rows],
        **columns,
    )


LM = trace(("LM", 5, 1), ("LM", 5, 2), ("LM", 5, 4), ("ResNet-50", 64, 4), ("", nan, 0))


def speed(model: Any, job: int, grant: Grant) -> float:
    return float(model.rate(job, grant, 0.0, 0.0).work_per_s)


def test_rates_on_one_server_are_those_of_the_table() -> None:
    model = Profiled().bind(LM, CLUSTER)
    assert speed(model, 0, on(0)) == LM_V100[1]
    assert speed(model, 1, on(0, 2)) == LM_V100[2]
    assert speed(model, 2, on(2, 4)) == LM_P100[4]
    assert speed(model, 0, on(6)) == LM_K80[1]
    assert speed(model, 3, on(1, 4)) == RESNET_V100[4]
    assert model.limits().min_gpus.tolist() == model.limits().max_gpus.tolist() == [1, 2, 4, 4, 0]
    assert np.isnan(model.limits().min_batch).all()
    # ResNet-50 on four is fastest on P100: 10.36 against 9.45.
    assert model.fastest() == pytest.approx(
        [LM_V100[1], LM_V100[2], LM_V100[4], 10.36465731519379, 1]
    )


def test_work_is_counted_in_iterations() -> None:
    told = trace(
        ("LM", 5, 2),
        ("LM", 5, 2),
        ("LM", 5, 2),
        ("", nan, 0),
        total_steps=[5000, nan, nan, nan],
        gpu_type=["k80", "k80", nan, nan],
    )
    assert Profiled().bind(told, CLUSTER).work() == pytest.approx(
        [5000, 100 * LM_K80[2], 100 * LM_V100[2], 100]
    )
    assert Profiled(reference="p100").bind(told, CLUSTER).work()[2] == pytest.approx(
        100 * LM_P100[2]
    )
    said = (
        "2 of 3 GPU jobs do not state their iterations; they follow from the duration and the"
        " throughput on the type it was measured on, else on v100."
    )
    assert Profiled().assumptions(told) == (said,)
    strange = trace(("LM", 5, 2), gpu_type=["h100"])
    assert Profiled().bind(strange, CLUSTER).work() == pytest.approx([100 * LM_V100[2]])
    assert (
        Profiled().assumptions(strange)[0]
        == "1 of 1 GPU jobs were recorded on a GPU type that the table lacks; their duration is"
        " taken for one on v100."
    )
    # With a stand-in, an H100 is 4.2 times a V100, the reference.
    assert Profiled(stand_in="relative").bind(strange, CLUSTER).work() == pytest.approx(
        [100 * LM_V100[2] * 4.2]
    )


def test_the_physical_table_and_the_cleaned_one() -> None:
    assert speed(Profiled(table="physical").bind(LM, CLUSTER), 0, on(0)) == 114.11092944480009
    clean = Profiled(cleaned=True).bind(LM, CLUSTER)
    assert speed(clean, 2, on(0, 4)) == LM_V100[2]  # four are no slower than two
    assert speed(clean, 3, on(0, 4)) == 10.36465731519379  # a V100 no slower than a P100


@pytest.mark.parametrize(
    ("spread", "lm", "resnet"),
    [
        ("ignore", LM_V100[4], RESNET_V100[4]),
        (
            "ratio",
            LM_V100_SPREAD[4],
            RESNET_V100[4],
        ),  # the ratio of ResNet-50 is 1.18, clipped at 1
        ("table", LM_V100_SPREAD[4], RESNET_V100_SPREAD_4),
        # Two servers of at most four: a third of the way from 1/126.7 to 1/44.9 seconds per
        # iteration.
        ("linear", 1 / (2 / 3 / LM_V100[4] + 1 / 3 / LM_V100_SPREAD[4]), RESNET_V100[4]),
    ],
)
def test_a_gang_on_several_servers(spread: str, lm: float, resnet: float) -> None:
    model = Profiled(spread=spread).bind(LM, CLUSTER)
    halves = across({0: 2, 1: 2})
    assert speed(model, 2, halves) == pytest.approx(lm, rel=1e-12)
    assert speed(model, 3, halves) == pytest.approx(resnet, rel=1e-12)
    assert speed(model, 2, on(0, 4)) == LM_V100[4]
    # Fully spread, linear is the table.
    full = speed(model, 1, across({0: 1, 1: 1}))
    assert full == pytest.approx(LM_V100[2] if spread == "ignore" else LM_V100_SPREAD[2])


def test_spread_figures_that_were_never_measured_cost_nothing() -> None:
    # ResNet-50 with batch size 64 was never measured on several servers of K80.
    model = Profiled(spread="table").bind(trace(("ResNet-50", 64, 2)), CLUSTER)
    assert speed(model, 0, across({3: 1, 4: 1})) == 1.2636370655757299


def test_a_gang_of_several_types_runs_at_the_pace_of_the_slowest() -> None:
    grant = across({0: 1, 3: 1})
    assert speed(Profiled().bind(LM, CLUSTER), 1, grant) == LM_K80[2]
    assert speed(Profiled(split="speed").bind(LM, CLUSTER), 1, grant) == pytest.approx(
        LM_V100[2] / 2 + LM_K80[2] / 2
    )
    assert speed(Profiled(spread="ratio").bind(LM, CLUSTER), 1, grant) == LM_K80_SPREAD_2
    # Three of four on V100: 3/4 of its rate and 1/4 of that of K80.
    assert speed(
        Profiled(split="speed").bind(LM, CLUSTER), 2, across({0: 3, 3: 1})
    ) == pytest.approx(0.75 * LM_V100[4] + 0.25 * LM_K80[4])


def test_copies_of_a_forked_job_add_up_less_what_joining_them_takes() -> None:
    two = Grant((Gang(Part((0,), (1,))), Gang(Part((3,), (1,)))))
    both = LM_V100[1] + LM_K80[1]
    assert speed(Profiled().bind(LM, CLUSTER), 0, two) == pytest.approx(both * 0.95 * (1 - 5 / 360))
    three = Grant((*two.gangs, Gang(Part((2,), (1,)))))
    spec = Profiled(efficiency=0.9, consolidate_s=10, round_s=100)
    assert speed(spec.bind(LM, CLUSTER), 0, three) == pytest.approx(
        (both + LM_P100[1]) * 0.9**2 * 0.9
    )
    assert speed(spec.bind(LM, CLUSTER), 0, on(0)) == LM_V100[1]


def test_small_copies_run_at_any_measured_size() -> None:
    two = Grant((Gang(Part((0,), (2,))), Gang(Part((3,), (1,)))))
    with pytest.raises(ContractError, match="job 2 asked for 4 GPUs and cannot run on 2"):
        Profiled().bind(LM, CLUSTER).rate(2, two, 0, 0)
    model = Profiled(small_copies=True, **FREE).bind(LM, CLUSTER)
    assert speed(model, 2, two) == pytest.approx(LM_V100[2] + LM_K80[1])
    assert speed(model, 2, on(0, 1)) == LM_V100[1]
    assert model.rates(
        np.array([0, 2]), [Shape((2, 0, 0)), Shape((3, 0, 0)), Shape((0, 1, 0))]
    ).tolist() == [[0, 0, LM_P100[1]], [LM_V100[2], 0, LM_P100[1]]]
    # A stand-in does not replace the number of GPUs of a copy: 3 were not measured.
    relative = Profiled(small_copies=True, stand_in="relative", **FREE).bind(LM, CLUSTER)
    assert relative.rates(np.array([2]), [Shape((2, 0, 0)), Shape((3, 0, 0))]).tolist() == [
        [LM_V100[2], 0]
    ]
    with pytest.raises(ContractError, match="job 0 asked for 1 GPUs and cannot run on 2"):
        model.rate(0, on(0, 2), 0, 0)
    assert model.limits().min_gpus[2] == 4


@pytest.mark.parametrize("gpus", [1, 3, 8])
def test_an_incomplete_gang_is_refused(gpus: int) -> None:
    model = Profiled().bind(LM, CLUSTER)
    with pytest.raises(ContractError, match=f"job 1 asked for 2 GPUs and cannot run on {gpus}"):
        model.rate(1, on(2, gpus), 0, 0)
    assert model.rates(np.array([1]), [Shape((0, gpus, 0))]).tolist() == [[0]]


def test_where_the_throughput_is_zero_a_job_does_not_run() -> None:
    both = trace(("ResNet-50", 128, 2), ("LM", 5, 2))
    model = Profiled().bind(both, CLUSTER)
    shapes = [Shape((2, 0, 0)), Shape((0, 0, 2), 2), Shape((1, 0, 1), 2)]
    assert model.rates(np.array([0, 1]), shapes).round(3).tolist() == [
        [4.223, 0, 0],
        [185.724, 32.386, 32.386],
    ]
    assert Profiled(split="speed").bind(both, CLUSTER).rates(np.array([0]), shapes)[0, 2] == 0
    with pytest.raises(
        ContractError,
        match=(
            r"job 0 \(ResNet-50, batch size 128, 2 GPUs\) does not run on 2 k80 over several nodes:"
            r" its measured throughput"
        ),
    ):
        model.rate(0, across({3: 1, 4: 1}), 0, 0)
    table = missing_combinations(both, CLUSTER, built_in("simulation"))
    assert table[
        ["model", "batch_size", "num_gpus", "gpu_type", "jobs", "first_job"]
    ].to_numpy().tolist() == [["ResNet-50", 128, 2, "k80", 1, "j0"]]
    assert table["why"].tolist() == ["throughput is 0: the job does not fit there"]
    nowhere = Profiled().bind(
        trace(("ResNet-50", 128, 2), total_steps=[10.0]), Cluster.parse("4x4:k80")
    )
    assert np.isnan(nowhere.fastest()).all()


def test_jobs_on_cpus_and_on_the_overflow_node() -> None:
    model = Profiled().bind(LM, CLUSTER)
    assert speed(model, 4, on(7, 3, 0, 1.0)) == 1
    assert model.rates(
        np.array([4, 0]), [Shape((0, 0, 0), kind="cpu"), Shape((1, 0, 0))]
    ).tolist() == [[1, 0], [0, LM_V100[1]]]
    # There a job runs as it was recorded: 100 s, whatever its work.
    told = Profiled().bind(trace(("LM", 5, 2), ("LM", 5, 2), total_steps=[700, nan]), CLUSTER)
    assert speed(told, 0, on(8, 2)) == 7
    assert speed(told, 1, on(8, 2)) == pytest.approx(LM_V100[2])
    alone = Profiled().bind(jobs((0, 0, 10)), Cluster.parse("2x0:cpu"))
    assert alone.rates(np.array([0]), [Shape((), kind="cpu")]).tolist() == [[1]]
    assert (
        alone.work().tolist(),
        alone.fastest().tolist(),
        alone.rates(np.array([0]), []).shape,
    ) == ([10], [1], (1, 0))


def test_names_are_found_whatever_their_signs() -> None:
    odd = trace(
        ("resnet 50", 64, 1), ("RESNET-50 (batch size 64)", nan, 1), ("a3c", nan, 1), ("A3C", 4, 1)
    )
    model = Profiled().bind(odd, CLUSTER)
    assert [speed(model, job, on(0)) for job in range(4)] == [RESNET_V100[1]] * 2 + [
        built_in("simulation").find("a3c", 0, 1, "v100").together
    ] * 2  # type: ignore[union-attr]


GAPS = trace(
    ("bert", 32, 1), ("LM", 7, 1), ("LM", nan, 1), ("ResNet-50", 64, 16), ("LM", 5, 1), ("LM", 5, 1)
)


def test_what_was_not_measured_is_refused_named_and_counted() -> None:
    with pytest.raises(ParameterError) as caught:
        Profiled().bind(GAPS, CLUSTER)
    assert (
        str(caught.value)
        == "profiled: no throughput was measured of 4 of 6 GPU jobs; the first is job j0 (bert,"
        " batch size 32, 1 GPU) on v100, p100, k80. Set stand_in to relative or to a model,"
        " leave these jobs out, or bring a profile that has them."
    )
    table = missing_combinations(GAPS, Cluster.parse("1x8:v100,1x8:a100"), built_in("simulation"))
    found = {(row.first_job, row.gpu_type): (row.jobs, row.why) for row in table.itertuples()}
    assert found == {
        ("j4", "a100"): (2, "the table lacks this GPU type"),
        ("j0", "v100"): (1, "the table lacks this model"),
        ("j0", "a100"): (1, "the table lacks this model"),
        ("j1", "v100"): (1, "the table lacks this batch size"),
        ("j1", "a100"): (1, "the table lacks this batch size"),
        ("j2", "v100"): (1, "the table lacks this batch size"),
        ("j2", "a100"): (1, "the table lacks this batch size"),
        ("j3", "v100"): (1, "the table lacks this number of GPUs"),
        ("j3", "a100"): (1, "the table lacks this GPU type"),
    }
    assert table["jobs"].tolist()[0] == 2
    assert missing_combinations(LM, CLUSTER, built_in("simulation")).empty


def test_stand_ins_by_hand() -> None:
    model = Profiled(stand_in="ResNet-50 (batch size 64)").bind(GAPS, CLUSTER)
    table = built_in("simulation")
    assert speed(model, 0, on(0)) == RESNET_V100[1]
    assert speed(model, 1, on(0)) == LM_V100[1]  # 5 is nearer to 7 than 10 is, as ratios go
    assert speed(model, 2, on(0)) == table.find("lm", 20, 1, "v100").together  # type: ignore[union-attr]
    assert speed(model, 3, across({0: 8, 1: 8})) == pytest.approx(2 * 17.303172756892167)
    assert speed(model, 4, on(0)) == LM_V100[1]
    assert Profiled(stand_in="ResNet-50").assumptions(GAPS)[:3] == (
        (
            "1 of 6 GPU jobs have a model that was not measured; assumed: that of 'ResNet-50'"
            " (stand_in)."
        ),
        (
            "2 of 6 GPU jobs have a batch size that was not measured; assumed: the nearest measured"
            " (stand_in)."
        ),
        (
            "1 of 6 GPU jobs have a number of GPUs that was not measured; assumed: the same speed"
            " per GPU as on fewer (stand_in)."
        ),
    )
    with pytest.raises(ParameterError, match=r"1 of 6 GPU jobs; the first is job j0"):
        Profiled(stand_in="relative").bind(GAPS, CLUSTER)


@pytest.mark.parametrize(
    ("wanted", "gpu_type", "assumed"),
    [
        (Combination("LM", 5.0, 1), "v100", ()),
        (Combination("LM", 7.0, 1), "v100", ("batch",)),
        # The stand-in of a model has a batch size of its own.
        (Combination("bert", 7.0, 1), "v100", ("model",)),
        (Combination("LM", 5.0, 1), "a100", ("gpu_type",)),
        (Combination("ResNet-50", 64.0, 16), "v100", ("gpus",)),
    ],
)
def test_what_a_stand_in_assumes(
    wanted: Combination, gpu_type: str, assumed: tuple[str, ...]
) -> None:
    assert (
        Finder(built_in("simulation"), "ResNet-50", "v100", {}).find(wanted, gpu_type).assumed
        == assumed
    )


def test_types_that_were_not_measured_go_by_their_relative_speed() -> None:
    cluster = Cluster.parse("1x8:a100,1x8:t4")
    with pytest.raises(
        ParameterError,
        match=r"3 of 4 GPU jobs; the first is job j0 \(LM, batch size 5, 1 GPU\) on a100, t4",
    ):
        Profiled().bind(
            trace(
                ("LM", 5, 1),
                ("LM", 5, 2),
                ("ResNet-50", 64, 4),
                ("LM", 5, 1),
                gpu_types_allowed=[nan, nan, nan, "v100"],
            ),
            cluster,
        )
    model = Profiled(stand_in="relative").bind(LM, cluster)
    assert speed(model, 1, on(0, 2)) == pytest.approx(2.1 * LM_V100[2])
    assert speed(model, 1, on(1, 2)) == pytest.approx(0.37 * LM_V100[2])


def test_a_type_that_a_job_does_not_admit_need_not_be_measured() -> None:
    cluster = Cluster.parse("1x8:v100,1x8:a100")
    some = trace(("LM", 5, 1), ("LM", 5, 2), gpu_types_allowed=["v100", "p100|v100"])
    assert speed(Profiled().bind(some, cluster), 1, on(0, 2)) == LM_V100[2]
    assert missing_combinations(some, cluster, built_in("simulation")).empty


def test_a_profile_of_the_user() -> None:
    own = read_profile(
        b"gpu_type,model,scale_factor,iterations_per_second\nv100,mine,1,2\nv100,mine,2,3\n",
        "mine.csv",
    )
    spec = Profiled(table="store:abc", own=own)
    model = spec.bind(trace(("Mine", 32, 2)), Cluster.parse("1x4:v100"))
    assert speed(model, 0, on(0, 2)) == 3
    assert spec == Profiled(table="store:abc")
    assert pickle.loads(pickle.dumps(spec)).bind(
        trace(("Mine", 32, 2)), Cluster.parse("1x4:v100")
    ).work() == [300]
    with pytest.raises(
        ParameterError,
        match=(
            r"the uploaded profile 'store:abc' is missing. Upload it again, or choose one of"
            r" simulation, physical"
        ),
    ):
        Profiled(table="store:abc").bind(trace(("Mine", 32, 2)), CLUSTER)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"table": "guessed"}, "there is no table 'guessed'"),
        (
            {"reference": "h100"},
            "the table has no GPU type 'h100' as reference. It has: k80, p100, v100",
        ),
        (
            {"stand_in": "bert"},
            "stand_in: the table has no model 'bert'. It has: A3C, CycleGAN, LM",
        ),
        ({"consolidate_s": 360.0}, "consolidate_s = 360 s takes all of round_s = 360 s"),
    ],
)
def test_choices_that_make_no_sense_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Profiled(**wrong)


@given(
    gpus=st.sampled_from([1, 2, 4, 8]),
    held=st.lists(st.integers(0, 4), min_size=7, max_size=7),
    spread=st.sampled_from(["ignore", "ratio", "table", "linear"]),
    split=st.sampled_from(["even", "speed"]),
    small=st.booleans(),
)
def test_estimator_agrees_with_truth(
    gpus: int, held: list[int], spread: str, split: str, small: bool
) -> None:
    held = [min(count, node.gpus) for count, node in zip(held, CLUSTER.nodes, strict=False)]
    places = {node: count for node, count in enumerate(held) if count}
    if not places:
        return
    model = Profiled(spread=spread, split=split, small_copies=small).bind(
        trace(("LM", 5, gpus), ("ResNet-50", 128, gpus)), CLUSTER
    )
    shape = Shape((sum(held[:2]), held[2], sum(held[3:])), len(places))
    believed = model.rates(np.array([0, 1]), [shape])
    assert np.isfinite(believed).all()
    for job in (0, 1):
        if believed[job, 0]:
            assert speed(model, job, across(places)) == believed[job, 0]
            assert (
                believed[job, 0] <= model.fastest()[job] * (1 + 1e-12) or small or spread == "table"
            )
        else:
            with pytest.raises(ContractError, match=f"job {job} "):
                model.rate(job, across(places), 0, 0)


def test_a_run_takes_as_long_as_the_table_says() -> None:
    told = trace(
        ("LM", 5, 2), ("ResNet-50", 64, 4), total_steps=[LM_V100[2] * 50, RESNET_V100[4] * 80]
    )
    result = Simulator(told, Cluster.parse("1x8:v100"), Fifo(), Conditions(perf=Profiled())).run()
    assert result.jobs["finish_s"].tolist() == pytest.approx([50, 80])
    assert result.jobs["ideal_s"].tolist() == pytest.approx([50, 80])


def test_jobs_wait_for_types_on_which_they_fit_and_are_impossible_where_there_are_none() -> None:
    # ResNet-50 with batch size 128 does not run on two K80: the second waits for the V100, and the
    # queue with it.
    told = trace(
        ("ResNet-50", 128, 2),
        ("ResNet-50", 128, 2),
        ("LM", 5, 2),
        total_steps=[422.30145549692715, 422.30145549692715, 1000],
    )
    cluster = Cluster.parse("1x2:k80,1x2:v100")
    assert Profiled().bind(told, cluster).fits().tolist() == [
        [False, True],
        [False, True],
        [True, True],
    ]
    result = Simulator(told, cluster, Fifo(), Conditions(perf=Profiled())).run()
    assert result.jobs["finish_s"].tolist() == pytest.approx([100, 200, 100 + 1000 / LM_K80[2]])
    nowhere = Simulator(told, Cluster.parse("1x2:k80"), Fifo(), Conditions(perf=Profiled())).run()
    assert nowhere.jobs["outcome"].tolist() == ["impossible", "impossible", "completed"]
    assert np.isnan(nowhere.jobs["ideal_s"].iloc[0])


MODELS = st.sampled_from(
    ["LM", "ResNet-50", "resnet50 (batch size 64)", "LM (batch size 0)", "A3C", "bert", ""]
)
ROWS = st.lists(
    st.tuples(
        MODELS,
        st.sampled_from([nan, 1.0, 5.0, 64.0, 128.0, 1e9]),
        st.sampled_from([0, 1, 2, 3, 8, 64]),
    ),
    min_size=1,
    max_size=6,
)


@given(
    rows=ROWS,
    stand_in=st.sampled_from(["", "relative", "LM", "ResNet-50 (batch size 128)", "A3C"]),
    steps=st.sampled_from([nan, 1.0, 1e12]),
    measured=st.sampled_from(["", "k80", "a100", "own"]),
    cluster=st.sampled_from(["1x64:v100", "2x32:k80,1x2:a100", "1x4:own,1x0:cpu", "1x0:cpu"]),
)
def test_any_trace_is_bound_or_refused_in_one_sentence(
    rows: list[Any], stand_in: str, steps: float, measured: str, cluster: str
) -> None:
    any_trace = trace(*rows, total_steps=[steps] * len(rows), gpu_type=[measured] * len(rows))
    machines, spec = Cluster.parse(cluster), Profiled(stand_in=stand_in)
    assert all("\n" not in text for text in spec.assumptions(any_trace))
    gaps = missing_combinations(any_trace, machines, spec.measurements())
    try:
        model = spec.bind(any_trace, machines)
    except ParameterError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert refused.startswith("profiled: no throughput was measured of ")
        assert "\n" not in refused
        assert stand_in != "" or len(gaps) or np.isnan(steps)
        return
    assert (np.isfinite(model.work()) & (model.work() > 0)).all()
    shapes = [
        Shape(tuple(gpus if at == place else 0 for at in range(len(machines.types))))
        for place in range(len(machines.types))
        for gpus in (1, 2, 3, 8, 64)
    ]
    rates = model.rates(np.arange(len(rows)), shapes)
    assert np.isfinite(rates).all()
    assert (rates >= 0).all()
    fits = model.fits()
    assert fits.shape == (len(rows), len(machines.types))
    assert (
        np.isfinite(model.fastest())
        == (any_trace.numbers("num_gpus") == 0)
        | fits[:, [kind.name in used_types(machines) for kind in machines.types]].any(axis=1)
    ).all()


@pytest.mark.parametrize("measured", [Measured(inf), Measured(2.0, inf), Measured(-1.0)])
def test_a_throughput_that_is_no_speed_is_refused(measured: Measured) -> None:
    row = {Key("lm", 5, 1, "v100"): measured}
    with pytest.raises(ParameterError, match=r"^mine: LM with batch size 5 on 1 x v100 has a"):
        ProfileTable("mine", row, {"lm": "LM"})
