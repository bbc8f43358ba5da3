"""The statements that are mutated: the SQL of this project's own tests, and one catalogue that holds their tables.

    tests/oracle          the cases' queries          tables t, u ...: relations of one name
    tests/sqllogictest    the files' queries          their CREATE TABLEs
    tests/planner         plans/ and refused/         tests/planner/catalogue.py

A table that several tests declare has the columns of all of them. Where their types differ the first one counts, and a
statement of the others may be refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.cases import CASES
from tests.planner.catalogue import CATALOGUE
from tests.planner.fixture_files import HERE, cases
from tests.sqllogictest.parse import parse
from tests.sqllogictest.parse_statement import parse_statement
from tests.sqllogictest.records import Query, Statement
from tests.sqllogictest.statements import CreateTable
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, Relation
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.types import Column

FILES = Path(__file__).parents[1] / "sqllogictest" / "files"
_CREATE = re.compile(r"\s*CREATE TABLE\b", re.IGNORECASE)
Tables = dict[str, dict[str, Column]]


@dataclass(frozen=True)
class Corpus:
    """The texts of statements, without duplicates, and the relations that they read."""

    statements: tuple[str, ...]
    catalogue: Catalogue


def corpus() -> Corpus:
    """The corpus of this checkout; the same order every time."""
    tables: Tables = {}
    texts = [*_oracle(tables), *_sqllogictest(tables), *_planner()]
    relations = (_relation(name, columns.values()) for name, columns in tables.items())
    return Corpus(tuple(dict.fromkeys(texts)), Catalogue((*CATALOGUE.relations, *relations)))


def _oracle(tables: Tables) -> Iterator[str]:
    for case in CASES:
        if case.plan is None:
            for name, table in case.tables.items():
                _declare(tables, name, table.named)
            yield case.sql


def _sqllogictest(tables: Tables) -> Iterator[str]:
    for file in sorted(FILES.glob("*.slt")):
        for record in parse(file):
            if isinstance(record, Query):
                yield record.sql
            elif isinstance(record, Statement) and _CREATE.match(record.sql):
                statement = parse_statement(record.sql)
                if isinstance(statement, CreateTable):
                    _declare(tables, statement.name, statement.columns)


def _planner() -> Iterator[str]:
    for folder in ("plans", "refused"):
        for file in sorted((HERE / folder).glob("*.txt")):
            yield from (case.sql for case in cases(file))


def _declare(tables: Tables, name: str, columns: Iterable[Column]) -> None:
    known = tables.setdefault(name.lower(), {})
    for column in columns:
        known.setdefault(column.name.lower(), column)


def _relation(name: str, columns: Iterable[Column]) -> Relation:
    held = tuple(columns)
    shard = ShardMetadata(ShardId(f"fuzz/{name}"), f"shards/fuzz/{name}", held)
    return Relation(name, name, GlobalId(f"fuzz/{name}"), held, shard, short=True)
