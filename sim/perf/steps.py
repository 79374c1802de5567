"""Step times with parameter servers: coefficients per model, built in and users' own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import isnan
from typing import Final, NamedTuple

import numpy as np

from sim.contract import Floats, Ints
from sim.errors import ParameterError
from sim.perf.profiles import entries, number, plain

REFERENCE_CORES: Final = 8.0
"""Cores of the CPU worker to which `kappa` refers."""
_SERVER_CORES: Final = 5.0
_LEGEND: Final = (
    "name gpu|cpu sample_ms step_ms exchange_ms update_ms worker_ms server_ms input_ms batch"
)


class ModelRow(NamedTuple):
    """Step time coefficients of one model; times in seconds.

    Parameters
    ----------
    on_cpus : bool
        Whether `sample_s` and `step_s` are those of one core; else of one GPU of the reference
        type.
    sample_s, step_s : float
        Forward and backward pass: for every sample of a worker, and for every step.
    exchange_s : float
        Push and pull of the weights and their update, times workers per server, on servers of 5
        cores.
    update_s : float
        Core-seconds on the servers for every sample, times workers per server.
    worker_s, server_s : float
        Connections: for every worker, and for every server.
    input_s : float
        For every sample of a worker, on any hardware.
    batch : float
        Samples of a step of all workers together; with `asynchronous` of a step of each.
    asynchronous : bool
        Whether workers do not wait for each other, if the trace does not state it.
    efficiency : three floats
        (a, b, d): servers of c cores do the exchange in proportion to a exp(-b c) + d.
    """

    on_cpus: bool
    sample_s: float
    step_s: float
    exchange_s: float
    update_s: float
    worker_s: float
    server_s: float
    input_s: float
    batch: float
    asynchronous: bool = False
    efficiency: tuple[float, float, float] = (0.0, 0.0, 1.0)

    def scaled_by(self, factor: float) -> ModelRow:
        """Return the row with all times multiplied by a factor."""
        return self._replace(
            **{name: getattr(self, name) * factor for name in self._fields if name.endswith("_s")}
        )


def _gpu_row(
    times_s: tuple[float, float, float, float, float],
    batch: float,
    efficiency: tuple[float, float, float],
) -> ModelRow:
    """Return a row on GPUs, from times per sample, step, exchange, worker and server."""
    sample_s, step_s, exchange_s, worker_s, server_s = times_s
    return ModelRow(
        False,
        sample_s,
        step_s,
        exchange_s,
        0.0,
        worker_s,
        server_s,
        0.0,
        batch,
        efficiency=efficiency,
    )


_VGG: Final = (0.012, 0.05, 0.55, 0.03, 0.01)
_DLROVER: Final = ModelRow(
    True, 1.38516e-4, 0.0, 0.0, 9.10857e-5, 0.0, 0.0, 2.84016e-5, 512, asynchronous=True
)


def _scale_row(row: ModelRow, powers: tuple[int, ...]) -> ModelRow:
    """Return a row with compute, update and input times 2 ** (power - 1), one power each."""
    sample, update, extra = (2.0 ** (power - 1) for power in powers)
    return row._replace(
        sample_s=row.sample_s * sample, update_s=row.update_s * update, input_s=row.input_s * extra
    )


VARIANTS: Final[dict[str, ModelRow]] = {
    f"dlrover{''.join(map(str, powers))}": _scale_row(_DLROVER, powers)
    for powers in product((0, 1, 2), repeat=3)
}
"""Plain names of variants of the fit to DLRover-RM; see `ROWS`."""

ROWS: Final[Mapping[str, ModelRow]] = {
    "vgg": _gpu_row(_VGG, 128, (-7.03, 3.67, 5.60)),
    "vgg11": _gpu_row(_VGG, 128, (-7.74, 2.37, 8.80)),
    "vgg16": _gpu_row(_VGG, 64, (-7.03, 3.67, 5.60)),
    "vgg19": _gpu_row(_VGG, 32, (-7.03, 3.67, 5.60)),
    "alexnet": _gpu_row((0.0012, 0.05, 0.45, 0.03, 0.01), 1024, (-14.38, 1.64, 15.73)),
    "resnet50": _gpu_row((0.006, 0.03, 0.10, 0.01, 0.005), 64, (-1.98, 1.88, 2.80)),
    "resnet101": _gpu_row((0.011, 0.05, 0.18, 0.01, 0.005), 64, (-2.43, 2.35, 3.40)),
    "resnet152": _gpu_row((0.016, 0.06, 0.25, 0.02, 0.01), 32, (-3.98, 2.78, 4.82)),
    "inception3": _gpu_row((0.008, 0.05, 0.10, 0.01, 0.005), 64, (-1.84, 1.48, 2.81)),
    "inception4": _gpu_row((0.015, 0.05, 0.20, 0.02, 0.01), 32, (-4.81, 2.85, 5.24)),
    "googlenet": _gpu_row((0.0035, 0.03, 0.03, 0.01, 0.005), 256, (-0.89, 1.45, 1.91)),
    "dlrover": _DLROVER,
    "widedeep": _DLROVER.scaled_by(0.9252),
    "xdeepfm": _DLROVER.scaled_by(1.8742),
    "deepfm": ModelRow(
        True, 1.822917e-4, 0.0, 0.0, 1.302083e-5, 0.0, 0.0, 0.0, 512, asynchronous=True
    ),
} | VARIANTS
"""Plain name of a model -> its row.

