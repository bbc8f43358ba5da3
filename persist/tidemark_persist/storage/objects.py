"""The objects of one location as an Arrow file system over delta-rs, made so that a store that hangs blocks only its
callers.

delta-rs holds Python's global lock during some requests. No other thread of the process runs until the store answers or
the request times out (object_store.PATIENCE).

    other threads run      reading an object of known size; get_file_info; writing to an open stream; tables and commits
    no other thread runs   opening for reading (HEAD); listing; deleting; opening for writing; is_deltatable

So HEAD is avoided: the size of a data file is known, and a small object is requested with a size larger than any
object's, which returns all of it in one request. Before any other request under the lock, the store is asked for an
object that never exists, without the lock, unless it has answered within ANSWERED_SECONDS. A store that begins to hang
between that answer and the request still blocks the process once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

ANSWERED_SECONDS = 0.1
WHOLE = 1 << 40
"""A size larger than any object's: requests all of it."""
ABSENT_OBJECT = "_tidemark/nothing"
_STORES_MOST = 1000

T = TypeVar("T")

_answered: dict[Hashable, float] = {}
"""The monotonic time of each store's last answer, for any object."""


class ObjectFileSystem(DeltaStorageHandler):  # type: ignore[misc]
    """An Arrow file system whose root is the location.

    `store` is equal for equal stores and settings. `small`: objects of these names are read in one request.
    """

    def __init__(
        self, location: str, settings: Mapping[str, str], store: Hashable, small: tuple[str, ...] = ()
    ) -> None:
        self._small = {*small, ABSENT_OBJECT}
        self._store = store
        super().__init__(location, dict(settings), dict.fromkeys(self._small, WHOLE))

    def read_object(self, path: str, table: DeltaTable | None = None) -> bytes:
        """All bytes of an object, in one request if it is small or its `table` is open. Raises FileNotFoundError."""
        handler = self._handler
        if table is not None:
            handler = DeltaStorageHandler.from_table(table._table, None, {path: WHOLE})._handler
        elif path not in self._small:
            self.probe()
        return self._recording_answer(lambda: bytes(handler.open_input_file(path).read()))

    def probe(self) -> None:
        """Returns where the store answers, or has just answered. Called before any request under Python's lock."""
        if time.monotonic() - _answered.get(self._store, -ANSWERED_SECONDS) >= ANSWERED_SECONDS:
            with suppress(FileNotFoundError):
                self.read_object(ABSENT_OBJECT)

    def get_file_info(self, paths: list[str]) -> list[pa.fs.FileInfo]:
        return self._recording_answer(lambda: list(super(ObjectFileSystem, self).get_file_info(paths)))

    def get_file_info_selector(self, selector: pa.fs.FileSelector) -> list[pa.fs.FileInfo]:
        self.probe()
        return self._recording_answer(lambda: list(super(ObjectFileSystem, self).get_file_info_selector(selector)))

    def delete_file(self, path: str) -> None:
        self.probe()
        self._recording_answer(lambda: super(ObjectFileSystem, self).delete_file(path))

    def open_input_file(self, path: str) -> Any:
        self.probe()
        return self._recording_answer(lambda: super(ObjectFileSystem, self).open_input_file(path))

    open_input_stream = open_input_file

    def open_output_stream(self, path: str, metadata: Mapping[str, str] | None = None) -> Any:
        """A stream whose object appears as a whole when it is closed."""
        self.probe()
        stream = self._recording_answer(lambda: self._handler.open_output_stream(path, metadata))
        return pa.PythonFile(_BytesSink(stream), mode="w")

    def _recording_answer(self, request: Callable[[], T]) -> T:
        """Runs the request and records the time of its answer; "no such object" is an answer, too."""
        try:
            answer = request()
        except FileNotFoundError:
            self._note()
            raise
        self._note()
        return answer

    def _note(self) -> None:
        if len(_answered) >= _STORES_MOST:  # entries of earlier credentials
            _answered.clear()
        _answered[self._store] = time.monotonic()


def open_known(location: str, settings: Mapping[str, str], path: str, size: int) -> Any:
    """Opens an object of known size for reading at any position."""
    return DeltaStorageHandler(location, dict(settings), {path: size}).open_input_file(path)


class _BytesSink:
    """Passes Arrow's buffers to delta-rs's stream as bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        """Write all of it."""
        return int(self._stream.write(bytes(data)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
