"""The numbers of each table of a source that the operator shows: relation, metrics, `frontiers`, status."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.server.test_metrics import fleet
from tests.gateway.source_tables import BEHIND_SECONDS, NAMES, PINNED, REPORTS, registered
from tidemark_operator import metrics
from tidemark_operator.gateway.explanations import why_snapshot
from tidemark_operator.handlers.publish.status_documents import TableStatus, urgent
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.frontiers import frontiers
from tidemark_operator.introspection.relations import rows
from tidemark_operator.kube.cache import Cache
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.ingestion import DeltaSource, FilesSource, PostgresSource, SourceSpec
from tidemark_protocol.plan.kafka import KafkaSource

TABLE = {"namespace": "ns", "instance": "default", "source": "shop"}


def context(ingests: bool = True) -> ReconcileContext:
    there = fleet()
    found = SimpleNamespace(registry=registered(there, ingests), fleet=there, cache=Cache())
    found.running = there.get
    return cast(ReconcileContext, found)


def samples(ingests: bool = True) -> dict[tuple[str, str], list[tuple[float, dict[str, str]]]]:
    """Values and further labels by metric and table."""
    given = context(ingests)
    found: dict[tuple[str, str], list[tuple[float, dict[str, str]]]] = {}
    for metric in metrics.metrics(given.fleet, given.registry):
        for sample in metric.samples if metric.name.startswith("tidemark_source_") else ():
            assert sample.labels.items() >= TABLE.items()
            more = {k: v for k, v in sample.labels.items() if k not in (*TABLE, "table")}
            found.setdefault((metric.name, sample.labels["table"]), []).append((sample.value, more))
    return found


def test_each_table_is_a_row() -> None:
    """A finished table has no lag; what nobody reported is NULL."""
    made = rows(context(), "ns", GlobalId("tidemark_introspection.tables"))
    assert made is not None
    orders, lines = ([v.value for v in row.values] for row in made.rows)
    written, lag = int(str(orders.pop(6))), int(str(orders.pop(7)))

    assert orders == [
        *("shop", "orders", "default", "r1", "1000", "4096", "false", "3", "versions", "40", "2", "true"),
        *("VersionGone: version 7 is gone", "5", "900"),
    ]
    assert lag >= BEHIND_SECONDS * 1000
    assert written > 0
    assert lines == [
        *("shop", "lines", "default", "r1", "7", "64", None, "true", None, None, None, None, "0", "false", None, "0"),
        None,
    ]


def test_each_table_has_its_metrics() -> None:
    """A metric whose value is unknown has no sample, nor has the lag of a finished table."""
    found = samples()
    prefix = "tidemark_source_table_"

    assert found[f"{prefix}rows", "orders"] == [(1000, {})]
    assert found[f"{prefix}bytes", "lines"] == [(64, {})]
    assert found[f"{prefix}behind", "orders"] == [(3, {"unit": "versions"})]
    assert found[f"{prefix}snapshot_ratio", "orders"] == [(0.4, {})]
    assert found[f"{prefix}malformed_records", "orders"] == [(2, {})]
    assert found[f"{prefix}errors", "orders"] == [(5, {})]
    assert [found[f"{prefix}stopped", name] for name in NAMES] == [[(1, {})], [(0, {})]]
    ((lag, _),) = found[f"{prefix}lag_seconds", "orders"]
    assert BEHIND_SECONDS <= lag < BEHIND_SECONDS + 3600
    for missing in ("behind", "snapshot_ratio", "lag_seconds"):
        assert (f"{prefix}{missing}", "lines") not in found


def test_a_suspended_source_raises_no_alarm() -> None:
    """It stands still because somebody asked for that."""
    assert samples(ingests=False) == {}


def test_frontiers_have_the_backlog_of_a_table_in_the_units_of_its_source() -> None:
    """For `kubectl tidemark frontiers`."""
    found = {c.name: c for c in frontiers(context(), "ns", False).collections}
    orders, lines = found["shop.orders"], found["shop.lines"]

    assert (orders.behind, orders.unit, orders.snapshot_percent, orders.stopped) == (3, "versions", 40, True)
    assert not lines.HasField("behind")
    assert not lines.stopped


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (PostgresSource("h", 5432, "d", "s", "p", ()), "its contents are copied (40%), and it stands still until then"),
        (DeltaSource(()), "its contents are copied (40%), and it stands still until then"),
        (FilesSource(()), "DataSource shop: on replica r1; its first rows are read (40%)"),
        (KafkaSource(("b:9092",), ()), "DataSource shop: on replica r1; its first rows are read (40%)"),
    ],
)
def test_why_says_how_the_first_rows_of_its_kind_come(
    source: SourceSpec, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of PostgreSQL or Delta stands still meanwhile; those of files and topics move with each tick."""
    monkeypatch.setattr(why_snapshot, "_conditions", lambda *_: ("", "on replica r1"))
    given = context()
    (state,) = given.registry.sources("ns")
    state.pinned = replace(PINNED, source=source)
    found = why_snapshot.RelationSnapshots(given, "ns")

    assert found["shop.orders"].runs == says
    assert found["shop.lines"].runs == "DataSource shop: on replica r1", "all its first rows are there"


@pytest.mark.parametrize("at", range(len(REPORTS)))
def test_the_status_has_the_report_and_waits_for_the_budget(at: int) -> None:
    """Numbers that move are no reason to write at once: the conditions tell that a table stopped."""
    documents: list[dict[str, Any]] = [
        {"tables": [TableStatus("t", ingested=r).document(0)]} for r in (REPORTS[at], REPORTS[1 - at])
    ]
    assert not urgent(*documents)
    shown = documents[0]["tables"][0]["ingested"]
    if at == 0:
        assert shown == {
            "rows": 1000,
            "bytes": 4096,
            "behind": {"count": 3, "unit": "versions"},
            "snapshotPercent": 40,
            "malformedRecords": 2,
            "stopped": True,
            "lastError": {"message": "VersionGone: version 7 is gone", "count": 5, "at": "1970-01-01T00:00:00Z"},
        }
    else:
        assert shown == {"rows": 7, "bytes": 64, "malformedRecords": 0, "stopped": False}
