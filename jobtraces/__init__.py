"""Read trace files of any format as jobs, and generate synthetic workloads."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobtraces.reading import (
        FORMATS,
        Draft,
        Format,
        Import,
        Peek,
        ReadOptions,
        Report,
        Sample,
        detect,
        peek,
        read,
    )

__all__ = [
    "FORMATS",
    "Draft",
    "Format",
    "Import",
    "Peek",
    "ReadOptions",
    "Report",
    "Sample",
    "detect",
    "peek",
    "read",
]


def __getattr__(name: str) -> Any:
    # Loaded when first used: a generator alone needs no reader.
    if name not in __all__:
        raise AttributeError(f"module 'jobtraces' has no attribute '{name}'")
    return getattr(import_module("jobtraces.reading"), name)
