"""Arrangements of tables that a dataflow keeps once, whichever views and joins read them.

    u1/orders_of =                                        u1/arranged/0 =
      Join linear: 0 → 1 on [id = customer] ...             Get sales
        Get customers                                     u1/orders_of =
        Mfp project [customer, amount]                      Join linear: 0 → 1 on [id = customer] ...
          Get sales                               ──►         Get customers
    u1/paid =                                                 Get u1/arranged/0 by [customer]
      Join delta ...                                      u1/paid =
        Get sales                                           Join delta ...
        ...                                                   Get u1/arranged/0 by [customer]
                                                              ...

The shared collection is an object of the dataflow that no view names. The object has rows and columns of one table: the
same filters, and the columns of the reader that needs most. A reader of fewer columns joins it where the columns that
are kept become fewer in all. So no arrangement is wider than one that would be kept anyway; a reader may meet rows that
its own, narrower copy would have summed.

Nothing in such an object can fail or reads the clock, so no reader gets an error that it would not have had. Readers
inside a recursion are left alone, since rows carry iterations there. Equal sides of the linear joins of one object are
left to `shared_arrangements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark_planner.lir.joins.inputs import key_columns
from tidemark_planner.lir.mfp import FilterProject, mfp_of
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import (
    DeltaJoin,
    DeltaPath,
    Get,
    Join,
    JoinStage,
    LetRec,
    LinearJoin,
    Mfp,
    Plan,
    inputs_of,
    refs,
    with_inputs,
)

_Key = frozenset[int]


def share_tables(
    objects: Sequence[BuildDesc], tables: frozenset[GlobalId], id_prefix: str
) -> tuple[tuple[BuildDesc, ...], tuple[BuildDesc, ...]]:
    """(the shared arrangements, the objects that read them). `tables`: the imports of shards."""
    shared = [a for a in _arranged(reads_of_tables(objects, tables)) if a.is_worth_it]
    made = tuple(BuildDesc(GlobalId(f"{id_prefix}arranged/{n}"), a.plan) for n, a in enumerate(shared))
    held = {read: _Shared(built, a.table_columns) for built, a in zip(made, shared, strict=True) for read in a.readers}
    return made, tuple(replace(b, plan=_Rewriting(b.id, tables, held).rewrite(b.plan)) for b in objects)


@dataclass(frozen=True)
class TableRows:
    """Some rows of a table."""

    table: Get
    predicates: frozenset[ScalarExpr]


@dataclass(frozen=True)
class TableRead:
    """An input of a join that has rows and columns of a table, and its arrangements, by columns of the table."""

    object: GlobalId
    input: Plan
    rows: TableRows
    place: tuple[int, ...]
    """The column of the table for each column of the input."""
    columns: frozenset[int]
    keys: tuple[_Key, ...]
    linear: bool


@dataclass
class _Arranged:
    """A collection that several inputs may read, and the keys that they need."""

    rows: TableRows
    columns: frozenset[int]
    readers: list[TableRead] = field(default_factory=list)
    keys: dict[_Key, None] = field(default_factory=dict)

    def saves(self, read: TableRead) -> int:
        """The number of columns of arrangements that are saved if it is one more reader: those of its own copies, less
        what is kept more of."""
        if not read.columns <= self.columns:
            return 0
        shared = sum(key in self.keys for key in read.keys)
        more = (len(read.keys) - shared) * (len(self.columns) - len(read.columns))
        return shared * len(read.columns) - more

    def add(self, read: TableRead) -> None:
        self.readers.append(read)
        self.keys.update(dict.fromkeys(read.keys))

    @property
    def is_worth_it(self) -> bool:
        """Whether something is shared, that `shared_arrangements` does not share."""
        first = self.readers[0]
        alike = all(r.linear and (r.object, r.columns) == (first.object, first.columns) for r in self.readers)
        return len(self.readers) > 1 and not alike

    @property
    def table_columns(self) -> list[int]:
        """The columns of the table that the shared object has, in order."""
        return sorted(self.columns)

    @property
    def plan(self) -> Plan:
        table = self.rows.table
        row, first = refs(table.schema), self.readers[0].input
        predicates = first.mfp.predicates if isinstance(first, Mfp) else ()
        mfp = mfp_of(table.schema, FilterProject(predicates, tuple(row[c] for c in self.table_columns)))
        return table if mfp.is_identity else Mfp(table, mfp)


def _arranged(reads: Sequence[TableRead]) -> list[_Arranged]:
    """The collections: each read, those of most columns first, joins the one where it saves most, or is a new one."""
    made: dict[TableRows, list[_Arranged]] = {}
    chosen: dict[TableRead, _Arranged] = {}
    for read in sorted(reads, key=lambda r: -len(r.columns)):
        of_rows = made.setdefault(read.rows, [])
        best = chosen.get(read) or max(of_rows, key=lambda a: a.saves(read), default=None)
        if best is None or best.saves(read) <= 0:
            best = _Arranged(read.rows, read.columns)
            of_rows.append(best)
        best.add(read)
        chosen[read] = best
    return [each for of_rows in made.values() for each in of_rows]


def _reads(object: GlobalId, join: Join, tables: frozenset[GlobalId]) -> dict[int, TableRead]:
    """The inputs of a join of an object that may share, by their numbers."""
    found = {}
    for at, input in enumerate(join.inputs):
        rows, place = rows_of_table(input, tables)
        needs = None if rows is None else _needs(join, at)
        if rows is not None and needs is not None:
            keys, columns = needs
            if any(len({place[c] for c in key}) < len(key) for key in keys):
                continue  # the input has a column of the table twice, and the key both
            of_table = dict.fromkeys(frozenset(place[c] for c in key) for key in keys)
            held = frozenset(place[c] for c in columns)
            found[at] = TableRead(object, input, rows, place, held, tuple(of_table), isinstance(join.plan, LinearJoin))
    return found


def reads_of_tables(objects: Sequence[BuildDesc], tables: frozenset[GlobalId]) -> list[TableRead]:
    """The reads of tables by the joins of the objects, outside of recursions."""
    joins = ((built.id, join) for built in objects for join in _joins(built.plan))
    return [read for id, join in joins for read in _reads(id, join, tables).values()]


def inputs_of_tables(join: Join, tables: frozenset[GlobalId]) -> frozenset[int]:
    """The numbers of a join's inputs that all joins of a dataflow may share, whichever object they are in."""
    return frozenset(_reads(GlobalId(""), join, tables))


