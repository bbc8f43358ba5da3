"""A file, from records to outcomes.

    records ──statements──► Database: every table's history, every view
            ──queries────► PlannedQuery, or refused by name
    per mode: histories ──► Dataflows ──► answers ──► compared with the file

An outcome is passed, failed or unsupported. Unsupported is what planning refuses by name, what is no SQL of this
engine, and what reads a table that such a statement should have changed. Everything else that differs has failed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sqllogictest.compare import Difference, Result, difference, digest
from tests.sqllogictest.database import Database, Violation
from tests.sqllogictest.dataflows import Answer, Asked, Dataflows, Failed, InError
from tests.sqllogictest.dialects import NotTranslated
from tests.sqllogictest.evaluate import DataError, Evaluator
from tests.sqllogictest.modes import history
from tests.sqllogictest.parse import parse
from tests.sqllogictest.planning import Planner, QueryRefused
from tests.sqllogictest.records import Place, Query, Record, Statement, Unknown
from tests.sqllogictest.statements import NotOurs, Select, parse_statement
from tidemark_planner.catalyst import Catalyst
from tidemark_planner.errors import CatalystFailed

PASSED, FAILED, UNSUPPORTED = "passed", "failed", "unsupported"
Translate = Callable[[str, Database], str]
# Refusals of what is no SQL, or wrong SQL: errors that a file may expect.
_WRONG = frozenset("SYNTAX UNRESOLVED_RELATION UNRESOLVED_COLUMN AMBIGUOUS TYPE DUPLICATE_NAME".split())
_CODE = re.compile(r"[A-Z][A-Z_]+")
_ANY_EXPRESSION = "EXPRESSION_FAILED"


@dataclass(frozen=True)
class Outcome:
    """What became of a record, in one mode."""

    place: Place
    mode: str
    kind: str
    reason: str = ""
    expected: str = ""
    found: str = ""
    sql: str = ""


@dataclass(frozen=True)
class Settled:
    """What is known of a record before any dataflow runs: the same in all modes."""

    record: Record
    kind: str
    reason: str = ""
    expected: str = ""


class Runner:
    """One Spark for all files: the planner's, the renderer's and the statements'."""

    def __init__(self, spark: Any, translate: Translate | None = None) -> None:
        planning = spark.newSession()
        for key, value in {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}.items():
            planning.conf.set(key, value)
        self._spark, self._catalyst, self._evaluator = spark, Catalyst(planning), Evaluator(spark)
        self._translate = translate or (lambda sql, _: sql)

    def run(self, path: Path, modes: Sequence[str], folder: Path) -> Iterator[Outcome]:
        """The outcomes of a file's records, mode by mode."""
        planner = Planner(self._catalyst, str(folder / "tables"))
        first = _FirstPass(Database(self._evaluator), planner, self._translate)
        for record in parse(path):
            first.take(record)
        queries = [(q, one) for q, one in first.asked]
        for mode in modes:
            yield from (_outcome(settled, mode) for settled in first.settled)
            moments = [one.moment for _, one in queries]
            tables = first.database.all
            past = history(mode, tables, moments, path.name)
            flows = Dataflows(self._spark, mode, tables, past, folder / mode)
            labels: dict[str, str] = {}
            records = {one.number: query for query, one in queries}
            for number, answer in flows.answers([one for _, one in queries]):
                yield _judged(records[number], mode, answer, labels)


