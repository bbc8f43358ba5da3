"""The rows of the system relations that have any. The others are empty: Tidemark has nothing of their kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pyarrow as pa

from tidemark_pgwire.catalogue.contents import information_schema_rows as standard
from tidemark_pgwire.catalogue.contents import relation_rows as relations
from tidemark_pgwire.catalogue.contents import server_rows as server
from tidemark_pgwire.catalogue.contents.entries import CatalogueContents
from tidemark_pgwire.catalogue.contents.rows import Row, table_of
from tidemark_pgwire.catalogue.system_relations import SystemRelation

_ROWS: Mapping[str, Callable[[CatalogueContents], Iterator[Row]]] = {
    "pg_catalog.pg_am": server.access_methods,
    "pg_catalog.pg_attribute": relations.attributes,
    "pg_catalog.pg_class": relations.classes,
    "pg_catalog.pg_collation": server.collations,
    "pg_catalog.pg_constraint": relations.constraints,
    "pg_catalog.pg_database": server.databases,
    "pg_catalog.pg_get_keywords()": server.keywords,
    "pg_catalog.pg_index": relations.indexes,
    "pg_catalog.pg_indexes": relations.index_names,
    "pg_catalog.pg_language": server.languages,
    "pg_catalog.pg_matviews": relations.materialized_views,
    "pg_catalog.pg_namespace": relations.namespaces,
    "pg_catalog.pg_opclass": server.operator_classes,
    "pg_catalog.pg_proc": server.functions,
    "pg_catalog.pg_range": server.ranges,
    "pg_catalog.pg_roles": server.roles,
    "pg_catalog.pg_settings": server.settings,
    "pg_catalog.pg_stat_activity": server.activity,
    "pg_catalog.pg_tables": relations.tables,
    "pg_catalog.pg_tablespace": server.tablespaces,
    "pg_catalog.pg_type": relations.row_types,
    "pg_catalog.pg_user": server.users,
    "pg_catalog.pg_views": relations.views,
    "information_schema.column_privileges": standard.column_privileges,
    "information_schema.columns": standard.columns,
    "information_schema.constraint_column_usage": standard.key_columns,
    "information_schema.element_types": standard.element_types,
    "information_schema.enabled_roles": standard.enabled_roles,
    "information_schema.information_schema_catalog_name": standard.catalog_name,
    "information_schema.key_column_usage": standard.key_columns,
    "information_schema.role_column_grants": standard.column_privileges,
    "information_schema.role_table_grants": standard.privileges,
    "information_schema.schemata": standard.schemata,
    "information_schema.table_constraints": standard.table_constraints,
    "information_schema.table_privileges": standard.privileges,
    "information_schema.tables": standard.tables,
    "information_schema.views": standard.views,
}


_OF_SYSTEM: Mapping[str, Callable[[], Iterator[Row]]] = {
    "pg_catalog.pg_attribute": relations.system_attributes,
    "pg_catalog.pg_class": relations.system_classes,
    "pg_catalog.pg_type": server.system_type_rows,
}
"""Rows about the system itself, which are the same for everybody."""


def rows_of(relation: SystemRelation, contents: CatalogueContents) -> pa.Table:
    rows = _ROWS.get(relation.stored_name)
    made = table_of(relation, rows(contents) if rows else ())
    if relation.stored_name in _OF_SYSTEM:
        return pa.concat_tables([_of_system(relation), made])
    return made


@cache
def _of_system(relation: SystemRelation) -> pa.Table:
    return table_of(relation, _OF_SYSTEM[relation.stored_name]())
