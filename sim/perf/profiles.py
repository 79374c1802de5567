"""Step times of model classes for elastic jobs: built-in profiles and users' own."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Final, NamedTuple

from sim.errors import ParameterError


class ModelProfile(NamedTuple):
    """Step times of a model, and its allowed batch sizes.

    Parameters
    ----------
    fixed_ms : float
        Part of forward and backward pass that does not depend on the batch, on the reference type.
    sample_ms : float
        Time for every sample of the batch of one GPU.
    weights_m : float
        Millions of weights, 4 bytes each, that are exchanged after every step.
    cap : float
        Most samples that fit on one GPU.
    min_batch, max_batch : float
        Range of the total batch size that does not reduce accuracy.
    """

    fixed_ms: float
    sample_ms: float
    weights_m: float
    cap: float
    min_batch: float
    max_batch: float


PROFILES: Final[Mapping[str, ModelProfile]] = {
    "compute": ModelProfile(10, 4.5, 25.6, 64, 32, 512),
    "comm": ModelProfile(8, 0.5, 61, 256, 64, 1024),
    "balanced": ModelProfile(10, 6.5, 133, 64, 32, 256),
    "nonscalable": ModelProfile(8, 1.2, 120, 64, 16, 64),
}
"""Plain name of a class -> profile. The four classes are those of Saxena et al. (MASCOTS 2020); the
figures are ours, in the range of the models named in `EXAMPLES`: the paper's own were not
available.
"""
EXAMPLES: Final[Mapping[str, str]] = {
    "resnet50": "compute",
    "alexnet": "comm",
    "vgg11": "balanced",
    "vgg16": "nonscalable",
}
"""Plain name of a model -> its class."""
_LEGEND: Final = "name fixed_ms sample_ms weights_m cap min_batch max_batch"


def plain(name: str) -> str:
    """Return a model name in lower case without punctuation: "ResNet-50" is "resnet50".

    Tables are searched by this form.
    """
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", name).lower())


def entries(owner: str, text: str) -> list[tuple[str, list[str]]]:
    """Split text of entries separated by semicolons into (name, words).

    Parameters
    ----------
    owner : str
        Model and parameter that the text belongs to, for messages.
    text : str
        E.g. "bert 1/1 8/6.5; mynet 1/1 2/1.9".

    Raises
    ------
    ParameterError
        If a name occurs twice, has neither letter nor digit, or contains a separator of
        parameters on the command line.
    """
    named_words: list[tuple[str, list[str]]] = []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        name, *words = entry.split()
        if not plain(name) or re.search(r"[,()]", entry):
            raise ParameterError(
                f"{owner}: '{entry:.60}' must begin with a name of letters and digits, and holds no"
                " comma or bracket. Correct the name."
            )
        if any(plain(name) == plain(other) for other, _ in named_words):
            raise ParameterError(f"{owner}: '{name}' is there twice. Keep one of the two.")
        named_words.append((name, words))
    return named_words


def number(text: str) -> float:
    """Return text as a finite number, or NaN."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def with_profiles(owner: str, text: str) -> dict[str, ModelProfile]:
    """Return the built-in profiles, replaced and extended by the entries of a text.

    Raises
    ------
    ParameterError
        If an entry does not have six valid figures; see `ModelProfile`.
    """
    table = dict(PROFILES)
    for name, words in entries(owner, text):
        figures = [number(word) for word in words]
        if len(figures) != len(ModelProfile._fields) or any(
            math.isnan(figure) for figure in figures
        ):
            raise ParameterError(
                f"{owner}: '{name} {' '.join(words):.60}' is not of the form '{_LEGEND}', six"
                " numbers after the name. Complete it."
            )
        table[plain(name)] = _check_profile(owner, name, ModelProfile(*figures))
    return table


def _check_profile(owner: str, name: str, profile: ModelProfile) -> ModelProfile:
    """Return a profile after checking times, batch sizes and cap."""
    if (
        min(profile.fixed_ms, profile.sample_ms, profile.weights_m) < 0
        or profile.fixed_ms + profile.sample_ms <= 0
    ):
        raise ParameterError(
            f"{owner}: {name} has a negative time or size, or a step that takes no time. Times and"
            " weights are 0 or more, a step takes longer than 0."
        )
    if not 1 <= profile.min_batch <= profile.max_batch:
        raise ParameterError(
            f"{owner}: {name} has batch sizes from {profile.min_batch:g} to {profile.max_batch:g}."
            " They start at 1 or more and ascend."
        )
    if profile.cap < 1 or any(
        figure != int(figure) for figure in (profile.cap, profile.min_batch, profile.max_batch)
    ):
        raise ParameterError(
            f"{owner}: {name} has cap {profile.cap:g} and batch sizes {profile.min_batch:g} to"
            f" {profile.max_batch:g}; these are whole numbers from 1."
        )
    return profile
