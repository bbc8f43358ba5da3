"""A caller's definition: a Dataflow with one view and one export, and the fields of its spec.

    name, kind, sql, dialect, key, options      ──► spec of a new Dataflow, in the short form
                                                ──► patch of one that exists, in whichever form it is

A Dataflow with further views or exports is more than the object that SQL names: it is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.kube.client import DATAFLOWS, Body, Resource
from tidemark_operator.resources.manifest.dataflow import CONTINUAL_TASK, INDEX, MATERIALIZED_VIEW
from tidemark_operator.resources.manifest.meta import GROUP

CHANGED_BY = f"{GROUP}/changed-by"
"""The annotation with the name of the user for whom the gateway wrote the object last."""
CHANGE_ID = f"{GROUP}/change-id"
"""The annotation with the ids of the last KEPT_IDS calls that wrote the object, the last one first."""
MAX_ID, KEPT_IDS = 64, 16
Options = Mapping[str, Callable[[str], Body]]
"""The options, by their names in SQL: each a function from its text to the fields that it puts into a spec."""
TABLE, ADD = "table", "add"
KINDS_OF_SQL = (MATERIALIZED_VIEW, INDEX, TABLE)
KINDS = {
    MATERIALIZED_VIEW: "materialized view",
    INDEX: "view or index",
    CONTINUAL_TASK: "continual task",
    TABLE: "table",
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_BOOLS = {"true": True, "on": True, "false": False, "off": False}


@dataclass(frozen=True)
class Asked:
    """The fields of every definition. `id`: of the call. `options`: fields of the spec by their names in SQL."""

    resource: ClassVar[Resource]
    namespace: str
    name: str
    kind: str
    options: Mapping[str, str]
    id: str

    def annotations(self, caller: str, before: Body | None = None) -> dict[str, str]:
        """The annotations of the write. `before`: the object that is edited."""
        earlier = ids_of(before)[: KEPT_IDS - 1] if before is not None else []
        return {CHANGED_BY: caller, CHANGE_ID: " ".join([self.id, *earlier])}


@dataclass(frozen=True)
class ExportDefinition(Asked):
    """`kind`: materializedView or index. `key`: columns of an index; empty: as the planner chooses."""

    resource: ClassVar[Resource] = DATAFLOWS
    sql: str
    dialect: str
    key: tuple[str, ...]

    @classmethod
    def parse(cls, request: Any) -> ExportDefinition:
        """Raises DefinitionRefused: the name, kind, id or key cannot be."""
        require_name(request.name, DATAFLOWS)
        require_id(request.id)
        if request.kind not in (MATERIALIZED_VIEW, INDEX):
            raise DefinitionRefused("22023", f"kind {request.kind!r:.40} is not of {', '.join(KINDS_OF_SQL)}")
        key = tuple(request.key)
        if key and request.kind != INDEX:
            raise DefinitionRefused("22023", "only a view that is kept as an index has a key")
        asked = request.namespace, request.name, request.kind, dict(request.options), request.id
        return cls(*asked, request.sql, request.dialect, key)

    def spec(self, instance: str) -> Body:
        """The spec of a new Dataflow. Raises DefinitionRefused: an option is none, or its value cannot be."""
        export: Body = {"key": list(self.key)} if self.key else {}
        view = {"sql": self.sql, "dialect": self.dialect, self.kind: export}
        return {"instance": instance, **fields_of(self.options, _OPTIONS), **view}

    def patch(self, body: Body) -> Body:
        """The fields of the spec to merge into a Dataflow that exists. Raises DefinitionRefused: it is another kind of
        object or holds more than one, or an option cannot be."""
        spec = body["spec"]
        require_single(body, self.kind)
        fields: Body = {"dialect": self.dialect, **fields_of(self.options, _OPTIONS)}
        if "sql" in spec:
            return {**fields, "sql": self.sql, **({self.kind: {"key": list(self.key)}} if self.key else {})}
        if self.key:
            raise DefinitionRefused(
                "0A000", f"Dataflow {self.name} has the long form: edit the key of its index with kubectl"
            )
        return {**fields, "views": [{**spec["views"][0], "sql": self.sql}]}


def fields_of(options: Mapping[str, str], known: Options) -> Body:
    """The fields of a spec. Raises DefinitionRefused: an option is none, or its value cannot be."""
    fields: Body = {}
    for option, value in options.items():
        if (put := known.get(option)) is None:
            raise DefinitionRefused("22023", f"option {option!r:.60} is not of {', '.join(known)}")
        fields |= put(value)
    return fields


def ids_of(body: Body) -> list[str]:
    """The ids of the calls that wrote the object, the last one first."""
    found = (body["metadata"].get("annotations") or {}).get(CHANGE_ID) or ""
    return str(found).split()


def is_of(body: Body, definition: Asked) -> bool:
    """Whether an earlier call of the same id wrote the object."""
    return definition.id in ids_of(body)


def require_name(name: str, resource: Resource, of: str = "") -> None:
    """Raises DefinitionRefused: no such object can have the name. `of`: what has the name, if not the object."""
    if _NAME.fullmatch(name) is None:
        raise DefinitionRefused(
            "42602",
            f"{name!r:.80} cannot be the name of a {of or resource.kind}: it has lower-case letters, digits and dashes "
            "(in quotes then), and at most 63 characters",
        )


def require_id(id: str) -> None:
    """Raises DefinitionRefused: a call has no such id."""
    if not 0 < len(id) <= MAX_ID or not id.isalnum():
        raise DefinitionRefused("22023", f"the id of a call has 1 to {MAX_ID} letters and digits")


def require_single(body: Body, kind: str) -> None:
    """Check that the Dataflow holds one view and one export of this kind. Raises DefinitionRefused."""
    spec, name = body["spec"], body["metadata"]["name"]
    exports, views = spec.get("exports") or [spec], spec.get("views") or [spec]
    if len(exports) > 1 or len(views) > 1:
        named = ", ".join(str(each["name"]) for each in (exports if len(exports) > 1 else views))
        raise DefinitionRefused(
            "0A000", f"Dataflow {name} holds more than one object ({named}): edit or delete it with kubectl"
        )
    if kind not in exports[0]:
        found = next((words for each, words in KINDS.items() if each in exports[0]), "object of another kind")
        raise DefinitionRefused("42809", f'"{name}" is no {KINDS[kind]}: it is a {found}')


def flag(field: str) -> Callable[[str], Body]:
    def put(value: str) -> Body:
        if value.lower() not in _BOOLS:
            raise DefinitionRefused("22023", f"{field} is true or false, not {value!r:.40}")
        return {field: _BOOLS[value.lower()]}

    return put


COMMON_OPTIONS: Options = {
    "instance": lambda value: {"instance": value},
    "deletion_policy": lambda value: {"deletionPolicy": value.capitalize()},
    "adopt": flag("adopt"),
}
_OPTIONS: Options = {
    **COMMON_OPTIONS,
    "refresh_every": lambda value: {"refresh": {"every": value}},
    "refresh_policy": lambda value: {"refreshPolicy": value.lower()},
    "read_policy_lag": lambda value: {"readPolicy": {"lag": value}},
}
