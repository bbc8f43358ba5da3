"""The relations of pg_catalog and information_schema that statements can read: names, oids, and columns.

A line of `system_relations.tsv` is a relation of PostgreSQL 15: its name, its oid, its relkind, and its columns as
`NAME TYPE`, with `!` where a column is never NULL. A domain of information_schema stands as the type below it, as the
protocol names it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PG_CATALOG, INFORMATION_SCHEMA = "pg_catalog", "information_schema"


@dataclass(frozen=True)
class SystemColumn:
    """`type`: its name in pg_type."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True)
class SystemRelation:
    schema: str
    name: str
    oid: int
    kind: str
    columns: tuple[SystemColumn, ...]

    @property
    def stored_name(self) -> str:
        """The name of the table in DuckDB."""
        return f"{self.schema}.{self.name}"


@cache
def system_relations() -> Mapping[tuple[str, str], SystemRelation]:
    """The relations by schema and name."""
    lines = files(__package__).joinpath("system_relations.tsv").read_text().splitlines()
    return {(one.schema, one.name): one for one in map(_relation_of, lines)}


def _relation_of(line: str) -> SystemRelation:
    full_name, oid, kind, columns = line.split("\t")
    schema, _, name = full_name.partition(".")
    return SystemRelation(schema, name, int(oid), kind, tuple(_column_of(*c.split(" ")) for c in columns.split(",")))


def _column_of(name: str, type: str) -> SystemColumn:
    return SystemColumn(name, type.removesuffix("!"), not type.endswith("!"))


_FUNCTIONS = {
    "aclexplode": "grantor oid,grantee oid,privilege_type text,is_grantable bool",
    "pg_get_keywords": "word text,catcode char,barelabel bool,catdesc text",
    "pg_listening_channels": "pg_listening_channels text",
    "pg_options_to_table": "option_name text,option_value text",
    "pg_partition_tree": "relid regclass,parentrelid regclass,isleaf bool,level int4",
}


@cache
def table_functions() -> Mapping[str, SystemRelation]:
    """Functions that stand in FROM, by name: relations whose rows do not depend on the arguments."""
    return {name: _relation_of(f"pg_catalog.{name}()\t0\tf\t{columns}") for name, columns in _FUNCTIONS.items()}


def is_system(schema: str, name: str) -> bool:
    """Whether they name a relation of a system schema, also one that is not there."""
    return schema in (PG_CATALOG, INFORMATION_SCHEMA) or (not schema and find("", name) is not None)


def find(schema: str, name: str) -> SystemRelation | None:
    """`schema` may be empty: then it is pg_catalog, which PostgreSQL searches first."""
    return system_relations().get((schema or PG_CATALOG, name))
