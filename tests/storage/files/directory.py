"""A `files` source of one table over a folder, with the ingester that follows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.storage.ingestion_samples import description, errors, oks
from tidemark_persist import ShardWriters
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import FileRequest
from tidemark_protocol.messages.responses import SourceFile
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, Option
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.files.source import FilesIngestion
from tidemark_replica.storage.ingester import Ingester

COLUMNS = (Column("a", BIGINT), Column("b", STRING))
HEADER = (Option("header", "true"),)


class Directory:
    """A source of one table over a folder of files, and the ingester that follows it. A file is bound after
    `settling_ticks` at which it was listed."""

    settling_ticks = 1
    options: Options = None
    """The options of a bucket."""

    def __init__(self, session: SparkSession, root: Path, **table: object) -> None:
        self.session, self.root, self.folder = session, root, root / "in"
        self.folder.mkdir(exist_ok=True)
        given = {"path": str(self.folder), "format": "csv", "columns": COLUMNS, "options": HEADER, "pattern": "*"}
        self.requests = 0
        self.spec = FilesSource((FilesTable("t", **{**given, **table}),))  # type: ignore[arg-type]
        self.ingester = self.restart()
        self.now = self.ingester.shards()[0].state().upper

    def restart(self) -> Ingester:
        """A new ingester over the same shards, as after a crash."""
        self.source = FilesIngestion(self.spec, self.session, self.options)
        tables = tables_of(self.session, self.spec, self.options)
        self.ingester = Ingester(description(self.root, self.spec, tables), WriterTerm(1), self.source, ShardWriters())
        self.ingester.recover()
        return self.ingester

    def put(self, name: str, content: str | bytes) -> Path:
        (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return self.folder / name

    def ticks(self, count: int = 2) -> None:
        """A file is bound by the second tick that sees it unchanged."""
        for _ in range(count):
            self.now += 100
            assert self.ingester.tick(Time(self.now))

    def die_before_reading(self) -> None:
        """New files are bound, and the process dies before it reads them."""
        self.ticks(self.settling_ticks)

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        self.ingester._apply = die  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            self.ticks(1)

    def die_after(self, appends: int) -> None:
        """The process dies at a tick that binds new files, after so many appends."""
        append, done = self.ingester._append, 0

        def append_or_die(*args: object) -> None:
            nonlocal done
            if done == appends:
                raise KeyboardInterrupt
            done += 1
            append(*args)  # type: ignore[arg-type]

        self.ingester._append = append_or_die  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            self.ticks(self.settling_ticks + 1)

    def letters(self) -> list[tuple[object, ...]]:
        return oks(self.root, "t_dead_letter")

    def rows(self) -> list[tuple[object, ...]]:
        return oks(self.root, "t")

    def errors(self) -> dict[str, int]:
        return errors(self.root, "t")

    def ask(self, action: str, name: str) -> str:
        """Asks until there is an outcome; returns the refusal, empty where it is done."""
        self.requests += 1
        self.source.ask((FileRequest(self.requests, action, "t", name),))
        self.ticks(1)
        (outcome,) = self.source.outcomes()
        assert outcome.id == self.requests
        return outcome.refusal

    def file(self, name: str) -> SourceFile:
        """The file as the list shows it."""
        (found,) = (file for file in self.source.files() if file.file == name)
        return found
