from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest

import allocators
from jobtraces.generate import WORKLOADS
from sim.cluster import Cluster
from sim.contract import READS, REQUIRES, Cadence, Card, Needs, Plan, View, param
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf import ESTIMATORS, PERF
from sim.trace import Trace
from trainyard.study import catalog

CLUSTER = Cluster.parse("2x8:v100")


@dataclass
class Odd:
    """Needs what its parameter says, and holds another allocator."""

    need: str = param("recorded_start", choices=(*READS, *REQUIRES))
    inner: Spec = param(Spec("fifo"))  # noqa: RUF009 - as in every allocator
    levels: tuple[float, ...] = param((1.0, 2.0))
    cadence = Cadence()
    card = Card("Odd", "What.", "Cost.", "Limits.", "A test.", "exact")

    @property
    def needs(self) -> Needs:
        word = frozenset({self.need})
        return Needs(word & READS.keys(), word & REQUIRES.keys())

    def allocate(self, view: View, /) -> Plan:
        return Plan()


@pytest.fixture(autouse=True)
def odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(allocators.REGISTRY, "odd", Odd)


def test_every_allocator_is_listed_with_card_and_parameters(trace: Trace) -> None:
    listed = catalog.allocator_choices(trace)
    assert [choice.name for choice in listed] == list(allocators.REGISTRY)
    for choice in listed:
        assert choice.card is not None
        assert (choice.title, choice.help) == (choice.card.title, choice.card.what)
        assert (
            "placement" in [info.name for info in choice.params]
            or choice.needs != Needs()
            or "Spec" in str(choice.params)
        )


def test_reason_follows_from_what_is_needed_and_missing(trace: Trace) -> None:
    bare = Trace.of(trace.frame.drop(columns="start_time_s"))
    assert catalog.allocator("odd", trace).reason == ""
    assert "no recorded start times" in catalog.allocator("odd", bare).reason
    sized = catalog.allocator("odd:need=scaling", trace)
    assert (
        "one size only under “Fixed size”. Choose a performance model that scales, for example"
        " “Power law” (page Trace, or --perf)." in sized.reason
    )
    assert sized.lacks == "scaling"
    assert "names no models" in catalog.allocator("odd:need=profile", trace).reason
    assert catalog.allocator("odd:need=overflow", bare).reason == ""
    assert catalog.allocator("odd:need=scaling").reason == ""


def test_canonical_form_of_nested_and_listed_values() -> None:
    spelled = Spec.parse("odd:inner=fifo(backfill=first_fit,mix=no),levels=1/2")
    assert catalog.canonical("allocator", spelled) == Spec.of(
        "odd", inner=Spec.of("fifo", backfill="first_fit")
    )
    assert catalog.canonical("allocator", Spec.parse("odd:inner=fifo(backfill=none)")) == Spec(
        "odd"
    )
    with pytest.raises(ParameterError, match="nobody"):
        catalog.canonical("allocator", Spec.parse("odd:inner=nobody(x=1)"))


def test_models_estimators_and_singles() -> None:
    assert [choice.name for choice in catalog.perf_models()] == list(PERF)
    assert [choice.name for choice in catalog.estimators()] == list(ESTIMATORS)
    assert all(choice.help for choice in (*catalog.perf_models(), *catalog.estimators()))
    assert "mtbf_h" in [info.name for info in catalog.faults()]
    assert "restart_s" in [info.name for info in catalog.overheads()]
    assert "native" in [choice.name for choice in catalog.formats()]


def test_parameters_by_name() -> None:
    assert [info.name for info in catalog.choice_params("odd")] == ["need", "inner", "levels"]
    assert catalog.choice_params("faults") == catalog.faults()
    with pytest.raises(ParameterError, match="There is no 'nobody'"):
        catalog.choice_params("nobody")


def test_a_workload_called_like_an_allocator_has_its_own_parameters() -> None:
    both = {"gavel", "hadar", "aiturbo"}
    assert both <= {choice.name for choice in catalog.workloads()} & {
        choice.name for choice in catalog.allocator_choices()
    }
    for name in both:
        assert catalog.choice_params(f"made:{name}") == next(
            choice.params for choice in catalog.workloads() if choice.name == name
        )
        assert catalog.choice_params(name) == catalog.allocator(name).params


_PLAIN: Final = {
    "backfill",
    "case",
    "cluster",
    "jobs",
    "load",
    "nodes",
    "objective",
    "placement",
    "priorities",
    "retries",
    "run",
    "seed",
    "servers",
    "solver",
    "times",
    "trace",
    "trees",
    "users",
    "workload",
}
"""Words that say as a label what they say as a name in code."""


@pytest.mark.parametrize(
    "name",
    [
        "overheads",
        "faults",
        *allocators.REGISTRY,
        *PERF,
        *ESTIMATORS,
        *(f"made:{workload}" for workload in WORKLOADS),
    ],
)
def test_parameters_have_a_label_and_a_help_text_in_plain_english(name: str) -> None:
    for info in catalog.choice_params(name):
        assert info.title[:1].isupper(), info
        assert "_" not in info.title, info
        assert info.help.rstrip().endswith("."), info
        assert info.given or set(info.name.split("_")) <= _PLAIN, info
        assert not any("_" in info.label(choice) for choice in info.choices), info


def test_labels_of_parameters_are_unique_in_their_form() -> None:
    for name in (*allocators.REGISTRY, *PERF, *ESTIMATORS, *(f"made:{one}" for one in WORKLOADS)):
        titles = [info.title for info in catalog.choice_params(name)]
        assert len(titles) == len(set(titles)), name


def test_settings_in_words() -> None:
    assert catalog.setting_title("faults.mtbf_h") == "mean time between failures (h)"
    assert (
        catalog.setting_title("perf.params.span_node", {"perf": "rigid"}) == "slowdown across nodes"
    )
    assert catalog.setting_title("perf.params.span_node") == "perf span node"
    assert catalog.setting_title("trace.load") == "trace load"
    assert (
        catalog.describe_values("faults", Spec.of("faults", mttr_h=2.5, retries=3))
        == "mean time to repair 2.5 h, retries 3"
    )
