"""Where results, uploaded traces and profiles are kept: files here or far away, and the database that lists them."""

from __future__ import annotations

from lab.document import plain
from lab.store.entry import FRAMES, Entry
from lab.store.files import StoreError, default_root
from lab.store.store import KEEP_DAYS, Store, StoredTrace

__all__ = ["FRAMES", "KEEP_DAYS", "Entry", "Store", "StoreError", "StoredTrace", "default_root", "plain"]
