"""The benchmark harness: data, deltas, comparisons and clocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench.harness.answers import MANY, WrongAnswer, check
from bench.harness.cache import cache_folder, cached
from bench.harness.clock import CPU_RESOLUTION_MS, measured, p50, p95
from bench.harness.workload.deltas import deltas
from bench.harness.workload.queries import Query
from bench.harness.workload.tpch import Table, tables
from bench.peers.duckdb_apply import DuckDb

RIGHT: dict[str, list[Any]] = {
    "brand": ["a", "b", None],
    "n": [1, 2, 3],
    "sum": [Decimal("1.50"), Decimal("2.25"), None],
}


def test_the_same_rows_in_another_order_are_the_same_answer() -> None:
    """Order, and a decimal's scale, say nothing."""
    turned = {name: list(reversed(values)) for name, values in RIGHT.items()}
    check("q", pa.table(RIGHT), pa.table(turned | {"sum": [None, Decimal("2.2500"), Decimal("1.5000")]}))


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("a cent more", RIGHT | {"sum": [Decimal("1.51"), Decimal("2.25"), None]}),
        ("NULL for a number", RIGHT | {"sum": [None, Decimal("2.25"), None]}),
        ("another group", RIGHT | {"brand": ["a", "c", None]}),
        ("a row less", {name: values[:2] for name, values in RIGHT.items()}),
        ("a column less", {name: RIGHT[name] for name in ("brand", "n")}),
    ],
)
def test_must_refuse_a_wrong_answer(what: str, wrong: dict[str, list[object]]) -> None:
    """Any difference is refused, whichever side has it."""
    for ours, theirs in ((RIGHT, wrong), (wrong, RIGHT)):
        with pytest.raises(WrongAnswer, match=what):
            check(what, pa.table(ours), pa.table(theirs))


def test_a_decimal_agrees_with_a_double_to_its_last_place() -> None:
    """DuckDB averages decimals as doubles."""
    ours = pa.table({"avg": [Decimal("25.333333")]})
    check("avg", ours, pa.table({"avg": [25.333333333]}))
    with pytest.raises(WrongAnswer):
        check("avg", ours, pa.table({"avg": [25.33334]}))


def test_tables_of_a_size_fit_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """About as many lines as asked for, and every line finds its order, its part and its supplier."""
    monkeypatch.setenv("TIDEMARK_CACHE", str(tmp_path))
    made = tables(6000)
    assert 5400 < made["lineitem"].rows < 6600
    for line, table, key in (
        ("l_orderkey", "orders", "o_orderkey"),
        ("l_partkey", "part", "p_partkey"),
        ("l_suppkey", "supplier", "s_suppkey"),
    ):
        assert values(made["lineitem"], line) <= values(made[table], key)
    assert tables(6000) == made


def values(table: Table, column: str) -> set[object]:
    return {value for batch in table.batches([column]) for value in batch.column(0).to_pylist()}


