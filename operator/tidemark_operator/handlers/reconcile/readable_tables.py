"""Asks a replica for the tables of a source, of which some may be unreadable.

a b c d e f g h     together
a b c d │ e f g h   where that fails, by halves: of many tables one that cannot be read costs few questions
a b c d e f h │ g   a table that could not be read the last time is asked for by itself, after the others
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import sample
from time import monotonic
from typing import Any

from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile.source_pinning import tables_of
from tidemark_operator.planning.table_edit import EvolvingSource, with_tables
from tidemark_protocol.plan.ingestion import IngestionDescription, SourceTable

MAX_NAMED = 3
"""A message names so many tables."""
READ_SECONDS = 20.0
"""The seconds for which the tables of a source are asked for in parts, where they cannot be read together."""


@dataclass(frozen=True)
class ReadableTables:
    """The tables that can be read. `error`: why others cannot be; empty if all can. `unreadable`: the names of tables
    that could not be read, now or the last time."""

    found: tuple[SourceTable, ...] = ()
    error: str = ""
    unreadable: frozenset[str] = frozenset()


async def find_readable(
    source: EvolvingSource,
    pinned: IngestionDescription,
    running: RunningInstance,
    apart: Collection[str] = (),
    refused: str = "",
) -> ReadableTables:
    """The tables that can be read. `apart`: the names of tables that could not be read before. `refused`: why the
    tables cannot be read together, where that is known. Half the time is for large groups, the rest for small ones, so
    that each look finds some that cannot be read. Where the time is over, an error stands for the tables that were not
    asked for. Tables of `apart` that there was no time for are asked for the next time. Raises Waiting."""
    mixed: list[Any] = sample(source.tables, len(source.tables))
    together = [table for table in source.tables if table.name not in apart]
    if refused:
        groups = _halves(mixed)
    else:
        groups = [*([together] if together else []), *([t] for t in mixed if t.name in apart)]
    end, error = monotonic() + READ_SECONDS, refused
    found, errors, unreadable = list[SourceTable](), list[str](), set[str]()
    while groups:
        if not error or monotonic() < end - READ_SECONDS / 2:
            group = max(groups, key=len)
        else:
            group = min(groups, key=lambda each: (each[0].name in apart, len(each)))
        groups.remove(group)
        if (error or group is not together) and monotonic() >= end:
            errors += [error] if error else []
            unreadable |= {table.name for each in (group, *groups) for table in each}.intersection(apart)
            break
        answer = await running.inspect(with_tables(source, group), pinned)
        found += tables_of(answer)
        error = answer.error or error
        if answer.error and len(group) > 1:
            groups += _halves(sample(group, len(group)))
        elif answer.error:
            errors.append(answer.error)
            unreadable.add(group[0].name)
    return ReadableTables(tuple(found), "; ".join(sorted(errors)[:MAX_NAMED]), frozenset(unreadable))


def _halves(tables: list[Any]) -> list[list[Any]]:
    return [half for half in (tables[: len(tables) // 2], tables[len(tables) // 2 :]) if half]
