"""A campaign: statements one after the other, each of which must come out as a plan or as a refusal with a position.

    statement n ──► as a view (even n) or as a query (odd n) ──► Planned | Refused ──► counted, or Defect

A planner is what a request goes to: the planning functions in this process, or the service's pool of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.fuzz_planning.corpus import Corpus
from tests.fuzz_planning.statements import statement
from tidemark_protocol.messages.planning import (
    Diagnostic,
    ExportRequest,
    PlanQueryRequest,
    PlanRequest,
    Refused,
    ViewRequest,
)

Request = PlanRequest | PlanQueryRequest
Planner = Callable[[Request], object]


@dataclass(frozen=True)
class Defect:
    """A forbidden outcome of the planner, with a statement that shows it."""

    number: int
    sql: str
    what: str

    def __str__(self) -> str:
        kind = "view" if self.number % 2 == 0 else "query"
        return f"statement {self.number}, as a {kind}: {self.what}\n{self.sql}"


@dataclass
class Campaign:
    """`outcomes`: how many plans there were, and refusals by code."""

    seed: int
    corpus: Corpus
    planner: Planner
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self, numbers: Iterable[int]) -> Iterator[Defect]:
        """The defects among these statements, as they are found."""
        for number in numbers:
            sql = statement(self.seed, number, self.corpus.statements)
            try:
                outcome = self.planner(self._request(number, sql))
            except Exception as error:
                self.outcomes["DEFECT"] += 1
                yield Defect(number, sql, f"{type(error).__name__}: {error}")
                continue
            refused = outcome.diagnostics if isinstance(outcome, Refused) else ()
            self.outcomes[refused[0].code if refused else type(outcome).__name__] += 1
            for what in filter(None, (fault(d, sql) for d in refused)):
                yield Defect(number, sql, what)

    def _request(self, number: int, sql: str) -> Request:
        if number % 2:
            return PlanQueryRequest(sql, self.corpus.catalogue, "fuzz/")
        view, export = ViewRequest("v", sql), ExportRequest("v", "index", "v", None)
        return PlanRequest("d", (view,), (export,), self.corpus.catalogue, "fuzz/")


def fault(diagnostic: Diagnostic, sql: str) -> str | None:
    """The defect of a diagnostic: it has no reason that a user understands, or no position in the text."""
    shown = f"{diagnostic.code} {diagnostic.line}:{diagnostic.column} {diagnostic.message}"
    if diagnostic.code == "INTERNAL" or not diagnostic.message:
        return f"no reason: {shown}"
    lines = sql.split("\n")
    inside = 1 <= diagnostic.line <= len(lines) and 1 <= diagnostic.column <= len(lines[diagnostic.line - 1]) + 1
    return None if inside else f"no position: {shown}"
