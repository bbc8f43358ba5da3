"""`python -m tests.postgres.ingesting_process ROOT SPEC`: ingests until it is killed. SPEC: the source, encoded.

After an IngestionError it prints the error and begins again, as the ingestion thread of a replica does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.postgres.databases import ingester, source_of
from tidemark_protocol.ids import Time
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import PostgresSource
from tidemark_replica.storage.errors import IngestionError

TICK_S = 0.05


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
    main(Path(sys.argv[1]), codec.decode(sys.argv[2].encode(), PostgresSource))
