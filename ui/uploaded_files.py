"""Uploaded files: taken out of Streamlit's memory, and kept on disk if needed again."""

from __future__ import annotations

import tempfile
from typing import Any

import streamlit as st
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import UploadedFile

from trainyard.store import StoreError
from trainyard.store.files import create_folder
from ui import server


def take_bytes(file: Any, key: str) -> bytes:
    """Return the bytes of an uploaded file, and delete Streamlit's copies.

    Notes
    -----
    Streamlit keeps a file as long as its session, and sessions for minutes after they end. The
    uploader still shows the name.
    """
    data: bytes = file.getvalue()
    context = get_script_run_ctx()
    if context is not None and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        context.uploaded_file_mgr.remove_file(context.session_id, file.file_id)
    # The widget state has a copy until the next rerun.
    widget_files = st.session_state.get(key)
    for copy in (file, *(widget_files if isinstance(widget_files, list) else [widget_files])):
        if isinstance(copy, UploadedFile) and copy.file_id == file.file_id:
            copy.truncate(0)
    return data


class OnDisk:
    """Bytes in an unnamed temporary file, deleted with this object or the process.

    Parameters
    ----------
    data : bytes
        Content of the file.

    Raises
    ------
    StoreError
        If the disk cannot store it.
    """

    def __init__(self, data: bytes) -> None:
        try:
            # Next to the store, because the system's temporary folder may be in memory.
            self._file = tempfile.TemporaryFile(dir=create_folder(server.store().root))  # noqa: SIM115 - lives as long as this object
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise StoreError(
                f"The upload cannot be stored ({error.strerror}). Free some disk space, then load"
                " it again."
            ) from error

    def read(self) -> bytes:
        """Return the content."""
        self._file.seek(0)
        return self._file.read()

    def __del__(self) -> None:
        """Close the file, which frees its disk space."""
        if file := getattr(self, "_file", None):
            file.close()
