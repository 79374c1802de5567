from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ParameterError
from trainyard.study.document import (
    canonical_json,
    checked_fields,
    finite,
    number,
    pack_document,
    parse_json,
    unpack_document,
    whole_number,
)
from trainyard.study.scenario import TraceSpec

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), PLAIN, max_size=4))
def test_packing_loses_nothing_and_fits_an_address(data: dict[str, object]) -> None:
    packed = pack_document(data)
    assert unpack_document(packed) == data
    assert all(letter.isalnum() or letter in "-_" for letter in packed)


def test_canonical_json_does_not_depend_on_order() -> None:
    assert (
        canonical_json({"b": 1, "a": [1.5, None]})
        == '{"a":[1.5,null],"b":1}'
        == canonical_json({"a": [1.5, None], "b": 1})
    )


@pytest.mark.parametrize(
    "text", ["", "a", "!!!!", "äöü", "eJw", pack_document({"a": "x" * 100})[:-9], "A" * 50]
)
def test_damaged_address_is_one_sentence(text: str) -> None:
    with pytest.raises(ParameterError, match="URL is damaged"):
        unpack_document(text)


def test_packed_bomb_is_not_unpacked() -> None:
    with pytest.raises(ParameterError, match="URL is damaged"):
        unpack_document(pack_document({"a": "x" * 3_000_000}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "is not a table"),
        ("[" * 100_000, "nested more than 50 levels deep"),
        ('{"a":' * 60 + "1" + "}" * 60, "more than 50"),
    ],
)
def test_json_that_is_no_table(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=rf"f.json: .*{message}"):
        parse_json(text, "f.json")


@pytest.mark.parametrize("value", ["x", None, True, math.nan, [1], {}])
def test_no_number(value: object) -> None:
    with pytest.raises(ParameterError, match=r"a = .* is not a number"):
        number("a", value)


@pytest.mark.parametrize("value", [1.5, -1, "1.2", math.inf, "inf", 2.0**60])
def test_no_whole_number(value: object) -> None:
    with pytest.raises(ParameterError, match=r"a = .* is not a whole number"):
        whole_number("a", value)


def test_numbers_are_read_from_text() -> None:
    assert number("a", "1e3") == 1000.0
    assert whole_number("a", "7") == 7
    assert finite(math.inf) is None
    assert finite(2.0) == 2.0


def test_unknown_setting_is_named_with_the_known_ones() -> None:
    with pytest.raises(
        ParameterError, match=r"The trace has no setting 'laod'. It has: source, .*load"
    ):
        checked_fields("trace", {"laod": 1}, TraceSpec)
    with pytest.raises(ParameterError, match="The trace is not a table"):
        checked_fields("trace", [1], TraceSpec)


def test_fifty_tables_inside_one_another_are_read() -> None:
    assert parse_json('{"a":' * 50 + "1" + "}" * 50, "f.json")["a"]


def test_half_a_character_is_refused() -> None:
    with pytest.raises(ParameterError, match="half of a character"):
        parse_json('{"name": "\\ud800"}', "mine.json")
