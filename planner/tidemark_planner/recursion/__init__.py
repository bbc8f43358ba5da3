"""Recursive queries: split into parts. Each part is analysed by itself; the names that it reads are declared relations.

    WITH RECURSIVE r AS (anchor UNION [ALL] part) body        r = LetRec {r = anchor UNION part} in r       an object
                                                              body                                          reads it
    WITH MUTUALLY RECURSIVE a (...) AS (...), b ... body      LetRec {a = ..., b = ...} in body

A common table expression that is shared inside a query of the block, and reads a name of it, becomes a binding too. A
query of the block may itself begin with a recursion, which may read the names around it: a LetRec inside a binding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NoReturn, Protocol

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import refuse
from tidemark_planner.hir.keys import unique_keys
from tidemark_planner.hir.nodes import Binding, Hir, LetRec, Project, columns, scan, scans_of
from tidemark_planner.lower import Context, Lowered
from tidemark_planner.recursion.cut import RecursiveBlock, WithQuery, split_recursive_query
from tidemark_planner.recursion.linear import check_linear
from tidemark_planner.rules import optimise
from tidemark_planner.sql.names import NamedRelation, NameScope
from tidemark_planner.sql.syntax import ParseTree
from tidemark_protocol.casts import cast_errors
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.lir import Schema
from tidemark_protocol.types import Column, ColumnType, SqlType

__all__ = ["LoweredQuery", "PartLowering", "RecursiveBlock", "lower_block", "split_recursive_query"]

Objects = list[tuple[GlobalId, Hir]]
LowerTree = Callable[[CatalystNode, Context], Lowered]


@dataclass(frozen=True)
class LoweredQuery:
    """A query or a part of one, and the objects (shared common table expressions) that it reads.

    `names_taken`: how many names of objects it has taken; some may be those of bindings.
    """

    lowered: Lowered
    objects: tuple[tuple[GlobalId, Hir], ...]
    names_taken: int


class LowerPart(Protocol):
    """Lowers a part of the text, which may be a block itself; `object_id` numbers the objects that it makes."""

    def __call__(
        self, sql: str, scope: NameScope, object_id: Callable[[int], GlobalId], lower: LowerTree
    ) -> LoweredQuery: ...


@dataclass
class PartLowering:
    """Lowers the parts of one block, and collects the objects that they make."""

    catalyst: Catalyst
    object_id: Callable[[int], GlobalId]
    lower: LowerPart
    recursions: set[GlobalId]
    """The ids of all recursive names of the query, also of blocks around this one and inside it."""
    objects: Objects = field(default_factory=list)
    names_taken: int = 0

    def lower_part(self, sql: str, scope: NameScope, lower: LowerTree | None = None) -> tuple[Lowered, Objects]:
        """Lower the SQL of one part. Returns it, and the objects that only this part reads."""
        taken = self.names_taken
        part = self.lower(sql, scope, lambda n: self.object_id(taken + n), lower or _lower_whole)
        self.names_taken += part.names_taken
        return part.lowered, list(part.objects)

    def reads(self, sql: str, name: str) -> bool:
        """Whether a part reads a relation of this name."""
        block = split_recursive_query(self.catalyst.jvm, sql)
        if block is not None:
            hidden_by = [n for n, item in enumerate(block.items) if item.plain_name.lower() == name]
            seen = [*(item.query for item in block.items), block.body]
            if hidden_by:  # the names of WITH RECURSIVE are not those of the queries before them
                seen = [] if block.mutually else seen[: hidden_by[0]]
            return any(self.reads(each, name) for each in seen)
        self.catalyst.parse(sql)
        found = ParseTree(self.catalyst.jvm, sql).relations()
        return any(r.parts[0].lower() == name and len(r.parts) == 1 and name not in r.ctes for r in found)

    def new_id(self, item: WithQuery) -> GlobalId:
        """An id for a recursive name, which may hide one of a block around."""
        plain = f"rec/{item.plain_name.lower()}"
        names = (GlobalId(plain if n == 1 else f"{plain}/{n}") for n in count(1))
        id = next(name for name in names if name not in self.recursions)
        self.recursions.add(id)
        return id

    def new_object(self, hir: Hir) -> GlobalId:
        self.names_taken += 1
        name = self.object_id(self.names_taken - 1)
        self.objects.append((name, optimise(hir)))
        return name


def lower_block(block: RecursiveBlock, scope: NameScope, parts: PartLowering, lower: LowerTree) -> Lowered:
    """The rows of the block's body; `lower` lowers its tree. Raises Refusal."""
    for item in block.items:
        if [i.plain_name.lower() for i in block.items].count(item.plain_name.lower()) > 1:
            _refuse(item, "DUPLICATE_NAME", f"there are two queries called {item.plain_name}: rename one")
    lower_names = _lower_mutually_recursive if block.mutually else _lower_with_recursive
    return lower_names(block, scope, parts, lower)


