"""Errors that end a command with one sentence."""

from __future__ import annotations

from sim.errors import TrainyardError


class UsageError(TrainyardError):
    """Raised when arguments are missing or contradict each other."""


class CommandStoppedError(TrainyardError):
    """Raised when a command stops before it has finished."""
