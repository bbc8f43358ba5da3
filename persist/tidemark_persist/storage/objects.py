"""The objects of one location, by delta-rs, so that a store which hangs holds up those who ask it, and nobody else.

delta-rs holds Python's lock during some requests: no other thread of the process runs then, until the store has
answered or is given up (object_store.PATIENCE).

    others run     reading, where the size is known; get_file_info; writing to an open stream; tables and commits
    nobody runs    opening for reading (HEAD); listing; deleting; opening for writing; is_deltatable

So HEAD is avoided: a data file's size is known, and of a small object more is asked for than any object has, which
gives all of it in one request. Before any other request under the lock the store is asked for what is never there,
without the lock, unless it has answered within ANSWERED_SECONDS. What is left: a store that begins to hang between
its last answer and such a request holds up the process, once.
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
"""As the size of an object: all of it, whatever it is."""
ABSENT_OBJECT = "_tidemark/nothing"
_STORES_MOST = 1000

T = TypeVar("T")

_answered: dict[Hashable, float] = {}
"""When each store answered last, whichever of its objects was asked for."""


class ObjectFileSystem(DeltaStorageHandler):  # type: ignore[misc]
    """As an Arrow file system, whose root is the location.

    `store` is equal where the same store is asked in the same way. `small`: objects of these names are read at once.
    """

    def __init__(
        self, location: str, settings: Mapping[str, str], store: Hashable, small: tuple[str, ...] = ()
    ) -> None:
        self._small = {*small, ABSENT_OBJECT}
        self._store = store
        super().__init__(location, dict(settings), dict.fromkeys(self._small, WHOLE))

    def whole(self, path: str, table: DeltaTable | None = None) -> bytes:
        """All of an object, in one request where its name is among the small ones, or where the table that it belongs
        to is open; raises FileNotFoundError."""
        handler = self._handler
        if table is not None:
            handler = DeltaStorageHandler.from_table(table._table, None, {path: WHOLE})._handler
        elif path not in self._small:
            self.probe()
        return self._recording_answer(lambda: bytes(handler.open_input_file(path).read()))

    def probe(self) -> None:
        """Returns where the store answers, or did just now; before any request under Python's lock."""
        if time.monotonic() - _answered.get(self._store, -ANSWERED_SECONDS) >= ANSWERED_SECONDS:
            with suppress(FileNotFoundError):
                self.whole(ABSENT_OBJECT)

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
        """What was answered; that there is no such object is an answer, too."""
        try:
            answer = request()
        except FileNotFoundError:
            self._note()
            raise
        self._note()
        return answer

    def _note(self) -> None:
        if len(_answered) >= _STORES_MOST:  # credentials that have gone
            _answered.clear()
        _answered[self._store] = time.monotonic()


def open_known(location: str, settings: Mapping[str, str], path: str, size: int) -> Any:
    """An object of known size, to read any part of it."""
    return DeltaStorageHandler(location, dict(settings), {path: size}).open_input_file(path)


class _BytesSink:
    """Arrow hands over buffers; delta-rs's stream takes bytes and nothing else."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        """Write all of it."""
        return int(self._stream.write(bytes(data)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
