"""Maps that macros read, and what a name means: `'revenue'::regclass`, `oid::regtype`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from tidemark_pgwire.catalogue.contents.entries import RESERVED, CatalogueContents, parts_of_name, quoted
from tidemark_pgwire.catalogue.facts import CatalogueError
from tidemark_pgwire.catalogue.system_relations import PG_CATALOG, system_relations
from tidemark_pgwire.catalogue.types import resolved
from tidemark_pgwire.values.system_types import system_types

Pairs = Iterator[tuple[Any, Any]]


def _types(contents: CatalogueContents) -> Pairs:
    for one in system_types().values():
        yield one.oid, one.printed
    for entry in contents.entries:
        yield entry.type, entry.shown_name
        yield entry.array, f"{entry.shown_name}[]"


def _type_oids(contents: CatalogueContents) -> Pairs:
    for one in system_types().values():
        yield from ((one.name, one.oid), (one.printed, one.oid), (f"pg_catalog.{one.name}", one.oid))
    for entry in contents.entries:
        yield from ((entry.full_name, entry.type), (entry.shown_name, entry.type))


def _classes(contents: CatalogueContents) -> Pairs:
    for system in system_relations().values():
        yield system.oid, system.name if system.schema == PG_CATALOG else system.stored_name
    for entry in contents.entries:
        yield entry.oid, entry.shown_name
        for index in entry.indexes:
            yield index.oid, entry.qualified_name(index.name)


def _class_oids(contents: CatalogueContents) -> Pairs:
    """Later ones win: the name that a schema qualifies is never another's."""
    for entry in contents.entries:
        if entry.visible:
            yield quoted(entry.name), entry.oid
    for system in system_relations().values():
        if system.schema == PG_CATALOG:
            yield system.name, system.oid
        yield system.stored_name, system.oid
    for entry in contents.entries:
        yield entry.full_name, entry.oid
        for index in entry.indexes:
            yield f"{quoted(entry.relation.namespace)}.{quoted(index.name)}", index.oid


def _visible(contents: CatalogueContents) -> Pairs:
    for system in system_relations().values():
        yield system.oid, system.schema == PG_CATALOG
    for entry in contents.entries:
        yield entry.oid, entry.visible
        for index in entry.indexes:
            yield index.oid, entry.visible


def _visible_types(contents: CatalogueContents) -> Pairs:
    for one in system_types().values():
        yield one.oid, True
    for entry in contents.entries:
        yield from ((entry.type, entry.visible), (entry.array, entry.visible))


def _index_definitions(contents: CatalogueContents, short: bool = False) -> Pairs:
    for entry, index in contents.indexes:
        name = entry.shown_name if short else entry.full_name
        yield index.oid, contents.index_definition(entry, index, name)


def _index_columns(contents: CatalogueContents) -> Pairs:
    for entry, index in contents.indexes:
        for number, name in enumerate(entry.column_names(index), 1):
            yield f"{index.oid}/{number}", quoted(name)


def _view_definitions(contents: CatalogueContents) -> Pairs:
    """The Dataflow that has the definition: the definition itself may name relations that the user may not see."""
    for entry in contents.entries:
        if entry.kind != "r":
            yield entry.oid, f"-- spec of Dataflow {entry.relation.namespace}"


def _constraint_definitions(contents: CatalogueContents) -> Pairs:
    for entry, index in contents.keys:
        yield index.constraint, contents.constraint_definition(entry, index)


def _function_oids(contents: CatalogueContents) -> Pairs:
    for oid, name in contents.functions.items():
        yield from ((name, oid), (f"pg_catalog.{name}", oid))


def _schema_oids(contents: CatalogueContents) -> Pairs:
    for name, oid in contents.schemas.items():
        yield quoted(name), oid


def _role_oids(contents: CatalogueContents) -> Pairs:
    for oid, name in contents.roles.items():
        yield quoted(name), oid


_LOOKUPS: Mapping[str, tuple[Callable[[CatalogueContents], Pairs], pa.DataType, pa.DataType]] = {
    "class_oids": (_class_oids, pa.string(), pa.int64()),
    "classes": (_classes, pa.int64(), pa.string()),
    "constraint_definitions": (_constraint_definitions, pa.int64(), pa.string()),
    "function_oids": (_function_oids, pa.string(), pa.int64()),
    "functions": (lambda of: iter(of.functions.items()), pa.int64(), pa.string()),
    "index_columns": (_index_columns, pa.string(), pa.string()),
    "index_definitions": (_index_definitions, pa.int64(), pa.string()),
    "reserved": (lambda of: ((word, True) for word in sorted(RESERVED)), pa.string(), pa.bool_()),
    "role_oids": (_role_oids, pa.string(), pa.int64()),
    "roles": (lambda of: iter(of.roles.items()), pa.int64(), pa.string()),
    "schema_oids": (_schema_oids, pa.string(), pa.int64()),
    "schemas": (lambda of: ((oid, name) for name, oid in _schema_oids(of)), pa.int64(), pa.string()),
    "settings": (lambda of: iter(of.settings.items()), pa.string(), pa.string()),
    "short_index_definitions": (partial(_index_definitions, short=True), pa.int64(), pa.string()),
    "type_oids": (_type_oids, pa.string(), pa.int64()),
    "types": (_types, pa.int64(), pa.string()),
    "view_definitions": (_view_definitions, pa.int64(), pa.string()),
    "visible": (_visible, pa.int64(), pa.bool_()),
    "visible_types": (_visible_types, pa.int64(), pa.bool_()),
}


def lookup_of(name: str, contents: CatalogueContents) -> pa.Table:
    """Columns `k` and `v`; each key once."""
    pairs, key_type, value_type = _LOOKUPS[name]
    found = dict(pairs(contents))
    return pa.table({"k": pa.array(found.keys(), key_type), "v": pa.array(found.values(), value_type)})


_REGISTERED: Mapping[str, tuple[Callable[[CatalogueContents], Pairs], str, str]] = {
    "regclass": (_class_oids, "42P01", "relation"),
    "regtype": (_type_oids, "42704", "type"),
    "regproc": (_function_oids, "42883", "function"),
    "regprocedure": (_function_oids, "42883", "function"),
    "regnamespace": (_schema_oids, "3F000", "schema"),
    "regrole": (_role_oids, "42704", "role"),
}


def oid_of_name(type: str, text: str, contents: CatalogueContents, missing: int | None = -1) -> int | None:
    """The oid that `'text'::type` means. `missing`: None, to answer None for a name that nothing has.

    Raises CatalogueError: nothing has the name.
    """
    if text.strip().isdigit() or text.strip() == "-":
        return 0 if text.strip() == "-" else int(text)
    if type not in _REGISTERED:
        raise CatalogueError("0A000", f"names of type {type} are not known here")
    pairs, sqlstate, what = _REGISTERED[type]
    found = dict(pairs(contents))
    name = _folded(text)
    oid = found.get(name)
    if oid is None and type == "regtype":
        system = resolved(text.strip().lower())
        oid = system_types()[system].oid if system else found.get(f"_{name}")
    if oid is None and missing is not None:
        raise CatalogueError(sqlstate, f'{what} "{text[:127]}" does not exist')
    return oid


def _folded(text: str) -> str:
    """A name as `quoted` writes it: folded to lower case unless in quotes."""
    return ".".join(map(quoted, parts_of_name(text))) or text
