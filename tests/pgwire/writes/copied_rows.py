"""COPY FROM STDIN through psycopg, and the rows that a table then has."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.pgwire.writes.written import Written


def copy(connection: psycopg.Connection[Any], text: str, *pieces: bytes) -> str | None:
    """Send the pieces as the data of the COPY statement; returns its tag."""
    with connection.cursor() as cursor:
        with cursor.copy(text.encode()) as into:
            for piece in pieces:
                into.write(piece)
        return cursor.statusmessage


def names(tables: Written, like: str) -> list[tuple[Any, ...]]:
    """The rows of `plain` whose name contains the text."""
    return [row for row in tables.rows("plain") if row[1] is not None and like in row[1]]