def _joins(plan: Plan) -> Iterator[Join]:
    """Yield the joins outside of recursions."""
    if isinstance(plan, Join):
        yield plan
    for below in (plan.body,) if isinstance(plan, LetRec) else inputs_of(plan):
        yield from _joins(below)


def rows_of_table(input: Plan, tables: frozenset[GlobalId]) -> tuple[TableRows | None, tuple[int, ...]]:
    """The rows of a table that an input has, and the table's columns; no rows where it has others, or may fail."""
    if isinstance(input, Get) and input.id in tables and input.key is None:
        return TableRows(input, frozenset()), tuple(range(len(input.schema)))
    if not isinstance(input, Mfp) or input.mfp.expressions or input.mfp.lower or input.mfp.upper:
        return None, ()
    rows, whole = rows_of_table(input.input, tables)
    if rows is None or rows.predicates or any(map(is_fallible, input.mfp.predicates)):
        return None, ()
    place = whole if input.mfp.projection is None else input.mfp.projection
    return replace(rows, predicates=frozenset(input.mfp.predicates)), place


def _needs(join: Join, at: int) -> tuple[list[tuple[int, ...]], set[int]] | None:
    """The keys by which a join arranges an input, and all columns of it that it reads; None where some key is none of
    distinct columns.
    """
    if isinstance(join.plan, LinearJoin):
        looking = [stage for stage in join.plan.stages if stage.lookup == at]
        starting = [join.plan.stages[0]] if join.plan.source == at else []
        keys = [s.lookup_key for s in looking] + [s.stream_key for s in starting]
    else:
        looking = [stage for path in join.plan.paths for stage in path.stages if stage.lookup == at]
        starting = [path.stages[0] for path in join.plan.paths if path.source == at]
        keys = [s.lookup_key for s in looking]
    found = [key_columns(key) for key in keys]
    streamed = [c for s in starting for c in key_columns(s.stream_key) or ()]
    if any(not key or len(set(key)) < len(key) for key in found):
        return None
    kept = [c for s in looking for c in s.lookup_thinning] + [c for s in starting for c in s.stream_thinning]
    return [key for key in found if key], {*kept, *streamed, *(c for key in found if key for c in key)}


