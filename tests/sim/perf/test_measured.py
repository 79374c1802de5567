"""Tables of measured throughputs: those that come with the project, those of users, and what
cleaning changes.
"""

from __future__ import annotations

import math
import re

import pytest

from sim.errors import ParameterError
from sim.perf.measured import ANY_BATCH, BUILT_IN, Key, Measured, built_in, read_profile, split_name
from sim.perf.profiles import plain
from tests.shared import shared

HEADER = "gpu_type,model,batch_size,scale_factor,placement,iterations_per_second\n"


def table(*rows: str) -> bytes:
    return (HEADER + "\n".join(rows)).encode()


def test_figures_of_the_built_in_tables() -> None:
    simulation, physical = map(built_in, BUILT_IN)
    assert simulation.types == ("k80", "p100", "v100")
    assert len(simulation.rows) == len(physical.rows) == 249
    assert simulation.find("resnet50", 64, 1, "v100") == Measured(
        pytest.approx(4.39477, abs=5e-6), pytest.approx(math.nan, nan_ok=True)
    )
    # Not monotone per GPU: 4.39, 7.92, 9.45, 17.30 on 1, 2, 4 and 8 GPUs.
    assert [
        round(simulation.rows["resnet50", 64, k, "v100"].together, 2) for k in (1, 2, 4, 8)
    ] == [4.39, 7.92, 9.45, 17.3]  # type: ignore[index]
    # 0 is "does not fit"; the physical cluster could not even run it on one K80.
    assert [simulation.find("resnet50", 128, k, "k80").together for k in (1, 2, 8)] == [
        pytest.approx(0.34722, abs=1e-5),
        0,
        0,
    ]  # type: ignore[union-attr]
    assert physical.find("resnet50", 128, 1, "k80").together == 0  # type: ignore[union-attr]
    # Never measured spread over servers.
    assert math.isnan(simulation.find("resnet50", 64, 2, "k80").spread)  # type: ignore[union-attr]
    assert simulation.find("resnet50", 64, 16, "v100") is None
    assert (
        sum(simulation.rows[key].together != physical.rows[key].together for key in simulation.rows)
        > 30
    )


def test_a_model_measured_without_a_batch_size_has_one_row_for_all() -> None:
    simulation = built_in("simulation")
    assert simulation.batches("a3c") == (ANY_BATCH,)
    assert (
        simulation.find("a3c", math.nan, 1, "k80")
        == simulation.find("a3c", 4, 1, "k80")
        == simulation.find("a3c", ANY_BATCH, 1, "k80")
    )
    assert simulation.find("lm", math.nan, 1, "k80") is None
    assert simulation.batches("lm") == (5, 10, 20, 40, 80)


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_tables_are_those_published(name: str) -> None:
    lines = shared("data/gavel_throughputs.csv").read_text(encoding="utf-8").splitlines()
    one = read_profile(
        "\n".join([lines[0], *(line for line in lines if f"/{name}" in line)]).encode(), name
    )
    assert {
        key: (row.together, None if math.isnan(row.spread) else row.spread)
        for key, row in one.rows.items()
    } == {
        key: (row.together, None if math.isnan(row.spread) else row.spread)
        for key, row in built_in(name).rows.items()
    }


def test_of_several_tables_in_one_file_the_first_is_read_and_that_is_said() -> None:
    both = read_profile(shared("data/gavel_throughputs.csv").read_bytes(), "gavel_throughputs.csv")
    assert {key: row.together for key, row in both.rows.items()} == {
        key: row.together for key, row in built_in("simulation").rows.items()
    }
    assert len(both.notes) == 1
    assert "holds 2 tables" in both.notes[0]


def test_cleaning_by_hand() -> None:
    rows = [
        "p100,m,8,1,single,3",
        "p100,m,8,2,consolidated,6",
        "p100,m,8,2,unconsolidated,7",
        "v100,m,8,1,single,2",
        "v100,m,8,2,consolidated,0",
    ]
    rows += [
        "v100,m,8,4,consolidated,1",
        "p100,m,8,4,consolidated,5",
        "mine,m,8,1,single,9",
        "mine,m,8,2,consolidated,8",
        "k80,m,8,8,consolidated,4",
    ]
    clean = read_profile(table(*rows, "v100,m,8,8,consolidated,1"), "x").clean()
    found = {(key.gpu_type, key.gpus): row.together for key, row in clean.rows.items()}
    # V100 is raised to P100 with one GPU (3) and four (5, then 6 as four are no slower than two); 0
    # stays; unknown types are compared with themselves only.
    assert found == {
        ("p100", 1): 3, ("p100", 2): 6, ("p100", 4): 6, ("v100", 1): 3, ("v100", 2): 0, ("v100", 4): 5, ("v100", 8): 5, ("mine", 1): 9, ("mine", 2): 9,  # noqa: E501
        ("k80", 8): 4,
    }  # fmt: skip
    assert clean.find("m", 8, 2, "p100") == Measured(6, 6)
    assert clean.clean().rows.keys() == clean.rows.keys()
    assert clean.name == "x, cleaned"


@pytest.mark.parametrize("name", BUILT_IN)
def test_cleaned_tables_are_monotone_and_keep_zeros_and_gaps(name: str) -> None:
    raw, clean = built_in(name), built_in(name).clean()
    changed = 0
    for key, row in clean.rows.items():
        before = raw.rows[key]
        assert (row.together == 0) == (before.together == 0)
        assert math.isnan(row.spread) == math.isnan(before.spread)
        assert row.together >= before.together
        assert math.isnan(row.spread) or row.spread <= row.together
        changed += row.together != before.together
        smaller = [
            clean.rows[key._replace(gpus=k)].together
            for k in clean.sizes(key.model, key.batch, key.gpu_type)
            if k < key.gpus
        ]
        assert row.together == 0 or row.together >= max(smaller, default=0)
        if key.gpu_type == "v100":
            assert row.together >= max(
                clean.rows[key._replace(gpu_type=kind)].together for kind in ("p100", "k80")
            )
    assert 10 < changed < len(raw.rows) / 4


