"""`python -m tests.storage.dying_steps KIND ROOT SPEC STEP`: ingests some ticks, and dies by SIGKILL at a step of them.

Steps are counted from 0: the begin and the end of each call of the source by the ingester, of each append, and of each
data file that is written, and each batch of its rows. Without so many steps, the process ends well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from tidemark_persist.files import staging
from tidemark_protocol.ids import Time
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import DeltaSource, PostgresSource
from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_replica.storage.ingester import Ingester

SOURCES: dict[str, Any] = {"delta": DeltaSource, "postgres": PostgresSource, "kafka": KafkaSource}
TICKS = 4


def dies(kind: str, root: Path, spec: Any, step: int) -> bool:
    """Runs the process above. Returns whether it died."""
    command = [sys.executable, "-m", __name__, kind, str(root), codec.encode(spec).decode(), str(step)]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert ended.returncode in (0, -signal.SIGKILL)
    return ended.returncode != 0


def die_at(one: Ingester, step: int) -> None:
    """The process dies at the step, of those that begin now."""
    numbers, lock = count(), Lock()

    def passed() -> None:
        with lock:
            if next(numbers) == step:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def calling(*arguments: Any, **more: Any) -> Any:
            passed()
            found = call(*arguments, **more)
            passed()
            return found

        setattr(owner, name, calling)

    write_file = staging.write_file

    def each(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            passed()
            yield batch

    setattr(staging, "write_file", lambda at, batches, *more: write_file(at, each(batches), *more))  # noqa: B010
    counted(staging, "write_file")
    counted(one, "_append")
    for name in ("discover", "confirm", "stage"):
        counted(one._source, name)


def ingester_of(kind: str, root: Path, spec: Any) -> Ingester:
    if kind == "delta":
        from tests.storage.delta import delta_tables

        return delta_tables.ingester(root, spec)
    if kind == "kafka":
        from tests.kafka import topics

        return topics.ingester(root, spec)
    from tests.postgres import databases

    return databases.ingester(root, spec)


def main(kind: str, root: Path, spec: Any, step: int) -> None:
    one = ingester_of(kind, root, spec)
    one.recover()
    die_at(one, step)
    for _ in range(TICKS):
        one.tick(Time(int(one.shards()[0].state().upper) // 100 * 100 + 100))
    os._exit(0)  # no client of the source is waited for


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), codec.decode(sys.argv[3].encode(), SOURCES[sys.argv[1]]), int(sys.argv[4]))
