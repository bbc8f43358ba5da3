"""Long histories, and ingesters that are killed with SIGKILL while upstream commits."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.storage.delta.delta_tables import Upstream, bound_versions, check, ingester, spec_of, tick
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import DeltaTable

pytestmark = pytest.mark.slow

LOOP = """
import sys
from pathlib import Path
from tests.storage.delta.delta_tables import ingester
from tidemark_persist import open_shard
from tidemark_protocol.ids import Time
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import DeltaSource
from tidemark_replica.storage.delta import changes
changes.TWICE_BYTES = int(sys.argv[3])
root = Path(sys.argv[1])
one = ingester(root, codec.decode(Path(sys.argv[2]).read_bytes(), DeltaSource))
one.recover()
tick = (open_shard(f"{root}/remap").state().upper // 100 + 1) * 100
while True:
    print("all before", tick, flush=True)
    one.tick(Time(tick))
    one.compact_remap()
    for shard in one.shards():
        for work in shard.maintenance_due():
            shard.run_maintenance(work)
    tick += 100
"""


@pytest.mark.parametrize("seed", range(5))
def test_crash_sigkill_while_upstream_commits(tmp_path: Path, seed: int) -> None:
    """Forty kills a seed, at random moments, of a process that ingests as fast as it can. In some, files that may
    cancel are read twice, as those of large tables are."""
    moments = random.Random(seed)
    up = [Upstream(tmp_path / "up" / name, seed + n, n == 0, seed % 2 == n) for n, name in enumerate("ab")]
    spec = spec_of(*(DeltaTable(name, table.path) for name, table in zip("ab", up, strict=True)))
    (tmp_path / "spec").write_bytes(codec.encode(spec))
    for _ in range(40):
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(tmp_path), str(tmp_path / "spec"), "-1" if seed % 2 else "1000000"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        for _ in range(moments.randrange(1, 4)):
            assert process.stdout.readline().startswith(b"all before")
            moments.choice(up).step()
        time.sleep(moments.uniform(0.0, 0.1))  # not a wait for anything: the moment of death
        process.send_signal(signal.SIGKILL)
        process.wait()
    last = ingester(tmp_path, spec)
    last.recover()
    tick(last, 10**9)
    tick(last, 2 * 10**9)

    for name, table in zip("ab", up, strict=True):
        assert max(bound_versions(tmp_path, name).values()) == table.table.version()
    check(tmp_path, spec)
