"""The relations that names in FROM clauses mean, and the text with each name replaced by a declared leaf.

    FROM tpch.orders, totals t     ->     FROM `tpch.orders` AS `orders`, `/view/totals` t

`a.b` is table b of DataSource a or export b of Dataflow a; `a` alone is an earlier view of the same Dataflow, a
Dataflow with one export, or table a of DataSource a. Names are compared without regard to case, as in Spark. Positions
in the rewritten text are mapped back, so that errors point into the user's text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark_planner.catalyst.analyser import quoted
from tidemark_planner.errors import Refusal, offset_of, position, refuse
from tidemark_planner.sql.syntax import ParseTree, RelationName
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Diagnostic
from tidemark_protocol.plan.ingestion import INTROSPECTION
from tidemark_protocol.types import Column


@dataclass(frozen=True)
class NamedRelation:
    """A relation that names can mean, and the leaf that stands for it in the analysed text."""

    leaf: str
    id: GlobalId
    columns: tuple[Column, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    monotonic: bool = False


@dataclass(frozen=True)
class NameScope:
    """All names that one planning request may read, in lower case."""

    one_part: Mapping[str, tuple[NamedRelation, ...]]
    two_parts: Mapping[tuple[str, str], tuple[NamedRelation, ...]]
    changes: Mapping[str, NamedRelation] = field(default_factory=dict)
    """The relations of table_changes(), by the name of the watched input; empty outside continual tasks."""
    unusable: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Names of relations that cannot be read here, and why."""

    def resolve(self, name: RelationName) -> NamedRelation:
        """The relation that the name means; raises Refusal where there is none, or several."""
        folded = tuple(p.lower() for p in name.parts)
        dotted = ".".join(name.parts)
        if folded in self.unusable:
            refuse("UNSUPPORTED", self.unusable[folded], *_location(name, dotted))
        if len(folded) > 2:
            refuse(
                "UNRESOLVED_RELATION",
                f"{dotted}: names of three parts are reserved: write SOURCE.TABLE or DATAFLOW.EXPORT",
                *_location(name, dotted),
            )
        found = self.one_part.get(folded[0], ()) if len(folded) == 1 else self.two_parts.get((folded[0], folded[1]), ())
        if not found:
            raise Refusal(self._missing(name, dotted))
        if len(found) > 1:
            meanings = sorted({known.leaf for known in found})
            advice = (
                f"it could be any of {', '.join(meanings)}; write the full name"
                if len(meanings) > 1
                else f"a DataSource and a Dataflow have {meanings[0]}; delete one of them"
            )
            refuse("AMBIGUOUS", f"{dotted} is ambiguous: {advice}", *_location(name, dotted))
        return found[0]

    def _missing(self, name: RelationName, dotted: str) -> Diagnostic:
        parent = name.parts[0].lower()
        inside = sorted(b for a, b in self.two_parts if a == parent)
        at = _location(name, dotted)
        if parent == INTROSPECTION and not inside:
            advice = (
                f"views and subscribes do not read {INTROSPECTION}, which is for queries: create a DataSource with "
                "spec.introspection, say named system; all relations but retained_tables are its tables, as "
                "system.frontiers"
            )
            return Diagnostic("UNSUPPORTED", advice, "", *at)
        if len(name.parts) == 1 and inside:
            hint = f"; {name.parts[0]} has {', '.join(f'{parent}.{b}' for b in inside[:10])}"
        elif inside:
            hint = f"; {name.parts[0]} has {', '.join(inside[:10])}"
        else:
            hint = ": no DataSource, Dataflow or view of this name is planned; create it, or correct the name"
        message = f"relation {dotted} does not exist{hint}"
        return Diagnostic("UNRESOLVED_RELATION", message, "", at[0], at[1], at[2], relation=name.parts)


def scope_of(catalogue: Catalogue, views: Iterable[NamedRelation]) -> NameScope:
    """The catalogue's names, and those of earlier views, which hide Dataflows of the same name."""
    one: dict[str, tuple[NamedRelation, ...]] = {}
    two: dict[tuple[str, str], tuple[NamedRelation, ...]] = {}
    for r in catalogue.relations:
        leaf = f"{r.parent}.{r.name}"
        known = NamedRelation(leaf, r.id, r.columns, r.keys, r.monotonic)
        at = (r.parent.lower(), r.name.lower())
        two[at] = (*two.get(at, ()), known)
        if r.short:
            one[at[0]] = (*one.get(at[0], ()), known)
    for view in views:
        one[view.leaf.removeprefix(VIEW_LEAF).lower()] = (view,)
    return NameScope(one, two)


VIEW_LEAF = "/view/"


@dataclass(frozen=True)
class Edit:
    """`text[start:end]` becomes `by`."""

    start: int
    end: int
    by: str


@dataclass(frozen=True)
class RewrittenText:
    """A text after edits; maps positions back to the original."""

    original: str
    text: str
    edits: tuple[Edit, ...]

    def original_position(self, line: int, column: int) -> tuple[int, int]:
        """Line and column in the original, both from 1 (0 stays 0)."""
        if line == 0:
            return (0, 0)
        return position(self.original, self._original_offset(offset_of(self.text, line, column)))

    def _original_offset(self, offset: int) -> int:
        shift = 0
        for edit in self.edits:
            start = edit.start + shift
            if offset < start:
                break
            if offset < start + len(edit.by):
                return edit.start
            shift += len(edit.by) - (edit.end - edit.start)
        return offset - shift


def rewrite(
    sql: str, meanings: Iterable[tuple[RelationName, NamedRelation]], more: Iterable[Edit] = ()
) -> RewrittenText:
    """The text with each relation replaced by its leaf. A relation without an alias gets its own last name as one."""
    edits = list(more)
    for name, known in meanings:
        alias = "" if name.aliased else f" AS {quoted(name.parts[-1])}"
        edits.append(Edit(name.span.start, name.span.end, quoted(known.leaf) + alias))
    edits.sort(key=lambda e: (e.start, e.end))
    pieces, at = [], 0
    for edit in edits:
        pieces += [sql[at : edit.start], edit.by]
        at = edit.end
    return RewrittenText(sql, "".join([*pieces, sql[at:]]), tuple(edits))


def binary_edits(tree: ParseTree) -> list[Edit]:
    """X'00FF' becomes unhex('00FF'), since Spark does not print the bytes of a binary literal."""
    return [
        Edit(literal.span.start, literal.span.end, f"unhex({literal.text})")
        for literal in tree.typed_literals()
        if literal.word.text.upper() == "X"
    ]


def _location(name: RelationName, word: str) -> tuple[int, int, str]:
    return (name.span.line, name.span.column, word)