def test_deltas_lead_duckdb_from_the_base_to_the_last_table(tmp_path: Path) -> None:
    """Base - retractions + insertions = DuckDB's table; half of each delta retracts, and no row is retracted twice."""
    n = 1000
    rows = {"l_orderkey": np.arange(n) // 4, "l_partkey": np.arange(n) % 7, "l_suppkey": np.arange(n)}
    table = pa.table({**rows, "l_linenumber": pa.array(np.arange(n) % 4, pa.int32())})
    pq.write_table(table, tmp_path / "base.parquet", row_group_size=128)
    base = Table(tmp_path / "base.parquet", table.schema)
    all_of_it = Query("all", f"SELECT {', '.join(table.schema.names)} FROM {{lineitem}}")
    duckdb = DuckDb({"lineitem": base}, [all_of_it])
    contents, sizes = counted(table), [10] * 10 + [40] * 5
    for time, (delta, size) in enumerate(zip(deltas(base, sizes), sizes, strict=True)):
        assert delta.rows == size
        updates = delta.updates(time + 1)
        assert sorted(updates["__diff"].to_pylist()) == [-1] * (size // 2) + [1] * (size // 2)
        assert set(updates["__time"].to_pylist()) == {time + 1}
        contents.subtract(counted(delta.retracted))
        assert min(contents.values()) >= 0
        contents.update(counted(delta.inserted))
        duckdb.apply(delta)
    assert +contents == counted(duckdb.answer(all_of_it))
    duckdb.close()


def test_the_same_deltas_may_be_cut_in_two_ways(tmp_path: Path) -> None:
    """The base and the number of rows are the same: ten deltas of 4 are one of 40."""
    table = pa.table({name: np.arange(100) for name in ("l_orderkey", "l_partkey", "l_suppkey")})
    table = table.append_column("l_linenumber", pa.array(np.ones(100), pa.int32()))
    pq.write_table(table, tmp_path / "base.parquet")
    base = Table(tmp_path / "base.parquet", table.schema)
    (whole,), cut = deltas(base, [40]), deltas(base, [4] * 10)
    assert whole.retracted == pa.concat_tables([delta.retracted for delta in cut])
    assert whole.inserted == pa.concat_tables([delta.inserted for delta in cut])


def test_many_rows_are_compared_as_columns() -> None:
    """In any order, to the last digit, whatever width the other engine's decimals have."""
    many = MANY + 1
    ours = pa.table({"k": np.arange(many), "sum": pa.array(np.arange(many)).cast(pa.decimal128(20, 0))})
    theirs = pa.table({"key": ours["k"][::-1], "total": ours["sum"][::-1].cast(pa.decimal128(38, 2))})
    check("q", ours, theirs)
    one_less = theirs.set_column(0, "key", pc.add(theirs["key"], 1))
    for ours_, theirs_ in ((ours, one_less), (ours, theirs.select(["key"])), (ours, theirs.slice(1))):
        with pytest.raises(WrongAnswer, match="q"):
            check("q", ours_, theirs_)


def counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_crash_while_data_are_made_leaves_nothing(tmp_path: Path) -> None:
    """A folder of the cache is there completely or not at all."""

    def fails(folder: Path) -> None:
        (folder / "half").write_text("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path / "data", fails)
    assert list(tmp_path.iterdir()) == []
    made = cached(tmp_path / "data", lambda folder: (folder / "all").touch())
    assert [p.name for p in cached(made, fails).iterdir()] == ["all"]


def test_two_runs_that_make_the_same_data_share_one(tmp_path: Path) -> None:
    """The second run takes the data that the first has made."""

    def overtaken(folder: Path) -> None:
        (folder / "mine").touch()
        cached(tmp_path / "data", lambda other: (other / "theirs").touch())

    assert [p.name for p in cached(tmp_path / "data", overtaken).iterdir()] == ["theirs"]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"TIDEMARK_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c/bench"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/tidemark/bench"),
        ({"HOME": "/h"}, "/h/.cache/tidemark/bench"),
    ],
)
def test_data_are_kept_where_the_environment_says(environ: dict[str, str], folder: str) -> None:
    """Never in the checkout."""
    assert cache_folder(environ) == Path(folder)


def test_percentiles_are_samples() -> None:
    """The p95 of 20 samples is exceeded by one, whatever their order."""
    samples = [float(n) for n in (7, 20, *range(1, 7), *range(8, 20))]
    assert p95(samples) == 19
    assert p50(samples) == 10.5
    assert p95([3.0]) == 3


BURN = "import time\nwhile time.process_time() < 0.2: pass"


def test_a_cost_counts_descendants_that_have_ended() -> None:
    """A grandchild that burns 200 ms of CPU shows."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}], check=True)"
    cost, done = measured(lambda: subprocess.run([sys.executable, "-c", child], check=True))
    assert done.returncode == 0
    assert 200 <= cost.cpu < 5000
    assert cost.wall >= 200


def test_a_cost_counts_descendants_that_live() -> None:
    """A child that goes on after it has burnt 200 ms of CPU shows too, and what it has burnt counts once."""
    waits = f"input()\n{BURN}\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        requests, replies = child.stdin, child.stdout
        assert requests is not None
        assert replies is not None
        requests.write(b"\n")
        cost, _ = measured(
            lambda: (requests.flush(), replies.readline())
        )  # it burns from the flush on, however late we are
        os.kill(child.pid, signal.SIGSTOP)  # on its way to its input it would still take a little
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        idle, _ = measured(lambda: None)
        os.kill(child.pid, signal.SIGCONT)
        requests.close()
    assert 200 - CPU_RESOLUTION_MS <= cost.cpu < 5000
    assert idle.cpu <= CPU_RESOLUTION_MS
