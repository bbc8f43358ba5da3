"""DuckDB as a sandbox: an empty database in memory for each statement, which reaches nothing outside of itself.

    tables, macros, lookups ──► made ──► configuration locked ──► one SELECT ──► Arrow

A statement of a user reaches it only through `sql/rewriting`, which admits relations, functions and constructs by name.
This module is the second wall: no files, no extensions, no network, no settings; bounded memory, time and rows.
A function that runs is not interrupted, and its texts are not part of DuckDB's limit of memory: `child` bounds both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidemark_pgwire.catalogue.facts import CatalogueError

CPU_MAX_S, TIME_MAX_S = 1.0, 10.0
"""The processor time and the time that a statement may take. The latter is longer, for a busy machine."""
ANSWER_MAX_BYTES = 16 << 20
_BATCH_ROWS = 10_000
_LOOK_S = 0.05
_CONFIGURATION: Mapping[str, str] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": "128MB",
    "threads": "1",
}


@dataclass(frozen=True)
class SandboxStatement:
    """`tables`: of DuckDB, by name, with the types of their columns. `lookups`: tables `k`, `v` that become maps.
    `macros`: definitions."""

    sql: str
    tables: Mapping[str, tuple[Sequence[tuple[str, str]], pa.Table]]
    lookups: Mapping[str, pa.Table]
    macros: Sequence[str]


def answer(statement: SandboxStatement) -> pa.Table:
    """Raises CatalogueError."""
    try:
        with duckdb.connect(":memory:", config=dict(_CONFIGURATION)) as connection:
            _fill(connection, statement)
            connection.execute("SET lock_configuration = true")
            with _limited(connection):
                return _read(connection, statement.sql)
    except duckdb.InterruptException as error:
        message = f"a statement about the catalogue may compute for {CPU_MAX_S:g} s; ask for less"
        raise CatalogueError("57014", message) from error
    except duckdb.OutOfMemoryException as error:
        raise CatalogueError("53200", "a statement about the catalogue needs too much memory; ask for less") from error
    except duckdb.ConversionException as error:
        raise CatalogueError("22P02", _first_line(error)) from error
    except duckdb.Error as error:
        message = f"the catalogue cannot answer this statement: {_first_line(error)}"
        raise CatalogueError("0A000", message) from error


def _first_line(error: duckdb.Error) -> str:
    return str(error).split("\n")[0][:300]


def _fill(connection: duckdb.DuckDBPyConnection, statement: SandboxStatement) -> None:
    for name, (columns, rows) in statement.tables.items():
        defined = ", ".join(f'"{column}" {stored}' for column, stored in columns)
        connection.execute(f'CREATE TABLE "{name}" ({defined})')
        if rows.num_rows:
            connection.register("given", rows)
            connection.execute(f'INSERT INTO "{name}" SELECT * FROM given')
            connection.unregister("given")
    for name, pairs in statement.lookups.items():
        connection.register("given", pairs)
        connection.execute(f"SET VARIABLE {name} = (SELECT map(list(k), list(v)) FROM given)")
        connection.unregister("given")
    for macro in statement.macros:
        connection.execute(macro)


@contextmanager
def _limited(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupts what takes longer than it may, again and again, as an interruption between two calls is lost. DuckDB
    computes in the calling thread alone, so the time of that thread is the statement's."""
    ended, began = threading.Event(), time.monotonic()
    clock = time.pthread_getcpuclockid(threading.get_ident())
    used_before = time.clock_gettime(clock)

    def watch() -> None:
        while not ended.wait(_LOOK_S):
            used, passed = time.clock_gettime(clock) - used_before, time.monotonic() - began
            if used > CPU_MAX_S or passed > TIME_MAX_S:
                connection.interrupt()

    watcher = threading.Thread(target=watch, name="catalogue-limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _read(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
    batches, size = [], 0
    for batch in reader:
        size += batch.nbytes
        if size > ANSWER_MAX_BYTES:
            message = f"an answer of the catalogue has at most {ANSWER_MAX_BYTES >> 20} MiB; ask for less"
            raise CatalogueError("54000", message)
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)
