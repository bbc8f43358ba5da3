"""CREATE TABLE and DROP TABLE of a table by its full name, `source.table`: statements share the DataSource.

    CREATE   no DataSource    ──► create: one with this table                     right: create
             one without it   ──► patch: its tables and this one                  right: patch
             one that has it  ──► nothing: by this call, or IF NOT EXISTS         right: create or patch
    DROP     it has others    ──► patch: its tables without this one              right: patch
             its only one     ──► delete, as by the name alone (`definitions`)    right: delete

Others edit its tables at the same time: where the API server says that the object is another one, the statement looks
again at what is there. So two clients that create two tables at once have both.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tidemark_operator.catalogue.relations import named_alone
from tidemark_operator.catalogue.source_tables import readers_of
from tidemark_operator.errors import DefinitionRefused
from tidemark_operator.gateway.admission.limits import GatewayLimits
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.gateway.definitions.definition import CHANGED_BY, Asked, is_of
from tidemark_operator.gateway.definitions.readiness import settled, until_columns, until_refused
from tidemark_operator.gateway.definitions.refusals import being_deleted, changed, dropped, exists, not_created
from tidemark_operator.gateway.definitions.table_definition import TableDefinition, entries, table_names
from tidemark_operator.gateway.query.query import only_instance
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, ApiError, Body, Conflict
from tidemark_operator.planning.table_edit import MAX_REMOVED
from tidemark_protocol.plan.successors import spec_name

ATTEMPTS, PAUSE_SECONDS = 10, 0.2
"""The number of looks of a statement, and its longest pause before each."""


def instance_of(context: ReconcileContext, asked: Asked, default: str) -> str:
    """The instance of an object that is created: the one that an option names, else `default`, else the only one of the
    namespace. Raises DefinitionRefused: the namespace has none, or several."""
    instance = asked.options.get("instance") or default or only_instance(context, asked.namespace)
    if instance is None:
        text = f"namespace {asked.namespace} does not have exactly one ComputeInstance"
        raise DefinitionRefused("22023", f"{text}: name one, WITH (instance = ...)")
    return instance


class SharedSources:
    """The DataSources of one gateway whose tables come and go by SQL."""

    def __init__(self, context: ReconcileContext, limits: GatewayLimits) -> None:
        self._context, self._limits = context, limits

    async def add(self, access: Access, request: Any) -> tuple[bool, str]:
        """Whether the table is new, and why statements may not name it yet (empty: they may). Raises as
        `Definitions.define`."""
        asked = TableDefinition.parse(request)
        key = Key(DATA_SOURCES, asked.namespace, asked.name)
        await self._check_add(access, asked, key, await self._get(key), request.if_absent)
        found = await settled(self._context, self._limits, access.caller, key)
        async with self._limits.definitions.hold(access.caller):
            is_new, written = await self._added(access, asked, key, found, request.if_absent, request.instance)
            return is_new, await until_columns(self._context, key, written, asked.table, (), request.wait)

    async def take(self, access: Access, key: Key, table: str, found: Body) -> str:
        """Take the table out of a DataSource that has others, too. Returns why rows may still be taken for it; empty:
        they are not. Raises as `Definitions.drop`."""
        async with self._limits.definitions.hold(access.caller):
            await self._take_out_table(access, key, table, found)
            return await until_refused(self._context, key, found["metadata"]["uid"], table)

    async def _take_out_table(self, access: Access, key: Key, table: str, found: Body) -> None:
        """Take a table out of a DataSource that has others, unless another statement has changed it meanwhile. Raises
        DefinitionRefused."""
        entry, uid = entries(found).get(table), found["metadata"]["uid"]
        for _ in range(ATTEMPTS):
            there = table_names(found)
            if len(there) == 1 or entries(found).get(table) != entry or found["metadata"]["uid"] != uid:
                break  # another statement made it another table, or the only one
            await self._require_unread(key, table)
            self._require_room(key)
            await self._require_free(key, [name for name in there if name != table])
            others = [each for name, each in entries(found).items() if name != table]
            if await self._patched(key, found, {CHANGED_BY: access.caller}, {"table": {"tables": others}}):
                return
            again = await self._get(key)
            if again is None or table not in table_names(again):
                return  # another statement took the table out
            found = again
        raise changed(key)

    async def _added(
        self, access: Access, asked: TableDefinition, key: Key, found: Body | None, if_absent: bool, instance: str
    ) -> tuple[bool, Body]:
        """Whether the table is new, and the DataSource as it is stored. `instance`: of a new DataSource, unless an
        option names one."""
        conflict: Conflict | None = None
        for _ in range(ATTEMPTS):
            await self._check_add(access, asked, key, found, if_absent)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                raise being_deleted(key)
            if found is not None and is_of(found, asked):
                if not asked.has_table(found):
                    raise dropped(key, asked.table)
                return True, found
            if found is not None and asked.has_table(found):
                if if_absent:
                    return False, found
                raise exists(f"{asked.name}.{asked.table}")
            written = None
            if found is None:
                try:
                    written = await self._created(access, asked, key, instance)
                except Conflict as error:  # another statement made it meanwhile, or something else conflicts
                    conflict = error
                    await _pause()
            else:
                self._require_new_name(key, found, asked.table)
                await self._require_free(key, [*table_names(found), asked.table], asked.table)
                annotations = asked.annotations(access.caller, found)
                written = await self._patched(key, found, annotations, asked.patch(found))
            if written is not None:
                return True, written
            found = await self._get(key)
        raise changed(key) if found is not None or conflict is None else not_created(key, conflict)

    async def _get(self, key: Key) -> Body | None:
        return await self._context.kube.get(key.resource, key.namespace, key.name)

    async def _check_add(
        self, access: Access, asked: TableDefinition, key: Key, found: Body | None, if_absent: bool
    ) -> None:
        """Check the right to add the table, or, where it is there as asked, the right to do so in either way."""
        is_there = found is not None and (is_of(found, asked) or (if_absent and asked.table in table_names(found)))
        await self._check(access, key, "create", "patch", found, writes=not is_there)

    async def _check(
        self, access: Access, key: Key, absent: str, present: str, found: Body | None, writes: bool = True
    ) -> None:
        """Check the right to what becomes of the DataSource. A caller who has none of both does not learn whether it is
        there; one of them is enough where nothing is written. Raises Forbidden, ReviewUnavailable."""
        name = "" if absent == "create" else key.name
        if found is not None:
            try:
                await access.check_definition(key.resource, key.namespace, present, key.name)
            except Forbidden:
                await access.check_definition(key.resource, key.namespace, absent, name)
                if writes:
                    raise
        else:
            await access.check_definition(key.resource, key.namespace, absent, name)

    async def check_drop(self, access: Access, key: Key, table: str, found: Body | None) -> bool:
        """Check the right to drop this table; returns whether the DataSource stays. Raises Forbidden,
        ReviewUnavailable."""
        stays = found is not None and bool(table) and len(table_names(found)) > 1 and "table" in found["spec"]
        await self._check(access, key, "delete", "patch", found if stays else None)
        return stays

    async def _created(self, access: Access, asked: TableDefinition, key: Key, default: str) -> Body:
        """A new DataSource. Raises Conflict, DefinitionRefused."""
        instance = instance_of(self._context, asked, default)
        await self._require_free(key, [asked.table], asked.table)
        metadata = {"name": key.name, "namespace": key.namespace, "annotations": asked.annotations(access.caller)}
        body = {"metadata": metadata, "spec": asked.spec(instance)}
        return await self._context.kube.create(key.resource, key.namespace, body)

    async def _patched(self, key: Key, found: Body, annotations: dict[str, str], spec: Body) -> Body | None:
        """The DataSource after the edit; None: it is not as it was found."""
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": annotations}
        changes = {"metadata": metadata, "spec": spec}
        try:
            return await self._context.kube.patch(key.resource, key.namespace, key.name, changes)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            await _pause()
            return None

    async def _require_unread(self, key: Key, table: str) -> None:
        """Check that no Dataflow that stays reads the table. Raises DefinitionRefused."""
        known = self._context.registry.source(key)
        named = () if known is None else [ingested for name, ingested in known.tables() if spec_name(name) == table]
        for reader, _ in list(readers_of(self._context.registry, key, named)):
            there = await self._context.kube.get(reader.resource, reader.namespace, reader.name)
            if there is not None and "deletionTimestamp" not in there["metadata"]:  # the registry may be late
                text = f'cannot drop "{key.name}.{table}" because Dataflow {reader.name} reads it: drop that first'
                raise DefinitionRefused("2BP01", text)

    def _require_room(self, key: Key) -> None:
        """Check that the operator can remember one more name that is not given again. Raises DefinitionRefused."""
        known = self._context.registry.source(key)
        if known is not None and known.pinned is not None and len(known.pinned.removed) >= MAX_REMOVED:
            text = f"{MAX_REMOVED} tables were dropped from DataSource {key.name}, as many as it may have had: drop it"
            raise DefinitionRefused("54000", text)

    def _require_new_name(self, key: Key, found: Body, table: str) -> None:
        """Check that the DataSource had no table of this name, as far as the operator knows. Its bindings may still
        name that table's rows, and a Dataflow may read it. Raises DefinitionRefused."""
        known = self._context.registry.source(key)
        if known is None or known.uid != found["metadata"]["uid"]:
            return
        if known.pinned is None:
            if known.refused is not None:  # it may have had the table: its rows would come back
                text = f"the tables that DataSource {key.name} had are not known: {known.refused.message}"
                raise DefinitionRefused("55000", text)
            return
        had = [*(each.table.name for each in known.pinned.tables), *known.pinned.removed]
        if table in map(spec_name, had):
            text = f"DataSource {key.name} had a table {table}, whose name is not given again: take another name"
            raise DefinitionRefused("55000", text)

    async def _require_free(self, key: Key, tables: list[str], new: str = "") -> None:
        """Check that with these tables no name means one of them and an export of a Dataflow. `new`: the table that is
        added. Raises DefinitionRefused."""
        dataflow = await self._context.kube.get(DATAFLOWS, key.namespace, key.name)
        if dataflow is None:
            return
        if new in [export["name"] for export in dataflow["spec"].get("exports") or ()]:
            text = f'relation "{key.name}.{new}" already exists: Dataflow {key.name} exports it'
            raise DefinitionRefused("42P07", text)
        if (alone := named_alone(key.name, tables)) is not None:
            if not new:
                text = f'cannot drop the table: "{key.name}" is a Dataflow, and would then mean table {alone}, too'
                raise DefinitionRefused("2BP01", f"{text}: drop Dataflow {key.name} first, or this table later")
            text = f'relation "{key.name}" already exists: it is a Dataflow, and would mean table {alone}, too'
            raise DefinitionRefused("42P07", text)


async def _pause() -> None:
    """Others that look again at the same time do not all do so at once."""
    await asyncio.sleep(random.uniform(0, PAUSE_SECONDS))
