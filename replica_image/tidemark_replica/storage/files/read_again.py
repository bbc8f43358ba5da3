"""The files of a table that its successor reads again, since it has further columns (`successors.py`).

    tick    orders                       orders.2
    T1      binds new files              a piece of the bound files is staged; nothing is bound, the upper stands still
    T2      binds new files              the next piece
    T3      binds nothing                all bound files are staged: one binding names them and the staged data files
    T4      binds new files              binds the same files

A process that dies before T3 leaves data files that nothing names, and the next one begins anew. After T3 the files are
not needed any more. Files that are let go, or bound in another version, make their piece void.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tidemark_persist import InvalidStagedFile, StagedFile, remove_staged, restaged
from tidemark_protocol.plan.ingestion import FilesTable, IngestedTable
from tidemark_protocol.plan.successors import spec_name
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.reading import StagedRows
from tidemark_replica.values.failure_text import public_text_with_type

PIECE_BYTES = 256 << 20
"""The pieces of a tick have files of so many bytes, or one file: the other tables of the source wait for them. The
successors of a source share them."""
RENEW_SECONDS = 3 * 3600.0
"""Older data files are copied, so that they are young when they are bound."""


FILES_GONE, FILES_NOT_READ = "FilesGone", "FilesNotRead"
"""The reasons for which a successor does not begin: files that it has to read are gone, or others by now; or reading
failed, for a reason that may pass."""
_CODES_GONE = ("FILE_MISSING", "FILE_CHANGED")


@dataclass(frozen=True)
class _Piece:
    files: Mapping[str, FileVersion]
    rows: StagedRows


class ReadAgain:
    """The progress of one successor with the files that are bound to the table before it."""

    def __init__(self, table: IngestedTable, dead: IngestedTable | None, bound: Iterable[FileVersion]) -> None:
        """`dead`: the table of its dead letters, if it has one."""
        self._locations = (table.shard.location, dead.shard.location if dead is not None else "")
        self._left = {file.name: file for file in bound}
        self._pieces: list[_Piece] = []

    @property
    def is_complete(self) -> bool:
        """Whether all bound files are read."""
        return not self._left

    @property
    def files_left(self) -> int:
        """The number of files that are still to be read."""
        return len(self._left)

    @property
    def sizes(self) -> tuple[int, int]:
        """The bytes of the files that are read, and of the files that are left."""
        return sum(file.size for file in self.files()), sum(file.size for file in self._left.values())

    def bind(self, files: Iterable[FileVersion]) -> None:
        """The table before it has bound these files."""
        self._left |= {file.name: file for file in files}

    def unbind(self, names: Iterable[str]) -> None:
        """These files are not bound any more."""
        for name in names:
            for piece in [each for each in self._pieces if name in each.files]:
                self._void(piece)
            self._left.pop(name, None)

    def next_files(self, at_most: int, left_bytes: int) -> list[FileVersion]:
        """The files of the next piece: at most so many, of the bytes that are left of PIECE_BYTES in this tick. Where
        all of them are left, a larger file is a piece."""
        files: list[FileVersion] = []
        size = 0
        for file in self._left.values():
            size += file.size
            is_alone = not files and left_bytes == PIECE_BYTES
            if len(files) == at_most or (size > left_bytes and not is_alone):
                break
            files.append(file)
        return files

    def put_first(self, names: Iterable[str]) -> None:
        """These files are read, or fail, before the others."""
        first = {name: self._left[name] for name in names}
        self._left = first | {name: file for name, file in self._left.items() if name not in first}

    def add(self, files: Iterable[FileVersion], rows: StagedRows) -> None:
        """The piece with these files is staged."""
        piece = _Piece({file.name: file for file in files}, rows)
        self._pieces.append(piece)
        for name in piece.files:
            del self._left[name]

    def renew(self) -> None:
        """Copies old data files, also while the successor waits for its files. A piece whose data files are gone is
        read again. Raises StorageError."""
        for piece in list(self._pieces):
            try:
                for location, files in self._staged_files(piece):
                    for place, old in enumerate(files):
                        files[place] = restaged(location, old, age_seconds=RENEW_SECONDS)
                        if files[place] is not old:
                            remove_staged(location, [old])
            except InvalidStagedFile:
                self._void(piece)

    def files(self) -> Iterator[FileVersion]:
        """The files that are read."""
        return (file for piece in self._pieces for file in piece.files.values())

    def staged(self) -> StagedRows:
        """The data files of all pieces."""
        tables = [file for piece in self._pieces for file in piece.rows.table]
        return StagedRows(tables, [file for piece in self._pieces for file in piece.rows.dead_letters])

    def discard(self) -> None:
        """Deletes the data files: no binding names them."""
        for piece in list(self._pieces):
            self._void(piece)

    def _void(self, piece: _Piece) -> None:
        self._pieces.remove(piece)
        self._left |= piece.files
        for location, files in self._staged_files(piece):
            remove_staged(location, files)

    def _staged_files(self, piece: _Piece) -> Iterator[tuple[str, list[StagedFile]]]:
        """The location of each of the two tables that has data files of the piece, and the files."""
        for location, files in zip(self._locations, (piece.rows.table, piece.rows.dead_letters), strict=True):
            if files:
                yield location, files


class FilesGone(TableStopped):
    """Files that a successor has to read are gone, or others by now. `names`: all of them that are known."""

    def __init__(self, spec: FilesTable, names: list[str]) -> None:
        named = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
        text = (
            f"{FILES_GONE}: table {spec_name(spec.name)} cannot begin with its further columns: files that it read are "
            f"gone, or others by now ({named}); put them back as they were, or give the table another name"
        )
        super().__init__(FILES_GONE, text)
        self.names = names


def check_read_again(spec: FilesTable, bad: Mapping[str, str]) -> None:
    """`bad`: the codes of files that the table before has read, and its successor cannot.

    Raises:
        FilesGone: some of the files are gone, or others by now.
        SourceUnusable: some cannot be opened, which may pass. An error in the place of their rows would stay.
    """
    if gone := [name for name, code in bad.items() if code in _CODES_GONE]:
        raise FilesGone(spec, gone)
    if unreadable := [name for name, code in bad.items() if code == "FILE_UNREADABLE"]:
        raise SourceUnusable(f"files cannot be opened now ({', '.join(unreadable[:3])})")


def not_read_again(spec: FilesTable, error: Exception) -> str:
    """The text for a successor whose files cannot be read now."""
    failure = public_text_with_type(error)[:500]
    return f"{FILES_NOT_READ}: table {spec_name(spec.name)} cannot read its files again: {failure}; it is tried again"
