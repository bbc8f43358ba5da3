"""`python -m tests.postgres.ingesting_process ROOT SPEC [COPY_S]`: ingests until it is killed.

SPEC: the source, encoded. COPY_S: each table is copied by itself, and takes so many seconds longer.

After an IngestionError it prints the error and begins again, as the ingestion thread of a replica does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tests.postgres.databases import ingester, source_of
from tidemark_protocol.ids import Time
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres import source
from tidemark_replica.storage.postgres.contents import copied_tables
from tidemark_replica.storage.postgres.contents.snapshot import Snapshot

TICK_S = 0.05


def copy_slowly(seconds: float) -> None:
    copy = Snapshot.copy

    def copy_later(self: Snapshot, *args: Any) -> Any:
        time.sleep(seconds)
        return copy(self, *args)

    copied_tables.GROUP_BYTES, source.RETRY_SECONDS = 0, 0.1
    setattr(Snapshot, "copy", copy_later)  # noqa: B010


def main(root: Path, spec: PostgresSource) -> None:
    while True:
        one = ingester(root, spec)
        try:
            one.recover()
            while True:
                if one.tick(Time(int(time.time() * 1000))):
                    print("ticked", flush=True)
                time.sleep(TICK_S)
        except IngestionError as error:
            print(error, flush=True)
        finally:
            source_of(one).close()
        time.sleep(TICK_S)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        copy_slowly(float(sys.argv[3]))
    main(Path(sys.argv[1]), codec.decode(sys.argv[2].encode(), PostgresSource))
