"""Parameters: text and JSON there and back, every kind checked, bounds kept."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ParameterError
from sim.params import Spec, build, param, parameters, spec_of


@dataclass
class Sample:
    on: bool = param(False, help="A switch.")
    depth: int = param(5, low=1, high=1000)
    wait_s: float = param(1.5, unit="s", low=0)
    label: str = param("plain")
    head: str = param("block", choices=("block", "skip"))
    thresholds: tuple[float, ...] = param((3250.0,), unit="GPU-s", low=1, high=1e7)
    inner: Spec = param(Spec("fifo"))  # noqa: RUF009 - a Spec is frozen
    state: int = field(init=False, default=0)


def of(text: str) -> Sample:
    return build(Sample, Spec.parse(text))


def test_parameters_are_listed_in_order_with_their_kind() -> None:
    assert [(info.name, info.kind) for info in parameters(Sample)] == [
        ("on", "bool"),
        ("depth", "int"),
        ("wait_s", "float"),
        ("label", "text"),
        ("head", "choice"),
        ("thresholds", "numbers"),
        ("inner", "spec"),
    ]
    wait = parameters(Sample)[2]
    assert (wait.default, wait.unit, wait.low, wait.high, wait.choices, wait.help) == (
        1.5,
        "s",
        0,
        None,
        (),
        "",
    )


def test_everything_from_text() -> None:
    made = of(
        "sample:on=yes,depth=7,wait_s=0.25,label=x"
        " y,head=skip,thresholds=3250/7200,inner=las(thresholds=1/2,head=block)"
    )
    assert made == Sample(
        True,
        7,
        0.25,
        "x y",
        "skip",
        (3250.0, 7200.0),
        Spec.of("las", thresholds="1/2", head="block"),
    )


def test_nothing_is_the_default() -> None:
    assert of("sample") == Sample()
    assert of("sample:") == Sample()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sample:depht=3", r"sample has no parameter 'depht'\. It has: on, depth, wait_s"),
        ("sample:state=3", "sample has no parameter 'state'"),
        ("sample:on=maybe", "sample: on = maybe is not yes or no"),
        ("sample:depth=1.5", r"sample: depth = 1\.5 is not a whole number"),
        ("sample:depth=inf", "sample: depth = inf is not a whole number"),
        ("sample:depth=x", "sample: depth = x is not a whole number"),
        ("sample:depth=0", "sample: depth = 0 is outside 1 to 1000"),
        ("sample:depth=1001", "sample: depth = 1001 is outside 1 to 1000"),
        ("sample:wait_s=-1", "sample: wait_s = -1 s is outside 0 to inf"),
        ("sample:wait_s=nan", "sample: wait_s = nan is not a number"),
        ("sample:head=left", "sample: head = left is not one of block, skip"),
        (
            "sample:thresholds=1/x",
            "sample: thresholds = 1/x is not a list of numbers such as 3250/7200",
        ),
        ("sample:thresholds=1/0.5", r"sample: thresholds = 0\.5 GPU-s is outside 1 to 1e\+07"),
        ("sample:depth", "'depth' in 'sample:depth' is not of the form key=value"),
        ("sample:inner=las(a=1", r"The brackets in .* do not match"),
        ("sample:inner=las)", r"The brackets in .* do not match"),
        ("sample(", r"The brackets in 'sample\(' do not match"),
        ("sample:head=skip,head=block", "'sample:head=skip,head=block' gives head twice"),
        ("sample:inner=las(a=1, a =2)", r"gives a twice"),
        ("sample(a)b", r"The brackets in 'sample\(a\)b' do not match"),
    ],
)
def test_a_refusal_names_owner_parameter_and_limits(text: str, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        of(text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depth", True),
        ("wait_s", True),
        ("wait_s", None),
        ("depth", inf),
        ("depth", nan),
        ("thresholds", (1.0, nan)),
        ("on", 2),
        ("inner", 5),
        ("inner", {"params": {}}),
    ],
)
def test_values_of_the_wrong_kind_from_json(name: str, value: Any) -> None:
    with pytest.raises(ParameterError):
        build(Sample, Spec.of("sample", **{name: value}))


def test_values_are_converted() -> None:
    made = build(
        Sample,
        Spec.of(
            "sample",
            depth=7.0,
            wait_s="2",
            on="TRUE",
            thresholds=5,
            label=3,
            inner={"name": "las", "params": {"head": "skip"}},
        ),
    )
    assert made == Sample(True, 7, 2.0, "3", "block", (5.0,), Spec.of("las", head="skip"))
    assert build(Sample, Spec.of("sample", on="0", thresholds=[2, 3])).thresholds == (2.0, 3.0)


@pytest.mark.parametrize("text", ["1", "yes", "true", "no", "false", "0"])
def test_words_for_yes_and_no(text: str) -> None:
    assert of(f"sample:on={text}").on is (text in ("1", "yes", "true"))


def test_only_what_differs_is_written() -> None:
    assert spec_of("sample", Sample()) == Spec("sample")
    assert spec_of("sample", Sample(depth=9, head="skip")) == Spec.of(
        "sample", depth=9, head="skip"
    )


def test_the_order_of_writing_does_not_matter() -> None:
    assert Spec.parse("a:x=1,y=2") == Spec.parse("a:y=2,x=1")
    assert Spec.of("a", y=2, x=1).values == {"x": 1, "y": 2}


def test_nested_text_there_and_back() -> None:
    text = "outer:inner=middle(inner=core(on=yes,thresholds=1/2),k=3)"
    assert str(Spec.parse(text)) == text
    assert Spec.parse("name()") == Spec("name")
    assert str(Spec.parse("outer:inner=core()")) == "outer:inner=core()"


def test_nesting_has_an_end() -> None:
    def text(depth: int) -> str:
        return "a:inner=" + "a(inner=" * depth + "b" + ")" * depth

    def table(depth: int) -> dict[str, Any]:
        return {"name": "a", "params": {"inner": table(depth - 1)} if depth else {}}

    assert str(Spec.parse(text(7))) == text(7)
    assert Spec.from_json(table(7)).name == "a"
    for depth in (8, 500, 20_000):
        with pytest.raises(
            ParameterError,
            match=r"The brackets of 'a.*' hold more than 8 policies inside one another\.",
        ):
            Spec.parse(text(depth))
    for depth in (8, 300):
        with pytest.raises(
            ParameterError, match=r"The parameters hold more than 8 policies inside one another\."
        ):
            Spec.from_json(table(depth))


plain = st.one_of(st.integers(1, 1000), st.booleans())


@given(
    st.booleans(),
    st.integers(1, 1000),
    st.floats(0, 1e12),
    st.sampled_from(("block", "skip")),
    st.lists(st.floats(1, 1e7), min_size=1, max_size=3).map(tuple),
    st.sampled_from((Spec("fifo"), Spec.of("las", head="skip"))),
)
def test_text_and_json_there_and_back(
    on: bool, depth: int, wait_s: float, head: str, thresholds: tuple[float, ...], inner: Spec
) -> None:
    made = Sample(on, depth, wait_s, "plain", head, thresholds, inner)
    spec = spec_of("sample", made)
    assert build(Sample, Spec.parse(str(spec))) == made
    assert build(Sample, Spec.from_json(json.loads(json.dumps(spec.to_json())))) == made
    assert build(Sample, pickle.loads(pickle.dumps(spec))) == made


def test_numbers_keep_all_their_digits() -> None:
    assert (
        str(Spec.of("x", a=0.1 + 0.2, b=(1234567.25, 2.0), c=True, d=Spec("y")))
        == "x:a=0.30000000000000004,b=1234567.25/2,c=yes,d=y()"
    )


def test_infinity_in_json() -> None:
    data = Spec.of("x", a=inf).to_json()
    assert data == {"name": "x", "params": {"a": "inf"}}
    assert (
        build(Sample, Spec.from_json({"name": "sample", "params": {"wait_s": "inf"}})).wait_s == inf
    )
    assert Spec.from_json("x:a=1") == Spec.of("x", a="1")


@pytest.mark.parametrize("data", [{}, 5, {"name": "x", "params": 5}, {"params": {}}])
def test_damaged_json_is_one_sentence(data: Any) -> None:
    with pytest.raises(ParameterError, match="is not a name with parameters"):
        Spec.from_json(data)


@dataclass
class Below:
    dip: float = param(-1.0, low=-2, high=0)


def test_a_bound_may_be_0() -> None:
    assert [build(Below, Spec.of("below", dip=dip)).dip for dip in (-2.0, 0.0)] == [-2.0, 0.0]
    for dip in (-2.001, 0.001):
        with pytest.raises(ParameterError, match="is outside -2 to 0"):
            build(Below, Spec.of("below", dip=dip))
