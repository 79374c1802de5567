"""Speeds from a table: what is read off a row, where rows end, and what is said of models without
one.
"""

from __future__ import annotations

from math import nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.queue.fifo import Fifo
from sim.cluster import Cluster, GpuType, NodeGroup
from sim.conditions import Conditions
from sim.engine.simulator import Simulator
from sim.errors import ContractError, ParameterError
from sim.grants import Shape
from sim.params import Spec, build, spec_of
from sim.perf import PERF, Rate
from sim.perf.speed_table import MEASURED, Table
from tests.shared import shared
from tests.sim.scripted import across, jobs, on

CLUSTER = Cluster(
    (NodeGroup(4, 4, "mid"), NodeGroup(1, 4, "fast"), NodeGroup(1, 0, cpus=8)),
    (GpuType("mid", 1.0), GpuType("fast", 2.0)),
)
SPEC = Table(speeds="net 1/1 2/1.5 4/2 8/5; hump 2/10 4/30 6/20")


def test_a_row_by_hand() -> None:
    model = SPEC.bind(jobs((0, 2, 10), (0, 4, 10), model=["Net", "hump"]), CLUSTER)
    # On 2 GPUs 1.5; on 4 GPUs 2; half way between 1.75; on 8 GPUs 5; all relative to the size asked
    # for.
    assert model.rate(0, on(0, 4), 0, 0) == Rate(2 / 1.5)
    assert model.rate(0, on(0, 3), 0, 0) == Rate(1.75 / 1.5)
    assert model.rate(0, on(4, 2), 0, 0) == Rate(2.0)
    assert model.rate(0, across({0: 4, 1: 4}), 0, 0) == Rate(5 / 1.5)
    row = model.rates(np.array([1]), [Shape((k, 0)) for k in range(1, 9)])[0]
    # A row may fall; outside of it there is nothing below, and nothing to gain above.
    assert row == pytest.approx([0, 1 / 3, 2 / 3, 1, 25 / 30, 20 / 30, 20 / 30, 20 / 30])
    assert model.work().tolist() == [10, 10]


def test_sizes_end_with_the_row() -> None:
    limits = SPEC.bind(
        jobs(
            (0, 2, 10),
            (0, 4, 10),
            (0, 4, 10),
            model=["net", "hump", "hump"],
            min_gpus=[nan, nan, 3],
            max_gpus=[nan, nan, 5],
        ),
        CLUSTER,
    ).limits()
    assert limits.min_gpus.tolist() == [1, 2, 3]
    assert limits.max_gpus.tolist() == [8, 6, 5]


def test_the_best_size_need_not_be_the_largest() -> None:
    rows, models = ((0, 4, 10), (0, 2, 10), (0, 6, 10), (0, 2, 10)), ["hump", "hump", "hump", "net"]
    model = SPEC.bind(
        jobs(*rows, model=models, max_gpus=[nan, 3, nan, nan], min_gpus=[nan, nan, 5, nan]), CLUSTER
    )
    # On the fast type: 30/30, 20/10 at size 3, 25/20 at size 5, 5/1.5 at size 8.
    assert model.fastest() == pytest.approx([2, 4, 2.5, 2 * 5 / 1.5])


def test_models_without_a_row_keep_their_size_or_take_the_stand_in() -> None:
    trace = jobs((0, 2, 10), (0, 2, 10), (0, 0, 10), (0, 12, 10), model=["a3c", "", "net", "net"])
    limits = SPEC.bind(trace, CLUSTER).limits()
    assert limits.min_gpus.tolist() == limits.max_gpus.tolist() == [2, 2, 0, 12]
    with pytest.raises(ContractError, match="job 0 runs on 2 GPUs or more and cannot run on 1"):
        SPEC.bind(trace, CLUSTER).rate(0, on(0, 1), 0, 0)
    assert SPEC.bind(trace, CLUSTER).rate(0, on(0, 4), 0, 0) == Rate(1.0)
    assert SPEC.bind(trace, CLUSTER).rates(
        np.arange(4), [Shape((2, 0)), Shape((0, 0), kind="cpu"), Shape((12, 0))]
    ).tolist() == [
        [1, 0, 1],
        [1, 0, 1],
        [0, 1, 0],
        [0, 0, 1],
    ]
    filled = Table(speeds=SPEC.speeds, stand_in="NET").bind(trace, CLUSTER)
    assert filled.limits().max_gpus.tolist() == [8, 8, 0, 12]
    assert filled.rate(1, on(0, 4), 0, 0) == Rate(2 / 1.5)


