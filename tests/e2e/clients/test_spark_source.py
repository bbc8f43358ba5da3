"""`format("tidemark")` of a real Spark against a real gateway: rows as of one time, and a stream through restarts."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.system import CHECKOUT, System, wait_for
from tidemark.spark import register
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]
COLUMNS = ("o_orderkey", "o_orderstatus", "o_totalprice")
BY_STATUS = "SELECT o_orderstatus AS carrier, count(*) AS flights FROM tpch.orders GROUP BY o_orderstatus"
ORDERS = "SELECT o_orderkey, o_orderstatus, o_totalprice FROM tpch.orders"


@pytest.fixture
def options(system: System, control_plane: ControlPlane) -> dict[str, str]:
    """The options by which a session finds the gateway, all of them texts."""
    wait_for("the source", lambda: _now(system), system.log)
    gateway = str(system.home / "gateway.json")
    return {"gatewayFile": gateway, "namespace": system.namespace, "kubeconfig": str(control_plane.kubeconfig)}


@pytest.fixture
def session(spark: Any) -> Iterator[Any]:
    register(spark)
    return spark


def contents(system: System, at: int) -> Counter[tuple[Any, ...]]:
    """The contents of the table on disk."""
    total: Counter[tuple[Any, ...]] = Counter()
    for row in system.contents("tpch", "orders", at).to_pylist():
        total[tuple(row[column] for column in COLUMNS)] += row["__diff"]
    return +total


def test_rows_are_those_of_one_time(system: System, session: Any, options: dict[str, str]) -> None:
    """The rows are of a table by its name, and of a query, which Spark filters."""
    at = system.query("SELECT count(*) AS n FROM tpch.orders")["as_of"]
    reader = session.read.format("tidemark").options(**options, asOf=str(at))
    rows = [tuple(row[column] for column in COLUMNS) for row in reader.load("tpch.orders").toArrow().to_pylist()]
    assert Counter(rows) == contents(system, at)

    frame = reader.option("query", ORDERS).load().where("o_orderstatus = 'F'")
    found = Counter(tuple(row) for row in frame.collect())
    assert found == Counter({row: n for row, n in contents(system, at).items() if row[1] == "F"})


@pytest.mark.slow
def test_crash_a_stream_has_each_change_once_whatever_is_restarted(
    system: System, session: Any, options: dict[str, str], tmp_path: Path
) -> None:
    """The query is ended and begun anew from its checkpoint, and between two of them the replica is killed. Its sink is
    Spark's own: files, of which a log says which batches they hold."""
    read = session.readStream.format("tidemark").options(**options, readChangeFeed="true", query=ORDERS).load()
    stream = read.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    for kills in (False, True, False):
        if kills:
            (pid,) = system.replica_pids().values()
            os.kill(pid, signal.SIGKILL)
        before = _end(tmp_path)
        wait_for("a later time", lambda before=before: (_now(system) or 0) > before, system.log)
        query = stream.trigger(availableNow=True).start(str(tmp_path / "rows"))
        try:
            query.awaitTermination()
        finally:
            query.stop()
        assert _end(tmp_path) > before

    changes = session.read.parquet(str(tmp_path / "rows")).toArrow().to_pylist()
    total: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        assert change["_change_type"] == ("insert" if change["_diff"] > 0 else "delete")
        total[tuple(change[column] for column in COLUMNS)] += change["_diff"]
    assert +total == contents(system, _end(tmp_path))
    assert len({change["_time"] for change in changes}) > 1


@pytest.mark.slow  # Spark gives the worker of a stream ten seconds to begin, whatever else runs
def test_the_guide_to_spark_is_right(system: System, session: Any, options: dict[str, str], tmp_path: Path) -> None:
    """Its examples run as they stand, but for the address of the gateway and the folder of the target."""
    system.dataflow("delays", BY_STATUS, index={"key": ["carrier"]})
    system.wait_hydrated("delays")
    guide = (CHECKOUT / "docs" / "guides" / "spark.md").read_text().replace("/data/", f"{tmp_path}/")
    examples = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    text, found = re.subn(r"tidemark = \{.*?\n\}\n", f"tidemark = {options!r}\n", "\n".join(examples), flags=re.DOTALL)
    assert found == 1
    names: dict[str, Any] = {"spark": session}
    exec(text, names)
    query = names["query"]
    try:
        written = tmp_path / "delays" / "_spark_metadata" / "0"
        wait_for("the first micro-batch", lambda: written.exists() or query.exception(), system.log)
        assert query.exception() is None
        columns = [field.name for field in names["changes"].schema]
        assert columns == ["carrier", "flights", "_change_type", "_diff", "_time"]
        assert session.read.parquet(str(tmp_path / "delays")).count() >= 2
    finally:
        query.stop()


def _end(folder: Path) -> int:
    """The time up to which the stream has read; -1 before it began."""
    offsets = folder / "checkpoint" / "offsets"
    if not offsets.exists():
        return -1
    last = max((path for path in offsets.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return int(json.loads(last.read_text().splitlines()[-1])["time"])


def _now(system: System) -> int | None:
    done = system.tidemark("query", "SELECT count(*) AS n FROM tpch.orders", "-o", "json", "-n", system.namespace)
    return json.loads(done.stdout)["as_of"] if done.returncode == 0 else None
