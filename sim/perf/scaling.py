"""Power law and Amdahl's law for resizable jobs, and the class of a model by its name.

The class determines the scaling of jobs that do not state theirs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from sim.cluster import Cluster
from sim.contract import Floats, Ints, JobId
from sim.params import param
from sim.perf.machines import Machines
from sim.perf.resizable import Resizable, ResizableModel, job_share
from sim.trace import Trace

CLASSES: Final = ("vision", "language", "recommendation", "other")

# In this order: "vision transformer" is a vision model, "DeepFM" none of language.
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "vision": (
        "vision", "resnet", "resnext", "vgg", "alexnet", "googlenet", "inception", "lenet", "densenet", "mobilenet", "squeezenet", "shufflenet",  # noqa: E501
        "efficientnet", "nasnet", "overfeat", "yolo", "ssd", "rcnn", "unet", "vit", "swin", "gan", "cyclegan", "dcgan", "imagenet", "cifar", "mnist",  # noqa: E501
        "coco", "segmentation", "diffusion", "clip",
    ),
    "recommendation": ("recommendation", "recommender", "recoder", "ncf", "neumf", "dlrm", "deepfm", "widedeep", "autoencoder", "movielens", "ctr"),  # noqa: E501
    "language": (
        "language", "transformer", "bert", "electra", "gpt", "llama", "mistral", "qwen", "bloom", "lm", "llm", "lstm", "rnn", "t5", "gnmt", "nmt",  # noqa: E501
        "seq2seq", "translation", "xlnet", "wikitext", "squad", "opt",
    ),
}  # fmt: skip
_SHORT: Final = 3


@cache
def model_class(name: str) -> str:
    """Return the class of a model: "vision", "language", "recommendation" or "other".

    Parameters
    ----------
    name : str
        Name as in traces: "ResNet-50", "vgg16", "LM", "bert-large". Keywords of up to three letters
        must begin a word, longer ones may be anywhere; a name without any keyword ("A3C",
        "deepspeech2", "") is "other".
    """
    plain = name.lower()
    words = re.findall(r"[a-z0-9]+", plain)
    joined = "".join(words)
    for kind, keywords in _KEYWORDS.items():
        for keyword in keywords:
            if (
                keyword in joined
                if len(keyword) > _SHORT
                else any(word.startswith(keyword) for word in words)
            ):
                return kind
    return "other"


def classes_of(trace: Trace) -> Ints:
    """Return the index in `CLASSES` of every job's model, of shape (jobs,)."""
    models = trace.texts("model")
    class_indices: Ints = np.array(
        [CLASSES.index(model_class(str(name))) for name in models.categories], np.int64
    )[models.codes]
    return class_indices


@dataclass(frozen=True)
class PowerLaw(Resizable):
    """Speed grows as a power of the GPUs: s(k) = (k / asked) ^ exponent.

    Notes
    -----
    The exponent is the job's column ``scaling_exponent``, else that of its model's class
    (`model_class`). The defaults are our fit of the public measurements of
    Gavel (Narayanan et al., OSDI 2020; simulation table): least squares through the origin of
    ln(speed at k GPUs / speed at one) over ln(k), for V100 and P100, consolidated, k = 2, 4, 8,
    every batch size: vision (ResNet-18, ResNet-50) 0.85, language (LM, Transformer) 0.66. Nothing
    else was measured on several GPUs: recommendation and other models get the fit of all, 0.75.
    """

    exponent_vision: float = param(
        0.85,
        title="Exponent of vision models",
        low=0.05,
        high=1.2,
        help="Exponent of vision models whose job does not state one.",
    )
    exponent_language: float = param(
        0.66,
        title="Exponent of language models",
        low=0.05,
        high=1.2,
        help="Exponent of language models whose job does not state one.",
    )
    exponent_recommendation: float = param(
        0.75,
        title="Exponent of recommenders",
        low=0.05,
        high=1.2,
        help="Exponent of recommendation models whose job does not state one.",
    )
    exponent_other: float = param(
        0.75,
        title="Exponent of other models",
        low=0.05,
        high=1.2,
        help="Exponent of all other models, and of jobs without a model.",
    )

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences on the assumed sizes and exponents of jobs that state none."""
        return (
            *self.about_sizes(trace),
            *scaling_note(trace, "scaling_exponent", "GPUs^", self._by_class()),
        )

    def curve(self, trace: Trace) -> str:
        """Return a phrase with the assumed exponents; "" = all jobs state one."""
        used = _assumed_range(trace, "scaling_exponent", self._by_class())
        return f"a speed of GPUs^{used}" if used else ""

    def bind(self, trace: Trace, cluster: Cluster) -> ResizableModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's.
        """
        machines = Machines("power_law", self.spans, trace, cluster)
        sizes = self.sizes(trace, machines.largest)
        return ResizableModel(
            trace,
            machines,
            sizes,
            _Power(trace, sizes[1], _per_job(trace, "scaling_exponent", self._by_class())),
            self,
        )

    def _by_class(self) -> tuple[float, ...]:
        """Return the exponents in the order of `CLASSES`."""
        return (
            self.exponent_vision,
            self.exponent_language,
            self.exponent_recommendation,
            self.exponent_other,
        )


