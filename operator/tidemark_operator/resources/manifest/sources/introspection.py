"""The operator's knowledge of a namespace as tables: which relations."""

from __future__ import annotations

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.relation_columns import COLUMNS, TABLES
from tidemark_protocol.plan.ingestion import IntrospectionSource, IntrospectionTable


def parse_introspection(fields: Fields) -> IntrospectionSource:
    """The source of `spec.introspection`, by default with all relations that can be tables. Raises InvalidValue."""
    names = fields.texts("relations") or TABLES
    for name in names:
        if name not in TABLES:
            raise InvalidValue(fields.at("relations"), f"{name!r:.80} is not of {', '.join(TABLES)}")
    return IntrospectionSource(tuple(IntrospectionTable(name, COLUMNS[name]) for name in names))
