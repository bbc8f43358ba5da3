"""A new operator connects to a replica with all dataflows: `python -m bench.reconnect [--json]`.

    reconciled_s  200 dataflows: from when a new operator knows the replica's address until it knows how far every
                  dataflow is (it describes, chooses as_ofs, greets, replays; the replica compares and goes on), median
    recomputed    dataflows that were hydrated again, in all turns

The replica is a process with its real command loop. Stored plans are installed from memory: the time to read them from
the API server is left out. Between turns the sources tick, and every dataflow must have followed.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.harness.clock import p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.controlled import Controlled, Stored, until
from bench.harness.query import planner
from bench.harness.ratios import Figures, rounded
from bench.views import Tables
from tests.replica.process import ReplicaProcess
from tidemark_operator.controller.frontiers.as_of import AsOfRequest, Input, select_as_of
from tidemark_operator.handlers.revisions.as_of_selection import running_sinces
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.plan.dataflow import DataflowDescription

TABLES, ROWS, BOUND = 10, 10, 3600.0
REPLICA = ReplicaId("r1")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "few dataflows")
    parser.add_argument("--dataflows", type=int, default=200, help="that are installed (%(default)s)")
    parser.add_argument("--turns", type=int, default=7, help="new operators (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(dataflows=6, turns=2)
    circumstances = context() | {"load_before": load(), **vars(given)}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        figures = _measured(Path(scratch), given.dataflows, given.turns)
    report("reconnect", rounded(figures), circumstances | {"load_after": load()}, given.json)


def _measured(folder: Path, dataflows: int, turns: int) -> Figures:
    tables = Tables(folder, TABLES)
    with planner(folder) as plan:
        stored = Stored(_as_of)
        stored.dataflows = tables.views(plan, dataflows)
    (folder / "replica").mkdir()
    process = ReplicaProcess(folder / "replica", "--cores", "2", "--driver-memory", "1g")
    try:
        _, hydrations = asyncio.run(_operate(tables, stored, process.address, term=1))
        progress(f"{dataflows} dataflows are hydrated")
        seconds, recomputed = [], 0
        for turn in range(turns):
            took, now = asyncio.run(_operate(tables, stored, process.address, term=2 + turn))
            seconds.append(took)
            recomputed, hydrations = recomputed + now - hydrations, now
    finally:
        process.close()
    return {"reconciled_s": p50(seconds), "reconciled_max_s": max(seconds), "recomputed": recomputed}


async def _operate(tables: Tables, stored: Stored, address: str, term: int) -> tuple[float, int]:
    """One operator's life: (seconds until all is known, hydrations that the replica has counted at its end)."""
    instance = Controlled(InstanceConfig("bench", "/bench"), stored, term)
    for wanted in stored.dataflows:
        for source in wanted.source_imports:
            instance.core.shards.register(source.shard.shard_id, source.shard.location)
    keeping = asyncio.create_task(instance.keep())
    try:
        began = time.perf_counter()
        instance.attach(REPLICA, address)
        known = await until("reconciliation", lambda: instance.reported(stored.dataflows, 1), BOUND)
        tables.tick(ROWS, tables.now)
        await until("the next tick", lambda: _at(instance, stored) > tables.now, BOUND)
        return known - began, (await instance.describe(()))[1].hydrations
    finally:
        keeping.cancel()
        await instance.close()


def _at(instance: Controlled, stored: Stored) -> int:
    """The upper of the view that is furthest behind."""
    found = (instance.core.dataflows.collection(id) for d in stored.dataflows for id in d.export_ids)
    return min(c.write.encode() if c is not None and c.write is not None else 0 for c in found)


def _as_of(wanted: DataflowDescription, description: Description) -> DataflowDescription:
    """The as_of that the operator chooses: of what runs, where it can be read; else where it was stored to begin."""
    running = tuple(running_sinces(wanted, [description]))
    known = tuple(Input(s.shard.location, None) for s in wanted.source_imports) if running else ()
    return replace(wanted, as_of=select_as_of(AsOfRequest(known, stored=wanted.as_of, running=running)))


if __name__ == "__main__":
    main()
