"""`python -m tests.postgres_sink.publishing_process FOLDER SINK TERM`: delivers the newest complete time of the view in
the folder, again and again, until it is killed. SINK: encoded."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.postgres_sink.views import COLUMNS, secrets_in
from tidemark_persist import PersistError, open_shard
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.postgres.postgres_destination import PostgresDestination

PAUSE_S = 0.01


def main(folder: Path, sink: PostgresSink, term: int) -> None:
    metadata = ShardMetadata(ShardId("u1"), str(folder / "u1"), COLUMNS)
    destination = PostgresDestination(GlobalId("u/view/1"), metadata, sink, ShardHandles(), secrets_in(folder))
    shard = open_shard(str(folder / "u1"))
    while True:
        try:
            if upper := shard.refresh().upper:
                print(destination.publish(Time(upper - 1), WriterTerm(term)).time, flush=True)
        except PersistError as error:
            print(error, flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), codec.decode(sys.argv[2].encode(), PostgresSink), int(sys.argv[3]))
