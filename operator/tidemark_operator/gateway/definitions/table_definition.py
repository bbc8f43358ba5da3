"""What a caller defines by CREATE TABLE: a DataSource of kind `table` with one table, which has the DataSource's name.

    name, columns, primary key, options      ──► spec of a new DataSource

SQL reads such a table by that one name. A DataSource with several tables is more than the object that SQL names: DROP
TABLE refuses it by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.definitions.definition import (
    COMMON_OPTIONS,
    TABLE,
    Asked,
    Fields,
    fields_of,
    flag,
    require_id,
    require_name,
)
from tidemark_operator.kube.client import DATA_SOURCES, Body, Resource

_OF_TABLE: Fields = {"append_only": flag("appendOnly")}
_OPTIONS: Fields = {**COMMON_OPTIONS, "tick": lambda value: {"tick": value}, **_OF_TABLE}


@dataclass(frozen=True)
class TableDefinition(Asked):
    """`columns`: as the spec has them. `key`: the primary key; empty: none."""

    resource: ClassVar[Resource] = DATA_SOURCES
    columns: tuple[Body, ...]
    key: tuple[str, ...]

    @classmethod
    def parse(cls, request: Any) -> TableDefinition:
        """Raises DefinitionRefused: the name, the id or the action cannot be."""
        require_name(request.name, DATA_SOURCES)
        require_id(request.id)
        if request.action != "create":
            raise DefinitionRefused("0A000", "a table is created and dropped: it is not replaced")
        columns = tuple(_column(column.name, column.type, column.required) for column in request.columns)
        asked = request.namespace, request.name, TABLE, dict(request.options), request.id
        return cls(*asked, columns, tuple(request.key))

    def spec(self, instance: str) -> Body:
        """The spec of a new DataSource. Raises DefinitionRefused: an option is none, or its value cannot be."""
        fields = fields_of(self.options, _OPTIONS)
        of_table = {name: fields.pop(name) for name in ("appendOnly",) if name in fields}
        key: Body = {"primaryKey": list(self.key)} if self.key else {}
        table = {"name": self.name, "columns": list(self.columns), **key, **of_table}
        return {"instance": instance, **fields, "table": {"tables": [table]}}


def _column(name: str, type: str, required: bool) -> Body:
    return {"name": name, "type": type, **({"nullable": False} if required else {})}


def require_only_table(body: Body, table: str) -> None:
    """Check that the DataSource is of kind `table` and has this table alone; empty: any one. Raises
    DefinitionRefused."""
    name, spec = body["metadata"]["name"], body["spec"]
    if "table" not in spec:
        raise DefinitionRefused(
            "42809", f'"{name}" is no table that rows are written into: delete its DataSource with kubectl'
        )
    found = table_names(body)
    if table and table not in found:
        raise DefinitionRefused("42P01", f'table "{name}.{table:.80}" does not exist')
    if len(found) > 1:
        raise DefinitionRefused(
            "0A000", f"DataSource {name} has several tables ({', '.join(found)}): edit or delete it with kubectl"
        )


def table_names(body: Body) -> list[str]:
    """The names of the tables that the spec of a DataSource lists, of whichever kind it is."""
    kinds = (each for each in body["spec"].values() if isinstance(each, dict))
    return [str(table["name"]) for kind in kinds for table in kind.get("tables") or ()]
