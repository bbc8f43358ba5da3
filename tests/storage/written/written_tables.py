"""Written tables for the tests: an ingester with its inbox, and calls to it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.storage.ingestion_samples import description
from tidemark_persist import ShardWriters
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import WrittenSource, WrittenTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.written.inbox import PendingWrite, WriteAnswer, WriteInbox
from tidemark_replica.storage.written.inspect import tables_of
from tidemark_replica.storage.written.receive import CallPart, Receiver, WriteHeader
from tidemark_replica.storage.written.source import WrittenIngestion
from tidemark_replica.storage.written.spool import WriteSpool

COLUMNS = (
    Column("id", SqlType("bigint")),
    Column("name", SqlType("string")),
    Column("price", SqlType("decimal", 10, 2)),
    Column("at", SqlType("timestamp")),
)
KEYED = WrittenTable("keyed", COLUMNS, ("id",))
PLAIN = WrittenTable("plain", COLUMNS)
LOG = WrittenTable("log", COLUMNS, append_only=True)
NAMED = WrittenTable("named", tuple(replace(c, nullable=c.name != "name") for c in COLUMNS), ("id",))
"""No row has NULL as its name."""
SPEC = WrittenSource((KEYED, PLAIN, LOG, NAMED))
_KEYS = itertools.count()


class Writer:
    """One ingester of written tables and the clients that call it. `restart`: another process goes on."""

    def __init__(self, root: Path, spec: WrittenSource = SPEC) -> None:
        self.root, self.spec, self.term, self.now = root, spec, 0, 1000
        self.spool = WriteSpool(root / "spool")
        self.restart()

    def restart(self) -> None:
        """A new process, with a new term: the calls that waited are lost with the one before."""
        self.inbox = WriteInbox("src")
        self.receiver = Receiver(self.spec, self.spool)
        self.begin_again()

    def begin_again(self) -> None:
        """The ingestion begins again in the same process, with a new term: the calls wait again."""
        self.term += 1
        found = description(self.root, self.spec, tables_of(self.spec))
        source = WrittenIngestion(self.spec, self.inbox)
        self.ingester = Ingester(found, WriterTerm(self.term), source, ShardWriters())
        self.ingester.recover()

    def put(
        self, table: str, body: bytes, operation: str = "insert", format: str = "csv", key: str = "", must_find: int = 0
    ) -> PendingWrite:
        """A call that waits for its tick. Raises WriteRefused."""
        header = WriteHeader(table, operation, format, key or f"k{next(_KEYS)}", must_find)
        return self.inbox.put(self.receiver.receive(header, [body[i : i + 1000] for i in range(0, len(body), 1000)]))

    def put_parts(
        self, table: str, parts: Sequence[tuple[str, bytes]], key: str = "", must_find: int = 0
    ) -> PendingWrite:
        """A call that does several things with rows, each a csv with the same header; an update sets the name. Raises
        WriteRefused."""
        known, body = body_of(parts)
        header = WriteHeader(table, "", "csv", key or f"k{next(_KEYS)}", must_find, known)
        return self.inbox.put(self.receiver.receive(header, [body]))

    def put_tables(
        self, tables: Sequence[tuple[str, Sequence[tuple[str, bytes]]]], key: str = "", piece: int = 1000
    ) -> PendingWrite:
        """A call of several tables, each with its parts. Raises WriteRefused."""
        key = key or f"k{next(_KEYS)}"
        made = [(name, *body_of(parts)) for name, parts in tables]
        first, *others = (WriteHeader(name, "", "csv", key, 0, known, len(body)) for name, known, body in made)
        data = b"".join(body for *_, body in made)
        pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
        return self.inbox.put(self.receiver.receive(replace(first, others=tuple(others)), pieces))

    def tick(self) -> int:
        self.now += 100
        assert self.ingester.tick(Time(self.now))
        return self.now

    def call(self, *arguments: Any, **named: Any) -> WriteAnswer:
        """A call and its answer. Raises WriteRefused."""
        pending = self.put(*arguments, **named)
        self.tick()
        answer = pending.answer(0)
        assert answer is not None
        return answer


def body_of(parts: Sequence[tuple[str, bytes]]) -> tuple[tuple[CallPart, ...], bytes]:
    """The parts of a body, and the body: the rows of all."""
    texts = [body.splitlines(keepends=True) for _, body in parts]
    known = tuple(
        CallPart(operation, len(text) - 1, ("name",) if operation == "update" else ())
        for (operation, _), text in zip(parts, texts, strict=True)
    )
    return known, b"".join([*texts[0], *(row for text in texts[1:] for row in text[1:])])


def rows(*objects: dict[str, Any]) -> bytes:
    """JSON lines."""
    return "".join(json.dumps(each) + "\n" for each in objects).encode()
