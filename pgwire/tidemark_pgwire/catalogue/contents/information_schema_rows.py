"""Rows of information_schema. A materialized view is a VIEW here: SQL's standard has no other word, and clients that
read this schema alone would not find it otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_pgwire.catalogue.contents.entries import OWNER, CatalogueContents, RelationEntry
from tidemark_pgwire.catalogue.contents.relation_rows import type_of
from tidemark_pgwire.catalogue.contents.rows import Row
from tidemark_pgwire.catalogue.system_relations import PG_CATALOG
from tidemark_pgwire.values.system_types import types_by_oid
from tidemark_protocol.types import Column

_BINARY_DIGITS = {"int2": 16, "int4": 32, "int8": 64, "float4": 24, "float8": 53}
_TEXT_OCTETS = 1_073_741_824


def catalog_name(contents: CatalogueContents) -> Iterator[Row]:
    yield {"catalog_name": contents.session.database}


def schemata(contents: CatalogueContents) -> Iterator[Row]:
    for name in contents.schemas:
        yield {"catalog_name": contents.session.database, "schema_name": name, "schema_owner": OWNER}


def enabled_roles(contents: CatalogueContents) -> Iterator[Row]:
    yield {"role_name": contents.session.user}


def tables(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        kind = "BASE TABLE" if entry.kind == "r" else "VIEW"
        yield {**_named(contents, entry), "table_type": kind, "is_insertable_into": "NO", "is_typed": "NO"}


def views(contents: CatalogueContents) -> Iterator[Row]:
    no = dict.fromkeys(
        "is_updatable is_insertable_into is_trigger_updatable is_trigger_deletable is_trigger_insertable_into".split(),
        "NO",
    )
    for entry in contents.entries:
        if entry.kind != "r":
            yield {**_named(contents, entry), "check_option": "NONE", **no}


def columns(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        for number, column in enumerate(entry.relation.columns, 1):
            yield {
                **_named(contents, entry), "column_name": column.name, "ordinal_position": number,
                "is_nullable": "YES" if column.nullable else "NO", **_type(contents, column),
                "dtd_identifier": str(number), "is_self_referencing": "NO", "is_identity": "NO",
                "identity_cycle": "NO", "is_generated": "NEVER", "is_updatable": "NO",
            }  # fmt: skip


def _type(contents: CatalogueContents, column: Column) -> Row:
    type = type_of(column)
    array = type.name.startswith("_")
    row = {
        "data_type": "ARRAY" if array else type.printed, "udt_catalog": contents.session.database,
        "udt_schema": PG_CATALOG, "udt_name": type.name,
    }  # fmt: skip
    return row if array else {**row, **_sizes(column, type.name)}


def _sizes(column: Column, name: str) -> Row:
    if name in _BINARY_DIGITS:
        scale = None if name.startswith("float") else 0
        return {"numeric_precision": _BINARY_DIGITS[name], "numeric_precision_radix": 2, "numeric_scale": scale}
    if name == "numeric":
        return {
            "numeric_precision": column.type.precision, "numeric_precision_radix": 10,
            "numeric_scale": column.type.scale,
        }  # fmt: skip
    if name == "text":
        return {"character_octet_length": _TEXT_OCTETS}
    return {"datetime_precision": 0 if name == "date" else 6} if name in ("date", "timestamp", "timestamptz") else {}


def element_types(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        for number, column in enumerate(entry.relation.columns, 1):
            type = type_of(column)
            if type.name.startswith("_"):
                element = types_by_oid()[type.element]
                yield {
                    "object_catalog": contents.session.database, "object_schema": entry.relation.namespace,
                    "object_name": entry.name, "object_type": "TABLE" if entry.kind == "r" else "VIEW",
                    "collection_type_identifier": str(number), "data_type": element.printed,
                    "udt_catalog": contents.session.database, "udt_schema": PG_CATALOG, "udt_name": element.name,
                    "dtd_identifier": f"a{number}",
                }  # fmt: skip


def table_constraints(contents: CatalogueContents) -> Iterator[Row]:
    for entry, index in contents.keys:
        yield {
            **_constraint(contents, entry, index.name), **_named(contents, entry), "constraint_type": "PRIMARY KEY",
            "is_deferrable": "NO", "initially_deferred": "NO", "enforced": "YES",
        }  # fmt: skip


def key_columns(contents: CatalogueContents) -> Iterator[Row]:
    for entry, index in contents.keys:
        for number, column in enumerate(entry.column_names(index), 1):
            yield {
                **_constraint(contents, entry, index.name), **_named(contents, entry), "column_name": column,
                "ordinal_position": number,
            }  # fmt: skip


def privileges(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        yield {
            **_named(contents, entry), "grantor": OWNER, "grantee": contents.session.user, "privilege_type": "SELECT",
            "is_grantable": "NO", "with_hierarchy": "YES",
        }  # fmt: skip


def column_privileges(contents: CatalogueContents) -> Iterator[Row]:
    for entry, row in zip(contents.entries, privileges(contents), strict=True):
        for column in entry.relation.columns:
            yield {**row, "column_name": column.name}


def _named(contents: CatalogueContents, entry: RelationEntry) -> Row:
    return {
        "table_catalog": contents.session.database, "table_schema": entry.relation.namespace, "table_name": entry.name,
    }  # fmt: skip


def _constraint(contents: CatalogueContents, entry: RelationEntry, name: str) -> Row:
    return {
        "constraint_catalog": contents.session.database, "constraint_schema": entry.relation.namespace,
        "constraint_name": name,
    }  # fmt: skip
