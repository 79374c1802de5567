from __future__ import annotations

from dataclasses import dataclass

import pytest

import allocators
from sim.cluster import Cluster
from sim.contract import NEEDS, Cadence, Card, Plan, View, param
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf import BELIEFS, PERF
from sim.trace import Trace
from trainyard.study import catalog

CLUSTER = Cluster.parse("2x8:v100")


@dataclass
class Odd:
    """Needs what its parameter says, and holds another allocator."""

    need: str = param("recorded_start", choices=tuple(sorted(NEEDS)))
    inner: Spec = param(Spec("fifo"))  # noqa: RUF009 - as in every allocator
    levels: tuple[float, ...] = param((1.0, 2.0))
    cadence = Cadence()
    card = Card("Odd", "What.", "Cost.", "Limits.", "A test.", "exact")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.need})

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
        assert "placement" in [info.name for info in choice.params] or choice.needs or "Spec" in str(choice.params)


def test_reason_follows_from_what_is_needed_and_missing(trace: Trace) -> None:
    bare = Trace.of(trace.frame.drop(columns="start_time_s"))
    assert catalog.allocator("odd", trace).reason == ""
    assert "no recorded start times" in catalog.allocator("odd", bare).reason
    sized = catalog.allocator("odd:need=scaling", trace)
    assert "one size only under “One size each”. Choose a performance model that scales, for example “Power law”." in sized.reason
    assert sized.lacks == "scaling"
    assert "names no models" in catalog.allocator("odd:need=profile", trace).reason
    assert catalog.allocator("odd:need=overflow", bare).reason == ""
    assert catalog.allocator("odd:need=scaling").reason == ""


def test_canonical_form_of_nested_and_listed_values() -> None:
    spelled = Spec.parse("odd:inner=fifo(head=skip,mix=no),levels=1/2")
    assert catalog.canonical("allocator", spelled) == Spec.of("odd", inner=Spec.of("fifo", head="skip"))
    assert catalog.canonical("allocator", Spec.parse("odd:inner=fifo(head=block)")) == Spec("odd")
    with pytest.raises(ParameterError, match="nobody"):
        catalog.canonical("allocator", Spec.parse("odd:inner=nobody(x=1)"))


def test_models_beliefs_and_singles() -> None:
    assert [choice.name for choice in catalog.perf_models()] == list(PERF)
    assert [choice.name for choice in catalog.beliefs()] == list(BELIEFS)
    assert all(choice.help for choice in (*catalog.perf_models(), *catalog.beliefs()))
    assert "mtbf_h" in [info.name for info in catalog.faults()]
    assert "restart_s" in [info.name for info in catalog.overheads()]
    assert "native" in [choice.name for choice in catalog.formats()]


def test_parameters_by_name() -> None:
    assert [info.name for info in catalog.choice_params("odd")] == ["need", "inner", "levels"]
    assert catalog.choice_params("faults") == catalog.faults()
    with pytest.raises(ParameterError, match="Nothing is called 'nobody'"):
        catalog.choice_params("nobody")


def test_a_workload_called_like_an_allocator_has_its_own_parameters() -> None:
    both = {"gavel", "hadar", "aiturbo"}
    assert both <= {choice.name for choice in catalog.workloads()} & {choice.name for choice in catalog.allocator_choices()}
    for name in both:
        assert catalog.choice_params(f"made:{name}") == next(choice.params for choice in catalog.workloads() if choice.name == name)
        assert catalog.choice_params(name) == catalog.allocator(name).params
