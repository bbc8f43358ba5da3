"""The controller beside many replicas: `python -m bench.controller [--json]`.

    core              of a processor that the controller's process uses: 1,000 dataflows on each of 50 replicas, each
                      of which reports all of them once a second
    hydrated_s        from when nothing is installed until the controller knows that all are hydrated everywhere
    frontier_delay_s  from when a replica says how far a dataflow is until the controller knows it, 99th percentile

The connections, frames, holds and compaction are those of the operator; the replicas are simulated, by one process
beside it, and speak over a socket.
"""

from __future__ import annotations

import asyncio
import cProfile
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.controlled import LAG_MS, Controlled, DeadlineExceeded, Stored, until
from bench.harness.ratios import Figures, rounded
from bench.harness.simulated import SECONDS, now_ms
from tests.protocol.samples import dataflow
from tidemark_protocol.ids import ReplicaId, ShardId, Time
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata

TABLES, BOUND = 20, 600.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "few dataflows and replicas, some seconds")
    parser.add_argument("--dataflows", type=int, default=1000, help="on every replica (%(default)s)")
    parser.add_argument("--replicas", type=int, default=50, help="of one instance (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="that are measured (%(default)s)")
    parser.add_argument("--profile", type=Path, help="write where the time went to this file")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(dataflows=20, replicas=4, seconds=3.0)
    settings = {name: value for name, value in vars(given).items() if name != "profile"}
    circumstances = context() | {"load_before": load(), **settings}
    with tempfile.TemporaryDirectory(prefix="tm-") as folder, simulated(Path(folder)) as address:
        figures = asyncio.run(_measured(address, given.dataflows, given.replicas, given.seconds, given.profile))
    report("controller", rounded(figures), circumstances | {"load_after": load()}, given.json)


@contextmanager
def simulated(folder: Path) -> Iterator[str]:
    """The replicas' process, for as long as the block lasts."""
    address = f"unix://{folder}/replicas.sock"
    process = subprocess.Popen([sys.executable, "-m", "bench.harness.simulated", "--listen", address, "--outlived"])
    try:
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


async def _measured(address: str, dataflows: int, replicas: int, seconds: float, profile: Path | None) -> Figures:
    stored = Stored(lambda wanted, _: wanted)
    began = Time(now_ms() - 2 * LAG_MS)  # so that compaction goes on from the beginning
    stored.dataflows = [_index(number, began) for number in range(dataflows)]
    instance = Controlled(InstanceConfig("bench", "/bench"), stored)
    for description in stored.dataflows:
        for source in description.source_imports:
            instance.core.shards.register(source.shard.shard_id, source.shard.location)
    for number in range(replicas):
        instance.attach(ReplicaId(f"r{number}"), address)
    start = time.perf_counter()
    keeping = asyncio.create_task(instance.keep())
    try:
        end = await until("hydration", lambda: instance.reported(stored.dataflows, replicas), BOUND, 0.5)
        progress(f"{dataflows} dataflows on {replicas} replicas are hydrated")
        await _caught_up(instance)
        return {**await _watched(instance, seconds, profile), "hydrated_s": end - start}
    finally:
        keeping.cancel()
        await instance.close()


async def _caught_up(instance: Controlled) -> None:
    """Check that reports were taken in time: none is older than the reports' interval."""
    began = time.perf_counter()
    while not instance.delays or max(instance.delays) > SECONDS * 1e3:
        if time.perf_counter() - began > BOUND:
            raise DeadlineExceeded(
                f"reports are late by more than {SECONDS:.0f} s after {BOUND:.0f} s: the controller is overloaded"
            )
        instance.delays.clear()
        await asyncio.sleep(2 * SECONDS)
    progress("reports are taken as they come")


async def _watched(instance: Controlled, seconds: float, profile: Path | None) -> Figures:
    instance.delays.clear()
    profiler = cProfile.Profile() if profile else None
    if profiler is not None:
        profiler.enable()
    spent, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(seconds)
    core = (time.process_time() - spent) / (time.perf_counter() - began)
    if profiler is not None:
        profiler.disable()
        profiler.dump_stats(str(profile))
    delays = np.array(instance.delays) / 1e3
    return {
        "core": core,
        "frontier_delay_s": float(np.percentile(delays, 99)),
        "frontier_delay_p50_s": float(np.percentile(delays, 50)),
        "frontier_delay_max_s": float(delays.max()),
        "frames_per_s": len(delays) / seconds,
    }


def _index(number: int, as_of: Time) -> DataflowDescription:
    """A dataflow of one index, over one of the tables."""
    sample = dataflow(f"view{number}", as_of)
    (source,) = sample.source_imports
    table = f"table{number % TABLES}"
    shard = ShardMetadata(ShardId(table), f"/bench/{table}", source.shard.columns)
    return replace(sample, source_imports=(replace(source, shard=shard),), sink_exports=())


if __name__ == "__main__":
    main()
