"""The same scenario gives the same bytes: again, in this process and in a fresh one with another
hash seed.
"""

from __future__ import annotations

import multiprocessing
import os
from unittest import mock

import pytest

from allocators import REGISTRY
from tests.properties.runs import rough_digests

NAMES = list(REGISTRY)


@pytest.mark.slow
def test_byte_identical_again_and_in_a_worker() -> None:
    here = rough_digests(NAMES, 5)
    assert rough_digests(NAMES, 5) == here
    assert len(set(here)) > len(here) // 2
    with (
        mock.patch.dict(os.environ, {"PYTHONHASHSEED": "12345"}),
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        assert pool.apply(rough_digests, (NAMES, 5)) == here


def test_another_seed_is_another_run() -> None:
    first, second = (rough_digests(["srtf"], seed) for seed in (1, 2))
    assert first != second
