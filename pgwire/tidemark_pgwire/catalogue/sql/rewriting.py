"""A statement of PostgreSQL's as one of DuckDB's, over the tables and macros that the answer makes for it.

    tree ──► canonical ──► typed ──► parameters bound ──► DuckDB's names ──► text
             no schemas of   (result_types)                of tables, functions
             functions, no                                 and types
             COLLATE

A statement is refused if a class of its tree is not in `_ADMITTED`, or if a function, a type or a relation of it has no
entry in its list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidemark_pgwire.catalogue.contents.entries import CatalogueContents
from tidemark_pgwire.catalogue.contents.lookups import oid_of_name
from tidemark_pgwire.catalogue.facts import CatalogueError
from tidemark_pgwire.catalogue.sql.functions import FUNCTIONS, NATIVE, arguments_of, name_of
from tidemark_pgwire.catalogue.sql.result_types import (
    OF_WITH,
    RECORD,
    STAR,
    TABLE_OID,
    TYPE,
    UNKNOWN,
    Typing,
    column_name,
    parameter_number,
    type_of_cast,
)  # fmt: skip
from tidemark_pgwire.catalogue.sql.session_functions import SESSION_FUNCTIONS, Value, call
from tidemark_pgwire.catalogue.sql.statement import parse
from tidemark_pgwire.catalogue.system_relations import SystemRelation, find, table_functions
from tidemark_pgwire.catalogue.types import INTEGERS, REGISTERED, element_of, stored_as
from tidemark_pgwire.values.system_types import system_types
from tidemark_pgwire.values.types import VECTORS

_ADMITTED = frozenset(
    "Add Alias All Any Between BitwiseAnd BitwiseOr Boolean Bracket CTE Column DPipe DataType DataTypeParam Distinct "
    "Div Dot EQ Escape Except Filter From GT GTE Group Having ILike Identifier If In Intersect Is Join LT LTE Lateral "
    "Like Limit Literal Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ ObjectIdentifier Offset Order Ordered Paren "
    "Select Slice Star Sub Subquery Table TableAlias Tuple Union Values Where Window With".split()
)
_OPERATORS: Mapping[str, type[exp.Expression]] = {
    "=": exp.EQ, "<>": exp.NEQ, "!=": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE,
    "~": exp.RegexpLike, "~*": exp.RegexpILike, "~~": exp.Like, "~~*": exp.ILike, "||": exp.DPipe, "+": exp.Add,
    "-": exp.Sub,
}  # fmt: skip
_NEGATED = {f"!{name}": _OPERATORS[name] for name in ("~", "~*", "~~", "~~*")}
_ITEM = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s,"{}][^,"{}]*)', re.DOTALL)
_SEPARATOR = re.compile(r"\s*(?:(,)\s*|\Z)")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,40}\s*")
_OTHER_ESCAPES = re.compile(r"\\[0-9xuU]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass
class Rewritten:
    """`sql`: of DuckDB. `columns`: names and types of what it selects. `relations`, `functions`: the ones that it
    reads and calls. `parameters`: types by number."""

    sql: str
    columns: Sequence[tuple[str, str]]
    parameters: Mapping[int, str]
    relations: Sequence[SystemRelation]
    functions: frozenset[str]


@dataclass
class _Made:
    relations: dict[str, SystemRelation] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)


def rewritten(text: str, contents: CatalogueContents, values: Sequence[str | None] | None) -> Rewritten:
    """`values`: of the parameters; None: they are not known yet, and nothing is bound.

    Raises CatalogueError: the statement is refused.
    """
    tree = _replace_all(parse(text), _canonical)
    typing = Typing()
    columns = typing.columns_of(tree, {}, None)
    if any(type == RECORD for _, type in columns):
        raise CatalogueError("0A000", "the catalogue does not answer whole rows as one value")
    count = max((parameter_number(p) for p in tree.find_all(exp.Parameter)), default=0)
    parameters = {number: typing.parameters.get(number, "text") for number in range(1, count + 1)}
    if values is None:
        return Rewritten("", columns, parameters, (), frozenset())
    if len(values) < count:
        raise CatalogueError("08P01", f"the statement has {count} parameters, and {len(values)} values came")
    made = _Made()
    tree = _replace_all(tree, lambda node: _bound(node, parameters, values))
    _name_columns(tree, columns)
    tree = _replace_all(tree, lambda node: _of_duckdb(node, contents, made))
    _rename_tables_of_with(tree)
    return Rewritten(
        tree.sql(dialect="duckdb", comments=False),
        columns,
        parameters,
        list(made.relations.values()),
        frozenset(made.functions),
    )


def _replace_all(tree: exp.Expression, rule: Any) -> exp.Expression:
    """Applies `rule` to each node, the inner ones first."""
    for node in reversed(list(tree.dfs())):
        found = rule(node)
        if found is node:
            continue
        found.meta.setdefault(TYPE, node.meta.get(TYPE, UNKNOWN))
        if node is tree:
            tree = found
        else:
            node.replace(found)
    return tree


def _canonical(node: exp.Expression) -> exp.Expression:
    """The node without the schemas of functions, operators and columns, and without COLLATE."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        if node.this.name.lower() not in ("pg_catalog", "information_schema"):
            raise CatalogueError("42883", f"function {node.sql('postgres')[:63]} does not exist")
        return _recognized(node.expression)
    if isinstance(node, exp.Operator):
        return _operator(node)
    if isinstance(node, exp.Collate):
        return node.this
    if isinstance(node, exp.ByteString):
        return exp.Literal.string(_unescaped(node.name))
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("any", "some", "all") and len(node.expressions) == 1:
        return (exp.All if node.name.lower() == "all" else exp.Any)(this=exp.Paren(this=node.expressions[0]))
    if isinstance(node, exp.Column):
        return _column(node)
    if isinstance(node, exp.Lateral) and name_of(node.this) in table_functions():
        return exp.Table(this=node.this, alias=node.args.get("alias"))
    if isinstance(node, exp.Table):
        node.set("catalog", None)
        if isinstance(node.this, exp.Anonymous):
            node.set("this", _recognized(node.this))
    return node


