"""Sinks of views: from manifests to plans, to the addresses that they may have, and to condition Delivered."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.resources.manifests import dataflow
from tests.resources.test_conditions import SERVING
from tests.tidy.checkout import ROOT
from tidemark_operator.handlers.revisions.sink_addresses import without_refused
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_operator.resources.addresses.connections import refusal
from tidemark_operator.resources.conditions.condition import Verdict
from tidemark_operator.resources.conditions.dataflow import DestinationFacts, dataflow_conditions
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, ShardMetadata, SinkExport
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.plan.sinks.postgres import PROGRESS_TABLE, PostgresSink

LEAST = {"host": "db.shop.svc", "database": "shop", "secret": "kept-db", "table": "spent", "key": ["name"]}
SQL = {"sql": "SELECT 1 AS name"}


def parsed(sink: dict[str, Any], **view: Any) -> Dataflow:
    return Dataflow.parse(dataflow({**SQL, "materializedView": {"postgresSink": sink, **view}}))


def the_sink(flow: Dataflow) -> PostgresSink:
    (sinks,) = flow.sinks.values()
    assert sinks.postgres is not None
    return sinks.postgres


def test_a_sink_with_its_defaults() -> None:
    flow = parsed(LEAST)
    sink, name = the_sink(flow), flow.meta.name
    assert (sink.port, sink.schema, sink.every_ms, sink.ssl_mode) == (5432, "public", 0, "verify-full")
    assert sink.owner == f"{flow.meta.namespace}.{name}.{name}"
    assert flow.history_ms == 300_000


def test_a_sink_of_the_long_form() -> None:
    view = {"from": "v", "postgresSink": {**LEAST, "every": "10m", "schema": "kept", "port": 5433}}
    exports = [{"name": "x", "materializedView": view}, {"name": "y", "materializedView": {"from": "v"}}]
    flow = Dataflow.parse(dataflow({"views": [{"name": "v", **SQL}], "exports": exports}))
    assert list(flow.sinks) == ["x"]
    assert the_sink(flow).target == "db.shop.svc:5433/shop kept.spent"
    assert flow.history_ms == 1_500_000


@pytest.mark.parametrize("field", [{"host": "other"}, {"key": ["a"]}, {"every": "1m"}, {"table": "t"}, {"port": 1}])
def test_each_field_has_a_say_in_the_digest(field: dict[str, Any]) -> None:
    assert spec_digest(parsed(LEAST)) != spec_digest(parsed(LEAST | field))


def test_a_view_without_a_sink_keeps_its_digest() -> None:
    assert spec_digest(Dataflow.parse(dataflow({**SQL, "materializedView": {}}))) != spec_digest(parsed(LEAST))
    assert not Dataflow.parse(dataflow({**SQL, "materializedView": {}})).sinks


def described(sink: PostgresSink) -> DataflowDescription:
    shard = ShardMetadata(ShardId("s"), "/data/s", ())
    export = SinkExport(GlobalId("u/x/1"), GlobalId("x"), MaterializedViewSink(shard, None, None, sink))
    return DataflowDescription("x", (), (), (), (), (export,), Time(0))


@pytest.mark.parametrize(
    ("host", "patterns", "may"),
    [
        ("db.shop.svc", ["db.shop.svc:5432"], True),
        ("DB.shop.svc.", ["db.shop.svc"], True),
        ("db.shop.svc", ["db.shop.svc:5433"], False),
        ("db.shop.svc", [], False),
        ("169.254.169.254", ["*"], False),
        ("/var/run/postgresql", ["*", "localhost"], False),
        ("a,b", ["*"], False),
    ],
)
def test_a_sink_is_sent_to_replicas_only_where_its_address_is_allowed(
    host: str, patterns: list[str], may: bool
) -> None:
    """The view goes on without it."""
    sink, allowed = replace(the_sink(parsed(LEAST)), host=host), AllowedHosts.parse(patterns)
    assert (refusal(sink, allowed) == "") is may
    (export,) = without_refused(described(sink), allowed).sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    assert export.sink.postgres == (sink if may else None)


def delivered(*publications: DestinationFacts) -> list[Verdict]:
    facts = replace(SERVING, publications=publications)
    return [verdict for verdict in dataflow_conditions(facts) if verdict.type in ("Delivered", "Published")]


def test_delivered_tells_of_sinks_and_published_of_tables() -> None:
    table, sink = DestinationFacts("x", "published", exists=True), DestinationFacts("x", "postgresSink", exists=True)
    assert [(v.type, v.holds) for v in delivered(table, sink)] == [("Published", True), ("Delivered", True)]
    (verdict,) = delivered(replace(sink, exists=False))
    assert (verdict.holds, verdict.reason) == (False, "NotDeliveredYet")
    (verdict,) = delivered(sink, replace(sink, problem="two rows", reason="KeyNotUnique"))
    assert (verdict.reason, verdict.message) == ("KeyNotUnique", "postgresSink of x: two rows")
    (verdict,) = delivered(replace(sink, problem="away"))
    assert verdict.reason == "DeliveryFailed"


@pytest.mark.parametrize("kind", ["postgres", "kafka"])
def test_each_reason_of_a_sink_is_in_the_reference_and_in_the_guide(kind: str) -> None:
    folder = ROOT / "replica_image/tidemark_replica/sinks" / kind
    texts = (path.read_text() for path in folder.glob("*.py"))
    reasons = {word for text in texts for word in re.findall(r'"((?:[A-Z][a-z]+){2,})"', text)}
    assert {"KeyNotUnique", "ValueNotSupported"} <= reasons
    for page in ("reference/conditions.md", f"guides/{kind}-sink.md"):
        text = (ROOT / "docs" / page).read_text()
        assert {word for word in reasons if f"`{word}`" not in text} == set()


def test_the_guide_creates_the_table_of_progress_as_the_sink_does() -> None:
    guide = (ROOT / "docs/guides/postgres-sink.md").read_text()
    code = (ROOT / "replica_image/tidemark_replica/sinks/postgres/progress.py").read_text()
    (made,) = re.findall(rf"CREATE TABLE kept\.{PROGRESS_TABLE} \((.*?)\);", guide, re.DOTALL)
    (by_code,) = re.findall(r"create table if not exists \{\} \((.*?)\n\)", code, re.DOTALL)
    assert made.lower().split() == by_code.replace("{{}}", "{}").lower().split()


@pytest.mark.parametrize(
    ("patterns", "may"),
    [
        (["k-0.shop.svc", "k-1.shop.svc:9093"], True),
        (["k-0.shop.svc"], False),
        (["*.shop.svc:9092"], False),
        ([], False),
    ],
)
def test_every_broker_of_a_kafka_sink_must_be_allowed(patterns: list[str], may: bool) -> None:
    assert_allowed(KafkaSink(("k-0.shop.svc:9092", "k-1.shop.svc:9093"), "t", ("name",), "o", "p"), patterns, may)


@pytest.mark.parametrize(
    ("url", "patterns", "may"),
    [
        ("https://registry.shop.svc:8081", ["k.shop.svc", "registry.shop.svc"], True),
        ("https://registry.shop.svc:8081", ["k.shop.svc"], False),
        ("http://user:x@k.shop.svc", ["k.shop.svc"], False),
    ],
)
def test_the_registry_of_a_kafka_sink_must_be_allowed(url: str, patterns: list[str], may: bool) -> None:
    sink = KafkaSink(("k.shop.svc:9092",), "t", ("name",), "o", "p", format="avro", registry=url)
    assert_allowed(sink, patterns, may)
    assert "user:x" not in refusal(sink, AllowedHosts.parse(patterns))


def assert_allowed(sink: KafkaSink, patterns: list[str], may: bool) -> None:
    shard = ShardMetadata(ShardId("s"), "/data/s", ())
    export = SinkExport(GlobalId("u/x/1"), GlobalId("x"), MaterializedViewSink(shard, None, None, None, sink))
    description = DataflowDescription("x", (), (), (), (), (export,), Time(0))
    (left,) = without_refused(description, AllowedHosts.parse(patterns)).sink_exports
    assert isinstance(left.sink, MaterializedViewSink)
    assert left.sink.kafka == (sink if may else None)
