"""What ends a command of the command line with one sentence."""

from __future__ import annotations

from sim.errors import TrainyardError


class UsageError(TrainyardError):
    """The arguments contradict each other or something is missing."""


class CommandStoppedError(TrainyardError):
    """A command could not finish what it began."""
