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

FEW, MANY = 1_250_000, 5_000_000
GROWTH_MB = 400
"""The most that MANY rows may take beyond FEW. The rows between are 200 MB in Arrow; an upsert that held its call and
what it meets would have them three times."""


@pytest.mark.parametrize("operation", ["insert", "upsert"])
@pytest.mark.parametrize("table", ["plain", "keyed"])
def test_a_large_call_takes_bounded_memory(tmp_path: Path, table: str, operation: str) -> None:
    """The second call of a keyed table meets all rows of the first."""
    if (table, operation) == ("plain", "upsert"):
        pytest.skip("upserts need a primary key")
    few, many = (_peak_mb(tmp_path / str(rows), table, operation, rows) for rows in (FEW, MANY))
    assert many - few < GROWTH_MB, (few, many)


def _peak_mb(folder: Path, table: str, operation: str, rows: int) -> int:
    """The peak of a process that takes a call of so many rows, and again with other names where it is an upsert."""
    folder.mkdir()
    program = textwrap.dedent(
        f"""
        import resource, sys
        from pathlib import Path
        from tests.storage.written.written_tables import Writer
        from tidemark_replica.storage.written.receive import WriteHeader

        writer = Writer(Path({str(folder)!r}))

        def body(name):
            yield b"id,name,price,at\\n"
            for start in range(0, {rows}, 10_000):
                lines = (f"{{(id * 7919) % {rows}}},{{name}} {{id}},{{id % 1000}}.25,2026-01-31T12:00:00Z\\n"
                         for id in range(start, start + 10_000))
                yield "".join(lines).encode()

        for name in ["first"] + ["second"] * ({operation!r} == "upsert"):
            received = writer.receiver.receive(WriteHeader({table!r}, {operation!r}, "csv", name), body(name))
            pending = writer.inbox.put(received)
            writer.tick()
            assert pending.answer(0).rows == {rows}
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        """
    )
    environment = os.environ | {"PYTHONPATH": ":".join([str(ROOT), *sys.path])}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)
