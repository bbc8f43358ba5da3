"""The publication of a view, as manifests write it: the part that replicas get, and the part that makes another
plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.resources.manifests import body
from tests.resources.test_conditions import SERVING
from tidemark_operator.resources.conditions.dataflow import DestinationFacts, dataflow_conditions
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_protocol.plan.plan_features import required_features
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.types import BIGINT, DATE, Column, SqlType


def published(publish: dict[str, Any]) -> Dataflow:
    view = {"instance": "i", "sql": "SELECT 1", "materializedView": {"publish": publish}}
    return Dataflow.parse(body("Dataflow", view, "flow"))


def described(publish: dict[str, Any]) -> PublishedView:
    return published(publish).publishes["flow"].view("/data/t", "ns.flow.flow")


def test_what_is_not_said_needs_no_feature_of_replicas() -> None:
    assert described({}) == PublishedView("/data/t", "ns.flow.flow", 60_000, 24)
    assert required_features(described({})) == frozenset()
    assert published({}).publishes["flow"].history_ms == 420_000


@pytest.mark.parametrize(
    ("publish", "feature"),
    [
        ({"onError": "empty"}, "publishEmptyOnError"),
        ({"changeDataFeed": True}, "publishChangeDataFeed"),
        ({"partitionBy": ["day"]}, "publishPartitions"),
        ({"fileSize": "8Mi"}, "publishFileSize"),
        ({"location": "s3://lake/t"}, "publishLocation"),
        ({"iceberg": {"table": "sales.spent"}}, "publishIceberg"),
    ],
)
def test_each_option_is_another_plan_that_older_replicas_are_not_sent(publish: dict[str, Any], feature: str) -> None:
    assert required_features(described(publish)) == {feature}
    assert spec_digest(published(publish)) != spec_digest(published({}))


def test_partition_columns_are_columns_of_the_view_whose_text_is_exact() -> None:
    types = {"price": "decimal(10,2)", "at": "timestamp", "local": "timestamp_ntz", "share": "double"}
    columns = Column("n", BIGINT), Column("day", DATE), *(Column(n, SqlType.parse(t)) for n, t in types.items())
    told = {
        (): "",
        ("day", "n"): "",
        ("Day",): "partitionBy names Day, which is no column of the view: n, day, price",
        ("price", "at", "local"): "",
        ("share",): "partitionBy names share of type double: a partition column is one of decimal, boolean, ",
    }
    for names, refusal in told.items():
        publish = published({"partitionBy": list(names)}).publishes["flow"]
        assert publish.refusal(columns).startswith(refusal)
        assert bool(publish.refusal(columns)) == bool(refusal)
    assert "all columns" in published({"partitionBy": ["n"]}).publishes["flow"].refusal(columns[:1])


@pytest.mark.parametrize(
    ("type", "exact"), [("decimal(38,18)", True), ("timestamp", True), ("timestamp_ntz", True), ("date", False)]
)
def test_older_replicas_are_not_sent_partition_columns_whose_texts_they_do_not_know(type: str, exact: bool) -> None:
    """They would write one value in several ways, or so that readers of other time zones find another one."""
    view = published({"partitionBy": ["day"]}).publishes["flow"].view("/lake/v", "ns.flow.flow")
    known = view.of_columns((Column("n", SqlType.parse("timestamp")), Column("day", SqlType.parse(type))))
    assert known.exact_texts == exact
    assert required_features(known) == {"publishPartitions"} | ({"publishExactPartitions"} if exact else set())


def test_an_iceberg_table_has_no_two_partition_columns_of_one_decimal_type() -> None:
    """Avro would define the name of their type twice, which readers refuse."""
    columns = [Column(n, SqlType.parse(t)) for n, t in {"a": "decimal(9,2)", "b": "decimal(9,2)", "n": "int"}.items()]
    other = [columns[0], Column("b", SqlType.parse("decimal(9,3)")), columns[2]]
    publish = published({"partitionBy": ["a", "b"]}).publishes["flow"]
    assert publish.refusal(columns) == ""
    mirrored = replace(publish, iceberg="sales.revenue")
    assert "two columns of the same DECIMAL type" in mirrored.refusal(columns)
    assert mirrored.refusal(other) == ""


def test_partitions_of_an_iceberg_table_are_another_plan_than_each_alone() -> None:
    """A replica that knows each of them would name files that lack columns, without their values."""
    columns = Column("n", BIGINT), Column("day", DATE)
    publish = {"partitionBy": ["day"], "iceberg": {"table": "sales.spent"}}
    assert published(publish).publishes["flow"].refusal(columns) == ""
    assert required_features(described(publish)) == {"publishPartitions", "publishIceberg", "publishIcebergPartitions"}


@pytest.mark.parametrize("table", ["spent", "sales.", ".spent", "sales..spent", "sales.sp ent", "sales/spent", "-a.b"])
def test_an_iceberg_table_has_a_namespace(table: str) -> None:
    with pytest.raises(InvalidValue):
        published({"iceberg": {"table": table}})


@pytest.mark.parametrize(("location", "parsed"), [
    ("/lake/spent/", "/lake/spent"), ("file:///lake/sp%65nt", "/lake/spent"), ("s3://lake/a/b/", "s3://lake/a/b"),
])  # fmt: skip
def test_a_location_has_one_form(location: str, parsed: str) -> None:
    assert published({"location": location}).publishes["flow"].location == parsed


@pytest.mark.parametrize("location", [
    "/lake/../etc", "/lake/./a", "/lake//a", "/lake/a b", "/lake/_delta_log", "/lake/_published/a", "/", "lake/a",
    "/etc/tidemark/a", "s3://lake/../a", "s3://lake//a", "s3://LAKE/a", "s3://lake/a?x=1", "gs://lake/a", "s3://u:p@l/a",
    "s3://lake/_tidemark", "file:///lake/%2e%2e/a", "/lake/a%2Fb",
])  # fmt: skip
def test_what_could_mean_another_place_is_refused(location: str) -> None:
    with pytest.raises(InvalidValue):
        published({"location": location})


def test_an_emptied_table_has_a_reason_of_its_own() -> None:
    table = DestinationFacts("x", "published", exists=True, problem="rows in error", reason="ViewInError")
    for given, reason in ((table, "ViewInError"), (replace(table, reason=""), "PublicationFailed")):
        verdict = dataflow_conditions(replace(SERVING, publications=(given,)))[-1]
        assert (verdict.type, verdict.holds, verdict.reason) == ("Published", False, reason)
