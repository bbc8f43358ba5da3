"""Names of models, and what SQL calls them."""

from __future__ import annotations

import pytest
from dbt.adapters.tidemark import TidemarkAdapter
from dbt.adapters.tidemark.relation import TidemarkRelation, dataflow_name


@pytest.mark.parametrize(
    ("model", "dataflow"), [("orders", "orders"), ("Orders_by_Day", "orders-by-day"), ("a-b_c", "a-b-c")]
)
def test_a_model_has_the_name_of_a_dataflow(model: str, dataflow: str) -> None:
    assert dataflow_name(model) == dataflow
    relation = TidemarkRelation.create(database="team", schema="public", identifier=model)
    assert (relation.identifier, relation.render(), str(relation)) == (dataflow, f'"{dataflow}"', f'"{dataflow}"')
    assert relation.catalogue_schema == dataflow


def test_a_source_keeps_its_name() -> None:
    relation = TidemarkRelation.create(database="team", schema="shop", identifier="Order_lines")
    assert relation.render() == '"shop"."Order_lines"'
    assert relation.catalogue_schema == "shop"


def test_a_subquery_leaves_its_name_to_the_model() -> None:
    assert TidemarkRelation.add_ephemeral_prefix("orders-by-day") == "__dbt__cte__orders_by_day"
    relation = TidemarkRelation.create(schema="public", identifier="a_b", limit=0)
    assert relation.render_limited() == '(select * from "a-b" where false limit 0)'


def test_a_schema_is_not_a_relation() -> None:
    relation = TidemarkRelation.create(database="team", schema="public", identifier="a").without_identifier()
    assert (relation.schema, relation.identifier) == ("public", None)


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "NULL"), ("O'Hara", "'O\\'Hara'"), ("a\\b", "'a\\\\b'"), (7, "'7'"), (True, "'True'"), ("", "''")],
)
def test_cells_of_seeds_are_texts_of_spark(value: object, written: str) -> None:
    assert TidemarkAdapter.spark_literal(value) == written


@pytest.mark.parametrize(
    ("given", "spark"),
    [
        ("varchar(20)", "string"),
        ("TEXT", "string"),
        ("numeric(10, 2)", "decimal(10, 2)"),
        ("float8", "double"),
        ("bigint", "bigint"),
        ("timestamp without time zone", "timestamp_ntz"),
        ("date", "date"),
    ],
)
def test_types_of_seeds_are_those_of_spark(given: str, spark: str) -> None:
    assert TidemarkAdapter.spark_type(given) == spark


def test_options_of_a_model() -> None:
    options = TidemarkAdapter.view_options({"refresh_every": "1h", "adopt": True, "tags": ["x"]}, "materialized_view")
    assert options == {"adopt": "true", "refresh_every": "1h"}
    assert TidemarkAdapter.view_options({"key": ["a", "b"]}, "view") == {"key": "a, b"}
    with pytest.raises(Exception, match="key is of a model that is materialized as a view"):
        TidemarkAdapter.view_options({"key": "a"}, "materialized_view")
