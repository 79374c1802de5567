"""Stores results, uploaded traces and profiles: files, and a database that lists them."""

from __future__ import annotations

from trainyard.store.entry import FRAMES, StoredResult
from trainyard.store.files import StoreError, default_root
from trainyard.store.store import KEEP_DAYS, Store, StoredTrace
from trainyard.study.document import plain

__all__ = [
    "FRAMES",
    "KEEP_DAYS",
    "Store",
    "StoreError",
    "StoredResult",
    "StoredTrace",
    "default_root",
    "plain",
]
