"""A file read once: statements are carried out, and queries lowered where they stand.

    statement  ─► taken apart, translated ─► Database (its moment moves on)
    query      ─► translated ─► the planner ─► Asked, after the moment that it stands at

The same for all modes: what is settled here (a statement that succeeds, a refusal by name) is settled in each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.sqllogictest.database import Database, State
from tests.sqllogictest.dataflows import Asked, is_on_arrow
from tests.sqllogictest.dialect_statements import spoken, statements_of
from tests.sqllogictest.dialects import NotTranslated, Translator
from tests.sqllogictest.evaluate import DataError
from tests.sqllogictest.lexer import tokens
from tests.sqllogictest.parse_statement import CHANGES
from tests.sqllogictest.planning import Planner, QueryRefused
from tests.sqllogictest.records import Let, Query, Record, Reset, Statement, Unknown
from tests.sqllogictest.statements import NotOurs, Select, Transaction, Violation
from tidemark_planner.errors import CatalystFailed

PASSED, FAILED, UNSUPPORTED = "passed", "failed", "unsupported"
# Refusals of what is no SQL, or wrong SQL: errors that a file may expect.
_WRONG = frozenset("SYNTAX UNRESOLVED_RELATION UNRESOLVED_COLUMN AMBIGUOUS TYPE DUPLICATE_NAME".split())
_Reason = tuple[str, str, str]


@dataclass(frozen=True)
class Settled:
    """The outcome of a record that is known before any dataflow runs: the same in all modes."""

    record: Record
    kind: str
    reason: str = ""
    expected: str = ""


class FirstPass:
    """One file: its tables, and what was found so far."""

    def __init__(self, database: Database, planner: Planner, translate: Translator) -> None:
        self.database, self._planner, self._translate = database, planner, translate
        self.settled: list[Settled] = []
        self.asked: list[tuple[Query, Asked]] = []
        self._values: dict[str, str] = {}
        self._connection = ""

    def take(self, record: Record) -> None:
        try:
            self._take(record)
        except Exception as error:  # whatever breaks is a failure of the record that broke it
            if isinstance(record, Statement):
                self.database.spoil(record.sql, f"{record.place}: {error}")
            self._settle(record, FAILED, f"{type(error).__name__}: {error}", "no crash")

    def _take(self, record: Record) -> None:
        match record:
            case Unknown():
                self._settle(record, UNSUPPORTED, record.reason)
            case Reset():
                self.database.reset()
            case Let():
                self._let(record)
            case Query():
                self._query(replace(record, sql=self._named(record.sql)))
            case Statement():
                self._statement(replace(record, sql=self._named(record.sql)))

    def taken(self) -> tuple[list[Settled], list[tuple[Query, Asked]]]:
        """The outcomes since the last call."""
        found = self.settled, self.asked
        self.settled, self.asked = [], []
        return found

    def _named(self, sql: str) -> str:
        """The text with values in the place of names that a `let` gave them."""
        for name, value in self._values.items():
            sql = re.sub(rf"\$\{{{name}\}}|\${name}\b", lambda _, value=value: value, sql)  # type: ignore[misc]
        return sql

    def _let(self, record: Let) -> None:
        try:
            rows = self.database.batch(self._translate(self._named(record.sql), self.database.columns))
        except (NotOurs, NotTranslated, DataError) as error:
            return self._settle(record, UNSUPPORTED, str(error))
        if len(rows) != 1 or len(rows[0]) != len(record.names):
            return self._settle(record, UNSUPPORTED, f"{len(rows)} rows for {', '.join(record.names)}")
        self._values.update(zip(record.names, map(str, rows[0]), strict=True))
        return self._settle(record, PASSED)

    def _statement(self, record: Statement) -> None:
        """All statements of the record; what comes of it is what came of the first that did not succeed."""
        before, count, found = self.database.state(), 0, (PASSED, "", "")
        for sql in statements_of(record.sql):
            if reason := self._elsewhere(record.connection):
                found = self._refused(record, sql, reason)
                break
            try:
                statement = spoken(sql, self._translate, self.database.columns)
                if isinstance(statement, Select):
                    error = record.message if record.expects == "error" else None
                    self._ask(Query(record.place, sql, "", error=error, checked=False))
                    if sql == record.sql:
                        return
                    continue
                count = self.database.execute(statement)
                if isinstance(statement, Transaction):
                    self._connection = record.connection
            except (Violation, DataError) as error:
                if sql != record.sql:
                    self._undo(record, before, error)
                found = self._wrong(record, sql, error)
                break
            except (NotOurs, NotTranslated) as error:
                found = self._refused(record, sql, str(error))
                break
        if record.expects == "error" and found == (PASSED, "", "") and sql.strip():
            self.database.restore(before)
            found = UNSUPPORTED, "no constraint of this runner forbids it", ""
        elif record.count is not None and found[0] == PASSED and record.count != count:
            found = FAILED, f"it changed {count} rows", f"{record.count} rows"
        self._settle(record, *found)

    def _elsewhere(self, connection: str) -> str:
        """The reason why a record cannot be run now: one connection's transaction is not to be seen by another."""
        other = self.database.in_transaction and connection != self._connection
        return "it stands inside another connection's transaction" if other else ""

    def _wrong(self, record: Statement, sql: str, error: Exception) -> _Reason:
        """Something that raises: as the file says, or not."""
        if record.expects == "error":
            return PASSED, "expected", ""
        self.database.spoil(sql, f"{record.place}: {error}")
        # Other engines' indexes have their own names, and may be made with a table.
        known = isinstance(error, Violation) and "INDEX" not in [t.upper for t in tokens(sql)[:3]]
        kind = PASSED if record.expects == "maybe" else FAILED if known else UNSUPPORTED
        return kind, str(error), "it succeeds"

    def _undo(self, record: Statement, before: State, error: Exception) -> None:
        """One of several statements failed: what became of the others is the engine's to say."""
        if self._translate.is_one_transaction and not self.database.in_transaction:
            self.database.restore(before)
        else:
            self.database.spoil(record.sql, f"{record.place}: {error}")

    def _refused(self, record: Statement, sql: str, reason: str) -> _Reason:
        """Something that has no meaning here."""
        if record.expects != "error":
            self.database.spoil(sql, f"{record.place}: {reason}")
        return UNSUPPORTED, reason, ""

    def _query(self, query: Query) -> None:
        """Before the last, there may be statements; the last may be one, whose result is how many rows it changed."""
        *first, last = statements_of(query.sql) or [""]
        for sql in first:
            self._statement(Statement(query.place, sql, "maybe", connection=query.connection))
        word = next((t.upper for t in tokens(last)), "")
        if word not in CHANGES:
            return self._ask(query if not first else replace(query, sql=last))
        number = query.expected[0].strip() if len(query.expected) == 1 else ""
        count = int(number) if number.isdigit() else None
        expects = "ok" if query.error is None else "error"
        return self._statement(Statement(query.place, last, expects, query.error or "", count, query.connection))

    def _ask(self, query: Query) -> None:
        if reason := self._elsewhere(query.connection):
            return self._settle(query, UNSUPPORTED, reason)
        reason = self.database.broken(query.sql)
        if reason:
            return self._settle(query, UNSUPPORTED, f"it reads a table that lacks what {reason}")
        try:
            planned = self._planner.plan(self._translate(query.sql, self.database.columns), self.database)
        except QueryRefused as error:
            return self._settle(query, *refused(query, error))
        except NotTranslated as error:
            return self._settle(query, UNSUPPORTED, str(error))
        except CatalystFailed as error:
            return self._settle(query, FAILED, f"CatalystFailed: {error}", "a plan")
        alone = query.error is not None
        asked = Asked(len(self.asked), planned, self.database.moment, alone, is_on_arrow(planned))
        self.asked.append((query, asked))
        return None

    def _settle(self, record: Record, kind: str, reason: str = "", expected: str = "") -> None:
        self.settled.append(Settled(record, kind, reason, expected))


def refused(query: Query, error: QueryRefused) -> tuple[str, str]:
    """The outcome of a refusal: an error as expected, a name that is not supported, or a mistake of the planner's."""
    # Intervals are values inside of expressions only: a plan that would keep one is not the planner's mistake.
    mistaken = "the plan is not allowed" in str(error) and "interval" not in str(error)
    if error.code == "INTERNAL" or mistaken:
        return FAILED, str(error)
    return (PASSED if query.error is not None and error.code in _WRONG else UNSUPPORTED), str(error)