class _FirstPass:
    """Statements are carried out, queries are lowered where they stand."""

    def __init__(self, database: Database, planner: Planner, translate: Translate) -> None:
        self.database, self._planner, self._translate = database, planner, translate
        self.settled: list[Settled] = []
        self.asked: list[tuple[Query, Asked]] = []

    def take(self, record: Record) -> None:
        if isinstance(record, Unknown):
            self._settle(record, UNSUPPORTED, record.reason)
        elif isinstance(record, Query):
            self._ask(record)
        else:
            self._statement(record)

    def _statement(self, record: Statement) -> None:
        try:
            sql = self._translate(record.sql, self.database)
            statement = parse_statement(sql)
            if isinstance(statement, Select):
                error = record.message if record.expects == "error" else None
                return self._ask(Query(record.place, record.sql, "", error=error, checked=False))
            if record.expects == "error":
                return self._wrong(record, lambda: self.database.execute(statement))
            count = self.database.execute(statement)
        except (Violation, DataError) as error:
            self.database.spoil(record.sql, f"{record.place}: {error}")
            kind = PASSED if record.expects == "maybe" else UNSUPPORTED if isinstance(error, DataError) else FAILED
            return self._settle(record, kind, str(error), "it succeeds")
        except (NotOurs, NotTranslated) as error:
            if record.expects != "error":
                self.database.spoil(record.sql, f"{record.place}: {error}")
            return self._settle(record, UNSUPPORTED, str(error))
        if record.count is not None and record.count != count:
            return self._settle(record, FAILED, f"it changed {count} rows", f"{record.count} rows")
        return self._settle(record, PASSED)

    def _wrong(self, record: Statement, execute: Callable[[], int]) -> None:
        """A statement that should fail: one that does not would leave tables as the file does not have them."""
        try:
            execute()
        except (Violation, DataError):
            return self._settle(record, PASSED)
        self.database.spoil(record.sql, f"{record.place}: a statement that should fail")
        return self._settle(record, UNSUPPORTED, "no constraint of this runner forbids it")

    def _ask(self, query: Query) -> None:
        reason = self.database.broken(query.sql)
        if reason:
            return self._settle(query, UNSUPPORTED, f"it reads a table that lacks what {reason}")
        try:
            planned = self._planner.plan(self._translate(query.sql, self.database), self.database)
        except QueryRefused as error:
            return self._settle(query, *refused(query, error))
        except NotTranslated as error:
            return self._settle(query, UNSUPPORTED, str(error))
        except CatalystFailed as error:
            return self._settle(query, FAILED, f"CatalystFailed: {error}", "a plan")
        asked = Asked(len(self.asked), planned, self.database.moment, alone=query.error is not None)
        self.asked.append((query, asked))
        return None

    def _settle(self, record: Record, kind: str, reason: str = "", expected: str = "") -> None:
        self.settled.append(Settled(record, kind, reason, expected))


def refused(query: Query, error: QueryRefused) -> tuple[str, str]:
    """What a refusal means: an error as expected, a name that is not supported, or a mistake of the planner's."""
    if error.code == "INTERNAL" or "the plan is not allowed" in str(error):
        return FAILED, str(error)
    return (PASSED if query.error is not None and error.code in _WRONG else UNSUPPORTED), str(error)


def _outcome(settled: Settled, mode: str) -> Outcome:
    sql = "" if isinstance(settled.record, Unknown) else settled.record.sql
    return Outcome(settled.record.place, mode, settled.kind, settled.reason, settled.expected, settled.reason, sql)


def _judged(query: Query, mode: str, answer: Answer, labels: dict[str, str]) -> Outcome:
    def outcome(kind: str, reason: str = "", expected: str = "", found: str = "") -> Outcome:
        return Outcome(query.place, mode, kind, reason, expected, found, query.sql)

    match answer:
        case Failed(reason):
            return outcome(FAILED, reason, "an answer", reason)
        case InError(codes):
            return outcome(*_error(query, codes))
        case Result():
            if query.error is not None:
                return outcome(FAILED, "no error", f"an error {query.error}", f"{len(answer.rows)} rows")
            wrong = difference(query, answer) or _other_than_its_label(query, answer, labels)
            return outcome(FAILED, "a wrong answer", wrong.expected, wrong.found) if wrong else outcome(PASSED)


def _error(query: Query, codes: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Codes of this engine are compared, where one tells what failed; other engines' words are not."""
    found = ", ".join(codes)
    if query.error is None:
        return FAILED, "the view is in error", "an answer", found
    said = query.error.strip()
    if _CODE.fullmatch(said) and not {said, _ANY_EXPRESSION} & set(codes):
        return FAILED, "another error", query.error, found
    return PASSED, "", "", ""


def _other_than_its_label(query: Query, answer: Result, labels: dict[str, str]) -> Difference | None:
    if not query.label:
        return None
    made = hashlib.md5(digest(query, answer).encode()).hexdigest()
    first = labels.setdefault(query.label, made)
    return None if made == first else Difference(f"the result of {query.label}", "another one")