@dataclass(frozen=True)
class Amdahl(Resizable):
    """A share of every step is serial: s(k) = (f + (1 - f) / asked) / (f + (1 - f) / k).

    Notes
    -----
    The serial share f is the job's column ``serial_fraction``, else that of the class its model
    belongs to (`model_class`). The defaults are our fit of the same measurements
    as in `PowerLaw` (Gavel, OSDI 2020), least squares of ln(speed at k GPUs / speed at one): vision
    0.06, language 0.17, all models 0.11.
    """

    serial_vision: float = param(
        0.06,
        title="Serial share of vision models",
        low=0,
        high=1,
        help="Serial share of vision models whose job does not state one.",
    )
    serial_language: float = param(
        0.17,
        title="Serial share of language models",
        low=0,
        high=1,
        help="Serial share of language models whose job does not state one.",
    )
    serial_recommendation: float = param(
        0.11,
        title="Serial share of recommenders",
        low=0,
        high=1,
        help="Serial share of recommendation models whose job does not state one.",
    )
    serial_other: float = param(
        0.11,
        title="Serial share of other models",
        low=0,
        high=1,
        help="Serial share of all other models, and of jobs without a model.",
    )

    def assumptions(self, trace: Trace) -> tuple[str, ...]:
        """Return sentences on the assumed sizes and serial shares of jobs that state none."""
        return (
            *self.about_sizes(trace),
            *scaling_note(trace, "serial_fraction", "a serial share of ", self._by_class()),
        )

    def curve(self, trace: Trace) -> str:
        """Return a phrase with the assumed serial shares; "" = all jobs state one."""
        used = _assumed_range(trace, "serial_fraction", self._by_class())
        return f"a serial share of {used} (Amdahl's law)" if used else ""

    def bind(self, trace: Trace, cluster: Cluster) -> ResizableModel:
        """Bind the model to jobs and machines.

        Raises
        ------
        ParameterError
            If the reference type is not one of the cluster's.
        """
        machines = Machines("amdahl", self.spans, trace, cluster)
        sizes = self.sizes(trace, machines.largest)
        return ResizableModel(
            trace,
            machines,
            sizes,
            _Amdahl(trace, sizes[1], _per_job(trace, "serial_fraction", self._by_class())),
            self,
        )

    def _by_class(self) -> tuple[float, ...]:
        """Return the serial shares in the order of `CLASSES`."""
        return (
            self.serial_vision,
            self.serial_language,
            self.serial_recommendation,
            self.serial_other,
        )


