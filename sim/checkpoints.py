"""Measured times to save and load a checkpoint, by framework and storage: values to begin with for `sim.overheads.Overheads`."""

from __future__ import annotations

from typing import Final, NamedTuple

SOURCE: Final = "GPT-2 of 1.5 billion parameters on two A100 (DLRover's flash checkpoint; NAS of 100 MB/s, SSD of 2 GB/s, flash = host memory)"


class Timing(NamedTuple):
    """Seconds that training stands still while a checkpoint is saved, and seconds to load one."""

    save_s: float
    load_s: float


CHECKPOINTS: Final[dict[str, Timing]] = {
    "ddp-nas": Timing(135, 166),
    "ddp-ssd": Timing(18.2, 9.3),
    "ddp-flash": Timing(2.2, 3.7),
    "fsdp-nas": Timing(132, 158),
    "fsdp-ssd": Timing(51, 18),
    "fsdp-flash": Timing(2.9, 15.1),
    "zero1-nas": Timing(185, 202),
    "zero1-ssd": Timing(14.9, 8.9),
    "zero1-flash": Timing(1.4, 4.8),
    "zero3-nas": Timing(127, 146),
    "zero3-ssd": Timing(9.5, 3.9),
    "zero3-flash": Timing(1.0, 1.9),
    "megatron-nas": Timing(195, 127),
    "megatron-ssd": Timing(11, 5.1),
    "megatron-flash": Timing(1.2, 2.1),
}
"""Framework and storage -> times. Read from the published table; other models and machines take other times."""
