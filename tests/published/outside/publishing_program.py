"""Publishes a view again and again, with a change data feed, until it is killed.

    python publishing_program.py SHARD TABLE MODE

MODE   clean    deletes, after some commits, each file that the newest version does not need
       keep     deletes none: another process may publish
       half     plants a mistake: a time comes in two halves
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from tests.published.outside.marked_view import SCHEMA
from tidemark_persist import PersistError
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.published import changed_files
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import open_table
from tidemark_replica.sinks.published.table_destination import TableDestination
from tidemark_replica.storage.source_secrets import SourceSecrets

FILE_BYTES = 1_500
"""Files that are so small divide and merge."""
HALF_SECONDS = 0.2


def destination(shard: str, table: str, retention_hours: int = 24) -> TableDestination:
    columns = tuple(Column(name, kind) for name, kind in zip(SCHEMA.names, (BIGINT, STRING), strict=True))
    view = PublishedView(table, "shop.flow.view", 0, retention_hours, change_data_feed=True, file_bytes=FILE_BYTES)
    metadata = ShardMetadata(ShardId("u1"), shard, columns)
    return TableDestination(GlobalId("u/view/1"), metadata, view, ShardHandles(), SourceSecrets(None))


def in_halves(real: Callable[..., Any]) -> Callable[..., Any]:
    """Commits half of the changes of a time, and the other half later."""

    def update(of: TablePublication, table: Any, published: Time, time_: Time, changes: Any) -> Any:
        cut = changes.num_rows // 2
        real(of, table, published, time_, changes.slice(0, cut))
        time.sleep(HALF_SECONDS)  # not a wait for anything: the moment in which readers find the half
        return real(of, open_table(of.options), time_, time_, changes.slice(cut))

    return update


def main(shard: str, table: str, mode: str) -> None:
    changed_files.FILES_PER_PREFIX_MAX = 2
    if mode == "half":
        TablePublication._update_exactly = in_halves(TablePublication._update_exactly)  # type: ignore[method-assign]
    to = destination(shard, table, retention_hours=0 if mode == "clean" else 24)
    reader, commits, last = to.handles.reader(shard), 0, -1
    print("begin", flush=True)
    while True:
        upper = reader.refresh().upper
        if upper - 1 == last:
            time.sleep(0.005)
            continue
        try:
            last = to.publish(Time(upper - 1), WriterTerm(1)).time
            commits += 1
            if mode == "clean" and commits % 4 == 0:
                to.clean()
        except PersistError as error:
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
