"""A belief that learns: a random forest predicts the size of a job from who submitted what, trained on the jobs that have finished so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil, isnan
from statistics import median
from typing import Any, Final

import numpy as np
import pandas as pd

from sim.contract import Floats, Ints, JobId
from sim.errors import ParameterError
from sim.overheads import Transitions
from sim.params import param
from sim.perf.belief import BELIEF_STREAM, SizedBelief
from sim.perf.model import PerfModel
from sim.trace import Trace

TEXTS: Final = ("user", "name", "model")
NUMBERS: Final = ("num_gpus", "batch_size")
GROWTH: Final = 1.5
"""Trained again when so many times as many jobs have finished: often at first, when every job tells much, and a dozen times in a thousand jobs."""
_BLOCK: Final = 256


@dataclass(frozen=True)
class Forest:
    """A random forest predicts sizes from user, name, model, GPUs and batch size, trained on the jobs finished before each decision.

    Notes
    -----
    What is learnt is the logarithm of the ideal run time: the work of a finished job over its rate on its own on the best type, which is comparable across
    models. The prediction of a job is made when an allocator first asks for its size, and stays, but for the doubling of every belief that is outlived. Before
    ``least`` jobs have finished, it is the median of those of the same user, else of all, else ``guess_s``.

    Users, names and models are numbered in order of their first submission, so that no tree can know of later ones. Predicting the sizes of recurring jobs by a
    random forest follows A-SRPT [1]_; features and training intervals are ours.

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    trees: int = param(50, low=1, high=1000, help="Number of trees.")
    least: int = param(20, unit="jobs", low=2, high=1_000_000, help="So many jobs must have finished before the forest is trained; until then medians.")
    latest: int = param(10_000, unit="jobs", low=2, high=1_000_000, help="Trained on so many of the jobs that finished last.")
    guess_s: float = param(3600.0, unit="s", low=1, high=1e7, help="Believed ideal run time before anything has finished.")

    def bind(self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> ForestBelief:
        """Bind to jobs and speeds; of sizes only those of finished jobs are looked at.

        Raises
        ------
        ParameterError
            If scikit-learn is not installed.
        """
        if find_spec("sklearn") is None:
            raise ParameterError("forest: predicting sizes needs the package scikit-learn, which is not installed. Run pip install scikit-learn.")
        return ForestBelief(self, model, trace, transitions, seed)


class ForestBelief(SizedBelief):
    """`Forest`, bound to the truth: predicted sizes over true speeds.

    Parameters
    ----------
    spec : Forest
        The parameters.
    model : PerfModel
        Where speeds come from, and the sizes of finished jobs.
    trace : Trace
        Where users, names, models and GPUs come from.
    transitions : Transitions
        Where pauses come from.
    seed : int
        Of the forest.
    """

    def __init__(self, spec: Forest, model: PerfModel, trace: Trace, transitions: Transitions, seed: int) -> None:
        super().__init__(model, transitions, np.full(len(trace), np.nan), np.zeros(len(trace)))
        self._spec = spec
        self._fastest: Floats = np.nan_to_num(model.fastest(), nan=1.0)
        self._logs: Floats = np.log(model.work() / self._fastest)
        texts = [pd.factorize(np.asarray(trace.texts(column).codes))[0] for column in TEXTS]
        numbers = [trace.numbers(column, -1.0) for column in NUMBERS]
        self._features = np.column_stack([*texts, *numbers]).astype(np.float32)
        self._user: list[int] = texts[0].tolist()
        self._state = int(np.random.default_rng([seed, BELIEF_STREAM]).integers(2**31))
        self._finished: list[JobId] = []
        self._next = spec.least
        self._forest: Any = None
        self._ahead: dict[JobId, float] = {}

    def remaining(self, ids: Ints, done: Floats) -> Floats:
        """Return predicted size minus work done, of shape (jobs,)."""
        for job in ids[np.isnan(self._totals[ids])].tolist():
            self._predict(job)
        return super().remaining(ids, done)

    def remaining_one(self, job: JobId, done: float) -> float:
        """Return the same for one job."""
        if isnan(self._total[job]):
            self._predict(job)
        return super().remaining_one(job, done)

    def observe(self, job: JobId, finish_s: float) -> None:
        """Learn the size of a finished job; every now and then train anew."""
        self._finished.append(job)
        if len(self._finished) >= self._next:
            self._next = ceil(len(self._finished) * GROWTH)
            self._forest = self._trained(self._finished[-self._spec.latest :])
            self._ahead.clear()

    def _predict(self, job: JobId) -> None:
        log = self._by_forest(job) if self._forest else self._by_median(job)
        self._total[job] = self._first[job] = float(np.exp(log) * self._fastest[job])

    def _by_median(self, job: JobId) -> float:
        known = [other for other in self._finished if self._user[other] == self._user[job]] or self._finished
        return median(self._logs[known].tolist()) if known else float(np.log(self._spec.guess_s))

    def _by_forest(self, job: JobId) -> float:
        if job not in self._ahead:
            # A forest answers for many jobs almost as fast as for one: those submitted next are asked about as well, until it is trained anew.
            ids = range(job, min(job + _BLOCK, len(self._features)))
            self._ahead.update(zip(ids, self._forest.predict(self._features[job : job + _BLOCK]).tolist(), strict=True))
        return self._ahead[job]

    def _trained(self, finished: Sequence[JobId]) -> Any:
        from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - takes seconds to import, and few ask for it

        forest = RandomForestRegressor(n_estimators=self._spec.trees, min_samples_leaf=2, random_state=self._state, n_jobs=1)
        return forest.fit(self._features[finished], self._logs[finished])
