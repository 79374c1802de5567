"""Scheduling policies by family, and their registry."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocators.registry import LEFT_OUT, PACKAGES, REGISTRY, hard_quotas, make, packages_of

__all__ = ["LEFT_OUT", "PACKAGES", "REGISTRY", "hard_quotas", "make", "packages_of"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: one queue policy alone needs no solver.
    if name not in __all__:
        raise AttributeError(f"module 'allocators' has no attribute '{name}'")
    return getattr(import_module("allocators.registry"), name)
