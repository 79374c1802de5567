"""Sizes and resources predicted by regression, a random forest or gradient boosting, from who
submitted what, trained on the jobs that have finished so far.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from typing import Any, ClassVar, Final

import numpy as np

from sim.contract import JobId
from sim.errors import ParameterError
from sim.overheads import Transitions
from sim.params import param
from sim.perf.estimators import ESTIMATE_STREAM
from sim.perf.model import PerfModel
from sim.perf.predictors import LearnedEstimator, Medians, numbered
from sim.perf.resources import BoundResources, learnt
from sim.trace import Trace

TEXTS: Final = ("user", "name", "model")
NUMBERS: Final = ("num_gpus", "batch_size")
ASKED: Final = (
    *NUMBERS,
    "workers",
    "servers",
    "worker_cpus",
    "server_cpus",
    "worker_mem_gb",
    "server_mem_gb",
)
"""What resources are predicted from, besides texts."""
GROWTH: Final = 1.5
"""Trained again when so many times as many jobs have finished: often at first, when every job tells
much, and a dozen times in a thousand jobs.
"""
_BLOCK: Final = 256


@dataclass(frozen=True)
class _Regression(ABC):
    """What all predictors that are trained have in common."""

    chance: ClassVar[bool] = True

    least: int = param(
        20,
        title="Finished jobs needed",
        unit="jobs",
        low=2,
        high=1_000_000,
        help=(
            "Number of jobs that must have finished before the model is trained; until "
            "then medians are used."
        ),
    )
    latest: int = param(
        10_000,
        title="Finished jobs used",
        unit="jobs",
        low=2,
        high=1_000_000,
        help="Number of jobs that the model is trained on, those that finished last.",
    )
    guess_s: float = param(
        3600.0,
        title="Estimate before any finish",
        unit="s",
        low=1,
        high=1e7,
        help="Estimated ideal run time before any job has finished.",
    )

    def bind(
        self, model: PerfModel, trace: Trace, transitions: Transitions, seed: int
    ) -> LearnedEstimator:
        """Bind to jobs and speeds; of sizes only those of finished jobs are looked at.

        Raises
        ------
        ParameterError
            If scikit-learn is not installed.
        """
        if find_spec("sklearn") is None:
            name = type(self).__name__.lower()
            raise ParameterError(
                f"{name}: predicting sizes needs the package scikit-learn, which is not installed."
                " Run pip install scikit-learn."
            )
        return LearnedEstimator(
            model, transitions, len(trace), Trained(self, trace, self._regressor, seed)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind to what finished jobs have used, and what those and others ask for."""
        return learnt(model, lambda: Trained(self, trace, self._regressor, seed, ASKED))

    @abstractmethod
    def _regressor(self, state: int) -> Any:
        """Return what is trained."""


@dataclass(frozen=True)
class Forest(_Regression):
    """A random forest predicts sizes from user, name, model, GPUs and batch size, trained on the
    jobs finished before each decision.

    Notes
    -----
    What is learnt is the logarithm of the ideal run time, see
    `sim.perf.predictors.LearnedEstimator`. Before ``least`` jobs have finished, a prediction is the
    median of those of the same user, else of all, else ``guess_s``.

    Users, names and models are numbered in order of their first submission, so that no tree can
    know of later ones. Predicting the sizes of recurring jobs by a random forest follows A-SRPT
    [1]_; features and training intervals are ours.

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload
    Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    trees: int = param(50, low=1, high=1000, help="Number of trees.")

    def _regressor(self, state: int) -> Any:
        from sklearn.ensemble import (  # noqa: PLC0415
            RandomForestRegressor,
        )

        return RandomForestRegressor(
            n_estimators=self.trees, min_samples_leaf=2, random_state=state, n_jobs=1
        )


@dataclass(frozen=True)
class Boosting(_Regression):
    """Gradient boosting predicts sizes from user, name, model, GPUs and batch size, trained on the
    jobs finished before each decision.

    Notes
    -----
    As `Forest`, with trees that are each fitted to what the ones before leave, of ``depth`` levels,
    each counting for ``rate`` of what it says.
    """

    rounds: int = param(
        200,
        title="Trees",
        low=1,
        high=5000,
        help="Number of trees, each of which corrects those before it.",
    )
    depth: int = param(5, title="Depth of a tree", low=1, high=20, help="Levels of each tree.")
    rate: float = param(0.1, title="Learning rate", low=0.001, high=1, help="Weight of each tree.")

    def _regressor(self, state: int) -> Any:
        # The histogram variant is many times slower where other processes want the cores, and no
        # better on tables of this size.
        from sklearn.ensemble import (  # noqa: PLC0415
            GradientBoostingRegressor,
        )

        return GradientBoostingRegressor(
            n_estimators=self.rounds,
            max_depth=self.depth,
            learning_rate=self.rate,
            min_samples_leaf=2,
            random_state=state,
        )


class Trained:
    """A regression over what was known at submission, every now and then trained anew: a
    `sim.perf.predictors.Predictor`.

    Parameters
    ----------
    spec : a regression
        How many jobs it learns from, and the guess before that.
    trace : Trace
        Where users, names, models and GPUs come from.
    regressor : callable
        State of its random numbers -> an untrained regressor of scikit-learn.
    seed : int
        Where that state comes from.
    numbers : sequence of str
        Numeric columns that it reads, besides texts.
    """

    def __init__(
        self,
        spec: _Regression,
        trace: Trace,
        regressor: Callable[[int], Any],
        seed: int,
        numbers: Sequence[str] = NUMBERS,
    ) -> None:
        self._spec, self._regressor = spec, regressor
        self._features = np.column_stack(
            [
                *(numbered(trace, column) for column in TEXTS),
                *(trace.numbers(column, -1.0) for column in numbers),
            ]
        ).astype(np.float32)
        self._state = int(np.random.default_rng([seed, ESTIMATE_STREAM]).integers(2**31))
        self._before = Medians(trace, 1, spec.guess_s)
        self._finished: list[JobId] = []
        self._logs: list[float] = []
        self._next = spec.least
        self._trained: Any = None
        self._ahead: dict[JobId, float] = {}

    def learn(self, job: JobId, value: float) -> None:
        """Take in a finished job; every now and then train anew."""
        self._before.learn(job, value)
        self._finished.append(job)
        self._logs.append(value)
        if len(self._finished) >= self._next:
            self._next = ceil(len(self._finished) * GROWTH)
            self._trained = self.trained(
                self._finished[-self._spec.latest :], self._logs[-self._spec.latest :]
            )
            self._ahead.clear()

    def can_tell(self, job: JobId) -> bool:
        """Return whether enough jobs of any user have finished."""
        del job
        return self._trained is not None

    def predict(self, job: JobId) -> float:
        """Return what the regression says, or the median before it is trained."""
        if self._trained is None:
            return self._before.predict(job)
        if job not in self._ahead:
            # It answers for many jobs almost as fast as for one: those submitted next are asked
            # about as well, until it is trained anew.
            ids = range(job, min(job + _BLOCK, len(self._features)))
            self._ahead.update(
                zip(
                    ids,
                    self._trained.predict(self._features[job : job + _BLOCK]).tolist(),
                    strict=True,
                )
            )
        return self._ahead[job]

    def trained(self, jobs: Sequence[JobId], logs: Sequence[float]) -> Any:
        """Return a regressor that has seen these jobs."""
        return self._regressor(self._state).fit(self._features[jobs], np.array(logs))
