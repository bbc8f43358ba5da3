"""The parse tree of a query: names, functions and clauses with their positions, before analysis.

Analysis folds `date'today'` into a date and loses the positions of names and clauses. So refusals by name and position,
and the relations that are read, come from the parse tree, by rule of Spark's grammar:

    rule of the grammar     use
    identifierReference     a relation: its parts, its span, whether it has an alias
    functionName            a function, against the names that are allowed
    literalType             a typed literal such as date'...'
    query                   where a subquery stands: FROM, WITH, or inside an expression
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from py4j.java_gateway import JavaObject, get_field

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


@dataclass(frozen=True)
class TextSpan:
    """The position of a phrase: offsets in code points (`end` is exclusive), line and column from 1."""

    start: int
    end: int
    line: int
    column: int

    def is_within(self, other: TextSpan) -> bool:
        """Whether the other span has all characters of this one."""
        return other.start <= self.start and self.end <= other.end


@dataclass(frozen=True)
class Phrase:
    """A node of the parse tree: the classes of the node and its parent, its text without spaces, its position."""

    kind: str
    parent: str
    text: str
    span: TextSpan

    @property
    def name(self) -> str:
        """The name of a function, in lower case."""
        return self.text.lower().strip("`")

    @property
    def is_name(self) -> bool:
        """Whether a keyword is used as a name here (a column called `escape`)."""
        return "NonReserved" in self.parent


@dataclass(frozen=True)
class RelationName:
    """The name of a relation in the text; `ctes`: the common table expressions that are visible there, in lower
    case."""

    parts: tuple[str, ...]
    aliased: bool
    span: TextSpan
    ctes: frozenset[str]


@dataclass(frozen=True)
class TableCall:
    """A table function in a FROM clause; the span excludes its alias."""

    arguments: tuple[str, ...]
    aliased: bool
    span: TextSpan


@dataclass(frozen=True)
class TypedLiteral:
    """`DATE '2020-01-31'`: the type word, the literal as written, its value, and the position of both."""

    word: Phrase
    text: str
    value: str
    span: TextSpan


class _Java(NamedTuple):
    """The classes of ANTLR and of Spark's grammar. (Each part of a class name costs a call to the JVM.)"""

    lexer: Any
    parser: Any
    upper_case: Any
    token_stream: Any
    from_string: Any
    find_all: Any
    unescaped: Any


@lru_cache(1)
def _java(jvm: Any) -> _Java:
    antlr, grammar = jvm.org.antlr.v4.runtime, jvm.org.apache.spark.sql.catalyst.parser
    return _Java(
        grammar.SqlBaseLexer,
        grammar.SqlBaseParser,
        grammar.UpperCaseCharStream,
        antlr.CommonTokenStream,
        antlr.CharStreams.fromString,
        antlr.tree.xpath.XPath.findAll,
        getattr(jvm.org.apache.spark.sql.catalyst.util, "SparkParserUtils$").__getattr__("MODULE$").unescapeSQLString,
    )