def test_a_profile_survives_writing_and_reading() -> None:
    raw = built_in("simulation")
    frame = raw.to_frame()
    again = read_profile(frame.to_csv(index=False).encode(), "again")
    assert ((frame["placement"] == "single") == (frame["scale_factor"] == 1)).all()
    assert repr(again.rows) == repr(raw.rows)
    assert again.models == raw.models


def test_columns_may_stand_in_any_order_and_be_fewer() -> None:
    plain = read_profile(
        b"Iterations_per_second;scale_factor;model;GPU_type\r\n1.5;2;My Net;A100 40GB\r\n\r\n", "x"
    )
    assert plain.find("mynet", 32, 2, "a10040gb") == Measured(
        1.5, pytest.approx(math.nan, nan_ok=True)
    )
    assert plain.models == {"mynet": "My Net"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x: column gpu_type is missing. Columns found: none."),
        (
            b"gpu_type,model,scale_factor\nv100,a,1\n",
            (
                "x: column iterations_per_second is missing. Columns found: gpu_type, model,"
                " scale_factor."
            ),
        ),
        (HEADER.encode(), "x: there is a header but no row below it."),
        (
            table("v100,a,8,1,single,-1"),
            (
                "x: row 1 has the iterations_per_second '-1', but it must be a finite number of 0"
                " or more."
            ),
        ),
        (
            table("v100,a,8,1,single,1", "v100,a,8,2,single,fast"),
            "x: row 2 has the iterations_per_second 'fast', but",
        ),
        (table("v100,a,8,1,single,inf"), "x: row 1 has the iterations_per_second 'inf', but"),
        (table("v100,a,8,1,single,"), "x: row 1 has the iterations_per_second '', but"),
        (
            table("v100,a,8,0,single,1"),
            "x: row 1 has the scale_factor '0', but it must be a finite number of 1 or more.",
        ),
        (
            table("v100,a,8,1.5,single,1"),
            "x: row 1 has the scale_factor 1.5, but it must be a whole number of GPUs.",
        ),
        (table("v100,a,many,1,single,1"), "x: row 1 has the batch_size 'many', but"),
        (
            table("v100,a,8,1,far,1"),
            "x: row 1 has the placement 'far'. Write single, consolidated or unconsolidated.",
        ),
        (table(",a,8,1,single,1"), "x: row 1 has no gpu_type."),
        (table("v100, -,8,1,single,1"), "x: row 1 has no model."),
        (
            table("v100,a,8,1,single,1", "V100,A,8,1,,2"),
            "x: row 2 gives a with batch size 8 on 1 x v100 again, after row 1.",
        ),
        (
            table("v100,a,8,2,unconsolidated,1"),
            (
                "x: row 1 gives a with batch size 8 on 2 x v100 spread over servers, but no row"
                " gives it on one server."
            ),
        ),
        (b"\xff\xfe\x00", "x: this is not text in UTF-8."),
    ],
)
def test_bad_profiles_are_refused_in_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message)) as caught:
        read_profile(data, "x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be"])
def test_a_profile_may_be_in_the_encodings_that_spreadsheets_write(encoding: str) -> None:
    text = table("V100,Modèle A,8,1,single,3").decode()
    found = read_profile(("\ufeff" * (encoding == "utf-16-be") + text).encode(encoding), "x")
    assert found.rows == {
        Key("modèlea", 8.0, 1, "v100"): Measured(3.0, pytest.approx(math.nan, nan_ok=True))
    }


def test_models_may_be_called_in_any_script() -> None:
    found = read_profile(
        table(
            "V100,模型,8,1,single,3",
            "V100,模型 A,8,1,single,4",
            "V100,A,8,1,single,5",
            "V100,Mode\u0300le,8,1,single,6",
        ),
        "x",
    )
    assert [key.model for key in found.rows] == ["模型", "模型a", "a", "modèle"]
    assert found.find(plain("Modèle"), 8, 1, "v100") == Measured(
        6.0, pytest.approx(math.nan, nan_ok=True)
    )


def test_rows_are_counted_as_in_the_file_where_it_holds_several_tables() -> None:
    data = f"{HEADER[:-1]},source\nV100,A,8,1,single,2,one\nV100,A,8,1,single,3,two\nV100,B,8,1,single,x,one".encode()  # noqa: E501
    with pytest.raises(ParameterError, match=r"^x: row 3 has the iterations_per_second 'x'"):
        read_profile(data, "x")


def test_too_large_profiles_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"x: 200,001 rows are more than the limit of 200,000"):
        read_profile(table(*["v100,a,8,1,single,1"] * 200_001), "x")
    with pytest.raises(ParameterError, match="60 MB are more than the limit of 50 MB"):
        read_profile(b" " * 60_000_000, "x")


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(
        ParameterError,
        match=(
            r"there is no table 'guessed'. Choose one of simulation, physical, or a profile that"
            r" was uploaded"
        ),
    ):
        built_in("guessed")


@pytest.mark.parametrize(
    ("text", "model", "batch"),
    [
        ("ResNet-18 (batch size 64)", "ResNet-18", 64),
        ("LM(Batch Size 5) ", "LM", 5),
        (" A3C", "A3C", math.nan),
        ("x (y)", "x (y)", math.nan),
    ],
)
def test_names_hold_batch_sizes(text: str, model: str, batch: float) -> None:
    assert split_name(text) == (model, pytest.approx(batch, nan_ok=True))