GPU models: non-negative, of the shape of the fits published with the code that follows AITurbo
(Zhao et al., HPDC 2021), values ours; core efficiencies as published there. ``dlrover``: our joint
fit to the throughputs in a figure of DLRover-RM (PVLDB 17, 2024), 15 % rms, illustrative.
``dlrover-000`` to ``dlrover-222`` are jobs that differ from it: compute, update and input take half
(0), as (1) or twice (2) as long. ``wide_deep`` and ``xdeepfm`` are the same row, stretched so that
10 epochs of the Kaggle Criteo data (45.84 million samples) take the 27 and 104 minutes that DLRover
publishes for 24 workers of 3 cores with 8 servers of 16, and 8 workers of 20 cores with 2 of 16.
``deepfm`` takes as long as its demonstration: workers and server of 3 cores each, one worker 30
steps per second, four 100; the batch is ours.
"""


class StepSetup(NamedTuple):
    """Workers and servers of a step, as arrays that broadcast together.

    Parameters
    ----------
    samples : array
        Samples per step of one worker.
    workers, gpus, cores : arrays
        Workers, and the GPUs and cores of each; 0 GPUs = a CPU worker.
    servers, server_cores : arrays
        Parameter servers, and the cores of each.
    """

    samples: Floats
    workers: Floats
    gpus: Floats
    cores: Floats
    servers: Floats
    server_cores: Floats


class StepTimes(NamedTuple):
    """Parts of a step time in seconds."""

    compute_s: Floats
    exchange_s: Floats
    rest_s: Floats


class Coefficients:
    """Step time coefficients of several rows as arrays.

    Parameters
    ----------
    rows : sequence of ModelRow
        In the order of their places.
    kappa : float
        Time of forward and backward pass on a CPU worker of 8 cores over that on a GPU of the
        reference type.
    """

    def __init__(self, rows: Sequence[ModelRow], kappa: float) -> None:
        self._gpu_cores = kappa * REFERENCE_CORES
        fields = {
            name: np.array([getattr(row, name) for row in rows], np.float64)
            for name in ModelRow._fields
            if name.endswith("_s")
        }
        in_gpus = np.array([1 / self._gpu_cores if row.on_cpus else 1.0 for row in rows])
        self._sample_s, self._step_s = fields["sample_s"] * in_gpus, fields["step_s"] * in_gpus
        self._exchange_s, self._update_s, self._input_s = (
            fields["exchange_s"],
            fields["update_s"],
            fields["input_s"],
        )
        self._worker_s, self._server_s = fields["worker_s"], fields["server_s"]
        self._efficiency = np.array([row.efficiency for row in rows]).T

    def step(self, row: Ints, crew: StepSetup) -> StepTimes:
        """Return the parts of a step time of workers and servers.

        Several workers without servers exchange as if each worker were a server, a single one not
        at all.
        """
        on_gpus = crew.gpus > 0
        of_one = (
            self._sample_s[row] * crew.samples / np.where(on_gpus, crew.gpus, 1.0)
            + self._step_s[row]
        )
        compute: Floats = of_one * np.where(
            on_gpus, 1.0, self._gpu_cores / np.where(on_gpus, 1.0, crew.cores)
        )
        per_server = np.where(
            crew.servers > 0,
            crew.workers / np.maximum(crew.servers, 1.0),
            np.where(crew.workers > 1, 1.0, 0.0),
        )
        update = self._update_s[row] * crew.samples / crew.server_cores
        exchange: Floats = per_server * (
            self._exchange_s[row] / self._relative_efficiency(row, crew.server_cores) + update
        )
        rest: Floats = (
            self._worker_s[row] * crew.workers
            + self._server_s[row] * crew.servers
            + self._input_s[row] * crew.samples
        )
        return StepTimes(compute, exchange, rest)

    def best_servers(self, row: Ints, crew: StepSetup) -> Floats:
        """Return the number of servers, not rounded, with the shortest step; inf = no best.

        There one more server takes as long to connect as it saves.
        """
        one = self.step(row, crew._replace(servers=np.ones_like(crew.servers))).exchange_s
        per_server = self._server_s[row] + np.zeros_like(one)
        best: Floats = np.sqrt(
            np.divide(one, per_server, out=np.full_like(one, np.inf), where=per_server > 0)
        )
        return best

    def _relative_efficiency(self, row: Ints, cores: Floats) -> Floats:
        """Return the exchange speed of servers with some cores, relative to 5 cores."""
        a, b, d = self._efficiency[:, row]
        # The fit holds from one core on; fewer cores are proportionally slower.
        relative: Floats = (
            np.minimum(cores, 1.0)
            * (a * np.exp(-b * np.maximum(cores, 1.0)) + d)
            / (a * np.exp(-b * _SERVER_CORES) + d)
        )
        return relative


def with_rows(owner: str, text: str) -> dict[str, ModelRow]:
    """Return the built-in rows, replaced and extended by the entries of a text.

    Parameters
    ----------
    owner : str
        Model and parameter that the text belongs to, for messages.
    text : str
        E.g. "mynet gpu 6 30 100 0 10 5 0 64"; times in milliseconds. Exchange is equally fast with
        any number of server cores.

    Raises
    ------
    ParameterError
        If an entry does not have this form, or has invalid figures.
    """
    table = dict(ROWS)
    for name, words in entries(owner, text):
        figures = [number(word) for word in words[1:]]
        if (
            len(figures) != len(_LEGEND.split()) - 2
            or words[0] not in ("gpu", "cpu")
            or any(isnan(figure) for figure in figures)
        ):
            raise ParameterError(
                f"{owner}: '{name} {' '.join(words):.60}' is not of the form '{_LEGEND}'."
                " Complete it."
            )
        *scaled_by, batch = figures
        if min(scaled_by) < 0 or scaled_by[0] + scaled_by[1] <= 0 or batch < 1:
            raise ParameterError(
                f"{owner}: {name} has a negative time, a step that takes no time, or a batch below"
                " 1. Correct it."
            )
        sample, step, exchange, update, worker, server, extra = (
            figure / 1000 for figure in scaled_by
        )
        on_cpus = words[0] == "cpu"
        table[plain(name)] = ModelRow(
            on_cpus,
            sample,
            step,
            exchange,
            update,
            worker,
            server,
            extra,
            batch,
            asynchronous=on_cpus,
        )
    return table
