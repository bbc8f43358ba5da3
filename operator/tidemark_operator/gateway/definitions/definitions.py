"""The writes of CREATE, ALTER and DROP. The operator makes them, as the caller may.

    right: create, patch or delete of this Dataflow or DataSource
        ──► the planner plans the SQL of a view, or refuses it with its position
        ──► one write, with the caller and the call's id in annotations ──► wait? ──► until it serves, or is gone

A call may come twice: the operator may die after the write and before the answer. The id in the annotation shows that a
write was this call's. An edit holds only against the spec that was read: other writers of the spec are a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidemark_operator.catalogue.relations import catalogue, named_alone
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.admission.planner_admission import check_length
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import raise_refusal
from tidemark_operator.gateway.definitions.definition import (
    ADD,
    KINDS_OF_SQL,
    TABLE,
    ExportDefinition,
    is_of,
    require_name,
    require_single,
)
from tidemark_operator.gateway.definitions.readiness import (
    settled,
    until_columns,
    until_gone,
    until_known,
    until_refused,
    until_serving,
)
from tidemark_operator.gateway.definitions.refusals import absent, changed, exists, not_created, of_api_error
from tidemark_operator.gateway.definitions.shared_source import SharedSources, instance_of
from tidemark_operator.gateway.definitions.table_definition import (
    AddedColumns,
    TableDefinition,
    require_only_table,
    require_table,
    table_names,
)
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, ApiError, Body, Conflict
from tidemark_protocol.messages.planning import ExportRequest, PlanRequest, Refused, ViewRequest

CREATED, REPLACED, EXISTS, ABSENT, DELETED = "created", "replaced", "exists", "absent", "deleted"
ACTIONS = ("create", "replace", "createOrReplace", ADD)
ATTEMPTS = 5
AnyDefinition = ExportDefinition | TableDefinition | AddedColumns


@dataclass(frozen=True)
class Defined:
    """The outcome of a definition. `warning`: why statements may not name a table yet, or a dropped one still; empty:
    they may, or may not."""

    outcome: str
    warning: str = ""


class Definitions:
    """The definitions of one gateway. `allowed`: whether there are some, by the operator's --no-definitions."""

    def __init__(self, context: ReconcileContext, limits: GatewayLimits, allowed: bool = True) -> None:
        self._context, self._limits, self._allowed = context, limits, allowed
        self._shared = SharedSources(context, limits)

    async def define(self, access: Access, request: Any) -> Defined:
        """Create or edit the Dataflow, or create the DataSource or add columns to its table.

        Raises:
            DefinitionRefused, StatementRefused: it cannot be as asked. With `wait`, it may be stored.
            WriteUnknown: the API server did not answer.
            Forbidden, TooMany, PlannerUnavailable, ReviewUnavailable: as for a query.
        """
        with self._writing():
            return await self._define(access, request)

    async def drop(self, access: Access, request: Any) -> Defined:
        """Delete the Dataflow or DataSource, whoever created it. Raises as `define`."""
        with self._writing():
            return await self._drop(access, request)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """An ApiError of the block becomes an error that the caller understands. Raises DefinitionRefused: nothing is
        defined by SQL here."""
        if not self._allowed:
            raise DefinitionRefused(
                "0A000",
                "views and tables are not defined by SQL here (--no-definitions of the operator, pgwire.ddl of the "
                "chart): use kubectl",
            )
        try:
            yield
        except ApiError as error:
            raise of_api_error(error) from None

    async def _define(self, access: Access, request: Any) -> Defined:
        if request.action not in ACTIONS or (request.action == ADD and request.kind != TABLE):
            raise DefinitionRefused("22023", f"action {request.action!r:.40} is not of {', '.join(ACTIONS)}")
        check_length(request.sql)
        if request.action == ADD:
            is_new, warning = await self._shared.add(access, request)
            return Defined(CREATED if is_new else EXISTS, warning)
        definition = _parsed(request)
        key = Key(definition.resource, definition.namespace, definition.name)
        found = await self._current_object(access, request, key)
        if found is None and request.action == "replace":
            if request.if_present:
                return Defined(ABSENT)
            raise absent(definition.name, definition.kind)
        taken = await self._is_taken(key) if found is None else request.action == "create"
        is_other = taken and not (found is not None and is_of(found, definition))
        if is_other and not request.if_absent:
            raise exists(definition.name)
        if is_other and found is None:
            return Defined(EXISTS)
        warning = ""
        async with self._hold_waiting_place(access, request.wait or definition.kind == TABLE):
            if found is None:
                assert not isinstance(definition, AddedColumns)  # they need a table
                outcome, written = await self._create(access, definition, key, request)
            elif is_other:
                outcome, written = EXISTS, found
            else:
                outcome, written = await self._edit(access, definition, key, found)
            if isinstance(definition, AddedColumns):
                names = [column["name"] for column in definition.columns]
                table = definition.table_in(written)
                warning = await until_columns(self._context, key, written, table, names, request.wait)
            elif request.wait:
                await until_serving(self._context, key, written, edited=outcome == REPLACED)
            elif definition.kind == TABLE:
                warning = await until_known(self._context, key, written["metadata"]["uid"])
        return Defined(outcome, warning)

    def _hold_waiting_place(self, access: Access, waits: bool) -> AbstractAsyncContextManager[object]:
        """A place among the statements that wait, taken before the write: a caller who gets none has written
        nothing."""
        return self._limits.definitions.hold(access.caller) if waits else nullcontext()

    async def _is_taken(self, key: Key) -> bool:
        """Whether an object of the other kind has the name in SQL. Where both are made at once, the name alone is
        ambiguous, and queries of it are refused."""
        if key.resource == DATA_SOURCES:
            return await self._context.kube.get(DATAFLOWS, key.namespace, key.name) is not None
        source = await self._context.kube.get(DATA_SOURCES, key.namespace, key.name)
        return source is not None and named_alone(key.name, table_names(source)) is not None

    async def _drop(self, access: Access, request: Any) -> Defined:
        if request.kind not in KINDS_OF_SQL:
            raise DefinitionRefused("22023", f"kind {request.kind!r:.40} is not of {', '.join(KINDS_OF_SQL)}")
        resource = DATA_SOURCES if request.kind == TABLE else DATAFLOWS
        require_name(request.name, resource)
        key = Key(resource, request.namespace, request.name)
        relation = f"{key.name}.{request.table}" if request.table else key.name
        found = await self._context.kube.get(resource, key.namespace, key.name)
        stays = await self._shared.check_drop(access, key, request.table, found)
        if found is None or "deletionTimestamp" in found["metadata"]:
            if not (request.repeated or request.if_present):
                raise absent(relation, request.kind)
            if found is None:
                return Defined(DELETED if request.repeated else ABSENT)
        if request.table and "table" in found["spec"] and request.table not in table_names(found):
            if request.repeated or request.if_present:
                return Defined(DELETED if request.repeated else ABSENT)
        elif request.repeated and "deletionTimestamp" not in found["metadata"]:
            raise DefinitionRefused(
                "40001",
                f"the gateway was lost meanwhile, and {resource.kind} {key.name} is there: it may be a new one; run "
                "the statement again to drop it",
            )
        if request.kind != TABLE:
            require_single(found, request.kind)
        elif stays:
            require_table(found, request.table)
            return Defined(DELETED, await self._shared.take(access, key, request.table, found))
        else:
            require_only_table(found, request.table)
        if (reader := await self._reader(key)) is not None:
            raise DefinitionRefused(
                "2BP01", f'cannot drop "{relation}" because Dataflow {reader} reads it: drop that first'
            )
        uid, warning = found["metadata"]["uid"], ""
        async with self._hold_waiting_place(access, request.wait):
            await self._delete(key, found)
            if request.wait:
                await until_gone(self._context, key, uid)
            elif request.kind == TABLE:
                warning = await until_refused(self._context, key, uid)
        return Defined(DELETED, warning)

    async def _delete(self, key: Key, found: Body) -> None:
        """Delete the object as it was checked: one whose spec was edited since then is another statement's to drop."""
        checked, kube = found["metadata"], self._context.kube
        for _ in range(ATTEMPTS):
            version = found["metadata"]["resourceVersion"]
            try:
                await kube.delete(key.resource, key.namespace, key.name, checked["uid"], version=version)
            except Conflict:
                there = await kube.get(key.resource, key.namespace, key.name)
            else:
                return
            if there is None or there["metadata"]["uid"] != checked["uid"] or "deletionTimestamp" in there["metadata"]:
                return  # another statement deleted the object
            if there["metadata"]["generation"] != checked["generation"]:
                break
            found = there
            await asyncio.sleep(0)
        raise changed(key)

    async def _reader(self, key: Key) -> str | None:
        """A Dataflow that reads this one and stays. The registry may know one that was just deleted."""
        for reader in sorted(self._context.registry.users(key), key=str):
            found = await self._context.kube.get(reader.resource, reader.namespace, reader.name)
            if found is not None and "deletionTimestamp" not in found["metadata"]:
                return reader.name
        return None

    async def _current_object(self, access: Access, request: Any, key: Key) -> Body | None:
        """The object as it is, or None, once the caller's right to what becomes of it is known; the end of one that is
        being deleted is waited for."""
        if request.action != "replace":
            await access.check_definition(key.resource, key.namespace, "create")
        if request.action != "create":
            await access.check_definition(key.resource, key.namespace, "patch", key.name)
        return await settled(self._context, self._limits, access.caller, key)

    async def _create(
        self, access: Access, definition: ExportDefinition | TableDefinition, key: Key, request: Any
    ) -> tuple[str, Body]:
        """The outcome, and the object as it is stored."""
        instance = instance_of(self._context, definition, request.instance)
        spec, resource = definition.spec(instance), key.resource
        if isinstance(definition, ExportDefinition):
            await self._plan(access, definition, instance)
        annotations = definition.annotations(access.caller)
        metadata = {"name": key.name, "namespace": key.namespace, "annotations": annotations}
        await access.check_definition(resource, key.namespace, "create")  # planning may have taken minutes
        try:
            return CREATED, await self._context.kube.create(
                resource, key.namespace, {"metadata": metadata, "spec": spec}
            )
        except Conflict as conflict:
            found = await self._context.kube.get(resource, key.namespace, key.name)
            if found is None:  # it is gone again, or something else conflicts
                raise not_created(key, conflict) from None
            if is_of(found, definition):
                return CREATED, found
            if request.if_absent:
                return EXISTS, found
            raise exists(key.name) from None

    async def _edit(self, access: Access, definition: AnyDefinition, key: Key, found: Body) -> tuple[str, Body]:
        """The outcome, and the object as it is stored."""
        if isinstance(definition, TableDefinition):  # CREATE edits no table: an earlier call made it
            return CREATED, found
        if is_of(found, definition):
            return (CREATED if found["metadata"]["generation"] == 1 else REPLACED), found
        if isinstance(definition, AddedColumns) and not definition.new(found):
            return EXISTS, found
        patch, generation = definition.patch(found), found["metadata"]["generation"]
        if isinstance(definition, ExportDefinition):
            await self._plan(access, definition, found["spec"]["instance"])
        await access.check_definition(key.resource, key.namespace, "patch", key.name)  # rights may change, as above
        for _ in range(ATTEMPTS):
            metadata = {
                "resourceVersion": found["metadata"]["resourceVersion"],
                "annotations": definition.annotations(access.caller, found),
            }
            changes = {"metadata": metadata, "spec": patch}
            try:
                return REPLACED, await self._context.kube.patch(key.resource, key.namespace, key.name, changes)
            except Conflict:
                there = await self._context.kube.get(key.resource, key.namespace, key.name)
            if there is None:
                raise absent(key.name, definition.kind)
            if (there["metadata"]["uid"], there["metadata"]["generation"]) != (found["metadata"]["uid"], generation):
                break  # another writer edited the spec; a status or a finalizer is no conflict
            found = there
            await asyncio.sleep(0)
        raise changed(key)

    async def _plan(self, access: Access, definition: ExportDefinition, instance: str) -> None:
        """Refuse what the planner refuses before anything is written. Its inputs may change until it is planned again,
        and then its conditions tell."""
        registry, namespace, name = self._context.registry, definition.namespace, definition.name
        dataflows = registry.dataflows(namespace)
        sources, sql = registry.sources(namespace), definition.sql
        known = catalogue(sources, dataflows, without=name, instance=instance, named_in=sql)
        views = (ViewRequest(name, sql),)
        exports = (ExportRequest(name, definition.kind, name, definition.key or None),)
        request = PlanRequest(name, views, exports, known, "", definition.dialect)
        ask = partial(self._context.planner.plan, request, patient=True)
        planned = await self._limits.planner.plan(access.caller, namespace, sql, ask)
        if isinstance(planned, Refused):
            await raise_refusal(access, namespace, planned)


def _parsed(request: Any) -> AnyDefinition:
    """Raises DefinitionRefused."""
    if request.kind != TABLE:
        return ExportDefinition.parse(request)
    return AddedColumns.parse(request) if request.action == "replace" else TableDefinition.parse(request)
