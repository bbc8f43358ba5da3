"""The adapter: which relations and columns there are, and what a model becomes. The statements are in the macros."""

from __future__ import annotations

from typing import Any

from dbt.adapters.base import ConstraintSupport, available
from dbt.adapters.capability import Capability, CapabilityDict, CapabilitySupport, Support
from dbt.adapters.sql import SQLAdapter
from dbt.adapters.tidemark.column import TidemarkColumn
from dbt.adapters.tidemark.connections import TidemarkConnectionManager
from dbt.adapters.tidemark.relation import SCHEMA, TidemarkRelation, dataflow_name
from dbt_common.contracts.constraints import ConstraintType
from dbt_common.exceptions import DbtRuntimeError

OPTIONS = ("instance", "deletion_policy", "adopt", "refresh_every", "refresh_policy", "read_policy_lag")
"""Fields of a model's config that are options of CREATE."""
SPARK_TYPES = {
    "text": "string",
    "varchar": "string",
    "character varying": "string",
    "float8": "double",
    "double precision": "double",
    "float4": "float",
    "real": "float",
    "int2": "smallint",
    "int4": "int",
    "integer": "int",
    "int8": "bigint",
    "bool": "boolean",
    "numeric": "decimal",
    "bytea": "binary",
    "timestamptz": "timestamp",
    "timestamp with time zone": "timestamp",
    "timestamp": "timestamp_ntz",
    "timestamp without time zone": "timestamp_ntz",
}
"""PostgreSQL's names of types, as Spark's dialect has them: seeds are written in it."""


class TidemarkAdapter(SQLAdapter):
    """dbt's adapter of Tidemark."""

    ConnectionManager = TidemarkConnectionManager
    Relation = TidemarkRelation
    Column = TidemarkColumn
    CONSTRAINT_SUPPORT = dict.fromkeys(ConstraintType, ConstraintSupport.NOT_SUPPORTED)
    _capabilities = CapabilityDict(
        {Capability.SchemaMetadataByRelations: CapabilitySupport(support=Support.Unsupported)}
    )

    @classmethod
    def date_function(cls) -> str:
        return "now()"

    @classmethod
    def convert_integer_type(cls, agate_table: Any, col_idx: int) -> str:
        return "bigint"

    @classmethod
    def convert_number_type(cls, agate_table: Any, col_idx: int) -> str:
        kind: str = super().convert_number_type(agate_table, col_idx)
        return "bigint" if kind == "integer" else kind

    @available
    @classmethod
    def dataflow_name(cls, name: str) -> str:
        """The name of the Dataflow of a model."""
        return dataflow_name(name)

    @available
    @classmethod
    def view_options(cls, config: Any, materialized: str) -> dict[str, str]:
        """Options of CREATE by a model's config. Raises DbtRuntimeError: one has no meaning."""
        found = {name: config.get(name) for name in OPTIONS}
        key = config.get("key")
        if key:
            if materialized != "view":
                raise DbtRuntimeError("key is of a model that is materialized as a view; indexes are of either")
            found["key"] = key if isinstance(key, str) else ", ".join(key)
        return {name: _option(value) for name, value in found.items() if value is not None}

    @available
    @classmethod
    def literal(cls, value: Any) -> str:
        """A text of PostgreSQL's dialect."""
        return "'" + str(value).replace("'", "''") + "'"

    @available
    @classmethod
    def spark_literal(cls, value: Any) -> str:
        """A cell of a seed as a text of Spark's dialect, where a backslash escapes what follows it."""
        if value is None:
            return "NULL"
        text = value.isoformat(sep=" ") if hasattr(value, "hour") else str(value)
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    @available
    @classmethod
    def spark_type(cls, name: str) -> str:
        """A type of Spark's dialect, by its name there or in PostgreSQL."""
        base, paren, rest = name.strip().lower().partition("(")
        found = SPARK_TYPES.get(base.strip(), base.strip())
        return found if found == "string" else f"{found}{paren}{rest}"

    @available.parse(lambda *a, **k: [])
    def get_column_schema_from_query(self, sql: str) -> list[TidemarkColumn]:
        """The columns of a query, numeric ones with their digits."""
        _, cursor = self.connections.add_select_query(sql)
        return [TidemarkColumn.of_result(each) for each in cursor.description or ()]

    def _make_match_kwargs(self, database: str, schema: str, identifier: str) -> dict[str, str]:
        if schema == SCHEMA and identifier:
            identifier = dataflow_name(identifier)
        found: dict[str, str] = super()._make_match_kwargs(database, schema, identifier)
        return found

    def drop_schema(self, relation: Any) -> None:
        raise DbtRuntimeError(f"schema {relation.schema}: dbt drops no namespace; drop models one by one")

    def create_schema(self, relation: Any) -> None:
        if relation.schema != SCHEMA:
            raise DbtRuntimeError(f"schema {relation.schema}: there is one schema for models, {SCHEMA}")

    def rename_relation(self, from_relation: Any, to_relation: Any) -> None:
        raise DbtRuntimeError(f"{from_relation}: a Dataflow keeps its name; create one of the other name")

    def truncate_relation(self, relation: Any) -> None:
        raise DbtRuntimeError(f"{relation}: a view has the rows of its query, and is not truncated")

    def valid_incremental_strategies(self) -> list[str]:
        return []


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