def test_what_is_assumed_is_said() -> None:
    trace = jobs(
        (0, 2, 10),
        (0, 2, 10),
        (0, 0, 10),
        (0, 12, 10),
        (0, 4, 10),
        model=["a3c", "net", "net", "net", "ResNet-50"],
    )
    assert SPEC.assumptions(trace) == (
        (
            "2 of 4 GPU jobs do not say on how many GPUs they may run; assumed: 0.25 to 4 times"
            " what they asked for (shrink, grow)."
        ),
        (
            "1 of 4 GPU jobs have a model without a row in the table; they keep the size they asked"
            " for (stand_in, speeds)."
        ),
        (
            "1 of 4 GPU jobs ask for a number of GPUs outside of the row of their model; they keep"
            " that size (speeds)."
        ),
        (
            "1 of 4 GPU jobs scale as Gavel measured it on P100 GPUs, the median over batch sizes. "
            "This is an assumption; change the performance model (Trace, --perf)."
        ),
    )
    assert (
        "1 of 4 GPU jobs have a model without a row in the table; assumed: the row of 'lm'"
        " (stand_in, speeds)." in Table(speeds=SPEC.speeds, stand_in="lm").assumptions(trace)
    )
    assert (
        Table(speeds="net 2/1 4/2").assumptions(
            jobs((0, 2, 10), model=["net"], min_gpus=[2], max_gpus=[4])
        )
        == ()
    )


