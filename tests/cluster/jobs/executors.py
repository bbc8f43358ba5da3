"""A driver in a pod with executors in pods: it repeats a job with an exchange until it is stopped.

    executors_job MASTER NAME=VALUE...     what Spark is told, as the arguments of a replica tell it

The session is a replica's own. Each line of output is one JSON object: a job's result, and who took part in it.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tidemark_replica.spark.session import start_spark


def count_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The number of rows that came here, and the place."""
    count = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"host": [socket.gethostname()], "uid": [os.getuid()], "rows": [count]})


def main(master: str, *settings: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    conf = [(name, value) for name, _, value in (each.partition("=") for each in settings)]
    spark = start_spark(master, "512m", Path("/tmp/scratch"), conf, files=Path("/local"))
    while not ended.is_set():
        rows = spark.range(10_000).selectExpr("id", "id % 16 AS key").repartition(4, "key")
        parts = rows.mapInArrow(count_rows, "host string, uid long, rows long").collect()
        hosts = sorted({part.host for part in parts})
        total, uids = sum(part.rows for part in parts), sorted({part.uid for part in parts})
        print(json.dumps({"rows": total, "hosts": hosts, "uids": uids}), flush=True)
        ended.wait(0.5)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
