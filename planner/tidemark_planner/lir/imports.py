"""Imports of a plan: shards, and indexes of Dataflows of the same instance.

    Scan t:orders     Get t:orders   a shard, only the columns that any object of the dataflow reads
    Scan live         Get live       an index, whole; as a join's input, indexed by its key
    Scan u1/base      Get u1/base    an object of the dataflow; as a join's input, by the key of an exported index of it

The finished plans decide what is imported: the collections that a Get names, and the indexes that a lookup uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy

from tidemark_planner.errors import refuse
from tidemark_planner.hir.nodes import Hir, Scan, scans_of
from tidemark_planner.lir.joins.inputs import IndexedInput, Key, indexes_used
from tidemark_planner.lir.mfp import FilterProject
from tidemark_planner.lir.reduced_inputs import ReducedInputs
from tidemark_protocol.functions.registry import is_fallible, reads_clock
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.messages.planning import Catalogue, Relation, SharedIndex
from tidemark_protocol.plan import lir
from tidemark_protocol.plan.dataflow import IndexImport, SourceImport
from tidemark_protocol.plan.expr import map_columns
from tidemark_protocol.plan.row_estimates import exponent, rows_of
from tidemark_protocol.types import ColumnType


class Imports:
    """The catalogue as the objects of one dataflow read it."""

    def __init__(
        self,
        catalogue: Catalogue,
        objects: Iterable[Hir] = (),
        whole: Collection[GlobalId] = (),
        own: Iterable[tuple[GlobalId, Key]] = (),
    ) -> None:
        """`whole`: shards that are imported with all columns, even if no object reads them. `own`: the objects and keys
        of the indexes that the dataflow exports. The attribute `rows` has estimates of what plans
        read (plan/row_estimates.py); `reduced_inputs` are those of their joins.
        """
        self._own = tuple(dict.fromkeys((id, key) for id, key in own if key))
        self._relations = {r.id: r for r in catalogue.relations}
        self._whole = frozenset(whole)
        used = {id: set(range(len(self._relations[id].columns))) for id in self._whole}
        for hir in objects:
            for scan in scans_of(hir):
                used.setdefault(scan.id, set()).update(scan.columns)
        self._columns = {id: tuple(sorted(columns)) for id, columns in used.items()}
        self.rows = dict[GlobalId | LocalId, int](row_estimates(catalogue))
        self.reduced_inputs = ReducedInputs()

    def check_readable(self, hir: Hir) -> None:
        """Raise Refusal where the object reads an index of another instance."""
        for scan in scans_of(hir):
            if scan.id in self._relations:
                _check_readable(self._relations[scan.id])

    def columns(self, scan: Scan) -> tuple[int, ...]:
        """The columns that a Get of the scan's collection has. Objects and indexes are read whole."""
        relation = self._relations.get(scan.id)
        whole = tuple(range(len(scan.of)))
        return whole if relation is None or relation.shard is None else self._columns.get(scan.id, whole)

    def indexed_input(self, base: Hir, row: FilterProject) -> IndexedInput | None:
        """The rows that `row` makes of a scan, in the form of the scanned collection's indexes; None where there is no
        index.

        An index of the dataflow itself serves no filtered rows: the filter would move above the join, which then pairs
        what a copy of the filtered rows would not have. An import saves reading the collection, which may be worth it.
        """
        if not isinstance(base, Scan):
            return None
        indexes = list(self._indexes(base.id))
        if not indexes or (row.predicates and base.id not in self._relations):
            return None
        if any(is_fallible(e) or reads_clock(e) for e in row.all_expressions):
            return None
        columns = base.columns
        over = FilterProject(
            tuple(map_columns(p, columns.__getitem__) for p in row.predicates),
            tuple(map_columns(o, columns.__getitem__) for o in row.outputs),
        )
        gets = tuple(lir.Get(id, base.of) for id, _ in indexes)
        keys = tuple(key for _, key in indexes)
        unique = frozenset(key for key in keys if self._is_unique(base.id, key))
        return IndexedInput(gets, keys, over, unique, base.keys)

    def _is_unique(self, id: GlobalId, key: Key) -> bool:
        """Whether a collection is known to have one row at most for each value of these columns."""
        relation = self._relations.get(id)
        return relation is not None and any(set(unique) <= set(key) for unique in relation.keys)

    def built(self, id: GlobalId, plan: lir.Plan) -> None:
        """An object is planned, which later ones may read."""
        if (rows := rows_of(plan, self.rows)) is not None:
            self.rows[id] = rows

    @property
    def inside_a_loop(self) -> Imports:
        """The imports for what a recursion computes: its rows carry iterations, so an own index does not serve them."""
        made = copy(self)
        made._own = ()
        return made

    def _indexes(self, id: GlobalId) -> Iterator[tuple[GlobalId, Key]]:
        """(what a Get names, the key) of the indexes of a collection."""
        relation = self._relations.get(id)
        if relation is not None:
            yield from ((index.id, index.key) for index in relation.indexes)
        yield from ((own, key) for own, key in self._own if own == id)

    def of(self, plans: Sequence[lir.Plan]) -> tuple[tuple[SourceImport, ...], tuple[IndexImport, ...]]:
        """The imports of the plans."""
        read = self._whole | {node.id for plan in plans for node in lir.preorder(plan) if isinstance(node, lir.Get)}
        sources = [
            SourceImport(id, relation.shard, self._columns[id], monotonic=relation.monotonic)
            for id, relation in sorted(self._relations.items())
            if id in read and relation.shard is not None
        ]
        met = {index for plan in plans for node in lir.preorder(plan) for index in self._lookup_indexes(node)}
        indexes = {}
        for relation in self._relations.values():
            for index in relation.indexes:
                if index.id in read | met:
                    indexes[index.id] = _index_import(relation, index)
        return tuple(sources), tuple(index for _, index in sorted(indexes.items()))

    def _lookup_indexes(self, node: lir.Plan) -> Iterator[GlobalId]:
        """The indexes that a join's lookups use."""
        if not isinstance(node, lir.Join):
            return
        siblings = [self._siblings(i) for i in node.inputs]
        for at, key in indexes_used(node, [tuple(i.key for i in of) for of in siblings]):
            yield from (index.id for index in siblings[at] if index.key == key)

    def _siblings(self, plan: lir.Plan) -> tuple[SharedIndex, ...]:
        """All indexes of the collection whose index the plan is."""
        if isinstance(plan, lir.Get):
            for relation in self._relations.values():
                if any(index.id == plan.id for index in relation.indexes):
                    return relation.indexes
        return ()


def row_estimates(catalogue: Catalogue) -> Iterator[tuple[GlobalId, int]]:
    """The estimates of the relations whose row counts are known, and of their indexes."""
    for relation in catalogue.relations:
        if relation.rows is not None:
            yield from ((id, exponent(relation.rows)) for id in (relation.id, *(i.id for i in relation.indexes)))


def _check_readable(relation: Relation) -> None:
    if relation.shard is None and not relation.indexes:
        name = f"{relation.parent}.{relation.name}"
        hint = "export it as a materializedView to read it here"
        refuse(
            "UNSUPPORTED",
            f"{name} is an index of another ComputeInstance, and an index is shared within its instance alone: {hint}",
            word=name,
        )


def _index_import(relation: Relation, index: SharedIndex) -> IndexImport:
    schema = tuple(ColumnType(c.type, c.nullable) for c in relation.columns)
    key = tuple(lir.refs(schema)[k] for k in index.key)
    return IndexImport(index.id, index.on, key, schema, relation.monotonic)
