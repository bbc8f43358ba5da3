"""Names: a model is a Dataflow of its name, and a Dataflow has no underscores and no upper case.

    model Orders_by_day         schema public, identifier orders-by-day       SQL: "orders-by-day"
    source tpch, table nation   schema tpch, identifier nation                SQL: "tpch"."nation"

`public` is the schema of all that dbt creates. The catalogue shows a Dataflow as a schema of its name with one
relation of its name, and SQL takes the name alone for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import Policy

SCHEMA = "public"
"""The schema of models, seeds and tests."""


def dataflow_name(name: str) -> str:
    """The name of the Dataflow of a model."""
    return name.lower().replace("_", "-")


@dataclass(frozen=True, eq=False, repr=False)
class TidemarkRelation(BaseRelation):
    """A model, a seed, stored failures of a test, or a source. The database, which is the namespace, is in no SQL."""

    include_policy: Policy = field(default_factory=lambda: Policy(database=False))
    quote_policy: Policy = field(default_factory=Policy)
    require_alias: bool = False
    """A subquery of `--empty` has no name of its own, so that a model may give it one."""

    @classmethod
    def create(
        cls,
        database: str | None = None,
        schema: str | None = None,
        identifier: str | None = None,
        type: Any = None,
        **more: Any,
    ) -> Self:
        if schema == SCHEMA and identifier:
            identifier = dataflow_name(identifier)
        created: Self = super().create(database, schema, identifier, type, **more)
        return created

    def render(self) -> str:
        """The relation's name in SQL."""
        if self.schema == SCHEMA and self.identifier:
            return str(self.quoted(self.identifier))
        rendered: str = super().render()
        return rendered

    @staticmethod
    def add_ephemeral_prefix(name: str) -> str:
        """The name of a CTE, which SQL takes without quotes."""
        return f"__dbt__cte__{name}".replace("-", "_")

    @property
    def catalogue_schema(self) -> str:
        """The schema in pg_catalog."""
        return str(self.identifier if self.schema == SCHEMA else self.schema)
