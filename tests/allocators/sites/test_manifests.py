"""Objects of Kubernetes: exact quantities, the traps of YAML, and errors that name their place."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocators.sites.manifests import UNITS, format_quantity, parse_manifests, quantity, to_yaml
from sim.contract import ParameterError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("500m", Fraction(1, 2)),
        ("1k", 1000),
        ("2Ki", 2048),
        ("3Gi", 3 * 2**30),
        ("1.5G", 1_500_000_000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E-1", Fraction(6, 5)),
        ("-1", -1),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        (4, 4),
        (0.5, Fraction(1, 2)),
    ],
)
def test_quantities(text: object, value: Fraction) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1KI", "1e", "Gi", "1e999", "0x10", "1_000"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ParameterError, match="is no quantity"):
        quantity(text)


@given(st.integers(-(10**6), 10**6), st.sampled_from(sorted(UNITS)))
def test_a_quantity_that_was_written_is_read_as_the_same(number: int, unit: str) -> None:
    value = number * UNITS[unit]
    assert quantity(format_quantity(value)) == value


def test_a_quantity_is_written_exactly_or_not_at_all() -> None:
    with pytest.raises(ParameterError, match="finer"):
        format_quantity(Fraction(1, 3))


TRAPS = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: no, labels: {team: on}}
spec:
  parent: 1E
  share: 0.5
  count: 010
  empty:
  wanted: yes
  other: {deep: [{key: 1, more: 2}]}
---
# nothing
---
apiVersion: v1
kind: List
items:
- {apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: b, namespace: ns}}
"""


def test_scalars_stay_as_they_are_written() -> None:
    first, second = parse_manifests(TRAPS)
    assert (first.group, first.kind, first.name) == ("scheduling.run.ai", "Queue", "no")
    assert (second.group, second.name, second.namespace) == ("kueue.x-k8s.io", "b", "ns")
    assert second.where == "document 3, item 1 (Cohort b)"
    spec = first.fields.mapping("spec")
    assert spec.text("parent") == "1E"
    assert spec.quantity("parent") == 10**18
    assert spec.quantity("share") == Fraction(1, 2)
    assert spec.integer("count") == 10
    assert spec.text("empty", "absent") == "absent"
    assert spec.flag("wanted") is True
    assert spec.flag("missing", True) is True


def test_what_nobody_read_is_known() -> None:
    first, second = parse_manifests(TRAPS)
    spec = first.fields.mapping("spec")
    spec.text("parent")
    [deep] = spec.mapping("other").mappings("deep")
    deep.text("key")
    assert first.unread_keys() == [
        f"document 1 (Queue no): spec.{path}"
        for path in ("share", "count", "wanted", "other.deep[0].more")
    ]
    assert second.unread_keys() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "This is no YAML: line 1"),
        ("kind: A\nkind: B", "line 2: the key 'kind' comes twice"),
        ("[a]: b", "is no text"),
        ("kind: &a [*a]", "a: write the value out"),
        ("just words", "document 1 is no object of Kubernetes but 'just words'"),
        ("- kind: A\n- 3", "document 1, item 2 is no object of Kubernetes but '3'"),
        ("kind: List\nitems: {}", "document 1: items is no list but a mapping"),
        ("a: b", "document 1: kind is missing"),
        ("kind: A\nmetadata: []", "document 1: metadata is no mapping but a list"),
        ("kind: A\n---\nkind: [B]", "document 2: kind is no plain value but a list"),
        ("kind: !!python/object:os.system x", "This is no YAML"),
        ("[" * 5000, "nested too deeply"),
        ("kind: \x00", "This is no YAML"),
    ],
)
def test_bad_texts(text: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message.replace("[", r"\[")):
        parse_manifests(text)


BAD = "kind: A\nmetadata: {name: a}\nspec: {number: 5x, word: left, list: [a, [b]], map: 3}"


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("quantity", ("number",), "document 1 (A a): spec.number: '5x' is no quantity"),
        ("integer", ("number",), "spec.number is '5x'; it must be a whole number"),
        ("flag", ("word",), "spec.word is 'left'; it must be true or false"),
        ("text", ("word", "", ("up", "down")), "spec.word is 'left'; it must be up or down"),
        ("text", ("list",), "spec.list is no plain value but a list"),
        ("texts", ("list",), "spec.list[1] is no plain value but a list"),
        ("texts", ("word",), "spec.word is no list but a text"),
        ("mapping", ("map",), "spec.map is no mapping but a text"),
        ("mappings", ("list",), "spec.list[0] is no mapping but a text"),
        ("required_text", ("name",), "spec.name is missing"),
    ],
)
def test_errors_name_document_path_and_value(
    method: str, arguments: tuple[object, ...], message: str
) -> None:
    [one] = parse_manifests(BAD)
    with pytest.raises(ParameterError) as caught:
        getattr(one.fields.mapping("spec"), method)(*arguments)
    assert message in str(caught.value)


def test_what_is_written_is_read() -> None:
    text = to_yaml([{"kind": "A", "metadata": {"name": "no"}, "spec": {"n": "8", "on": "1E"}}])
    [one] = parse_manifests(text)
    assert (one.kind, one.name, one.fields.mapping("spec").text("on")) == ("A", "no", "1E")


def test_each_object_knows_its_part_of_the_text() -> None:
    text = """
    kind: A   # first
    spec:
      on: yes
---
kind: List
items:
  - kind: B
    spec:
      text: |
        two
        lines
  - {kind: C, spec: {n: 1}}
"""
    found = parse_manifests(text)
    assert [one.source for one in found] == [
        "kind: A   # first\nspec:\n  on: yes\n",
        "kind: B\nspec:\n  text: |\n    two\n    lines\n",
        "{kind: C, spec: {n: 1}}\n",
    ]
    for one in found:
        [again] = parse_manifests(one.source)
        assert again.fields.leaves() == one.fields.leaves()
    assert found[1].fields.leaves() == {"kind": "B", "spec.text": "two\nlines\n"}
