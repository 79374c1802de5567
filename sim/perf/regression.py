"""Run time and resources predicted by regression (forest, boosting) on finished jobs."""

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
from sim.perf.predictors import LearnedEstimator, Medians, number_texts
from sim.perf.resources import BoundResources, learned_resources
from sim.trace import Trace

TEXTS: Final = ("user", "name", "model")
NUMBERS: Final = ("num_gpus", "batch_size")
RESOURCE_NUMBERS: Final = (
    *NUMBERS,
    "workers",
    "servers",
    "worker_cpus",
    "server_cpus",
    "worker_mem_gb",
    "server_mem_gb",
)
"""Numeric columns from which resources are predicted."""
RETRAIN_FACTOR: Final = 1.5
"""Factor of finished jobs between two trainings: frequent at first, a dozen in a thousand jobs."""
_BLOCK: Final = 256


@dataclass(frozen=True)
class _Regression(ABC):
    """Base of the estimators that train a regression on finished jobs."""

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
        """Bind the estimator to jobs and rates; only the work of finished jobs is read.

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
            model, transitions, len(trace), RegressionPredictor(self, trace, self._regressor, seed)
        )

    def bind_resources(self, model: PerfModel, trace: Trace, seed: int) -> BoundResources:
        """Bind the estimator to the resources of finished jobs and to requests."""
        return learned_resources(
            model, lambda: RegressionPredictor(self, trace, self._regressor, seed, RESOURCE_NUMBERS)
        )

    @abstractmethod
    def _regressor(self, state: int) -> Any:
        """Return an untrained regressor of scikit-learn with `state` as its seed."""


@dataclass(frozen=True)
class Forest(_Regression):
    """Random forest on user, name, model, GPUs and batch size.

    Trained on the jobs finished before each decision.

    Notes
    -----
    The learned value is the logarithm of the ideal run time, see
    `sim.perf.predictors.LearnedEstimator`. Before ``least`` jobs have finished, a prediction is the
    median of the same user's jobs, else of all jobs, else ``guess_s``.

    Users, names and models are numbered in order of their first submission, so that the numbers
    reveal nothing about later ones. Predicting the sizes of recurring jobs by a random forest
    follows A-SRPT [1]_; features and training intervals are ours.

    References
    ----------
    .. [1] Luo, Liu, Lee, Shroff, "Prediction-Assisted Online Distributed Deep Learning Workload
    Scheduling in GPU Clusters", INFOCOM 2025, arXiv 2501.05563.
    """

    trees: int = param(50, low=1, high=1000, help="Number of trees.")

    def _regressor(self, state: int) -> Any:
        """Return an untrained random forest of scikit-learn with `state` as its seed."""
        from sklearn.ensemble import (  # noqa: PLC0415
            RandomForestRegressor,
        )

        return RandomForestRegressor(
            n_estimators=self.trees, min_samples_leaf=2, random_state=state, n_jobs=1
        )


@dataclass(frozen=True)
class Boosting(_Regression):
    """Gradient boosting on user, name, model, GPUs and batch size.

    Trained on the jobs finished before each decision.

    Notes
    -----
    As `Forest`, with trees of ``depth`` levels that are each fitted to the residuals of the
    previous ones and weighted by ``rate``.
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
        """Return an untrained gradient boosting of scikit-learn with `state` as its seed."""
        # The histogram variant is many times slower when other processes use the cores, and no
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


class RegressionPredictor:
    """A regression on columns known at submission, retrained regularly: a `Predictor`.

    Parameters
    ----------
    spec : a regression
        Number of jobs to learn from, and the guess before that.
    trace : Trace
        Source of users, names, models and GPUs.
    regressor : callable
        Random state -> an untrained regressor of scikit-learn.
    seed : int
        Seed of the random state.
    numbers : sequence of str
        Numeric columns to read, in addition to the texts.
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
                *(number_texts(trace, column) for column in TEXTS),
                *(trace.numbers(column, -1.0) for column in numbers),
            ]
        ).astype(np.float32)
        self._state = int(np.random.default_rng([seed, ESTIMATE_STREAM]).integers(2**31))
        self._fallback = Medians(trace, 1, spec.guess_s)
        self._finished: list[JobId] = []
        self._logs: list[float] = []
        self._next_training = spec.least
        self._fitted: Any = None
        self._predictions: dict[JobId, float] = {}

    def learn(self, job: JobId, value: float) -> None:
        """Add a finished job; train at `least` jobs, and again after every half as many more."""
        self._fallback.learn(job, value)
        self._finished.append(job)
        self._logs.append(value)
        if len(self._finished) >= self._next_training:
            self._next_training = ceil(len(self._finished) * RETRAIN_FACTOR)
            self._fitted = self.fit_regressor(
                self._finished[-self._spec.latest :], self._logs[-self._spec.latest :]
            )
            self._predictions.clear()

    def can_tell(self, job: JobId) -> bool:
        """Return True if the regression is trained."""
        del job
        return self._fitted is not None

    def predict(self, job: JobId) -> float:
        """Return the prediction of the regression, or the median before it is trained."""
        if self._fitted is None:
            return self._fallback.predict(job)
        if job not in self._predictions:
            # Predicting many jobs is almost as fast as one, so the jobs submitted next are
            # predicted too. Retraining clears these predictions.
            ids = range(job, min(job + _BLOCK, len(self._features)))
            self._predictions.update(
                zip(
                    ids,
                    self._fitted.predict(self._features[job : job + _BLOCK]).tolist(),
                    strict=True,
                )
            )
        return self._predictions[job]

    def fit_regressor(self, jobs: Sequence[JobId], logs: Sequence[float]) -> Any:
        """Return a regressor fitted to the given jobs."""
        return self._regressor(self._state).fit(self._features[jobs], np.array(logs))
