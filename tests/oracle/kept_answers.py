"""Spark's answers for the histories of `make test`, kept as digests: half of the CPU time of a case was Spark's batch.

    kept_answers.json   {"join/1": {"question": "9c1f…", "types": ["int"], "answers": {"3": "04ab…", "5": null}}, …}

`question` is a digest of all that Spark's answer depends on: Spark's version, the SQL, the tables and the history. An
answer is a digest of the rows at a time, or null where Spark raises. A view that shows what is kept needs no batch.
Where anything differs, or nothing is kept, Spark is asked: a kept answer can save time, and never decides that a view
is wrong. `make oracle-answers` writes the file anew; `make oracle` does not read it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from tests.oracle.check import Case, rounded
from tests.oracle.harness import Updates, contents
from tests.oracle.histories import History
from tests.oracle.reference import SETTINGS, Answer
from tests.oracle.seeds import asks_for_many
from tidemark_replica.values.arrow_types import sql_type

FILE = Path(__file__).with_suffix(".json")
DIGEST_CHARACTERS = 16


@dataclass(frozen=True)
class KeptAnswer:
    """Spark's answer to one question: the columns' types, and a digest of the rows at each time (null: it raises)."""

    question: str
    types: list[str]
    answers: dict[str, str | None]

    def answers_if_shown(self, updates: Updates) -> dict[int, Answer] | None:
        """The answers, if `updates` show exactly them; else None."""
        shown = {int(time): contents(updates, int(time)) for time in self.answers}
        for time, (rows, errors) in shown.items():
            kept = self.answers[str(time)]
            if kept != (None if errors else digest_of_rows(rows)):
                return None
        return {time: Answer(None if errors else rows) for time, (rows, errors) in shown.items()}


class KeptAnswers:
    """The file's answers; none of them where other histories are asked for (`make oracle`)."""

    def __init__(self) -> None:
        self._by_question: dict[str, KeptAnswer] = {}
        if FILE.exists() and not asks_for_many():
            kept = [KeptAnswer(**answer) for answer in json.loads(FILE.read_text()).values()]
            self._by_question = {answer.question: answer for answer in kept}

    def get(self, case: Case, history: History) -> KeptAnswer | None:
        return self._by_question.get(digest_of_question(case, history))


def kept_answer(case: Case, history: History, answers: Mapping[int, Answer], types: list[pa.DataType]) -> KeptAnswer:
    """The digest that the file keeps of Spark's answers."""
    digests = {str(t): None if a.rows is None else digest_of_rows(a.rows) for t, a in answers.items()}
    return KeptAnswer(digest_of_question(case, history), [str(sql_type(t)) for t in types], digests)


def write(answers: Mapping[str, KeptAnswer]) -> None:
    """Replace the file; one line for each case, so that a difference can be read."""
    lines = [f"{json.dumps(name)}: {json.dumps(asdict(answer))}" for name, answer in answers.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def digest_of_question(case: Case, history: History) -> str:
    tables = [(name, table.columns) for name, table in case.tables.items()]
    asked = (case.spark or case.sql, case.in_files, tables, history)
    return digest(pyspark.__version__, SETTINGS, *asked)


def digest_of_rows(rows: Mapping[Any, int]) -> str:
    return digest(sorted(map(repr, rounded(rows).items())))


def digest(*parts: object) -> str:
    """The digest of the parts' texts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGEST_CHARACTERS]
