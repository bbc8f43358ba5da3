"""Lowered objects assembled to a plan: imports, LIR, and the checks that the replica and the wire will repeat.

An import has the union of the columns that the objects read, so it is read once and no wider than needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.dialects.foreign_text import check_dialect
from tidemark_planner.errors import Refusal, refuse
from tidemark_planner.expressions.round_trip import check_round_trip
from tidemark_planner.hir.nodes import Hir
from tidemark_planner.lir.hir_to_lir import to_lir
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.needless_reductions import needless_reductions
from tidemark_planner.lir.shared_arrangements import share_in_each
from tidemark_planner.lir.shared_subplans import share_subplans
from tidemark_planner.lir.shared_tables import share_tables
from tidemark_protocol.check.plan import check_plan
from tidemark_protocol.errors import MalformedPlan, PlanNotAllowed
from tidemark_protocol.explain import explain
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.messages.planning import (
    Planned,
    PlannedExport,
    PlannedOneShot,
    PlannedPeek,
    PlanQueryRequest,
    PlanRequest,
)
from tidemark_protocol.plan.codec import decode, encode
from tidemark_protocol.plan.dataflow import BuildDesc, IndexImport, Settings, SourceImport
from tidemark_protocol.plan.lir import Schema

# Objects in the order in which they are built: a later one may read an earlier one.
Objects = Sequence[tuple[GlobalId, Hir]]
P = TypeVar("P", Planned, PlannedPeek, PlannedOneShot)
_WITHIN = 4
"""A plan is nested this many levels deeper in a revision or a description than in the planner's answer."""


def check_settings(settings: Settings, dialect: str = "spark") -> None:
    """Raises Refusal for settings or a dialect that are not supported."""
    check_dialect(dialect)
    if settings != Settings():
        refuse("UNSUPPORTED", "settings other than ANSI mode and the time zone UTC are not supported: leave them out")


@dataclass(frozen=True)
class DataflowExtras:
    """Parts that the dataflow of a continual task has beside the objects of its views, which share nothing.

    `whole`: shards that are imported with all columns. `before`: objects that are built first. `known`: schemas of
    collections
    that objects read and that are not imported.
    """

    whole: frozenset[GlobalId] = frozenset()
    before: tuple[BuildDesc, ...] = ()
    known: Mapping[GlobalId | LocalId, Schema] = field(default_factory=dict)


def assemble(
    catalyst: Catalyst,
    request: PlanRequest | PlanQueryRequest,
    built: Objects,
    exports: tuple[PlannedExport, ...],
    extras: DataflowExtras | None = None,
) -> Planned:
    """The plan of these objects, checked as the replica will check it; raises Refusal."""
    may_share, extras = extras is None, extras or DataflowExtras()
    own = ((e.on, e.key) for e in exports if e.kind == "index")
    imports = Imports(request.catalogue, (hir for _, hir in built), extras.whole, own)
    lowered = (*extras.before, *_lowered(built, imports, may_share=may_share))
    sources, indexes = imports.of([o.plan for o in lowered])
    _check(sources, indexes, lowered, extras)
    tables = frozenset(i.id for i in sources) if may_share else None
    objects = _sharing(lowered, tables, request.id_prefix)
    _check(sources, indexes, objects, extras)
    try:
        _check_texts(catalyst, objects, lowered)
    finally:
        catalyst.drop_relations()
    drawn = "\n".join(f"{o.id} =\n{explain(o.plan)}" for o in objects)
    references = tuple(sorted([*(i.id for i in sources), *(i.id for i in indexes)]))
    return fits_wire(Planned(sources, objects, exports, references, drawn, request.settings, indexes))


def _lowered(built: Objects, imports: Imports, *, may_share: bool) -> tuple[BuildDesc, ...]:
    """The objects before anything is shared. Where sharing will keep what an aggregate before a join was to save, they
    are lowered again without it."""
    reductions = imports.reduced_inputs
    while True:
        reductions.reduced.clear()
        lowered = tuple(_build(built_as, hir, imports) for built_as, hir in built)
        more = needless_reductions(lowered, imports) if may_share and reductions.reduced else frozenset()
        if more <= reductions.kept:
            return lowered
        reductions.kept |= more


def _build(built_as: GlobalId, hir: Hir, imports: Imports) -> BuildDesc:
    with _about(built_as):
        imports.check_readable(hir)
        built = BuildDesc(built_as, to_lir(hir, imports))
    imports.built(built_as, built.plan)
    return built


def _sharing(lowered: Sequence[BuildDesc], tables: frozenset[GlobalId] | None, id_prefix: str) -> tuple[BuildDesc, ...]:
    """The objects, in which equal parts and arrangements are kept once, and what they share.

    `tables`: those whose arrangements several objects may share; None: objects share nothing.
    """
    shared = tuple[BuildDesc, ...]()
    if tables is not None:
        shared, lowered = share_tables(share_subplans(lowered, tables, id_prefix), tables, id_prefix)
    return (*shared, *share_in_each(lowered, among=tables is not None))


def _check_texts(catalyst: Catalyst, objects: Sequence[BuildDesc], lowered: Sequence[BuildDesc]) -> None:
    """The proof that replicas will evaluate what is meant: for all objects at once, and one by one to name the first
    that is refused. The `lowered` objects, before anything is shared, go first: a part of several views has no name.
    """
    try:
        check_round_trip(catalyst, [o.plan for o in objects])
    except Refusal:
        for each in (*lowered, *objects):
            with _about(each.id):
                check_round_trip(catalyst, [each.plan])
        raise


@contextmanager
def _about(built_as: GlobalId) -> Iterator[None]:
    """Refusals inside are about this object."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(*refusal.diagnostics, object=built_as) from None


def _check(
    sources: tuple[SourceImport, ...],
    indexes: tuple[IndexImport, ...],
    objects: tuple[BuildDesc, ...],
    extras: DataflowExtras,
) -> None:
    """The replica's own checks, so that no plan is answered that a replica would refuse."""
    scope: dict[GlobalId | LocalId, Schema] = {i.id: tuple(i.shard.schema[c] for c in i.columns) for i in sources}
    scope.update({i.id: i.schema for i in indexes})
    scope.update(extras.known)
    try:
        for built in objects:
            check_plan(built.plan, scope)
            scope[built.id] = built.plan.schema
    except PlanNotAllowed as error:
        with _about(built.id):
            refuse("TYPE", f"the plan is not allowed: {error}; write the query in another way")


def fits_wire(planned: P) -> P:
    """The plan, if it can be sent and stored in a revision. Raises Refusal where it is too deep or too large."""
    try:
        decode(encode(planned, _WITHIN), type(planned))
    except MalformedPlan as error:
        refuse("TOO_LARGE", f"the plan cannot be sent: {error}; split the query into several Dataflows")
    return planned
