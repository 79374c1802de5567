"""Plain job lists of published traces: Philly as used by Pollux and Sia, Helios as used by
simulators, Microsoft ITP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from sim.readers.format import Draft, Format, ReadOptions
from sim.readers.native import draft_of
from sim.readers.sniff import Sample
from sim.readers.source import Content
from sim.readers.table import pick, read_table


@dataclass(frozen=True)
class JobList:
    """One layout: which source column fills which native one.

    Parameters
    ----------
    columns : mapping
        Native -> plain source column, all of them required.
    zone : str
        Of times without an offset.
    telling : frozenset of str
        Columns that together occur in no other format.
    notes : tuple of str
        What a reader of this list should know.
    """

    columns: Mapping[str, str]
    telling: frozenset[str]
    zone: str = "UTC"
    notes: tuple[str, ...] = field(default=())

    @property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """As `Format.sources`."""
        return {native: (source,) for native, source in self.columns.items()}

    def matches(self, sample: Sample) -> bool:
        """Recognise this layout by its columns."""
        return sample.kind == "text" and self.telling <= sample.keys

    def load(self, content: Content, options: ReadOptions) -> Draft:
        """Read it; numeric times and durations are seconds unless the options say otherwise."""
        frame, report = read_table(content, options, set(self.columns.values()))
        pick(frame, self.columns, content.name)
        report.guesses.extend(self.notes)
        fixed = replace(options, zone=options.zone or self.zone, mapping={})
        return draft_of(frame, self.columns, report, content.name, fixed)


PHILLY_LIST: Final = JobList(
    MappingProxyType(
        {
            "submit_time_s": "timestamp",
            "duration_s": "duration",
            "num_gpus": "num_gpus",
            "vc": "cluster",
        }
    ),
    frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}),
    "America/Los_Angeles",
    ("Durations add up all attempts of a job; jobs that failed are not in this list.",),
)
HELIOS_LIST: Final = JobList(
    MappingProxyType(
        {
            "job_id": "job_id",
            "submit_time_s": "arrival_s",
            "duration_s": "service_sec",
            "num_gpus": "gpu_count",
        }
    ),
    frozenset({"job_id", "arrival_s", "service_sec", "gpu_count"}),
    notes=("Durations in this list are cut at 172,800 s (2 days) by its makers.",),
)
ITP_LIST: Final = JobList(
    MappingProxyType(
        {
            "job_id": "job_id",
            "submit_time_s": "submission_time",
            "duration_s": "duration",
            "num_gpus": "num_gpu",
        }
    ),
    frozenset({"job_id", "submission_time", "duration", "num_gpu"}),
    notes=("Jobs shorter than about 10 minutes are absent from this trace.",),
)


def _is_itp(sample: Sample) -> bool:
    # ElasticFlow's generated traces have the same four columns and more; they are not the recorded
    # ones.
    return sample.kind == "text" and sample.keys == ITP_LIST.telling


PHILLY_CSV: Final = Format(
    "philly-csv",
    "Philly job list (Pollux, Sia)",
    PHILLY_LIST.matches,
    PHILLY_LIST.load,
    PHILLY_LIST.sources,
)
HELIOS_CSV: Final = Format(
    "helios-list",
    "Helios job list (arrival, service, GPUs)",
    HELIOS_LIST.matches,
    HELIOS_LIST.load,
    HELIOS_LIST.sources,
)
ITP: Final = Format(
    "itp", "Microsoft ITP (ElasticFlow raw traces)", _is_itp, ITP_LIST.load, ITP_LIST.sources
)