def test_the_built_in_rows_are_those_of_the_source() -> None:
    every = pd.read_csv(shared("data/gavel_throughputs.csv"))
    kept = every[
        (every["gpu_type"] == "P100")
        & (every["placement"] != "unconsolidated")
        & every["source"].str.contains("simulation_throughputs")
    ]
    wide = kept.pivot_table(
        index=["model", "batch_size"], columns="scale_factor", values="iterations_per_second"
    ).dropna()
    medians = wide.div(wide[1], axis=0).groupby("model").median()
    found = {
        name.lower().replace("-", ""): dict(zip(medians.columns, row, strict=True))
        for name, row in zip(medians.index, medians.to_numpy(), strict=True)
    }
    assert found.keys() == MEASURED.keys()
    for name, row in MEASURED.items():
        assert row == pytest.approx(found[name], abs=0.0051)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "bert",
            (
                "table, speeds: bert has no sizes. A row is a name and GPUs/speed pairs such as"
                " 'bert 1/1 2/1.9 8/6.5'."
            ),
        ),
        ("bert 1/1 2/0", "table, speeds: bert has the speed 0 at size 2. Speeds must be above 0"),
        ("bert 1/1 2/-1.5", "table, speeds: bert has the speed -1.5 at size 2."),
        ("bert 0/1", "table, speeds: bert has a size of 0 GPUs. Sizes are whole numbers from 1."),
        ("bert 1.5/1", "table, speeds: bert has a size of 1.5 GPUs."),
        ("bert 1/1 1/2", "table, speeds: bert has two speeds for 1 GPUs. Keep one."),
        ("bert 1 2", "table, speeds: '1' of bert is not of the form GPUs/speed with two numbers."),
        (
            "bert 1/x",
            "table, speeds: '1/x' of bert is not of the form GPUs/speed with two numbers.",
        ),
        (
            "bert 1/inf",
            "table, speeds: '1/inf' of bert is not of the form GPUs/speed with two numbers.",
        ),
        ("bert 1/1; Bert 1/2", "table, speeds: 'Bert' is there twice. Keep one of the two."),
        (
            "1/1 2/2, bert 1/1",
            (
                "table, speeds: '1/1 2/2, bert 1/1' must begin with a name of letters and digits,"
                " and holds no comma or bracket."
            ),
        ),
    ],
)
def test_rows_that_make_no_sense_are_refused_before_the_run(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Table(speeds=text)
    assert str(caught.value).startswith(sentence)


def test_a_stand_in_must_have_a_row() -> None:
    with pytest.raises(ParameterError, match="table: stand_in: there is no row 'bert'"):
        Table(stand_in="bert")
    with pytest.raises(ParameterError, match="table: the cluster has no GPU type 'h100'"):
        Table("h100").bind(jobs((0, 1, 5)), CLUSTER)


def test_rows_survive_text_and_json() -> None:
    spec = Table(
        speeds="resnet50 1/1 2/1.9 4/3.6; Bert-Large 1/1 8/7", stand_in="Bert-Large", span_node=1.5
    )
    written = spec_of("table", spec)
    assert build(Table, Spec.parse(str(written))) == spec
    assert build(Table, Spec.from_json(written.to_json())) == spec
    rows = spec.rows()
    assert rows["resnet50"] == {1: 1, 2: 1.9, 4: 3.6}
    assert rows["bertlarge"] == {1: 1, 8: 7}
    assert rows["lm"] == MEASURED["lm"]


@given(
    row=st.dictionaries(st.integers(1, 12), st.floats(0.01, 100), min_size=1),
    asked=st.integers(1, 12),
    gpus=st.integers(1, 12),
    several=st.booleans(),
)
def test_estimator_agrees_with_truth_and_the_best_is_the_best(
    row: dict[int, float], asked: int, gpus: int, several: bool
) -> None:
    spec = Table(
        speeds="net " + " ".join(f"{size}/{speed!r}" for size, speed in row.items()),
        span_node=1.25,
        grow=16,
        shrink=0,
    )
    model = spec.bind(
        jobs((0, asked, 10), (0, asked, 10), model=["net", ""]), Cluster.parse("2x16:mid")
    )
    nodes = 2 if several and gpus > 1 else 1
    grant = across({0: 1, 1: gpus - 1}) if nodes == 2 else on(0, gpus)
    believed = model.rates(
        np.array([0, 1]), [Shape((gpus,), nodes), *[Shape((k,)) for k in range(1, 33)]]
    )
    for job in (0, 1):
        if believed[job, 0]:
            assert model.rate(job, grant, 0, 0).work_per_s == pytest.approx(
                believed[job, 0], rel=1e-12
            )
        else:
            with pytest.raises(ContractError):
                model.rate(job, grant, 0, 0)
        assert believed[job, asked] == 1.0
    assert model.fastest() == pytest.approx(believed[:, 1:].max(axis=1))


def test_jobs_that_keep_their_size_finish_when_rigid_ones_do() -> None:
    rng = np.random.default_rng(3)
    rows = [
        (
            float(rng.integers(0, 900)),
            int(rng.choice([0, 1, 2, 3, 4, 8, 12])),
            float(rng.integers(10, 600)),
        )
        for _ in range(120)
    ]
    trace = jobs(
        *rows,
        gpu_type=rng.choice(["mid", "fast"], 120).tolist(),
        model=rng.choice(["LM", "ResNet-50", "net", ""], 120).tolist(),
    )
    finish = []
    for spec in (
        build(PERF["rigid"], Spec.of("rigid", span_node=1.25)),
        Table(speeds=SPEC.speeds, span_node=1.25),
    ):
        result = Simulator(trace, CLUSTER, Fifo(), Conditions(perf=spec)).run()
        finish.append((result.jobs["finish_s"].tolist(), result.segments.to_csv()))
    assert finish[0] == finish[1]
