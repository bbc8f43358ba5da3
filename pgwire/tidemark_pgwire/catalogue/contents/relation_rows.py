"""Rows of pg_catalog that follow from the user's relations."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_pgwire.catalogue.contents.entries import (
    OWNER,
    OWNER_OID,
    SCHEMA_OIDS,
    CatalogueContents,
    Index,
    RelationEntry,
)
from tidemark_pgwire.catalogue.contents.rows import Row
from tidemark_pgwire.catalogue.contents.server_rows import OPERATOR_CLASSES
from tidemark_pgwire.catalogue.system_relations import system_relations
from tidemark_pgwire.values.system_types import CatalogueType, system_types
from tidemark_pgwire.values.types import modifier, of_sql
from tidemark_protocol.types import Column

HEAP, BTREE = 2, 403
_OPERATOR_CLASSES = {type: oid for _, oid, _, type in OPERATOR_CLASSES}
"""The oids of operator classes, by the oid of the type that they order."""
_ANY_ARRAY = 2_277


def type_of(column: Column) -> CatalogueType:
    return system_types()[of_sql(column.type).name]


def namespaces(contents: CatalogueContents) -> Iterator[Row]:
    for name, oid in contents.schemas.items():
        yield {"oid": oid, "nspname": name, "nspowner": OWNER_OID}


def system_classes() -> Iterator[Row]:
    for system in system_relations().values():
        yield {
            "oid": system.oid, "relname": system.name, "relnamespace": SCHEMA_OIDS[system.schema],
            "relowner": OWNER_OID, "relam": HEAP if system.kind == "r" else 0, "reltuples": -1.0,
            "relpersistence": "p", "relkind": system.kind, "relnatts": len(system.columns),
            "relispopulated": True, "relreplident": "n",
        }  # fmt: skip


def classes(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        yield _class_of(entry, contents.rights)
        for index in entry.indexes:
            yield _class_of_index(entry, index)


def _class_of(entry: RelationEntry, rights: list[str]) -> Row:
    view = entry.kind == "v"
    return {
        "oid": entry.oid, "relname": entry.name, "relnamespace": entry.schema, "reltype": entry.type,
        "relowner": OWNER_OID, "relam": 0 if view else HEAP, "relfilenode": 0 if view else entry.oid,
        "reltuples": -1.0, "relhasindex": bool(entry.indexes), "relpersistence": "p", "relkind": entry.kind,
        "relnatts": len(entry.relation.columns), "relhasrules": entry.kind != "r", "relispopulated": True,
        "relreplident": "n" if view else "d", "relacl": rights,
    }  # fmt: skip


def _class_of_index(entry: RelationEntry, index: Index) -> Row:
    return {
        "oid": index.oid, "relname": index.name, "relnamespace": entry.schema, "relowner": OWNER_OID, "relam": BTREE,
        "relfilenode": index.oid, "relpages": 1, "reltuples": 0.0, "relpersistence": "p", "relkind": "i",
        "relnatts": len(index.columns), "relispopulated": True, "relreplident": "n",
    }  # fmt: skip


def system_attributes() -> Iterator[Row]:
    types = system_types()
    for system in system_relations().values():
        for number, each in enumerate(system.columns, 1):
            yield _attribute(system.oid, each.name, types[each.type], number, -1, each.nullable)


def attributes(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        for number, column in enumerate(entry.relation.columns, 1):
            yield _attribute_of(entry.oid, column, number, column.nullable)
        for index in entry.indexes:
            for number, place in enumerate(index.columns, 1):
                yield _attribute_of(index.oid, entry.relation.columns[place - 1], number, True)


def _attribute_of(relation: int, column: Column, number: int, nullable: bool) -> Row:
    return _attribute(relation, column.name, type_of(column), number, modifier(column.type), nullable)


def _attribute(relation: int, name: str, type: CatalogueType, number: int, modifier: int, nullable: bool) -> Row:
    return {
        "attrelid": relation, "attname": name, "atttypid": type.oid, "attstattarget": -1, "attlen": type.length,
        "attnum": number, "attndims": int(type.category == "A" and type.name.startswith("_")), "attcacheoff": -1,
        "atttypmod": modifier, "attbyval": type.by_value, "attalign": type.alignment, "attstorage": type.storage,
        "attnotnull": not nullable, "attislocal": True, "attcollation": type.collation,
    }  # fmt: skip


def indexes(contents: CatalogueContents) -> Iterator[Row]:
    for entry, index in contents.indexes:
        types = [type_of(entry.relation.columns[number - 1]) for number in index.columns]
        yield {
            "indexrelid": index.oid, "indrelid": entry.oid, "indnatts": len(index.columns),
            "indnkeyatts": len(index.columns), "indisunique": index.unique, "indisprimary": index.primary,
            "indimmediate": True, "indisvalid": True, "indisready": True, "indislive": True,
            "indkey": list(index.columns), "indcollation": [type.collation for type in types],
            "indclass": [_OPERATOR_CLASSES.get(type.oid, _OPERATOR_CLASSES[_ANY_ARRAY]) for type in types],
            "indoption": [0] * len(index.columns),
        }  # fmt: skip


def constraints(contents: CatalogueContents) -> Iterator[Row]:
    for entry, index in contents.keys:
        yield {
            "oid": index.constraint, "conname": index.name, "connamespace": entry.schema, "contype": "p",
            "convalidated": True, "conrelid": entry.oid, "conindid": index.oid, "confupdtype": " ",
            "confdeltype": " ", "confmatchtype": " ", "conislocal": True, "connoinherit": True,
            "conkey": list(index.columns),
        }  # fmt: skip


def row_types(contents: CatalogueContents) -> Iterator[Row]:
    """The types of the rows of each relation, and of arrays of them."""
    for entry in contents.entries:
        name, size = entry.name, {"typlen": -1, "typalign": "d", "typstorage": "x", "typtypmod": -1}
        shared = {"typnamespace": entry.schema, "typowner": OWNER_OID, "typisdefined": True, "typdelim": ",", **size}
        yield {
            "oid": entry.type, "typname": name, "typtype": "c", "typcategory": "C", "typrelid": entry.oid,
            "typarray": entry.array, "typinput": 2_290, "typoutput": 2_291, "typreceive": 2_402, "typsend": 2_403,
            **shared,
        }  # fmt: skip
        yield {
            "oid": entry.array, "typname": f"_{name}", "typtype": "b", "typcategory": "A", "typelem": entry.type,
            "typinput": 750, "typoutput": 751, "typreceive": 2_400, "typsend": 2_401, "typsubscript": 6_179, **shared,
        }  # fmt: skip


def tables(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        if entry.kind == "r":
            yield {
                "schemaname": entry.relation.namespace, "tablename": entry.name, "tableowner": OWNER,
                "hasindexes": bool(entry.indexes), "hasrules": False, "hastriggers": False, "rowsecurity": False,
            }  # fmt: skip


def views(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        if entry.kind == "v":
            yield {"schemaname": entry.relation.namespace, "viewname": entry.name, "viewowner": OWNER}


def materialized_views(contents: CatalogueContents) -> Iterator[Row]:
    for entry in contents.entries:
        if entry.kind == "m":
            yield {
                "schemaname": entry.relation.namespace, "matviewname": entry.name, "matviewowner": OWNER,
                "hasindexes": bool(entry.indexes), "ispopulated": True,
            }  # fmt: skip


def index_names(contents: CatalogueContents) -> Iterator[Row]:
    for entry, index in contents.indexes:
        yield {
            "schemaname": entry.relation.namespace, "tablename": entry.name, "indexname": index.name,
            "indexdef": contents.index_definition(entry, index, entry.full_name),
        }  # fmt: skip