def _recognized(call: exp.Func) -> exp.Expression:
    """The call with sqlglot's class for the function, which sqlglot does not look for after a schema."""
    if not isinstance(call, exp.Anonymous) or call.name.lower() in FUNCTIONS:
        return call
    try:
        return exp.func(call.name, *call.expressions, dialect="postgres")
    except (SqlglotError, ValueError, TypeError, IndexError):
        raise CatalogueError("42883", f"function {call.name[:63]} with these arguments does not exist") from None


def _operator(node: exp.Operator) -> exp.Expression:
    name = str(node.args["operator"]).removeprefix("pg_catalog.")
    if name in _OPERATORS:
        return _OPERATORS[name](this=node.this, expression=node.expression)
    if name in _NEGATED:
        return exp.Not(this=_NEGATED[name](this=node.this, expression=node.expression))
    raise CatalogueError("42883", f"operator {name} does not exist here")


def _column(node: exp.Column) -> exp.Expression:
    """`schema.table.column` as `table.column`."""
    if node.args.get("db"):
        node.set("db", None)
        node.set("catalog", None)
    return node


def _unescaped(text: str) -> str:
    if _OTHER_ESCAPES.search(text):
        raise CatalogueError("0A000", "the catalogue reads no numbers of characters in E'...'")
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), text)


def _name_columns(tree: exp.Expression, columns: Sequence[tuple[str, str]]) -> None:
    """Gives each column that a query selects PostgreSQL's name: a query around it may use it."""
    for query in tree.find_all(exp.Select):
        named = []
        for each in query.expressions:
            star = isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star))
            if star or isinstance(each, exp.Alias):
                named.append(each)
            else:
                name = exp.to_identifier(column_name(each), quoted=True)
                alias = exp.Alias(this=each, alias=name)
                alias.meta[TYPE] = each.meta.get(TYPE, UNKNOWN)
                named.append(alias)
        query.set("expressions", named)
    for query in _outermost(tree):
        query.set("expressions", [one for each in query.expressions for one in _without_star(each)])
        for each in query.expressions:
            if isinstance(each, exp.Alias) and each.this.meta.get(TYPE) in REGISTERED:
                each.set("this", _oid_as_text(each.this))


def _without_star(node: exp.Expression) -> list[exp.Expression]:
    """The columns of a star, if some of them print as names."""
    columns = node.meta.get(STAR) or []
    if not any(type in REGISTERED for _, _, type in columns):
        return [node]
    made: list[exp.Expression] = []
    for alias, name, type in columns:
        column = exp.column(exp.to_identifier(name, quoted=True), table=alias or None, quoted=True)
        column.meta[TYPE] = type
        made.append(exp.Alias(this=column, alias=exp.to_identifier(name, quoted=True)))
    return made


def _outermost(tree: exp.Expression) -> list[exp.Select]:
    """The queries whose rows are the answer's."""
    if isinstance(tree, exp.SetOperation):
        return [*_outermost(tree.this), *_outermost(tree.expression)]
    if isinstance(tree, exp.Subquery):
        return _outermost(tree.this)
    return [tree] if isinstance(tree, exp.Select) else []