@dataclass(frozen=True)
class _Shared:
    """The object that some inputs read, and the columns of the table that it holds."""

    built: BuildDesc
    held: list[int]

    def get(self, read: TableRead) -> Get:
        """The object by the first key that the read needs."""
        row = refs(self.built.plan.schema)
        return Get(self.built.id, self.built.plan.schema, tuple(row[self.held.index(c)] for c in sorted(read.keys[0])))

    def object_columns(self, read: TableRead) -> Mapping[int, int]:
        """The column of the object for each column of the input, where the object has it."""
        return {c: self.held.index(of_table) for c, of_table in enumerate(read.place) if of_table in self.held}


@dataclass(frozen=True)
class _Rewriting:
    """Replaces the inputs of one object's joins by Gets of what is shared."""

    object: GlobalId
    tables: frozenset[GlobalId]
    shared: Mapping[TableRead, _Shared]

    def rewrite(self, plan: Plan) -> Plan:
        """The plan, in which joins read the shared objects in place of their own copies."""
        if isinstance(plan, Join):
            return self._join(plan)
        if isinstance(plan, LetRec):
            return replace(plan, body=self.rewrite(plan.body))
        return with_inputs(plan, [*map(self.rewrite, inputs_of(plan))])

    def _join(self, join: Join) -> Join:
        reads = {at: r for at, r in _reads(self.object, join, self.tables).items() if r in self.shared}
        inputs, plan = list(map(self.rewrite, join.inputs)), join.plan
        for at, read in reads.items():
            shared = self.shared[read]
            get = shared.get(read)
            inputs[at], plan = get, _placed(plan, at, get, shared.object_columns(read))
        return Join(tuple(inputs), plan)


def _placed(plan: LinearJoin | DeltaJoin, at: int, get: Get, place: Mapping[int, int]) -> LinearJoin | DeltaJoin:
    """The join whose input `at` is `get`, where its columns have other places."""
    if isinstance(plan, DeltaJoin):
        return replace(
            plan, paths=tuple(DeltaPath(p.source, _stages(p.source, p.stages, at, get, place)) for p in plan.paths)
        )
    return LinearJoin(plan.source, _stages(plan.source, plan.stages, at, get, place))


def _stages(
    source: int, stages: Sequence[JoinStage], at: int, get: Get, place: Mapping[int, int]
) -> tuple[JoinStage, ...]:
    row = refs(get.schema)

    def key(of: Sequence[ScalarExpr]) -> tuple[ScalarExpr, ...]:
        return tuple(row[place[c]] for c in key_columns(of) or ())

    made = [
        replace(s, lookup_key=key(s.lookup_key), lookup_thinning=tuple(place[c] for c in s.lookup_thinning))
        if s.lookup == at
        else s
        for s in stages
    ]
    if source == at:
        thinning = tuple(place[c] for c in made[0].stream_thinning)
        made[0] = replace(made[0], stream_key=key(made[0].stream_key), stream_thinning=thinning)
    return tuple(made)