class _Power:
    """s(k) = (k / asked) ^ exponent."""

    def __init__(self, trace: Trace, most: Floats, exponents: Floats) -> None:
        self._requested = np.maximum(trace.numbers("num_gpus"), 1.0)
        self._most, self._exponents = np.maximum(most, 1.0), exponents
        self._size: memoryview[float] = memoryview(self._requested)  # type: ignore[arg-type]
        self._exponent: memoryview[float] = memoryview(exponents)  # type: ignore[arg-type]

    def one(self, job: JobId, gpus: float) -> float:
        """Return the relative speed of one job at a size."""
        return float((gpus / self._size[job]) ** self._exponent[job])

    def many(self, ids: Ints, gpus: Floats) -> Floats:
        """Return the relative speed of jobs at sizes."""
        speed: Floats = (gpus / self._requested[ids, None]) ** self._exponents[ids, None]
        return speed

    def best(self) -> Floats:
        """Return the relative speed of each job at its largest size."""
        speed: Floats = (self._most / self._requested) ** self._exponents
        return speed


class _Amdahl:
    """s(k) = t(asked) / t(k) with t(k) = f + (1 - f) / k."""

    def __init__(self, trace: Trace, most: Floats, serial: Floats) -> None:
        self._most, self._serial = np.maximum(most, 1.0), serial
        self._step: Floats = serial + (1 - serial) / np.maximum(trace.numbers("num_gpus"), 1.0)
        self._asked_step: memoryview[float] = memoryview(self._step)  # type: ignore[arg-type]
        self._share: memoryview[float] = memoryview(serial)  # type: ignore[arg-type]

    def one(self, job: JobId, gpus: float) -> float:
        """Return the relative speed of one job at a size."""
        share = self._share[job]
        return self._asked_step[job] / (share + (1 - share) / gpus)

    def many(self, ids: Ints, gpus: Floats) -> Floats:
        """Return the relative speed of jobs at sizes."""
        share = self._serial[ids, None]
        speed: Floats = self._step[ids, None] / (share + (1 - share) / gpus)
        return speed

    def best(self) -> Floats:
        """Return the relative speed of each job at its largest size."""
        speed: Floats = self._step / (self._serial + (1 - self._serial) / self._most)
        return speed


def scaling_note(
    trace: Trace, column: str, law: str, by_class: tuple[float, ...]
) -> tuple[str, ...]:
    """Return a note on the scaling assumed, by class, for GPU jobs that state none; or ().

    Parameters
    ----------
    trace : Trace
        The jobs.
    column : str
        Column with the scaling of a job.
    law : str
        Text before the figure of a class.
    by_class : tuple of float
        The figures, in the order of `CLASSES`.
    """
    on_gpus = trace.numbers("num_gpus") > 0
    silent = on_gpus & np.isnan(trace.numbers(column))
    if not silent.any():
        return ()
    counts = np.bincount(classes_of(trace)[silent], minlength=len(CLASSES))
    parts = [
        f"{kind} {law}{figure:g} ({int(count):,} {'job' if count == 1 else 'jobs'})"
        for kind, figure, count in zip(CLASSES, by_class, counts, strict=True)
        if count
    ]
    return (
        (
            f"{job_share(silent, on_gpus)} do not say how they scale ({column}); by the class of"
            f" their model: {', '.join(parts)}. This is an assumption; change it under How jobs"
            " scale (--perf)."
        ),
    )


def _assumed_range(trace: Trace, column: str, by_class: tuple[float, ...]) -> str:
    """Return the range of figures assumed for silent GPU jobs, as text; "" = no such job."""
    silent = (trace.numbers("num_gpus") > 0) & np.isnan(trace.numbers(column))
    figures = np.array(by_class)[classes_of(trace)[silent]]
    if not len(figures):
        return ""
    low, high = float(figures.min()), float(figures.max())
    return f"{low:g}" if low == high else f"{low:g} to {high:g} by the class of the model"


def _per_job(trace: Trace, column: str, by_class: tuple[float, ...]) -> Floats:
    """Return the stated figure of each job, else that of its model's class."""
    stated = trace.numbers(column)
    return np.where(np.isnan(stated), np.array(by_class)[classes_of(trace)], stated)