def _oid_as_text(node: exp.Expression) -> exp.Expression:
    """The oid's cast to text, where the oid prints as a name."""
    cast = exp.Cast(this=node, to=exp.DataType.build("text"))
    cast.meta[TYPE] = "text"
    return cast


def _bound(node: exp.Expression, parameters: Mapping[int, str], values: Sequence[str | None]) -> exp.Expression:
    """A parameter as a literal of its type."""
    if not isinstance(node, exp.Parameter):
        return node
    number = parameter_number(node)
    value, type = values[number - 1], node.meta.get(TYPE) or parameters[number]
    literal: exp.Expression = exp.Null() if value is None else exp.Literal.string(value)
    if value is None or isinstance(node.parent, exp.Cast) or stored_as(type) == "VARCHAR":
        return literal
    if type == "bool":
        return exp.Boolean(this=value.lower() in ("t", "true", "on", "yes", "1"))
    return _literal_of(value, type)


def _literal_of(value: str, type: str) -> exp.Expression:
    """The text of a value as an expression of DuckDB."""
    if stored_as(type).endswith("[]"):
        element = VECTORS[type] if type in VECTORS else element_of(type)
        items = value.split() if type in VECTORS else _array_items(value)
        made = [exp.Null() if item is None else _literal_of(item, element) for item in items]
        return _cast(exp.Array(expressions=made), stored_as(type))
    if stored_as(type) == "VARCHAR":
        return exp.Literal.string(value)
    return _cast(exp.Literal.string(_checked(value, type)), stored_as(type))


def _checked(value: str, type: str) -> str:
    """The text of a value, which DuckDB would round where it is to be an integer. Raises CatalogueError."""
    if (type in INTEGERS or stored_as(type) == "BIGINT") and not _INTEGER.fullmatch(value):
        raise CatalogueError("22P02", f'invalid input syntax for type {type}: "{value[:63]}"')
    return value


def _array_items(text: str) -> list[str | None]:
    """The items of a one-dimensional array as PostgreSQL prints it. Raises CatalogueError: it is none."""
    if not (text.startswith("{") and text.endswith("}")):
        raise CatalogueError("22P02", f'malformed array literal: "{text[:63]}"')
    items, rest, at, more = list[str | None](), text[1:-1].strip(), 0, False
    while at < len(rest) or more:
        item = _ITEM.match(rest, at)
        after = _SEPARATOR.match(rest, item.end()) if item else None
        if item is None or after is None:
            raise CatalogueError("22P02", f'malformed array literal: "{text[:63]}"')
        items.append(_item(item))
        at, more = after.end(), bool(after[1])
    return items


def _item(found: re.Match[str]) -> str | None:
    if found["plain"] is None:
        return _ESCAPED.sub(r"\1", found["quoted"])
    bare = found["plain"].strip()
    return None if bare.upper() == "NULL" else bare


def _cast(node: exp.Expression, stored: str) -> exp.Cast:
    return exp.Cast(this=node, to=exp.DataType.build(stored, dialect="duckdb"))


def _of_duckdb(node: exp.Expression, contents: CatalogueContents, made: _Made) -> exp.Expression:
    kind = type(node).__name__
    if isinstance(node, exp.Cast):
        return _cast_of(node, contents, made)
    if isinstance(node, exp.Table):
        return _table(node, made)
    if isinstance(node, exp.Column) and TABLE_OID in node.meta:
        return _cast(exp.Literal.string(str(node.meta[TABLE_OID])), "BIGINT")
    if isinstance(node, exp.Column) and node.name.lower() in ("user", "current_role") and not node.table:
        return exp.Literal.string(contents.session.user) if node.meta.get(TYPE) == "name" else node
    if isinstance(node, exp.Bracket) and node.this.meta.get(TYPE) in VECTORS:
        return _subscript_of_vector(node)
    if isinstance(node, exp.Like | exp.ILike):
        return _like(node, exp.Literal.string("\\"))
    if isinstance(node, exp.Escape):
        call = node.this.this if isinstance(node.this, exp.Not) else node.this
        call.set("expressions", [*call.expressions[:2], node.expression])
        return node.this
    if isinstance(node, exp.DPipe) and str(node.meta.get(TYPE)).startswith("_"):
        return exp.Anonymous(this="list_concat", expressions=[node.this, node.expression])
    if isinstance(node, exp.Div):
        if not isinstance(node.expression, exp.Literal) or node.expression.name.strip("0.") == "":
            raise CatalogueError("0A000", "the catalogue divides by literals other than 0 alone")
        return exp.IntDiv(this=node.this, expression=node.expression)
    if isinstance(node, exp.Func) and not isinstance(node, exp.And | exp.Or):
        return _called(node, contents, made)
    if isinstance(node, exp.And | exp.Or) or kind in _ADMITTED:
        _check_arguments(node)
        return node
    raise CatalogueError("0A000", f"the catalogue does not read {kind}")