def _refuse(item: WithQuery, code: str, message: str) -> NoReturn:
    """Raise a Refusal at the name of the query."""
    refuse(code, message, item.name.line, item.name.column, item.name.text)


def _lower_whole(tree: CatalystNode, context: Context) -> Lowered:
    return context.lower(tree)


def _lower_with_recursive(block: RecursiveBlock, scope: NameScope, parts: PartLowering, lower: LowerTree) -> Lowered:
    """WITH RECURSIVE: each name may read itself and those before it."""
    for item in block.items:
        if parts.reads(item.query, item.plain_name.lower()):
            hir, names = _lower_recursive_query(item, scope, parts)
        else:
            lowered, made = parts.lower_part(item.query, scope)
            parts.objects += made
            hir, names = lowered.hir, _column_names(item, lowered.names)
        id = parts.new_object(hir)
        built = parts.objects[-1][1]
        scope = _add_name(scope, _named_relation(item, id, names, built.schema, unique_keys(built)))
    lowered, made = parts.lower_part(block.body, scope, lower)
    parts.objects += made
    return lowered


def _lower_recursive_query(item: WithQuery, scope: NameScope, parts: PartLowering) -> tuple[Hir, tuple[str, ...]]:
    """One name that reads itself: its columns are those of the first part that does not read it."""
    first = next((arm for arm in item.arms if not parts.reads(arm, item.plain_name.lower())), None)
    if first is None or len(item.arms) == 1:
        message = (
            f"{item.plain_name} reads itself in all of its parts: add a part that does not, with UNION or UNION ALL"
        )
        _refuse(item, "UNSUPPORTED", message)
    anchor, _ = parts.lower_part(first, scope)
    names, id = _column_names(item, anchor.names), parts.new_id(item)
    schema = anchor.hir.schema
    while True:
        lowered, made = parts.lower_part(item.query, _add_name(scope, _named_relation(item, id, names, schema)))
        found = lowered.hir.schema
        for name, declared, made_type in zip(names, schema, found, strict=True):
            if declared.type != made_type.type:
                message = (
                    f"column {name} of {item.plain_name} begins as {declared.type} and goes on as {made_type.type}"
                )
                _refuse(item, "TYPE", f"{message}: cast it in one of the parts")
        if all(d.nullable or not m.nullable for d, m in zip(schema, found, strict=True)):
            break
        schema = tuple(ColumnType(d.type, d.nullable or m.nullable) for d, m in zip(schema, found, strict=True))
    check_linear(lowered.hir, id, item.name)
    if any(_reads(hir, {id}) for _, hir in made):
        read = f"reading {item.name.text} twice, or in a recursive WITH inside its own query,"
        message = f"{read} is not supported in WITH RECURSIVE: write WITH MUTUALLY RECURSIVE, which allows it"
        _refuse(item, "UNSUPPORTED", message)
    parts.objects += made
    return LetRec((Binding(id, optimise(lowered.hir)),), scan(id, schema)), names


