"""The files of a source, for people: what became of each.

    pending     listed and not bound yet: still written, incomplete, or not its turn
    read        bound and read; `errors`: its malformed records
    refused     bound and not readable as a whole: one error row, or one dead letter
    released    bound before, and let go by a person; it is not bound again as it is

Bindings have the names and error rows have the reasons, so both are known after a restart; the number of rows and the
time are known of files that this process read. The list is bounded: files that need attention come first, then the
newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import nlargest

from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import SourceFile
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.problems import FILE_CODES, FileProblem

LISTED_FILES = 1000
"""The most files in a report."""
ATTENTION_FILES = 10_000
"""Files with errors that are remembered, and counted."""
PENDING, READ, REFUSED, RELEASED = "pending", "read", "refused", "released"
_Key = tuple[str, str]


class FileList:
    """The files of all tables of one source."""

    def __init__(self) -> None:
        self._attention: dict[_Key, tuple[SourceFile, int]] = {}
        """Files with errors, and the number of their malformed records, those that were set aside included."""
        self._read: dict[_Key, SourceFile] = {}
        self._pending: list[SourceFile] = []
        self._released: dict[str, dict[_Key, SourceFile]] = {}
        self._shown: tuple[SourceFile, ...] | None = None

    def restore(self, table: str, bound: list[FileVersion]) -> None:
        """Takes over the newest of the files that were bound before this process."""
        for file in sorted(nlargest(LISTED_FILES, bound, key=_age), key=_age):
            self._add_read(SourceFile(table, file.name, file.size, READ))

    def add(self, table: str, file: FileVersion, time: Time, rows: int, problem: FileProblem | None) -> None:
        """A file of the binding at `time`: how many rows it gave, and what is wrong with it."""
        self.forget(table, file.name)
        if problem is None:
            self._add_read(SourceFile(table, file.name, file.size, READ, rows=rows, time=time))
        else:
            known = SourceFile(table, file.name, file.size, READ, rows=rows, time=time)
            self._add_attention(_with_problem(known, problem), problem)

    def add_problems(self, table: str, problems: Mapping[str, FileProblem]) -> None:
        """Problems as the shards have them, by the name of the file."""
        for name, problem in problems.items():
            attended = self._attention.get((table, name))
            known = attended[0] if attended is not None else self._read.pop((table, name), None)
            self._add_attention(_with_problem(known or SourceFile(table, name, 0, READ), problem), problem)

    def set_released(self, table: str, released: Iterable[FileVersion]) -> None:
        """The files of a table that were let go: all of them."""
        files = {(table, f.name): SourceFile(table, f.name, f.size, RELEASED) for f in released}
        if files != self._released.get(table, {}):
            self._released[table], self._shown = files, None

    def forget(self, table: str, name: str) -> None:
        """The file is no longer what it was."""
        self._attention.pop((table, name), None)
        self._read.pop((table, name), None)
        self._shown = None

    def drop(self, table: str) -> None:
        """Nothing is known of the table's bound files any more."""
        for key in [key for key in (*self._attention, *self._read) if key[0] == table]:
            self.forget(*key)

    def set_pending(self, pending: list[SourceFile]) -> None:
        """The files that are not bound yet, at most LISTED_FILES of them."""
        if pending != self._pending:
            self._pending, self._shown = pending, None

    @property
    def in_error(self) -> int:
        """The number of files that have error rows in their table."""
        return sum(file.errors > 0 for file, _ in self._attention.values())

    def malformed(self, table: str) -> int:
        """The number of malformed records in the remembered files of a table."""
        return sum(count for file, count in self._attention.values() if file.table == table)

    def listed(self) -> tuple[SourceFile, ...]:
        """List at most LISTED_FILES files: those with errors, refused ones, pending ones, then the newest."""
        if self._shown is None:
            bad = [file for file, _ in self._attention.values()]
            attention = sorted(bad, key=lambda f: (f.errors == 0, f.state != REFUSED))
            released = (file for files in self._released.values() for file in files.values())
            found = [*attention[:LISTED_FILES], *self._pending, *released, *reversed(self._read.values())]
            self._shown = tuple(found[:LISTED_FILES])
        return self._shown

    def _add_read(self, file: SourceFile) -> None:
        self._read[(file.table, file.file)] = file
        if len(self._read) > LISTED_FILES:
            del self._read[next(iter(self._read))]
        self._shown = None

    def _add_attention(self, file: SourceFile, problem: FileProblem) -> None:
        self._attention[(file.table, file.file)] = file, 0 if problem.code in FILE_CODES else problem.count
        if len(self._attention) > ATTENTION_FILES:
            del self._attention[next(iter(self._attention))]
        self._shown = None


def _with_problem(file: SourceFile, problem: FileProblem) -> SourceFile:
    state = REFUSED if problem.code in FILE_CODES else READ
    return replace(file, state=state, reason=problem.code, errors=problem.count if problem.in_error else 0)


def _age(file: FileVersion) -> tuple[int, str]:
    return file.modified_ns, file.name
