"""A caller's definition by CREATE TABLE: a table of a DataSource of kind `table`; by ALTER TABLE: further columns.

    name, columns, primary key, options         ──► spec of a new DataSource, whose one table has its name
    name, table, columns, primary key, options  ──► spec of a new DataSource, or patch of one that exists
    name, table, columns                        ──► patch of one that exists

A name alone is the DataSource with its one table: DROP TABLE of one with several is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark_operator.catalogue.relations import named_alone
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.definitions.definition import (
    ADD,
    COMMON_OPTIONS,
    TABLE,
    Asked,
    Options,
    fields_of,
    flag,
    require_id,
    require_name,
)
from tidemark_operator.kube.client import DATA_SOURCES, Body, Resource
from tidemark_operator.resources.manifest.durations import duration_ms
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields

_OF_TABLE: Options = {"append_only": flag("appendOnly")}
MAX_TABLES = 32
"""The tables of a spec, at most."""
_OPTIONS: Options = {**COMMON_OPTIONS, "tick": lambda value: {"tick": value}, **_OF_TABLE}


@dataclass(frozen=True)
class TableDefinition(Asked):
    """`columns`: as the spec has them. `key`: the primary key; empty: none. `table`: of the DataSource `name`, which
    may have others; empty: its only one, of its name."""

    resource: ClassVar[Resource] = DATA_SOURCES
    columns: tuple[Body, ...]
    key: tuple[str, ...]
    table: str = ""

    @classmethod
    def parse(cls, request: Any) -> TableDefinition:
        """Raises DefinitionRefused: the name, the id or the action cannot be."""
        require_name(request.name, DATA_SOURCES)
        require_id(request.id)
        if request.action not in ("create", ADD):
            raise DefinitionRefused("0A000", "a table is created, gets columns, and is dropped: it is not replaced")
        if request.action == ADD:
            require_name(request.table, DATA_SOURCES, "table")
        columns = tuple(_column(column.name, column.type, column.required) for column in request.columns)
        asked = request.namespace, request.name, TABLE, dict(request.options), request.id
        return cls(*asked, columns, tuple(request.key), request.table if request.action == ADD else "")

    def spec(self, instance: str) -> Body:
        """The spec of a new DataSource. Raises DefinitionRefused: an option is none, or its value cannot be."""
        fields, entry = self._options_and_entry()
        return {"instance": instance, **fields, "table": {"tables": [entry]}}

    def has_table(self, body: Body) -> bool:
        """Whether the DataSource has a table of this name. Raises DefinitionRefused: rows are not written to it."""
        _require_written(body)
        return self.table in table_names(body)

    def patch(self, body: Body) -> Body:
        """The fields of the spec to merge into a DataSource that lacks the table. Raises DefinitionRefused: an option
        cannot be, or the DataSource has another value, or it has too many tables."""
        fields, entry = self._options_and_entry()
        spec, tables = body["spec"], body["spec"]["table"]["tables"]
        if fields.pop("adopt", False):
            text = f"DataSource {self.name} is there, and a table that is added to it is empty: leave out the option"
            raise DefinitionRefused("22023", f"{text} adopt")
        for field, value in fields.items():
            if not _is_same(field, value, spec.get(field)):
                text = (
                    f"DataSource {self.name} is there, with {field} {spec.get(field, 'not set')}: leave out the option"
                )
                is_fixed = field in ("instance", "tick")  # a rule of the CRD
                text += ", or create a DataSource of another name" if is_fixed else ", or edit it by kubectl"
                raise DefinitionRefused("22023", text)
        if len(tables) >= MAX_TABLES:
            text = f"DataSource {self.name} has {MAX_TABLES} tables, as many as it may have: create another one"
            raise DefinitionRefused("54000", text)
        return {"table": {"tables": [*tables, entry]}}

    def _options_and_entry(self) -> tuple[Body, Body]:
        """The options of the DataSource, and the entry of the table in it."""
        fields = fields_of(self.options, _OPTIONS)
        of_table = {name: fields.pop(name) for name in ("appendOnly",) if name in fields}
        key: Body = {"primaryKey": list(self.key)} if self.key else {}
        return fields, {"name": self.table or self.name, "columns": list(self.columns), **key, **of_table}


@dataclass(frozen=True)
class AddedColumns(Asked):
    """`table`: of the DataSource `name`; empty: the one that the name alone means. `if_absent`: a column that exists is
    left out."""

    resource: ClassVar[Resource] = DATA_SOURCES
    table: str
    columns: tuple[Body, ...]
    if_absent: bool

    @classmethod
    def parse(cls, request: Any) -> AddedColumns:
        """Raises DefinitionRefused: the name, the id or a column cannot be."""
        require_name(request.name, DATA_SOURCES)
        require_id(request.id)
        if request.options or request.key or not request.columns:
            raise DefinitionRefused("0A000", "a table gets columns, and nothing else of it is edited")
        if required := [column.name for column in request.columns if column.required]:
            text = f'column "{required[0]:.80}" cannot be NOT NULL: the rows that are there have no value for it'
            raise DefinitionRefused("0A000", text)
        columns = tuple(_column(column.name, column.type, False) for column in request.columns)
        asked = request.namespace, request.name, TABLE, dict(request.options), request.id
        return cls(*asked, request.table, columns, request.if_absent)

    def table_in(self, body: Body) -> str:
        """The name of the table in the spec. Raises DefinitionRefused: there is none, or rows are not written to it."""
        _require_written(body)
        found = table_names(body)
        table = self.table or named_alone(self.name, found)
        if table is None:
            text = f"DataSource {self.name} has several tables ({', '.join(found)}): write {self.name}.TABLE"
            raise DefinitionRefused("42P09", text)
        if table not in found:
            raise DefinitionRefused("42P01", f'table "{self.name}.{table:.80}" does not exist')
        return table

    def new(self, body: Body) -> list[Body]:
        """The columns that the table has not; SQL ignores upper and lower case. Raises DefinitionRefused."""
        table = self.table_in(body)
        known = {each["name"].lower() for each in entries(body)[table]["columns"]}
        there = [column["name"] for column in self.columns if column["name"].lower() in known]
        if there and not self.if_absent:
            relation = self.name if table == self.name else f"{self.name}.{table}"
            raise DefinitionRefused("42701", f'column "{there[0]:.80}" of relation "{relation}" already exists')
        return [column for column in self.columns if column["name"] not in there]

    def patch(self, body: Body) -> Body:
        """The fields of the spec to merge. Raises DefinitionRefused, as `new`."""
        new, tables, table = self.new(body), entries(body), self.table_in(body)
        tables[table] = {**tables[table], "columns": [*tables[table]["columns"], *new]}
        return {"table": {"tables": list(tables.values())}}


def entries(body: Body) -> dict[str, Body]:
    """The tables of a DataSource whose rows are written, as its spec has them, by name."""
    return {each["name"]: each for each in body["spec"]["table"]["tables"]}


def _is_same(field: str, value: str, found: str | None) -> bool:
    """Whether the value of an option means what the spec has."""
    if field != "tick" or found is None:
        return value == found
    try:
        asked, there = (duration_ms(Fields({field: text}, ""), field) for text in (value, found))
    except InvalidValue:
        return False
    return asked == there


def _column(name: str, type: str, required: bool) -> Body:
    return {"name": name, "type": type, **({"nullable": False} if required else {})}


def require_only_table(body: Body, table: str) -> None:
    """Check that the DataSource is of kind `table` and has this table alone; empty: any one. Raises
    DefinitionRefused."""
    require_table(body, table)
    name, found = body["metadata"]["name"], table_names(body)
    if len(found) > 1:
        text = f"DataSource {name} has several tables ({', '.join(found)}): write {name}.TABLE"
        raise DefinitionRefused("0A000", text)


def require_table(body: Body, table: str) -> None:
    """Check that the DataSource is of kind `table` and has this table; empty: any one. Raises DefinitionRefused."""
    _require_written(body)
    if table and table not in table_names(body):
        raise DefinitionRefused("42P01", f'table "{body["metadata"]["name"]}.{table:.80}" does not exist')


def _require_written(body: Body) -> None:
    name = body["metadata"]["name"]
    if "table" not in body["spec"]:
        text = f'"{name}" is no table that rows are written into: edit or delete its DataSource with kubectl'
        raise DefinitionRefused("42809", text)


def table_names(body: Body) -> list[str]:
    """The names of the tables that the spec of a DataSource lists, of whichever kind it is."""
    kinds = (each for each in body["spec"].values() if isinstance(each, dict))
    return [str(table["name"]) for kind in kinds for table in kind.get("tables") or ()]