_REFUSED_ARGUMENTS: Mapping[str, frozenset[str]] = {
    "Select": frozenset("into locks sample pivots qualify cluster distribute sort settings format prewhere match "
                        "connect options kind hint exclude".split()),
    "Table": frozenset("pivots hints system_time version format pattern sample only partition rows_from changes when "
                       "index".split()),
    "Join": frozenset("match_condition hint".split()),
    "Subquery": frozenset(("pivots", "sample")),
}  # fmt: skip


def _check_arguments(node: exp.Expression) -> None:
    for name in _REFUSED_ARGUMENTS.get(type(node).__name__, ()):
        if node.args.get(name):
            raise CatalogueError("0A000", f"the catalogue does not read {name.upper()} of {node.key.upper()}")


def _table(node: exp.Table, made: _Made) -> exp.Expression:
    _check_arguments(node)
    if not isinstance(node.this, exp.Identifier):
        function = table_functions().get(name_of(node.this))
        if function is not None:
            return _read(node, function, made)
        if isinstance(node.this, exp.Func | exp.Anonymous):
            return _row_of_call(node)
        raise CatalogueError("0A000", "the catalogue does not read this in FROM")
    if node.meta.get(OF_WITH):
        return node
    found = find(node.db.lower(), node.name.lower())
    if found is None:
        raise CatalogueError("42P01", f'relation "{node.db}.{node.name}" does not exist')
    return _read(node, found, made)


_ROWS_IN_FROM = (exp.ExplodingGenerateSeries, exp.Explode)


def _row_of_call(node: exp.Table) -> exp.Expression:
    """A function in FROM: DuckDB takes those alone that make rows, so that another is a query of one row."""
    node.set("db", None)
    if isinstance(node.this, _ROWS_IN_FROM):
        return node
    alias = node.args.get("alias")
    named = alias.columns[0] if alias and alias.columns else exp.to_identifier(node.alias or "value", quoted=True)
    query = exp.Select(expressions=[exp.Alias(this=node.this, alias=named.copy())])
    return exp.Subquery(this=query, alias=exp.TableAlias(this=alias.this.copy() if alias else named.copy()))


def _read(node: exp.Table, found: SystemRelation, made: _Made) -> exp.Expression:
    made.relations[found.stored_name] = found
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(found.name.removesuffix("()"))))
    node.set("this", exp.to_identifier(found.stored_name, quoted=True))
    node.set("db", None)
    return node


def _rename_tables_of_with(tree: exp.Expression) -> None:
    """Prefixes the tables of WITH, so that none has the name of something of DuckDB's."""
    for each in tree.find_all(exp.CTE):
        each.args["alias"].set("this", exp.to_identifier(f"with.{each.alias.lower()}", quoted=True))
    for table in tree.find_all(exp.Table):
        if table.meta.get(OF_WITH):
            name = table.name
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
            table.set("this", exp.to_identifier(f"with.{name.lower()}", quoted=True))


def _like(node: exp.Like | exp.ILike, escape: exp.Expression) -> exp.Expression:
    """DuckDB's LIKE has no character that escapes, PostgreSQL's has the backslash."""
    function = "ilike_escape" if isinstance(node, exp.ILike) else "like_escape"
    call = exp.Anonymous(this=function, expressions=[node.this, node.expression, escape])
    return exp.Not(this=call) if node.args.get("negate") else call


def _subscript_of_vector(node: exp.Bracket) -> exp.Expression:
    """The first element of a vector has the subscript 0 in PostgreSQL, 1 in DuckDB. sqlglot has subtracted 1."""
    made = [exp.Add(this=exp.Paren(this=each), expression=exp.Literal.number(1)) for each in node.expressions]
    node.set("expressions", made)
    return node


