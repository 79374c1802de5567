"""Names of run queues that claim runs; a name shows whether its process still lives."""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from typing import Final

import psutil

_HOST: Final = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
_SAME_S: Final = 2.0
"""Tolerance in seconds between two readings of the start time of a process."""


def new_claimer() -> str:
    """Return a unique name: host hash, process id, start time and a random part."""
    began_s = psutil.Process().create_time()
    return f"{_HOST}-{os.getpid()}-{began_s:.0f}-{uuid.uuid4().hex[:12]}"


def is_dead(claimer: str) -> bool:
    """Return True if a claimer was a process of this machine that has ended.

    False for living processes and for those of other machines.
    """
    host, _, rest = claimer.partition("-")
    if host != _HOST:
        return False
    pid, began_s, _ = rest.split("-")
    try:
        process = psutil.Process(int(pid))
        is_other = abs(process.create_time() - float(began_s)) > _SAME_S
        return is_other or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False
