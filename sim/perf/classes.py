"""Which class a model belongs to, told by its name: what is assumed of a job that says nothing of how it scales."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np

from sim.contract import Ints
from sim.trace import Trace

CLASSES: Final = ("vision", "language", "recommendation", "other")

# In this order: "vision transformer" is a vision model, "DeepFM" none of language.
_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "vision": (
        "vision", "resnet", "resnext", "vgg", "alexnet", "googlenet", "inception", "lenet", "densenet", "mobilenet", "squeezenet", "shufflenet",
        "efficientnet", "nasnet", "overfeat", "yolo", "ssd", "rcnn", "unet", "vit", "swin", "gan", "cyclegan", "dcgan", "imagenet", "cifar", "mnist",
        "coco", "segmentation", "diffusion", "clip",
    ),
    "recommendation": ("recommendation", "recommender", "recoder", "ncf", "neumf", "dlrm", "deepfm", "widedeep", "autoencoder", "movielens", "ctr"),
    "language": (
        "language", "transformer", "bert", "electra", "gpt", "llama", "mistral", "qwen", "bloom", "lm", "llm", "lstm", "rnn", "t5", "gnmt", "nmt",
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
        As traces write it: "ResNet-50", "vgg16", "LM", "bert-large". Keywords of up to three letters must begin a word, longer ones may stand anywhere;
        a name without any keyword ("A3C", "deepspeech2", "") is "other".
    """
    plain = name.lower()
    words = re.findall(r"[a-z0-9]+", plain)
    joined = "".join(words)
    for kind, keywords in _KEYWORDS.items():
        for keyword in keywords:
            if keyword in joined if len(keyword) > _SHORT else any(word.startswith(keyword) for word in words):
                return kind
    return "other"


def classes_of(trace: Trace) -> Ints:
    """Return the place in `CLASSES` of every job's model, of shape (jobs,)."""
    models = trace.texts("model")
    places: Ints = np.array([CLASSES.index(model_class(str(name))) for name in models.categories], np.int64)[models.codes]
    return places
