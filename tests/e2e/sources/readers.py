"""Readers of a ledger's view, each in a thread of its own: what one reads is a state that the ledger had."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg

from tests.e2e.sources.ledgers import Ledger, version_of
from tests.reader_threads import ReaderThread

ANSWER_SECONDS = 300
"""A query waits for a replica, and for a time, a minute each. One that takes longer than this hangs."""
AGAIN = {"57P03", "40001"}
"""SQLSTATEs after which a client asks again (docs/guides/psql.md)."""


class Reader(ReaderThread):
    """Reads a view again and again; `check` takes each answer. `version`: of the last state that it read.
    `may_go_back`: as a query of an index may that is not strict, where replica and operator died (docs/limits.md)."""

    def __init__(self, name: str, ledger: Ledger, may_go_back: bool = False) -> None:
        super().__init__(f"reader of {name}")
        self.name, self.ledger, self._may_go_back = name, ledger, may_go_back
        self.version, self.answers = -1, 0
        self.refusals = Counter[str]()
        """Answers that a client asks again after, by their cause."""

    def __repr__(self) -> str:
        found = f"{self.name}: {self.answers} answers, version {self.version}"
        return f"{found} of {self.ledger.version}, {dict(self.refusals)} {self.failures}"

    def check(self, rows: Iterable[tuple[str, int, Any]]) -> None:
        listed = list(rows)
        found = {name: (accounts, int(total)) for name, accounts, total in listed}
        version, states = version_of(found), self.ledger.states
        assert len(found) == len(listed), f"a name twice: {listed}"
        assert version < len(states), f"version {version} was not written yet: {listed}"
        assert found == states[version], f"version {version} was {states[version]}, not {found}"
        assert version >= self.version or self._may_go_back, f"version {version} after {self.version}"
        self.version, self.answers = version, self.answers + 1


class QueryReader(Reader):
    """Asks Tidemark for a view, as psql does."""

    def __init__(
        self, options: Mapping[str, Any], view: str, ledger: Ledger, strict: bool, may_go_back: bool = False
    ) -> None:
        super().__init__(f"{view} strict={strict}", ledger, may_go_back)
        self._options, self._view, self._strict = options, view, strict

    def read_until_the_end(self) -> None:
        while not self.end.is_set():
            try:
                with psycopg.connect(**self._options) as connection:
                    connection.execute(f"SET tidemark.strict = {'on' if self._strict else 'off'}".encode())
                    connection.execute(f"SET statement_timeout = '{ANSWER_SECONDS}s'".encode())
                    while not self.end.wait(0.1):
                        self.check(connection.execute(f'SELECT * FROM "{self._view}"'.encode()).fetchall())
            except psycopg.Error as error:
                self.refusals[error.sqlstate or "connection"] += 1
                if error.sqlstate not in AGAIN:
                    raise
