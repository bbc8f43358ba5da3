"""The cost of a shard per tick, as the shard ages.

    python -m bench.parts.persist_costs [--commits 10,1000,5000] [--folder DIR]

One writer ticks: 100 rows a commit, maintenance whenever due, the since five ticks behind. At each age it measures
a commit (with and without its share of maintenance), refreshing and listening on a second handle, and opening.
The peer is delta-rs's own `write_deltalake` appending the same rows to a plain Delta table in the same run: no
frontiers, no exclusive commits, checkpoints by its defaults. Prints one JSON object; times are medians in ms.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from tidemark_persist import DIFF, ERROR, TIME, MaintenancePolicy, Shard, create_or_open, open_shard, read_part

ROWS = 100
SAMPLES = 60
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(15, 2))])
PHYSICAL = pa.schema([*COLUMNS, (TIME, pa.int64()), (DIFF, pa.int64()), (ERROR, pa.string())])


def rows(tick: int) -> pa.Table:
    """One tick: half inserts, half retractions of the tick before."""
    half = ROWS // 2
    ids = [tick * half + i for i in range(half)] + [(tick - 1) * half + i for i in range(half)]
    data = {"id": ids, "name": [f"name {i}" for i in ids], TIME: [tick] * ROWS, DIFF: [1] * half + [-1] * half}
    table = pa.table(data).append_column("price", pa.array(ids, pa.decimal128(15, 0)).cast(COLUMNS.field("price").type))
    return table.append_column(ERROR, pa.nulls(ROWS, pa.string())).select(PHYSICAL.names)


def milliseconds(action: Callable[[], object], samples: int = SAMPLES) -> float:
    """The median of some runs."""
    taken = []
    for _ in range(samples):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return round(statistics.median(taken) * 1000, 2)


def tick(shard: Shard) -> None:
    """One commit."""
    now = shard.state().upper
    shard.compare_and_append(rows(now), expected_upper=now, new_upper=now + 1, term=1)


def maintained_tick(shard: Shard) -> None:
    """One commit and what falls due after it."""
    tick(shard)
    if shard.state().upper % 10 == 0:
        shard.downgrade_since(max(0, shard.state().upper - 5))
    for work in shard.maintenance_due():
        shard.run_maintenance(work)


def age(shard: Shard, commits: int) -> float:
    """Tick until there were so many commits. Mean milliseconds per tick, maintenance included."""
    start, first = time.perf_counter(), shard.state().upper
    while shard.state().upper < commits:
        maintained_tick(shard)
    return round((time.perf_counter() - start) * 1000 / max(1, shard.state().upper - first), 2)


def measure(shard: Shard) -> dict[str, float]:
    """The costs at this age."""
    location = shard.location
    reader = open_shard(location)

    def follow() -> None:
        now = reader.state().upper
        shard_upper = reader.refresh().upper
        for part in reader.listen(now, shard_upper):
            for _ in read_part(part):
                pass

    costs = {"open": milliseconds(lambda: open_shard(location), 15), "refresh_idle": milliseconds(reader.refresh)}
    commits, listens = [], []
    for _ in range(12):
        commits.append(milliseconds(lambda: tick(shard), 1))
        listens.append(milliseconds(follow, 1))
    costs["commit_100_rows"] = statistics.median(commits)
    costs["refresh_listen_and_read_one_tick"] = statistics.median(listens)
    upper = shard.state().upper
    costs["commit_empty"] = milliseconds(
        lambda: shard.compare_and_append(
            None, expected_upper=shard.state().upper, new_upper=shard.state().upper + 1, term=1
        ),
        12,
    )
    costs["snapshot"] = milliseconds(lambda: shard.snapshot(upper - 1), 5)
    costs["log_entries"] = len(list((Path(location) / "_delta_log").iterdir()))
    costs["live_files"] = len(shard.snapshot_parts(upper - 1))
    return costs


def peer(folder: Path, commits: int) -> float:
    """delta-rs alone: the median append at this age."""
    location, taken = str(folder / "peer"), []
    for number in range(commits + SAMPLES):
        batch = rows(number)
        start = time.perf_counter()
        write_deltalake(location, batch, mode="append")
        taken.append(time.perf_counter() - start)
    return round(statistics.median(taken[-SAMPLES:]) * 1000, 2)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", default="10,1000,5000")
    parser.add_argument("--peer-commits", type=int, default=1000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        policy = MaintenancePolicy(vacuum_grace_seconds=2, log_retention_seconds=10)
        shard = create_or_open(str(folder / "shard"), COLUMNS, shard_id="bench", policy=policy)
        ages = {}
        for commits in map(int, arguments.commits.split(",")):
            mean = age(shard, commits)
            ages[str(commits)] = {"tick_with_maintenance_mean": mean, **measure(shard)}
        write = peer(folder, arguments.peer_commits)
    finally:
        shutil.rmtree(folder)
    last = ages[arguments.commits.split(",")[-1]]["commit_100_rows"]
    ratio = round(last / write, 2)
    print(json.dumps({"ages": ages, "peer_write_deltalake": write, "commit_to_peer_ratio": ratio}))


if __name__ == "__main__":
    main()
