"""Leases of clients over the gateway: what a transaction or a stream reads stays readable at its time.

    a query with a lease     ──► its relations, at its time, are held in the moment in which it is sent
    Lease: id, time, ids     ──► may the caller read them? ──► held for another minute, at this time
    EndLeases: ids           ──► nothing is held any more

A lease that cannot be granted fails no query: its answer says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_operator.controller.frontiers.lease_book import MAX_RELATIONS, LeaseBook, LeaseTarget
from tidemark_operator.errors import QueryNotReady, QueryRefused, RelationChanged, TimeNotReadable, TooMany
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.auth.rights import check_rights
from tidemark_operator.gateway.query.operator_query import OperatorQuery
from tidemark_operator.gateway.query.query import GatewayQuery, QueryRequest, only_instance
from tidemark_operator.gateway.query.readable_relations import find_relation
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.planning.revision import Parent
from tidemark_protocol.ids import MAX_TIME, GlobalId, Time

MAX_ENDED = 4096
"""The leases that one call ends."""


@dataclass(frozen=True)
class LeaseOutcome:
    """The outcome of a query's lease. `relations`: those that it holds; `refused`: why it holds nothing of this query;
    empty: it does, or none was asked for."""

    relations: tuple[GlobalId, ...] = ()
    refused: str = ""


class Leases:
    """The leases that one gateway grants."""

    def __init__(self, context: ReconcileContext, statements: StatementCache) -> None:
        self._context, self._statements = context, statements

    def of_query(self, access: Access, request: QueryRequest, query: GatewayQuery | OperatorQuery) -> LeaseOutcome:
        """Hold what the query reads at its time, beside what the lease holds already. Call it without an await since
        the time was chosen: until then no read hold protects that time."""
        book = self._context.fleet.leases(request.namespace) if request.lease else None
        if book is None or not isinstance(query, GatewayQuery) or not query.relations:
            return LeaseOutcome()
        try:
            self._context.fleet.require_grants()
            targets = self._targets(book, request.lease, request.namespace, query.relations)
            adds = request.as_of is not None  # without a time nothing was read before, or its answer was lost
            held = book.grant(request.lease, access.caller, query.as_of, targets, now_ms(), adds=adds)
        except QueryRefused as refused:
            return LeaseOutcome(refused=str(refused))
        return LeaseOutcome(held)

    async def renew(
        self, access: Access, namespace: str, id: str, as_of: int, relations: Sequence[str]
    ) -> tuple[GlobalId, ...]:
        """Hold the relations at `as_of` for another minute, and those that the lease holds at this time already.
        Returns what is held: a relation that was deleted or replaced is not.

        Raises:
            TimeNotReadable: none of them can be held at this time.
            RelationChanged: none of them is there any more.
            QueryNotReady: it is not known yet how far one of them is; the others are held. Or this operator may not
                lead any more; nothing changes then.
            TooMany, QueryRefused: as `LeaseBook.grant`.
            Forbidden, ReviewUnavailable: as `check_rights`.
        """
        if len(relations) > MAX_RELATIONS:
            raise TooMany(f"a lease holds {MAX_RELATIONS} relations at most")
        owners = self._owners(namespace)
        if not any(each in owners for each in relations):
            raise RelationChanged()
        if not 0 <= as_of < MAX_TIME:
            raise QueryRefused(f"{as_of} is no time that can be held")
        if (book := self._context.fleet.leases(namespace)) is None:
            raise QueryRefused("this operator grants no leases (--lease-seconds 0)")
        known = book.get(id)
        kept = known.targets if known is not None and known.as_of == as_of else {}
        there = [each for each in dict.fromkeys((*map(GlobalId, relations), *kept)) if each in owners]
        self._context.fleet.require_grants()  # also before: no review is asked of an API server that is away
        await check_rights(access, namespace, there, owners)
        self._context.fleet.require_grants()
        targets, late = dict[GlobalId, LeaseTarget](), None
        for each in there:
            try:
                targets |= self._targets(book, id, namespace, (each,))
            except QueryNotReady as error:
                late = error  # the others are held meanwhile
            except QueryRefused:
                continue
        try:
            held = book.grant(id, access.caller, Time(as_of), targets, now_ms())
        except TimeNotReadable:
            if late is None:
                raise
        if late is not None:
            raise late
        return held

    def end(self, ids: Sequence[str]) -> None:
        """End leases, which whoever knows their ids may do. Raises TooMany."""
        if len(ids) > MAX_ENDED:
            raise TooMany(f"a call ends {MAX_ENDED} leases at most")
        for _, book in self._context.fleet.all_leases():
            book.end(ids)

    def _owners(self, namespace: str) -> Mapping[GlobalId, Parent]:
        return self._statements.owners(namespace, only_instance(self._context, namespace))

    def _targets(
        self, book: LeaseBook, id: str, namespace: str, relations: Sequence[GlobalId]
    ) -> dict[GlobalId, LeaseTarget]:
        """The way to hold each relation; one that the lease holds is not looked up again, as replicas may be away."""
        owners = self._owners(namespace)
        known = lease.targets if (lease := book.get(id)) is not None else {}
        return {
            each: known.get(each) or find_relation(self._context, namespace, each, owners.get(each)).target
            for each in relations
        }
