"""Files given at once: which are jobs, which describe machines, and which are not used."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from jobtraces import ReadOptions, detect, peek
from jobtraces.readers.columns import TABLE
from jobtraces.readers.content import Content, plain_name
from jobtraces.readers.files import ARCHIVE_ERRORS, is_workbook, open_all, open_source, open_zip
from jobtraces.recipes import refuse_unreadable, shipped_recipes
from jobtraces.recipes.sources import assign_tables
from sim.errors import ClusterError, TraceError, TrainyardError
from trainyard.clusters.homes import dealt, says_sizes_alone, sizes_of_homes
from trainyard.clusters.kubernetes import is_yaml
from trainyard.clusters.machines import import_cluster
from trainyard.clusters.node_lists import (
    LARGEST_BYTES,
    Imported,
    is_sinfo,
    is_slurm,
    only_machines,
)
from trainyard.study.scenario import TraceSpec
from trainyard.traces import likeness
from trainyard.traces.intake import MAPPED, UNPACKED_BYTES

LARGEST: Final = 5_000_000
"""Bytes of a file that may describe a cluster."""
Kind = Literal["jobs", "figures", "machines", "refused"]


class Drop(NamedTuple):
    """What one file is, or several files that are the tables of one trace.

    Parameters
    ----------
    kind : {"jobs", "figures", "machines", "refused"}
        A trace, the figures of a look-alike, a description of machines, or none of these.
    name : str
        Of the file; of several files their names joined by " + ".
    content : bytes, TraceSpec or str
        The file itself, with several tables in one zip archive; of figures the trace that they
        make; of a refused file the sentence that says why.
    """

    kind: Kind
    name: str
    content: bytes | TraceSpec | str


class FileGroups(NamedTuple):
    """What several files are.

    Parameters
    ----------
    traces : list of tuple of str
        Names of the files of each trace: several where they are the tables of one.
    machines : mapping of str to Imported
        Name of a file that describes machines -> its cluster.
    refused : mapping of str to str
        Names of files that are not used -> the sentence that says why.
    """

    traces: list[tuple[str, ...]]
    machines: dict[str, Imported]
    refused: dict[str, str]


def sort(files: Mapping[str, bytes], max_bytes: int = UNPACKED_BYTES) -> list[Drop]:
    """Return what each of the given files is, by its content alone.

    Parameters
    ----------
    files : mapping of str to bytes
        Their contents, plain or packed, by name. The members of a zip archive count as files unless
        they are the tables of one trace.
    max_bytes : int
        Limit on the size of all files unpacked.

    Returns
    -------
    list of Drop
        A single file that is nothing else counts as jobs, so that reading says what is wrong with
        it. Of several, one that is neither jobs nor machines counts as the jobs if it is the only
        one beside machines: its columns can be named by hand.

    Raises
    ------
    TrainyardError
        If figures of a look-alike cannot be used, or a table of a trace cannot be unpacked.
    """
    files = _unfold_archives(files, max_bytes)
    if len(files) == 1:
        name, data = next(iter(files.items()))
        if (made := likeness.open_figures(data)) is not None:
            return [Drop("figures", name, made)]
        is_cluster = _find_machines(name, data) is not None
        return [Drop("machines" if is_cluster else "jobs", name, data)]
    found = group_files(files, max_bytes)
    try:
        _combine(found.machines)
    except ClusterError as error:
        found.refused[", ".join(found.machines)] = str(error)
        found.machines.clear()
    return [
        *(_pack(names, files) for names in found.traces),
        *(Drop("machines", name, files[name]) for name in found.machines),
        *(Drop("refused", name, sentence) for name, sentence in found.refused.items()),
    ]


def contents(drops: Iterable[Drop], kind: Kind) -> dict[str, Any]:
    """Return name -> content of the drops of one kind."""
    return {drop.name: drop.content for drop in drops if drop.kind == kind}


def read_machines(name: str, content: bytes, epoch: str = "") -> Imported | None:
    """Return the cluster that a file describes; None if it is a trace or describes no machines.

    Parameters
    ----------
    name, content, epoch
        As for `trainyard.clusters.machines.import_cluster`.
    """
    try:
        opened = open_source(content, name, ReadOptions(max_bytes=LARGEST_BYTES))
        found, written = detect(opened), content.decode("utf-8-sig", "replace")
        # Any table may hold jobs; one with a column that no list of machines has is taken for one.
        if found is not None and not (
            found is TABLE
            and (
                only_machines(opened.sample.cells)
                or sizes_of_homes([plain_name(cell) for cell in opened.sample.cells])
                # As it was written: records of keys and values have become a table by now.
                or any(is_one(written) for is_one in (is_slurm, is_sinfo, is_yaml))
            )
        ):
            return None
        return import_cluster(name, content, epoch)
    except TrainyardError:
        return None  # what is wrong with it is said where it is read as a trace


def cluster_of_files(files: Mapping[str, bytes], epoch: str = "") -> Imported | None:
    """Return the cluster that files of one drop describe; None if none of them describes any.

    Raises
    ------
    ClusterError
        If it is not clear which of several is meant.
    """
    found = {name: read_machines(name, data, epoch) for name, data in files.items()}
    return _combine({name: one for name, one in found.items() if one is not None})


def _combine(found: Mapping[str, Imported]) -> Imported | None:
    """Return the only cluster, or a list of machines dealt out to a list of virtual clusters."""
    if len(found) < 2:
        return next(iter(found.values()), None)
    sizes, *others = sorted(found.values(), key=says_sizes_alone, reverse=True)
    if len(others) == 1 and says_sizes_alone(sizes) and not says_sizes_alone(others[0]):
        return dealt(others[0], sizes)
    raise ClusterError(
        f"{', '.join(found)}: each of these describes machines, so none of them is used. Drop the"
        " one that is meant."
    )


def _find_machines(name: str, data: bytes) -> Imported | None:
    return read_machines(name, data) if len(data) <= LARGEST else None


def group_files(files: Mapping[str, bytes], max_bytes: int = UNPACKED_BYTES) -> FileGroups:
    """Return which of several files are jobs, and which are machines; arguments as of `sort`.

    One that is neither counts as the jobs if it is the only one beside machines.
    """
    found, unknown = FileGroups([], {}, {}), []
    opened: dict[str, list[Content]] = {}
    for name, data in files.items():
        if (cluster := _find_machines(name, data)) is not None:
            found.machines[name] = cluster
            continue
        try:
            opened[name] = open_all(data, name, ReadOptions(max_bytes=max(max_bytes, 1)))
            max_bytes -= sum(len(content.data) for content in opened[name])
        except TrainyardError as error:
            found.refused[name] = str(error)
    _join_tables(opened, found)
    joined = {name for names in found.traces for name in names}
    for name in (name for name in opened if name not in joined):
        try:
            if _is_known(name, opened[name]):
                found.traces.append((name,))
            else:
                unknown.append(name)
        except TrainyardError as error:
            found.refused[name] = str(error)
    if not found.traces and len(unknown) == 1:
        found.traces.append((unknown.pop(),))
    way = "" if found.traces else " If it holds jobs, give it alone and say what its columns mean."
    for name in unknown:
        what = "this is neither a trace of a known format nor a list of machines"
        found.refused[name] = f"{name}: {what}, so it is not used.{way}"
    return found


def _unfold_archives(files: Mapping[str, bytes], max_bytes: int) -> dict[str, bytes]:
    """Return files with zip archives replaced by their members.

    An archive of the tables of one trace stays, and so does one that cannot be opened: reading says
    why.
    """
    made: dict[str, bytes] = {}
    for name, data in files.items():
        made[name] = data
        if data[:4] != b"PK\x03\x04" or is_workbook(data):
            continue
        try:
            with open_zip(data, name) as archive:
                if len(archive.infolist()) < 2:
                    continue
            found = open_all(data, name, ReadOptions(max_bytes=max(max_bytes, 1)))
            apart = len(found) > 1 and not any(
                assign_tables(recipe, found) for recipe in shipped_recipes() if recipe.tables
            )
        except (TrainyardError, *ARCHIVE_ERRORS):
            continue
        if apart:
            max_bytes -= sum(len(content.data) for content in found)
            del made[name]
            made |= {content.name: content.data for content in found}
    return made


def _pack(names: tuple[str, ...], files: Mapping[str, bytes]) -> Drop:
    """Return the files of one trace as one drop: tables unpacked in a zip archive."""
    if len(names) == 1:
        return Drop("jobs", names[0], files[names[0]])
    made, options = io.BytesIO(), ReadOptions(max_bytes=UNPACKED_BYTES)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            for content in open_all(files[name], name, options):
                archive.writestr(content.name, content.data)
                options = replace(options, max_bytes=options.max_bytes - len(content.data))
    return Drop("jobs", " + ".join(names), made.getvalue())


def _join_tables(opened: dict[str, list[Content]], groups: FileGroups) -> None:
    """Group files that are the tables of one trace; refuse those of a table given twice."""
    single = {name: found[0] for name, found in opened.items() if len(found) == 1}
    for recipe in shipped_recipes():
        if not recipe.tables:
            continue
        try:
            tables = assign_tables(recipe, single.values())
        except TraceError as error:
            twice = [name for name, one in single.items() if assign_tables(recipe, [one])]
            groups.refused[", ".join(twice)] = str(error)
            for name in twice:
                del single[name], opened[name]
            continue
        names = tuple(name for name, one in single.items() if one in tables.values())
        if len(names) > 1:
            groups.traces.append(names)
            single = {name: one for name, one in single.items() if name not in names}


def _is_known(name: str, opened: list[Content]) -> bool:
    """Return True if a file is a trace that can be read without answers.

    Raises
    ------
    TrainyardError
        If it is known not to be one.
    """
    found = peek(opened, name=name, options=ReadOptions(max_bytes=UNPACKED_BYTES))
    if found.fmt not in MAPPED:
        return True
    refuse_unreadable(opened[0])
    return bool(found.fmt) and not found.missing
