"""Settings of all tests: hypothesis draws the same examples every time, and is not in a hurry; what runs together in one process."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("trainyard", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trainyard")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file in one process, so that its servers and workers are made once; only the conformance of each allocator goes its own way."""
    for item in items:
        of = getattr(item, "callspec", None)
        allocator = str(of.params.get("name", "")) if of and item.path.name == "test_conformance.py" else ""
        item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.name} {allocator}".strip()))
