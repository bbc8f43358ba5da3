"""The whole system under a fast tick: after warming up, nothing grows but files that are kept for a while.

Files that are kept for a while (the shards' log, files that compaction replaced) stay for a quarter of an hour, and go
by rounds that are tested with forced ticks (`test_shards_bounded.py`); here the files that are alive are counted. For
the table of everything, over as long as you like, run `python -m tests.soak.growth`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.system import System, running
from tests.soak.folders import shards
from tests.soak.growth import Places, Sample, watch
from tests.soak.table import per_hour, render
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_persist import open_shard

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

MINUTES = 6.0
EVERY_SECONDS = 15.0
FAST = {"scaleFactor": 0.001, "transactionsPerSecond": 50}
VIEWS = {
    "revenue": (
        "SELECT c.c_nationkey, count(*) AS orders, sum(l.l_extendedprice) AS price FROM tpch.orders o "
        "JOIN tpch.lineitem l ON l.l_orderkey = o.o_orderkey JOIN tpch.customer c ON c.c_custkey = o.o_custkey "
        "GROUP BY c.c_nationkey"
    ),
    "flags": "SELECT l_returnflag, avg(l_quantity) AS mean, count(*) AS items FROM tpch.lineitem GROUP BY 1",
    "idle": "SELECT n_name FROM tpch.nation WHERE n_regionkey = 1",
}

# since trails upper by the read policy of 60 s; it is lowered every 10 s; the rest is a busy machine
SINCE_SECONDS_MAX = 60 + 10 + 60
# the least of what compaction leaves: runs of one tier below the threshold, for each tier
LIVE_FILES_MAX = 40
# at most one write per object per 5 s, and conditions at once
WRITES_PER_OBJECT_PER_HOUR_MAX = 900
# far above what fluctuates in minutes, far below what a leak at every tick, or every step, comes to
GROWTH_PER_HOUR_MAX = {
    "replica: threads": 300.0,
    "replica: open files": 300.0,
    "replica: rss MiB": 2000.0,
    "operator: threads": 100.0,
    "operator: open files": 100.0,
    "operator: rss MiB": 100.0,
    "planner: rss MiB": 100.0,
    "workers: processes": 60.0,
    "objects: events": 60.0,
    "objects: controllerrevisions": 0.5,
    "arrangements: files": 3000.0,
    "step folders": 300.0,
    "scratch/spark: files": 600.0,
    "logs KiB": 600.0,
}


@pytest.fixture(scope="module")
def system(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A source of ten ticks a second, a join, an aggregate, an index, and a view of what never changes."""
    namespace = f"soak-{secrets.token_hex(4)}"
    control_plane.kubectl("create", "namespace", namespace)
    with running(control_plane, namespace, tmp_path_factory.mktemp("soak")) as system:
        system.base()
        system.apply("DataSource", "tpch", {"instance": "default", "tick": "100ms", "loadGenerator": {"tpch": FAST}})
        for name, sql in VIEWS.items():
            system.dataflow(name, sql, **({"index": {"key": ["l_returnflag"]}} if name == "flags" else {}))
        system.wait_hydrated(*VIEWS)
        yield system
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="module")
def samples(system: System) -> Sequence[Sample]:
    """Taken while it runs."""
    places = Places(system.home, system.home / "operator", system.shards, system.plane)
    return list(watch(places, MINUTES, EVERY_SECONDS))


def test_memory_threads_and_files_of_a_process_do_not_grow(samples: Sequence[Sample]) -> None:
    """Threads, files, memory of small processes, state on disk: the slope of the second half."""
    grown = {name: per_hour(samples, name) for name in GROWTH_PER_HOUR_MAX}
    assert {n: g for n, g in grown.items() if g > GROWTH_PER_HOUR_MAX[n]} == {}, "\n" + render(samples)


def test_arrangements_hold_few_files(samples: Sequence[Sample]) -> None:
    """Whatever merges replaced is gone from scratch at once: no sweep is waited for."""
    names = {n for s in samples for n in s if n.startswith("arrangement ") and n.endswith(": files")}
    assert names
    assert {n: s[n] for s in samples for n in names if s.get(n, 0) > LIVE_FILES_MAX} == {}, "\n" + render(samples)


def test_sinces_follow_the_clock_everywhere(samples: Sequence[Sample]) -> None:
    """The rule holds for tables that views read, tables nobody reads, remaps and views."""
    assert samples[-1]["shards, worst: since s ago"] <= SINCE_SECONDS_MAX, "\n" + render(samples, everything=True)


def test_live_files_of_every_shard_are_few(system: System, samples: Sequence[Sample]) -> None:
    """Six minutes at ten ticks a second are 3600 appends."""
    del samples  # only so that it has run for that long
    live: dict[str, int] = {}
    for location in shards(system.shards):
        shard = open_shard(str(location))
        live[_name(system.shards, location)] = len(shard.snapshot_parts(shard.refresh().upper - 1))
    assert {name: count for name, count in live.items() if count > LIVE_FILES_MAX} == {}


def test_statuses_keep_to_their_budget(samples: Sequence[Sample]) -> None:
    """However fast the source ticks."""
    for kind, objects in (("dataflows", len(VIEWS)), ("datasources", 1)):
        assert per_hour(samples, f"writes: {kind}/status") <= objects * WRITES_PER_OBJECT_PER_HOUR_MAX


def _name(root: Path, shard: Path) -> str:
    return str(shard.relative_to(root))
