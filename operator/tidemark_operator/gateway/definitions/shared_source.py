"""CREATE TABLE and DROP TABLE of a table by its full name, `source.table`: statements share the DataSource.

    CREATE   no DataSource    ──► create: one with this table                     right: create
             one without it   ──► patch: its tables and this one                  right: patch
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
from tidemark_operator.gateway.admission.limits import Limits
from tidemark_operator.gateway.auth.access import Access, Forbidden
from tidemark_operator.gateway.definitions.definition import CHANGED_BY, is_of
from tidemark_operator.gateway.definitions.readiness import settled, until_refused, until_table
from tidemark_operator.gateway.definitions.refusals import being_deleted, changed, exists
from tidemark_operator.gateway.definitions.table_definition import TableDefinition, table_names, without_table
from tidemark_operator.gateway.query.query import only_instance
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS, ApiError, Body, Conflict
from tidemark_protocol.plan.successors import spec_name

ATTEMPTS, PAUSE_SECONDS = 10, 0.2
"""How often a statement looks again, and how long it waits before that at most."""


class SharedSources:
    """The DataSources of one gateway whose tables come and go by SQL."""

    def __init__(self, context: ReconcileContext, limits: Limits) -> None:
        self._context, self._limits = context, limits

    async def add(self, access: Access, request: Any) -> tuple[bool, str]:
        """Whether the table is new, and why statements may not name it yet (empty: they may). Raises as
        `Definitions.define`."""
        asked = TableDefinition.parse(request)
        key = Key(DATA_SOURCES, asked.namespace, asked.name)
        await self._check(access, key, "create", "patch", await self._get(key))
        found = await settled(self._context, self._limits, access.caller, key)
        async with self._limits.definitions.hold(access.caller):
            is_new, written = await self._added(access, asked, key, found, request.if_absent)
            return is_new, await until_table(self._context, key, written, asked.table, request.wait)

    async def take(self, access: Access, key: Key, table: str, found: Body) -> None:
        """Take the table out of a DataSource that has others, too. Raises as `Definitions.drop`."""
        async with self._limits.definitions.hold(access.caller):
            await self._taken(access, key, table, found)
            await until_refused(self._context, key, found["metadata"]["uid"], table)

    async def _taken(self, access: Access, key: Key, table: str, found: Body) -> None:
        entry, uid = _entry(found, table), found["metadata"]["uid"]
        for _ in range(ATTEMPTS):
            there = table_names(found)
            if len(there) == 1 or _entry(found, table) != entry or found["metadata"]["uid"] != uid:
                break  # another statement made it another table, or the only one
            await self._require_unread(key, table)
            await self._require_free(key, [name for name in there if name != table])
            if await self._patched(key, found, {CHANGED_BY: access.caller}, without_table(found, table)):
                return
            again = await self._get(key)
            if again is None or table not in table_names(again):
                return  # another one took it out
            found = again
        raise changed(key)

    async def _added(
        self, access: Access, asked: TableDefinition, key: Key, found: Body | None, if_absent: bool
    ) -> tuple[bool, Body]:
        """Whether the table is new, and the DataSource as it is stored."""
        for _ in range(ATTEMPTS):
            await self._check(access, key, "create", "patch", found)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                raise being_deleted(key)
            if found is not None and is_of(found, asked):
                return True, found
            if found is not None and asked.has_table(found):
                if if_absent:
                    return False, found
                raise exists(f"{asked.name}.{asked.table}")
            written = await self._created(access, asked, key) if found is None else None
            if found is not None:
                self._require_new_name(key, found, asked.table)
                await self._require_free(key, [*table_names(found), asked.table])
                annotations = asked.annotations(access.caller, found)
                written = await self._patched(key, found, annotations, asked.patch(found))
            if written is not None:
                return True, written
            found = await self._get(key)
        raise changed(key)

    async def _get(self, key: Key) -> Body | None:
        return await self._context.kube.get(key.resource, key.namespace, key.name)

    async def _check(self, access: Access, key: Key, absent: str, present: str, found: Body | None) -> None:
        """Check the right to what becomes of the DataSource. Who has none of both does not learn whether it is there.
        Raises Forbidden, ReviewUnavailable."""
        name = "" if absent == "create" else key.name
        if found is not None:
            try:
                await access.check_definition(key.resource, key.namespace, present, key.name)
            except Forbidden:
                await access.check_definition(key.resource, key.namespace, absent, name)
                raise
        else:
            await access.check_definition(key.resource, key.namespace, absent, name)

    async def check_drop(self, access: Access, key: Key, table: str, found: Body | None) -> bool:
        """Check the right to drop this table; returns whether the DataSource stays. Raises Forbidden,
        ReviewUnavailable."""
        stays = found is not None and bool(table) and len(table_names(found)) > 1 and "table" in found["spec"]
        await self._check(access, key, "delete", "patch", found if stays else None)
        return stays

    async def _created(self, access: Access, asked: TableDefinition, key: Key) -> Body | None:
        """A new DataSource; None: another one made it meanwhile."""
        instance = asked.options.get("instance") or only_instance(self._context, key.namespace)
        if instance is None:
            text = f"namespace {key.namespace} does not have exactly one ComputeInstance"
            raise DefinitionRefused("22023", f"{text}: name one, WITH (instance = ...)")
        await self._require_free(key, [asked.table])
        metadata = {"name": key.name, "namespace": key.namespace, "annotations": asked.annotations(access.caller)}
        body = {"metadata": metadata, "spec": asked.spec(instance)}
        try:
            return await self._context.kube.create(key.resource, key.namespace, body)
        except Conflict:
            await _pause()
            return None

    async def _patched(self, key: Key, found: Body, annotations: dict[str, str], spec: Body) -> Body | None:
        """The DataSource after the edit; None: it is not as it was found."""
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": annotations}
        changes = {"metadata": metadata, "spec": spec}
        try:
            return await self._context.kube.patch(key.resource, key.namespace, key.name, changes)
        except Conflict:
            await _pause()
            return None
        except ApiError as error:
            if error.status != 404:
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

    def _require_new_name(self, key: Key, found: Body, table: str) -> None:
        """Check that the DataSource had no table of this name, as far as the operator knows. Its bindings may still
        name that table's rows, and a Dataflow may read it. Raises DefinitionRefused."""
        known = self._context.registry.source(key)
        if known is None or known.uid != found["metadata"]["uid"] or known.pinned is None:
            return
        had = [*(each.table.name for each in known.pinned.tables), *known.pinned.removed]
        if table in map(spec_name, had):
            text = f"DataSource {key.name} had a table {table}, whose name is not given again: take another name"
            raise DefinitionRefused("55000", text)

    async def _require_free(self, key: Key, tables: list[str]) -> None:
        """Check that with these tables the name of the DataSource alone means none, or that no Dataflow has it. Raises
        DefinitionRefused."""
        if (alone := named_alone(key.name, tables)) is None:
            return
        if await self._context.kube.get(DATAFLOWS, key.namespace, key.name) is not None:
            text = f'relation "{key.name}" already exists: it is a Dataflow, and would mean table {alone}, too'
            raise DefinitionRefused("42P07", text)


async def _pause() -> None:
    """Others that look again at the same time do not all do so at once."""
    await asyncio.sleep(random.uniform(0, PAUSE_SECONDS))


def _entry(body: Body, table: str) -> Body | None:
    return next((each for each in body["spec"]["table"]["tables"] if each["name"] == table), None)
