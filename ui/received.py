"""Files from the browser: taken out of Streamlit's memory at once, and those that may be read again
kept on the disk.
"""

from __future__ import annotations

import tempfile
from typing import Any

import streamlit as st
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import UploadedFile

from trainyard.store import StoreError
from trainyard.store.files import made
from ui import server


def taken(file: Any, key: str) -> bytes:
    """Return the bytes of a file that came through the `st.file_uploader` of a key, and let
    Streamlit forget them.

    Notes
    -----
    Streamlit keeps a file for as long as its session, and sessions for minutes after they ended.
    The field goes on showing its name.
    """
    data: bytes = file.getvalue()
    context = get_script_run_ctx()
    if context is not None and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        context.uploaded_file_mgr.remove_file(context.session_id, file.file_id)
    # The state of the widget has a copy until the next run of the page.
    held = st.session_state.get(key)
    for copy in (file, *(held if isinstance(held, list) else [held])):
        if isinstance(copy, UploadedFile) and copy.file_id == file.file_id:
            copy.truncate(0)
    return data


class OnDisk:
    """Bytes in a file without a name, which is gone with this object, and with the process.

    Parameters
    ----------
    data : bytes
        What is kept.

    Raises
    ------
    StoreError
        If the disk cannot take it.
    """

    def __init__(self, data: bytes) -> None:
        try:
            # Beside the store, because a folder for temporary files may lie in memory.
            self._file = tempfile.TemporaryFile(dir=made(server.store().root))  # noqa: SIM115 - lives as long as this object
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise StoreError(
                f"The file cannot be kept while it is read ({error.strerror}). Free some space,"
                " then load it again."
            ) from error

    def read(self) -> bytes:
        """Return the bytes."""
        self._file.seek(0)
        return self._file.read()

    def __del__(self) -> None:
        """Give the room on the disk back."""
        if file := getattr(self, "_file", None):
            file.close()
