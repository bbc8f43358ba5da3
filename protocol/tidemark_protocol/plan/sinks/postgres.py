"""The table of a PostgreSQL database that a materialized view's current rows are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tidemark_protocol.vocabulary import wire_name

PROGRESS_TABLE = "tidemark_sinks"
"""The table beside the sinks' tables that says how far they are."""


@wire_name("PostgresSink")
@dataclass(frozen=True)
class PostgresSink:
    """`secret`: as that of a PostgresSource. `key`: the columns of the view by which rows are found. `owner`: the
    view's name in all namespaces, which the database keeps beside the table. `every_ms`: the least time between
    transactions, 0 for each change; transactions are at multiples of it."""

    KIND: ClassVar[str] = "postgresSink"
    """The kind of its Status, and the name of its field in a manifest."""

    host: str
    port: int
    database: str
    secret: str
    schema: str
    table: str
    key: tuple[str, ...]
    owner: str
    every_ms: int = 0
    ssl_mode: str = "verify-full"

    @property
    def target(self) -> str:
        """Where the rows go, for people."""
        return f"{self.host}:{self.port}/{self.database} {self.schema}.{self.table}"

    def check(self) -> None:
        """Raises ValueError where the key has no column, or the pause is negative."""
        if not self.key or self.every_ms < 0:
            raise ValueError(f"a PostgreSQL sink with {len(self.key)} key columns, every {self.every_ms} ms")
