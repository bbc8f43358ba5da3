"""A large file in bounded memory: 200 MB of csv are inserted, then replaced by key (slow)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.tidy.checkout import ROOT

pytestmark = pytest.mark.slow

ROWS = 5_000_000
MEMORY_MB = 900
"""Of a process that imports Arrow and Delta Lake, which take 200 MB before the first row."""


@pytest.mark.parametrize("operation", ["insert", "upsert"])
@pytest.mark.parametrize("table", ["plain", "keyed"])
def test_a_large_call_takes_bounded_memory(tmp_path: Path, table: str, operation: str) -> None:
    """In a process of its own, whose peak counts. The second call of a keyed table meets all rows of the first."""
    if (table, operation) == ("plain", "upsert"):
        pytest.skip("upserts need a primary key")
    program = textwrap.dedent(
        f"""
        import resource, sys
        from pathlib import Path
        from tests.storage.written_tables import Writer
        from tidemark_replica.storage.written.receive import WriteHeader

        writer = Writer(Path({str(tmp_path)!r}))

        def body(name):
            yield b"id,name,price,at\\n"
            for start in range(0, {ROWS}, 10_000):
                lines = (f"{{(id * 7919) % {ROWS}}},{{name}} {{id}},{{id % 1000}}.25,2026-01-31T12:00:00Z\\n"
                         for id in range(start, start + 10_000))
                yield "".join(lines).encode()

        for name in ["first"] + ["second"] * ({operation!r} == "upsert"):
            received = writer.receiver.receive(WriteHeader({table!r}, {operation!r}, "csv", name), body(name))
            pending = writer.inbox.put(received)
            writer.tick()
            assert pending.answer(0).rows == {ROWS}
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        """
    )
    environment = os.environ | {"PYTHONPATH": ":".join([str(ROOT), *sys.path])}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < MEMORY_MB, ran.stdout
