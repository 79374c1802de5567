"""Readers of Slurm configuration files, shared with the policy ``slurm``."""

from __future__ import annotations

from allocators.sites.slurm.accounts import Associations, read_associations
from allocators.sites.slurm.config import (
    NodeEntry,
    PartitionEntry,
    SlurmConfig,
    Switch,
    count_gpus_by_type,
    expand_host_list,
    parse_time_s,
    read_conf,
    read_topology,
)
from allocators.sites.slurm.keys import CLASSES, IDLE, MISSED, USED, Finding

__all__ = [
    "CLASSES",
    "IDLE",
    "MISSED",
    "USED",
    "Associations",
    "Finding",
    "NodeEntry",
    "PartitionEntry",
    "SlurmConfig",
    "Switch",
    "count_gpus_by_type",
    "expand_host_list",
    "parse_time_s",
    "read_associations",
    "read_conf",
    "read_topology",
]
