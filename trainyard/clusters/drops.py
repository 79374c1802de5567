"""Several files given at once: which of them are jobs, which belong together, which are machines,
and which nobody needs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from jobtraces import ReadOptions, peek
from jobtraces.readers.content import Content
from jobtraces.readers.files import DAMAGED, is_workbook, open_all, opened_zip
from jobtraces.recipes import refuse, shipped
from jobtraces.recipes.sources import assigned
from sim.errors import TraceError, TrainyardError
from trainyard.clusters import machines
from trainyard.traces.intake import MAPPED, UNPACKED_BYTES

LARGEST: Final = 5_000_000
"""Bytes of a file that may describe a cluster."""


class Drop(NamedTuple):
    """What several files are.

    Parameters
    ----------
    traces : tuple of tuple of str
        Names of the files of each trace: several where they are the tables of one.
    machines : tuple of str
        Names of the files that describe machines.
    refused : tuple of str
        A sentence on each of the other files: what is wrong with it, or that it is not needed.
    """

    traces: tuple[tuple[str, ...], ...]
    machines: tuple[str, ...]
    refused: tuple[str, ...]


def sort_out(files: Mapping[str, bytes], max_bytes: int = UNPACKED_BYTES) -> Drop:
    """Recognise each of several files by its content alone.

    Parameters
    ----------
    files : mapping of str to bytes
        Their contents, plain or packed, by name. One that is neither jobs nor machines is taken for
        the jobs if it is all there is beside machines: its columns can be named by hand.
    max_bytes : int
        So much all of them may unpack to.
    """
    described, refused = [], []
    opened: dict[str, list[Content]] = {}
    for name, data in files.items():
        if len(data) <= LARGEST and machines.recognised(name, data) is not None:
            described.append(name)
            continue
        try:
            opened[name] = open_all(data, name, ReadOptions(max_bytes=max(max_bytes, 1)))
            max_bytes -= sum(len(content.data) for content in opened[name])
        except TrainyardError as error:
            refused.append(str(error))
    traces = _joined(opened, refused)
    alone = [name for name in opened if not any(name in names for names in traces)]
    unknown = []
    for name in alone:
        try:
            known = _known(name, files[name], opened[name])
        except TrainyardError as error:
            refused.append(str(error))
            continue
        if known:
            traces.append((name,))
        else:
            unknown.append(name)
    if not traces and len(unknown) == 1:
        traces, unknown = [(unknown[0],)], []
    way = "" if traces else " If it holds jobs, give it alone and say what its columns mean."
    refused += [
        f"{name}: this is neither a trace of a known format nor a list of machines, so it is not"
        f" used.{way}"
        for name in unknown
    ]
    return Drop(tuple(traces), tuple(described), tuple(refused))


def unfolded(files: Mapping[str, bytes], max_bytes: int = UNPACKED_BYTES) -> dict[str, bytes]:
    """Return files with zip archives replaced by their members, where those are not the tables of
    one trace.

    Parameters
    ----------
    files : mapping of str to bytes
        Contents by name. An archive that cannot be opened stays: reading says why.
    max_bytes : int
        So much all archives may unpack to.
    """
    made: dict[str, bytes] = {}
    for name, data in files.items():
        made[name] = data
        if data[:4] != b"PK\x03\x04" or is_workbook(data):
            continue
        try:
            with opened_zip(data, name) as archive:
                if len(archive.infolist()) < 2:
                    continue
            found = open_all(data, name, ReadOptions(max_bytes=max(max_bytes, 1)))
            apart = len(found) > 1 and not any(
                assigned(recipe, found) for recipe in shipped() if recipe.tables
            )
        except (TrainyardError, *DAMAGED):
            continue
        if apart:
            max_bytes -= sum(len(content.data) for content in found)
            del made[name]
            made |= {content.name: content.data for content in found}
    return made


def packed(names: tuple[str, ...], files: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Return the files of one trace as one, with its name: a single one as it is, the tables of a
    trace unpacked in a zip archive.

    Raises
    ------
    TrainyardError
        If one of them cannot be unpacked.
    """
    if len(names) == 1:
        return names[0], files[names[0]]
    made, options = io.BytesIO(), ReadOptions(max_bytes=UNPACKED_BYTES)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            for content in open_all(files[name], name, options):
                archive.writestr(content.name, content.data)
                options = replace(options, max_bytes=options.max_bytes - len(content.data))
    return " + ".join(names), made.getvalue()


def _joined(opened: dict[str, list[Content]], refused: list[str]) -> list[tuple[str, ...]]:
    """Return the names of files that are the tables of one trace; those of which one table is there
    twice are taken out.
    """
    single = {name: found[0] for name, found in opened.items() if len(found) == 1}
    found = []
    for recipe in shipped():
        if not recipe.tables:
            continue
        try:
            tables = assigned(recipe, single.values())
        except TraceError as error:
            refused.append(str(error))
            for name in [name for name, one in single.items() if assigned(recipe, [one])]:
                del single[name], opened[name]
            continue
        names = tuple(name for name, one in single.items() if one in tables.values())
        if len(names) > 1:
            found.append(names)
            single = {name: one for name, one in single.items() if name not in names}
    return found


def _known(name: str, data: bytes, contents: list[Content]) -> bool:
    """Tell whether a file is a trace that can be read without more being said.

    Raises
    ------
    TrainyardError
        If it is known not to be one, or cannot be opened.
    """
    found = peek(data, name=name, options=ReadOptions(max_bytes=UNPACKED_BYTES))
    if found.fmt not in MAPPED:
        return True
    refuse(contents[0])
    return bool(found.fmt) and not found.missing
