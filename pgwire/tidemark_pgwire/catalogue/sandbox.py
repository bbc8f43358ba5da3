"""DuckDB as a sandbox: an empty database in memory for each statement, which reaches nothing outside of itself.

    tables, macros, lookups ──► made ──► configuration locked ──► one SELECT ──► Arrow

A statement of a user reaches it only through `sql/rewriting`, which admits relations, functions and constructs by name.
This module is the second wall: no files, no extensions, no network, no settings; bounded memory and rows. A function
that runs cannot be interrupted, and its texts are not part of DuckDB's limit of memory: `child` bounds both, and time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidemark_pgwire.catalogue.facts import CatalogueError

ANSWER_MAX_BYTES = 16 << 20
_BATCH_ROWS = 10_000
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
            return _read(connection, statement.sql)
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
