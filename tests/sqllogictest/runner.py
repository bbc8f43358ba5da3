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
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sqllogictest.compare import Difference, Result, difference, digest
from tests.sqllogictest.database import Database
from tests.sqllogictest.dataflows import Answer, Asked, Dataflows, Failed, InError
from tests.sqllogictest.dialects import translator
from tests.sqllogictest.evaluate import Evaluator
from tests.sqllogictest.first_pass import FAILED, PASSED, UNSUPPORTED, FirstPass, Settled
from tests.sqllogictest.modes import history
from tests.sqllogictest.parse import ENGINES, parse
from tests.sqllogictest.planning import Planner, table_of
from tests.sqllogictest.records import Place, Query, Record, Statement
from tests.sqllogictest.time_limit import SECONDS
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_replica.render.step_worker.pool import StepWorkers

STRETCH = 100  # queries
MOST_SETTLED = 2_000
# What means the same in every engine; of other errors, one engine's may be another's implicit cast.
_ANYWHERE = re.compile(r"divi\w+ by zero|more than one row", re.IGNORECASE)
_CODE = re.compile(r"[A-Z][A-Z_]+")
_ANY_EXPRESSION = "EXPRESSION_FAILED"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a record, in one mode."""

    place: Place
    mode: str
    kind: str
    reason: str = ""
    expected: str = ""
    found: str = ""
    sql: str = ""


class Runner:
    """One Spark for all files: the planner's, the renderer's and the statements'."""

    def __init__(
        self,
        spark: Any,
        dialect: str = "spark",
        *,
        engines: Collection[str] = ENGINES,
        workers: StepWorkers | None = None,
        patience: float = SECONDS,
    ) -> None:
        """`workers` run steps without a job, as in a replica; without them every step is Spark jobs."""
        planning = spark.newSession()
        for key, value in {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}.items():
            planning.conf.set(key, value)
        self._spark, self._catalyst, self._evaluator = spark, Catalyst(planning), Evaluator(spark)
        self._dialect, self._engines, self._workers, self._patience = dialect, engines, workers, patience

    def run(self, path: Path, modes: Sequence[str], folder: Path) -> Iterator[Outcome]:
        """The outcomes of a file's records, stretch by stretch, and in each mode by mode."""
        translate = translator(self._dialect, path)
        first = FirstPass(Database(self._evaluator), Planner(self._catalyst, str(folder / "tables")), translate)
        labels: dict[str, dict[str, str]] = {mode: {} for mode in modes}
        for number, (settled, asked) in enumerate(_stretches(first, parse(path, self._engines))):
            for mode in modes:
                yield from (_outcome(one, mode) for one in settled)
                ways = Way(mode, folder / f"{mode}{number}", f"{path.name}{number or ''}")
                for query, answer in self._answers(ways, first.database, asked):
                    yield judged(query, mode, answer, labels[mode], translate.is_foreign)

    def _answers(
        self, way: Way, database: Database, asked: Sequence[tuple[Query, Asked]]
    ) -> Iterator[tuple[Query, Answer]]:
        """The answers of a stretch's queries: only the tables that they read are laid out."""
        read = {table_of(i.id) for _, one in asked for i in one.planned.imports}
        tables = [t for t in database.all if t.id in read]
        past = history(way.mode, tables, [one.moment for _, one in asked], way.seed)
        flows = Dataflows(self._spark, way.mode, tables, past, way.folder, self._workers, self._patience)
        queries = {one.number: query for query, one in asked}
        for number, answer in flows.answers([one for _, one in asked]):
            yield queries[number], answer
        shutil.rmtree(way.folder, ignore_errors=True)


@dataclass(frozen=True)
class Way:
    """The way in which the queries of a stretch are asked, the place of its files, and the seed of its randomness."""

    mode: str
    folder: Path
    seed: str


def _stretches(
    first: FirstPass, records: Iterable[Record]
) -> Iterator[tuple[list[Settled], list[tuple[Query, Asked]]]]:
    """The records of the file, up to so many queries at a time: no more of it is held."""
    for record in records:
        first.take(record)
        if len(first.asked) >= STRETCH or len(first.settled) >= MOST_SETTLED:
            yield first.taken()
    yield first.taken()


def _outcome(settled: Settled, mode: str) -> Outcome:
    sql = settled.record.sql if isinstance(settled.record, Statement | Query) else ""
    return Outcome(settled.record.place, mode, settled.kind, settled.reason, settled.expected, settled.reason, sql)


def judged(query: Query, mode: str, answer: Answer, labels: dict[str, str], foreign: bool) -> Outcome:
    """The answer against what the file says; `foreign`: by an engine that calls other things errors."""

    def outcome(kind: str, reason: str = "", expected: str = "", found: str = "") -> Outcome:
        return Outcome(query.place, mode, kind, reason, expected, found, query.sql)

    match answer:
        case Failed(reason):
            return outcome(FAILED, reason, "an answer", reason)
        case InError(codes):
            return outcome(*_error(query, codes))
        case Result():
            if query.error is not None and foreign and not _ANYWHERE.search(query.error):
                return outcome(UNSUPPORTED, "the file's engine has an error here; in Spark's SQL it means something")
            if query.error is not None:
                return outcome(FAILED, "no error", f"an error {query.error}", f"{len(answer.rows)} rows")
            wrong = difference(query, answer) or _other_than_its_label(query, answer, labels)
            if wrong and answer.leaves_open:
                return outcome(UNSUPPORTED, "a LIMIT without ORDER BY: SQL leaves open which rows it takes")
            return outcome(FAILED, "a wrong answer", wrong.expected, wrong.found) if wrong else outcome(PASSED)


def _error(query: Query, codes: tuple[str, ...]) -> tuple[str, str, str, str]:
    """Codes of this engine are compared, where one tells what failed; other engines' words are not."""
    found = ", ".join(codes)
    if query.error is None:
        return FAILED, "the view is in error", "an answer", found
    expected_error = query.error.strip()
    if _CODE.fullmatch(expected_error) and not {expected_error, _ANY_EXPRESSION} & set(codes):
        return FAILED, "another error", query.error, found
    return PASSED, "", "", ""


def _other_than_its_label(query: Query, answer: Result, labels: dict[str, str]) -> Difference | None:
    if not query.label:
        return None
    made = hashlib.md5(digest(query, answer).encode()).hexdigest()
    first = labels.setdefault(query.label, made)
    return None if made == first else Difference(f"the result of {query.label}", "another one")
