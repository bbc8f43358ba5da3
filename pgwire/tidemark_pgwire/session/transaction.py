"""Transactions: one is a time that its statements read at, and rows of tables that its end writes.

BEGIN ──► the first query reads at the freshest time ──► all later ones read at it ──► COMMIT, ROLLBACK: forgotten
      ──► INSERT, COPY FROM: the rows wait ──► COMMIT: written at one time, a later one
            │ an error
            └──► failed: every statement is refused until ROLLBACK

Without BEGIN a message of statements, or all up to Sync, is a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from tidemark_pgwire.errors import (
    FEATURE_NOT_SUPPORTED,
    IN_FAILED_TRANSACTION,
    LIMIT_EXCEEDED,
    NO_ACTIVE_TRANSACTION,
    WireError,
)
from tidemark_pgwire.writes.binary_blocks import BinaryBlocks
from tidemark_pgwire.writes.blocks import Blocks
from tidemark_pgwire.writes.body import Body, Mark
from tidemark_pgwire.writes.table import WritableTable, other_table

MAX_SAVEPOINTS, MAX_OF_NAME = 200, 10
"""Savepoints of a transaction; and of those of one name that follow each other, as some drivers set one before each
statement, the newest ones that can be gone back to."""
SECTION_BYTES = 24
"""The bytes of a section in the first message of a call, without the names of its columns."""
LOST: tuple[Mark, ...] = ((-1, -1),)
"""The marks of older ones."""


@dataclass(frozen=True)
class Section:
    """Rows of a body with which one thing is done, by one statement where it finds rows by their key. `begin`: how many
    rows are before them; `changed`: the columns that an update or an upsert sets in rows that are there; empty: all."""

    operation: str
    begin: int
    changed: tuple[str, ...] = ()

    @property
    def header_bytes(self) -> int:
        """About how many bytes the section has in the first message of a call."""
        return SECTION_BYTES + sum(2 + len(name.encode()) for name in self.changed)

    def is_like(self, other: Section) -> bool:
        """Whether the same is done with the rows of both."""
        return (self.operation, self.changed) == (other.operation, other.changed)


@dataclass
class Pending:
    """Rows that are to be inserted into one table, upserted, updated and deleted, by a call with this key. `sections`:
    what is done with them, in order. `copied`: the data of the one COPY that they are of; None: they have other
    statements. `statements`: how many INSERTs, UPDATEs and DELETEs there were since the first of them. `since`: when
    the first of them came, by the event loop's clock. `has_kinds`: whether different things are done with rows, or some
    of their columns are kept; `header_size`: about how many bytes the sections have in a call. `others`: the rows of
    further tables of the same source, in the order of their first statements."""

    table: WritableTable
    body: Body
    key: str
    sections: list[Section]
    copied: Blocks | BinaryBlocks | None = None
    statements: int = 0
    since: float = 0.0
    has_kinds: bool = False
    header_size: int = 0
    others: list[Pending] = field(default_factory=list)

    @property
    def of_tables(self) -> list[Pending]:
        """The rows of each table."""
        return [self, *self.others]

    @property
    def size(self) -> int:
        """Bytes of the bodies of all tables."""
        return sum(each.body.size for each in self.of_tables)

    @property
    def marks(self) -> tuple[Mark, ...]:
        return tuple(each.body.mark for each in self.of_tables)

    def close(self) -> None:
        for each in self.of_tables:
            each.body.close()

    def begin(self, section: Section) -> None:
        """Add a section."""
        self.has_kinds |= bool(section.changed) or (bool(self.sections) and not section.is_like(self.sections[-1]))
        self.header_size += section.header_bytes
        self.sections.append(section)

    def keep(self, rows: int) -> None:
        """Forget the sections behind the first `rows` rows; the first section stays."""
        first, *others = self.sections
        kept = [first, *(each for each in others if each.begin < rows)]
        self.sections, self.has_kinds, self.header_size = [], False, 0
        for section in kept:
            self.begin(section)


class SessionTransaction:
    """The transaction of one session. `explicit`: between BEGIN and its end. `since`: when its first statement began,
    by the event loop's clock; None: there was none."""

    def __init__(self) -> None:
        self.explicit = self.failed = False
        self.since: float | None = None
        self.as_of: int | None = None
        self.pending: Pending | None = None
        self._savepoints = list[tuple[str, int, tuple[Mark, ...] | None]]()
        """Each name, how often it was set in a row, and the rows of then, of each table."""

    @property
    def state(self) -> bytes:
        """The state that ReadyForQuery has."""
        return b"E" if self.failed else b"T" if self.explicit else b"I"

    @property
    def is_last(self) -> bool:
        """Whether rows wait that the end of the message or Sync writes."""
        return self.pending is not None and not self.explicit

    @property
    def is_over(self) -> bool:
        """Whether it failed, and no savepoint can be gone back to: nothing is read in it any more."""
        return self.failed and not self._savepoints

    def begin(self) -> None:
        self.explicit = True

    def end(self) -> None:
        self.explicit = self.failed = False
        self.as_of = self.since = None
        self._savepoints.clear()
        self.forget_rows()

    def fail(self) -> None:
        """Note that a statement failed. Rows that no savepoint keeps are forgotten."""
        self.failed = self.explicit
        if all(mark is None for _, _, mark in self._savepoints):
            self.forget_rows()

    def rows_of(self, table: WritableTable) -> Pending | None:
        """The rows of the table that wait, if there are some. Raises WireError: there are rows of a table that is not
        written together with this one."""
        for each in self.pending.of_tables if self.pending is not None else ():
            if each.table == table:
                return each
            if each.table.source != table.source or each.table.name == table.name:
                raise other_table(each.table, table)
        return None

    def forget_rows(self) -> None:
        if (pending := self.pending) is not None:
            self.pending = None
            pending.close()

    def require_no_rows(self) -> None:
        """Raises WireError where rows wait: a query would not see them."""
        if self.pending is not None:
            raise WireError(
                FEATURE_NOT_SUPPORTED,
                f"a transaction that has written rows of {self.pending.table} does not read: they are there once it "
                "is committed",
                hint="COMMIT first.",
            )

    def pin(self, as_of: int) -> None:
        """Read at `as_of` from now on, unless an earlier query has set the time."""
        if self.explicit and self.as_of is None:
            self.as_of = as_of

    def require_usable(self) -> None:
        if self.failed:
            raise WireError(
                IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    def savepoint(self, name: str) -> None:
        self._require_explicit("SAVEPOINT")
        mark = self.pending.marks if self.pending is not None else None
        if self._savepoints and self._savepoints[-1][::2] == (name, mark):
            self._savepoints[-1] = name, self._savepoints[-1][1] + 1, mark
            return
        self._shorten(name)
        if len(self._savepoints) >= MAX_SAVEPOINTS:
            raise WireError(LIMIT_EXCEEDED, f"a transaction has at most {MAX_SAVEPOINTS} savepoints: release one")
        self._savepoints.append((name, 1, mark))

    def release(self, name: str) -> None:
        self._require_explicit("RELEASE SAVEPOINT")
        at = self._savepoint_position(name)
        _, times, mark = self._savepoints[at]
        self._savepoints[at:] = [(name, times - 1, mark)] if times > 1 else []

    async def rollback_to(self, name: str) -> None:
        """Raises WireError."""
        self._require_explicit("ROLLBACK TO SAVEPOINT")
        at = self._savepoint_position(name)
        if (mark := self._savepoints[at][2]) == LOST:
            raise WireError(
                LIMIT_EXCEEDED,
                f'the rows of this savepoint "{name}" are not known any more: of one name, the newest '
                f"{MAX_OF_NAME} count",
                hint="ROLLBACK, or set savepoints of several names.",
            )
        # before the work with the file, which goes on where the statement is canceled
        del self._savepoints[at + 1 :]
        if mark is None:
            self.forget_rows()
        elif (pending := self.pending) is not None:
            later = pending.others[len(mark) - 1 :]
            del pending.others[len(mark) - 1 :]
            for each in later:
                each.body.close()
            kept = list(zip(pending.of_tables, mark, strict=True))
            for each, of_table in kept:
                each.keep(of_table[1])
            for each, of_table in kept:
                await each.body.do_file_work(partial(each.body.cut_back, of_table))
        self.failed = False

    def _shorten(self, name: str) -> None:
        """Make room for one more savepoint of the name: the two oldest of a long run of it become one that is lost."""
        run = self._savepoints[-MAX_OF_NAME - 1 :]
        if len(run) > MAX_OF_NAME and all(each[0] == name for each in run):
            self._savepoints[-len(run) :] = [(name, run[0][1] + run[1][1], LOST), *run[2:]]

    def _require_explicit(self, what: str) -> None:
        if not self.explicit:
            raise WireError(NO_ACTIVE_TRANSACTION, f"{what} can only be used in transaction blocks")

    def _savepoint_position(self, name: str) -> int:
        """The position of the last savepoint of this name. Raises WireError where there is none."""
        for at in range(len(self._savepoints) - 1, -1, -1):
            if self._savepoints[at][0] == name:
                return at
        raise WireError("3B001", f'savepoint "{name}" does not exist')