def _cast_of(node: exp.Cast, contents: CatalogueContents, made: _Made) -> exp.Expression:
    target = type_of_cast(node)
    inner, source = node.this, node.this.meta.get(TYPE, UNKNOWN)
    literal = inner.this if isinstance(inner, exp.Literal) and inner.is_string else None
    if target in REGISTERED:
        if literal is not None:
            return _cast(exp.Literal.string(str(oid_of_name(target, literal, contents))), "BIGINT")
        return _oid_of(inner, source, target, made)
    if source in REGISTERED and stored_as(target) == "VARCHAR":
        return _macro(f"show_{source}", [inner], made) if f"show_{source}" in FUNCTIONS else _cast(inner, "VARCHAR")
    if literal is not None and (stored_as(target).endswith("[]") or target in INTEGERS or target == "oid"):
        return _literal_of(literal, target)
    if source in VECTORS and target == "text":
        return exp.Anonymous(this="array_to_string", expressions=[_cast(inner, "VARCHAR[]"), exp.Literal.string(" ")])
    if target == "char" and literal is None:
        return exp.Anonymous(this="left", expressions=[_cast(inner, "VARCHAR"), exp.Literal.number(1)])
    if target == "numeric" and node.to.expressions:
        return node
    return _cast(inner, stored_as(target))


def _oid_of(inner: exp.Expression, source: str, target: str, made: _Made) -> exp.Expression:
    """An oid, or a name that is looked up."""
    lookup = f"to_{target}"
    if stored_as(source) == "VARCHAR" and source != UNKNOWN and lookup in FUNCTIONS:
        return _macro(lookup, [inner], made)
    return _cast(inner, "BIGINT")


def _macro(name: str, arguments: list[exp.Expression], made: _Made) -> exp.Expression:
    function = FUNCTIONS[name]
    made.functions.add(name)
    if function.native:
        return exp.Anonymous(this=function.native, expressions=arguments)
    return exp.Anonymous(this=exp.to_identifier(f"fn.{name}", quoted=True), expressions=arguments)


def _called(node: exp.Func, contents: CatalogueContents, made: _Made) -> exp.Expression:
    name, arguments = name_of(node), arguments_of(node)
    if isinstance(node.parent, exp.Table) and name in table_functions():
        return node
    if name == "current_setting" and arguments and not isinstance(arguments[0], exp.Literal):
        return _macro("setting_of", arguments[:1], made)
    if name in SESSION_FUNCTIONS:
        return _value(call(name, contents.session, arguments), SESSION_FUNCTIONS[name][0])
    if name == "generate_subscripts" and arguments:
        vector = arguments[0].meta.get(TYPE) in VECTORS
        return _macro("subscripts_of_vector" if vector else "subscripts", arguments[:1], made)
    if name in ("array_upper", "array_lower") and arguments and arguments[0].meta.get(TYPE) in VECTORS:
        return _macro(f"{name}_of_vector", arguments, made)
    if name.startswith("to_reg") and arguments and isinstance(arguments[0], exp.Literal):
        found = oid_of_name(name.removeprefix("to_"), arguments[0].name, contents, missing=None)
        return exp.Null() if found is None else _cast(exp.Literal.string(str(found)), "BIGINT")
    if name == "pg_typeof" and len(arguments) == 1:
        return _cast(exp.Literal.string(str(_known_oid(arguments[0]))), "BIGINT")
    if name == "age" and [each.meta.get(TYPE) for each in arguments] != ["xid"]:
        raise CatalogueError("42883", "function age exists here for xid alone")
    if name in FUNCTIONS:
        _check_arity(name, arguments)
        return _macro(name, arguments, made)
    if name or type(node) not in NATIVE:
        shown = name or node.sql_name().lower()
        raise CatalogueError("42883", f"function {shown} does not exist, or is not one that the catalogue has")
    return node


def _known_oid(node: exp.Expression) -> int:
    """The oid of the node's type. Raises CatalogueError: the type was not inferred."""
    type = node.meta.get(TYPE, UNKNOWN)
    if type == UNKNOWN or type not in system_types():
        raise CatalogueError("0A000", "the catalogue does not know the type of this")
    return system_types()[type].oid


def _check_arity(name: str, arguments: Sequence[exp.Expression]) -> None:
    bodies = FUNCTIONS[name].bodies
    arities = {len([a for a in body[1 : body.index(")")].split(",") if a.strip()]) for body in bodies}
    if bodies and len(arguments) not in arities:
        raise CatalogueError("42883", f"function {name} with {len(arguments)} arguments does not exist")


def _value(value: Value, type: str) -> exp.Expression:
    if isinstance(value, list):
        return exp.Array(expressions=[exp.Literal.string(each) for each in value])
    if value is None:
        return _cast(exp.Null(), stored_as(type))
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    return _cast(exp.Literal.string(str(value)), stored_as(type))
