"""Which performance models a comparison takes, as plain as can be, and what is compared with
what.
"""

from __future__ import annotations

import pytest

from sim.cluster import Cluster
from sim.errors import ParameterError
from sim.params import Spec
from sim.perf.parameter_server import ParameterServer
from tests.sim.scripted import jobs
from trainyard.results import simplest_model
from trainyard.results.simplest_model import PerfPart
from trainyard.study.scenario import Scenario, TraceSpec
from trainyard.study.study import Study

CLUSTER = Cluster.parse("2x8:v100")
RIGID, SCALING, SERVERS = Spec("rigid"), Spec("power_law"), Spec("parameter_server")
TRACE = jobs((0, 1, 10), (0, 4, 20))


def study(*names: str, baseline: int = 0) -> Study:
    specs = tuple(Spec(name) for name in names)
    return Study(Scenario(TraceSpec(), CLUSTER, specs[0]), specs, baseline)


def test_candidates_are_one_of_each_kind() -> None:
    assert simplest_model.candidates() == (RIGID, SCALING, SERVERS)


@pytest.mark.parametrize(
    ("policies", "baseline", "parts"),
    [
        (("fifo", "srtf"), 0, [PerfPart(RIGID, (0, 1))]),
        (("fifo", "greedy_elastic", "sjf"), 0, [PerfPart(SCALING, (0, 1, 2))]),
        # The baseline is run again beside those that need servers.
        (("fifo", "srtf", "dlrover"), 0, [PerfPart(RIGID, (0, 1)), PerfPart(SERVERS, (0, 2))]),
        (
            ("fifo", "dp_elastic", "optimus", "aiturbo"),
            1,
            [PerfPart(SCALING, (0, 1)), PerfPart(SERVERS, (1, 2, 3))],
        ),
        # What is compared as a part of another comparison is not compared twice.
        (("fifo", "dlrover"), 0, [PerfPart(SERVERS, (0, 1))]),
        # A baseline that needs servers has all others beside it.
        (("fifo", "srtf", "dlrover"), 2, [PerfPart(SERVERS, (0, 1, 2))]),
        # Who cannot run at all has no place; the first that can stands in for it as the baseline.
        (
            ("recorded", "fifo", "srtf", "dlrover"),
            0,
            [PerfPart(RIGID, (1, 2)), PerfPart(SERVERS, (1, 3))],
        ),
        (("recorded",), 0, []),
    ],
)
def test_parts_by_hand(policies: tuple[str, ...], baseline: int, parts: list[PerfPart]) -> None:
    assert list(simplest_model.split_by_model(study(*policies, baseline=baseline), TRACE)) == parts


def test_a_model_that_cannot_be_bound_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ParameterError("the trace lacks what the model reads")

    monkeypatch.setattr(ParameterServer, "bind", refused)
    assert [
        part.perf for part in simplest_model.split_by_model(study("fifo", "srtf", "dlrover"), TRACE)
    ] == [RIGID]


def test_one_model_for_all() -> None:
    every = [Spec("fifo"), Spec("greedy_elastic"), Spec("dlrover")]
    assert simplest_model.simplest_for_all(every, TRACE, CLUSTER) == SERVERS
    assert simplest_model.simplest_for_all(every[:2], TRACE, CLUSTER) == SCALING
    assert simplest_model.simplest_for_all(every[:1], TRACE, CLUSTER) == RIGID
    assert (
        simplest_model.simplest_model_note(every[:2], TRACE, SERVERS)
        == simplest_model.simplest_model_note(every, TRACE, Spec("table"))
        == ""
    )
    assert "DLRover cannot run under a plainer model" in simplest_model.simplest_model_note(
        every, TRACE, SERVERS
    )
