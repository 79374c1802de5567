"""A prototype of A-SRPT and its rivals, whose figures came before this code: the same proportions
on jobs made alike.

The prototype's jobs are known only in outline: 800 of 60 recurring groups on 25 servers of 8 GPUs,
errors of 0.3, 4 seeds. So its hours are not repeated, and neither is the place of shortest job
first, which large gangs at the head of the queue hold up here more than there.
"""

from __future__ import annotations

import pytest

from allocators import make
from jobtraces.generate import workload
from sim.contract import Spec
from sim.engine.simulator import Conditions, Simulator
from sim.perf.communication import Spread
from sim.perf.estimators import Noisy

FEWEST = {
    0.9: (6325 / 4836, 6325 / 7194),
    1.5: (8825 / 6242, 8825 / 21284),
    2.5: (8851 / 8069, 8851 / 31830),
}
"""Total completion time of A-SRPT over that of least predicted GPU time first and of FIFO, both on
the fewest servers, by load.
"""
FRAGMENTS = {
    0.9: (6325 / 6533, 6325 / 15533),
    1.5: (8825 / 8532, 8825 / 31762),
    2.5: (8851 / 10332, 8851 / 41087),
}
"""The same where both fill fragments first."""


def total_h(policy: str, load: float) -> float:
    total_s = 0.0
    for seed in range(4):
        made = workload(f"recurring:load={load},seed={seed}")
        jobs = (
            Simulator(
                made.make(),
                made.machines(),
                make(Spec.parse(policy)),
                Conditions(Spread(), estimator=Noisy(0.3), seed=seed),
            )
            .run()
            .jobs
        )
        total_s += float((jobs["finish_s"] - jobs["submit_s"]).sum())
    return total_s / 3600


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.9, 1.5, 2.5])
def test_proportions_are_those_of_the_prototype(load: float) -> None:
    ours = total_h("asrpt", load)
    for placement, (to_spwf, to_fifo) in (("fewest", FEWEST[load]), ("pack", FRAGMENTS[load])):
        least, fifo = (
            total_h(f"sjf:size=gpu_time,placement={placement}", load),
            total_h(f"fifo:placement={placement}", load),
        )
        assert ours / least == pytest.approx(to_spwf, rel=0.1 if placement == "fewest" else 0.25)
        assert ours / fifo == pytest.approx(to_fifo, rel=0.3)
