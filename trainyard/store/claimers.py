"""Names of the queues that claim runs; a name tells other processes of the machine whether the
process of its queue still lives.
"""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from typing import Final

import psutil

_HOST: Final = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
_SAME_S: Final = 2.0
"""Seconds by which two readings of the start of one process may differ."""


def new_claimer() -> str:
    """Return a name unlike all others."""
    began_s = psutil.Process().create_time()
    return f"{_HOST}-{os.getpid()}-{began_s:.0f}-{uuid.uuid4().hex[:12]}"


def is_dead(claimer: str) -> bool:
    """Return whether a claimer was a process of this machine that has ended; False = it lives, or
    is elsewhere.
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