class ParseTree:
    """One statement, parsed by Spark's grammar.

    Call `Catalyst.parse` on the same text first: it raises syntax errors.
    """

    def __init__(self, jvm: Any, sql: str) -> None:
        java = _java(jvm)
        lexer = java.lexer(java.upper_case(java.from_string(sql)))
        lexer.removeErrorListeners()
        self._parser = java.parser(java.token_stream(lexer))
        self._parser.removeErrorListeners()
        self._tree = self._parser.singleStatement()
        # Spark's parser also accepts scripts, which are not a single statement and leave errors here.
        self.is_statement = self._parser.getNumberOfSyntaxErrors() == 0
        self._find, self._unescaped = java.find_all, java.unescaped
        self.upper = sql.upper()

    def is_in_table(self, span: TextSpan) -> bool:
        """Whether the span is in an inline table."""
        return any(span.is_within(table) for table in self._inline_tables)

    @cached_property
    def _inline_tables(self) -> list[TextSpan]:
        return [p.span for p in self.phrases("inlineTable")] if "VALUES" in self.upper else []

    def phrases(self, rule: str) -> Iterator[Phrase]:
        """Every non-empty phrase of the rule, in the order of the text."""
        for context in self._find_nodes(rule):
            phrase = _phrase(context)
            if phrase.text:
                yield phrase

    def tokens(self, name: str) -> Iterator[Phrase]:
        """Every keyword of this name (`OVER`)."""
        for node in self._find_nodes(name) if name in self.upper else ():
            token = node.getSymbol()
            start, text = token.getStartIndex(), token.getText()
            span = TextSpan(start, token.getStopIndex() + 1, token.getLine(), token.getCharPositionInLine() + 1)
            yield Phrase("Token", _name_of(node.getParent()), text, span)

    def calls(self, names: Collection[str]) -> Iterator[tuple[Phrase, TextSpan, list[Phrase]]]:
        """Every call of one of these functions: its name, its span, its arguments."""
        if not any(name.upper() in self.upper for name in names):
            return
        for context in self._find_nodes("functionName"):
            called, phrase = context.getParent(), _phrase(context)
            if phrase.name in names and _name_of(called) == "FunctionCallContext":
                arguments = called.functionArgument()
                yield phrase, _phrase(called).span, [_phrase(arguments.get(at)) for at in range(arguments.size())]

    def table_calls(self, name: str) -> Iterator[TableCall]:
        """Every call of the function in a FROM clause."""
        for context in self._find_nodes("tableFunctionCall"):
            if context.functionName().getText().lower().strip("`") == name:
                given = context.functionTableArgument()
                arguments = tuple(given.get(at).getText() for at in range(given.size()))
                aliased = bool(context.getParent().tableAlias().getText())
                yield TableCall(arguments, aliased, _phrase(context).span)

    def casts(self, keyword: str) -> Iterator[tuple[Phrase, TextSpan]]:
        """Every cast by this keyword: the keyword, and the span of the cast."""
        for token, node in zip(self.tokens(keyword), self._find_nodes(keyword), strict=True):
            if token.parent == "CastContext":
                yield token, _phrase(node.getParent()).span

    def likes(self) -> Iterator[tuple[list[Phrase], Phrase | None]]:
        """Every LIKE or ILIKE with ESCAPE, or with several patterns: the patterns, and the escape character."""
        for context in self._find_nodes("predicate"):
            escape = get_field(context, "escapeChar")
            if escape is not None:
                yield [_phrase(get_field(context, "pattern"))], _phrase(escape)
            elif get_field(context, "quantifier") is not None and context.expression().size():
                patterns = context.expression()
                yield [_phrase(patterns.get(at)) for at in range(patterns.size())], None

    def relations(self) -> list[RelationName]:
        """Every relation that is read."""
        found = []
        for context in self._find_nodes("identifierReference"):
            phrase, table = _phrase(context), context.getParent().getParent()
            if _name_of(table) == "TableNameContext":
                aliased = bool(table.tableAlias().getText())
            elif phrase.parent == "TableContext":  # TABLE a.b, which takes no alias
                aliased = True
            else:
                continue
            found.append(RelationName(split_name(phrase.text), aliased, phrase.span, self._ctes_around(context)))
        return found

    def typed_literals(self) -> Iterator[TypedLiteral]:
        """Every literal behind a type word. Comments may stand between both, and escapes in the literal."""
        for context in self._find_nodes("literalType"):
            whole = context.getParent()
            text = whole.singleStringLitWithoutMarker().getText()
            yield TypedLiteral(_phrase(context), text, self.unescaped(text), _phrase(whole).span)

    def unescaped(self, literal: str) -> str:
        """The value of a string literal."""
        return str(self._unescaped(literal, False))

    def _find_nodes(self, name: str) -> list[JavaObject]:
        """Every node of the rule or keyword. (A Java iterator ends with an exception, which is slow across py4j.)"""
        nodes = self._find(self._tree, f"//{name}", self._parser).toArray()
        return [nodes[at] for at in range(len(nodes))]

    def _ctes_around(self, context: JavaObject) -> frozenset[str]:
        """The names that enclosing WITH clauses bind at this position.

        Inside a query of a WITH these are the names before it: in `WITH t AS (SELECT * FROM t)` the inner t is the
        relation.
        """
        names: set[str] = set()
        at, inside = context if "WITH" in self.upper else None, None
        while at is not None:
            kind = _name_of(at)
            if kind == "NamedQueryContext":
                inside = at
            elif kind == "QueryContext" and at.ctes() is not None:
                bound = [at.ctes().namedQuery().get(i) for i in range(at.ctes().namedQuery().size())]
                before = bound[: bound.index(inside)] if inside in bound else bound
                names.update(each.getChild(0).getText().strip("`").lower() for each in before)
            at = at.getParent()
        return frozenset(names)


def split_name(text: str) -> tuple[str, ...]:
    """The parts of a dotted name, without back quotes."""
    return tuple(m[1].replace("``", "`") if m[1] is not None else m[2] for m in _PART.finditer(text))


def _phrase(context: JavaObject) -> Phrase:
    start, stop = context.getStart(), context.getStop()
    end = stop.getStopIndex() + 1 if stop is not None else start.getStartIndex()
    span = TextSpan(start.getStartIndex(), end, start.getLine(), start.getCharPositionInLine() + 1)
    return Phrase(_name_of(context), _name_of(context.getParent()), context.getText(), span)


def _name_of(context: JavaObject | None) -> str:
    return "" if context is None else str(context.getClass().getSimpleName())