def _lower_mutually_recursive(
    block: RecursiveBlock, scope: NameScope, parts: PartLowering, lower: LowerTree
) -> Lowered:
    """WITH MUTUALLY RECURSIVE: each name may read all names."""
    declared = [_declared_columns(item, parts.catalyst) for item in block.items]
    ids = [parts.new_id(item) for item in block.items]
    for item, id, of in zip(block.items, ids, declared, strict=True):
        schema = tuple(ColumnType(c.type) for c in of)
        scope = _add_name(scope, _named_relation(item, id, tuple(c.name for c in of), schema))
    inside, bindings = set(ids), list[Binding]()
    for item, id, of in zip(block.items, ids, declared, strict=True):
        lowered, made = parts.lower_part(item.query, scope)
        bindings += [Binding(name, hir) for name, hir in _split_objects(made, inside, parts)]
        value = _cast_to_declared(item, lowered, of)
        limit = block.limit
        bindings.append(
            Binding(id, optimise(value), limit.iterations if limit else None, limit is not None and limit.returns)
        )
    lowered, made = parts.lower_part(block.body, scope, lower)
    hir = lowered.hir
    for name, shared in reversed(_split_objects(made, inside, parts)):
        hir = LetRec((Binding(name, shared),), hir)
    return replace(lowered, hir=LetRec(tuple(bindings), hir))


def _split_objects(made: Objects, inside: set[GlobalId], parts: PartLowering) -> Objects:
    """Objects that read no name of the block become objects of the dataflow; the others are returned, as bindings of
    the block.
    """
    kept: Objects = []
    for name, hir in made:
        if _reads(hir, inside):
            kept.append((name, hir))
            inside.add(name)
        else:
            parts.objects.append((name, hir))
    return kept


def _declared_columns(item: WithQuery, catalyst: Catalyst) -> tuple[Column, ...]:
    if item.columns is None:
        message = f"{item.plain_name} needs its columns: write {item.plain_name} (column type, ...) AS (...)"
        _refuse(item, "SYNTAX", message)
    found = catalyst.parse_columns(item.columns)
    if not all(c.nullable for c in found):
        message = f"NOT NULL is not supported in the columns of the recursive {item.plain_name}: leave it out"
        _refuse(item, "UNSUPPORTED", message)
    return found


def _cast_to_declared(item: WithQuery, lowered: Lowered, declared: tuple[Column, ...]) -> Hir:
    """The rows in the declared types; raises Refusal where a cast could lose something."""
    found = columns(lowered.hir)
    if len(found) != len(declared) or any(
        f.type != d.type and not _widens(f.type, d.type) for f, d in zip(found, declared, strict=True)
    ):
        has, should = (", ".join(str(c.type) for c in of) for of in (found, declared))
        message = f"{item.plain_name} is declared as ({should}), but its query gives ({has}): cast the columns"
        _refuse(item, "TYPE", message)
    if all(f.type == d.type for f, d in zip(found, declared, strict=True)):
        return lowered.hir
    wide = tuple(f if f.type == d.type else call("cast", (f,), d.type) for f, d in zip(found, declared, strict=True))
    return Project(lowered.hir, wide)


def _widens(narrow: SqlType, wide: SqlType) -> bool:
    return narrow.is_numeric and wide.is_numeric and cast_errors(narrow, wide) == frozenset()


def _column_names(item: WithQuery, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that `r (a, b) AS` gives; without them the query's own."""
    if item.columns is None:
        return names
    given = item.column_names()
    if len(given) != len(names):
        message = f"{item.plain_name} names {len(given)} columns, but its query has {len(names)}: name as many"
        _refuse(item, "TYPE", message)
    return given


def _named_relation(
    item: WithQuery, id: GlobalId, names: Iterable[str], schema: Schema, keys: tuple[tuple[int, ...], ...] = ()
) -> NamedRelation:
    named = tuple(Column(n, c.type, c.nullable) for n, c in zip(names, schema, strict=True))
    return NamedRelation(f"/with/{item.plain_name}", id, named, keys)


def _add_name(scope: NameScope, known: NamedRelation) -> NameScope:
    """The scope with one more name, which hides others."""
    return replace(scope, one_part={**scope.one_part, known.leaf.removeprefix("/with/").lower(): (known,)})


def _reads(node: Hir, names: set[GlobalId]) -> bool:
    return any(each.id in names for each in scans_of(node))
