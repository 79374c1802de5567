"""One memory, two views: scalars and vectors."""

from __future__ import annotations

import numpy as np

from sim.engine.columns import COUNTS, FLOATS, Columns, IdSet


def test_scalars_and_vectors_share_their_memory() -> None:
    columns = Columns(3)
    columns.left[1] = 2.5
    columns.array("left")[2] = 7.0
    columns.evictions[0] += 3
    assert columns.array("left").tolist() == [0, 2.5, 7]
    assert columns.left[2] == 7.0
    assert columns.array("evictions").tolist() == [3, 0, 0]


def test_columns_begin_with_their_value() -> None:
    columns = Columns(2)
    for name, value in FLOATS.items():
        assert columns.array(name).dtype == np.float64
        np.testing.assert_array_equal(columns.array(name), [value, value])
    for name in COUNTS:
        assert columns.array(name).dtype == np.int32
        assert columns.array(name).tolist() == [0, 0]


def test_a_set_of_ids_is_ascending_for_readers_and_in_order_of_entry_inside() -> None:
    ids = IdSet()
    for job in (5, 2, 9):
        ids[job] = None
    del ids[2]
    ids[2] = None
    assert list(ids) == [5, 9, 2]
    assert ids.ids().tolist() == [2, 5, 9]
    assert IdSet().ids().dtype == np.int64
