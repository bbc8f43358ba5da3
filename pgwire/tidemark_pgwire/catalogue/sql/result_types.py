"""PostgreSQL's names and types of what a query selects, and the types of its parameters.

    query ──► sources of its FROM, by alias ──► type of each expression, in `meta` of its node

DuckDB has no types `name`, `oid` or `"char"`, and names columns in its own way, so both are inferred from the tree as
PostgreSQL would (its rules of resolution are simplified to: the first operand whose type is known).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidemark_pgwire.catalogue.facts import CatalogueError
from tidemark_pgwire.catalogue.sql.functions import ARRAY, ELEMENT, FUNCTIONS, NATIVE, SAME, arguments_of, name_of
from tidemark_pgwire.catalogue.sql.session_functions import SESSION_FUNCTIONS
from tidemark_pgwire.catalogue.system_relations import find, is_system, table_functions
from tidemark_pgwire.catalogue.types import INTEGERS, array_of, element_of, resolved
from tidemark_pgwire.values.types import VECTORS

UNKNOWN, RECORD = "unknown", "record"
TYPE, OF_WITH, TABLE_OID, STAR = "pg_type", "of_with", "table_oid", "star"
"""Keys of a node's `meta`: its type; that a table is one of WITH; the oid that a column `tableoid` stands for; alias,
name and type of each column that a star stands for."""
_NUMBERS = (*INTEGERS, "numeric", "float4", "float8")
_BOOLEAN = (exp.Predicate, exp.Not, exp.And, exp.Or, exp.Is, exp.Between)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.BitwiseAnd, exp.BitwiseOr)
_OPERANDS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, *_ARITHMETIC)
Columns = Sequence[tuple[str, str]]


@dataclass
class SelectScope:
    """`sources`: columns by alias, in the order of FROM. `tables`: of WITH, by name."""

    tables: Mapping[str, Columns]
    outer: SelectScope | None = None
    sources: dict[str, Columns] = field(default_factory=dict)
    oids: dict[str, int] = field(default_factory=dict)

    def table_oid(self, table: str) -> int | None:
        """The oid of a system relation of FROM. `table` may be empty where there is one alone."""
        if not table and len(self.oids) == 1:
            return next(iter(self.oids.values()))
        return self.oids.get(table, self.outer.table_oid(table) if self.outer else None)

    def find(self, table: str, name: str) -> str | None:
        """The type of a column; None: there is none."""
        for alias, columns in self.sources.items():
            if table and alias != table:
                continue
            for column, type in columns:
                if column == name:
                    return type
            if not table and alias == name:
                return columns[0][1] if len(columns) == 1 else RECORD
        return self.outer.find(table, name) if self.outer else None


class Typing:
    """The types in one statement. `parameters`: the types of $1 …, as far as they were inferred."""

    def __init__(self) -> None:
        self.parameters: dict[int, str] = {}

    def columns_of(self, query: exp.Expression, tables: Mapping[str, Columns], outer: SelectScope | None) -> Columns:
        """Raises CatalogueError: a relation or column is not there."""
        tables = self._with(query, tables, outer)
        if isinstance(query, exp.Subquery):
            return self.columns_of(query.this, tables, outer)
        if isinstance(query, exp.SetOperation):
            return self._of_set(query, tables, outer)
        if isinstance(query, exp.Values):
            rows = [self._types(row.expressions, SelectScope(tables, outer)) for row in query.expressions]
            return [(f"column{n}", _common(types)) for n, types in enumerate(zip(*rows, strict=False), 1)]
        if not isinstance(query, exp.Select):
            raise CatalogueError("0A000", f"the catalogue does not read {query.key.upper()}")
        return self._of_select(query, tables, outer)

    def _with(
        self, query: exp.Expression, tables: Mapping[str, Columns], outer: SelectScope | None
    ) -> Mapping[str, Columns]:
        clause = query.args.get("with_")
        for each in clause.expressions if clause else ():
            alias, body = each.args["alias"], each.this
            named = [folded(column) for column in alias.columns]
            if clause.recursive and isinstance(body, exp.SetOperation):
                first = _renamed(self.columns_of(body.this, tables, outer), named)
                tables = {**tables, each.alias.lower(): first}
            tables = {**tables, each.alias.lower(): _renamed(self.columns_of(body, tables, outer), named)}
        return tables

    def _of_set(self, query: exp.SetOperation, tables: Mapping[str, Columns], outer: SelectScope | None) -> Columns:
        left = self.columns_of(query.this, tables, outer)
        right = self.columns_of(query.expression, tables, outer)
        if len(left) != len(right):
            raise CatalogueError("42601", f"each {query.key.upper()} query must have the same number of columns")
        columns = [(name, _common((a, b))) for (name, a), (_, b) in zip(left, right, strict=True)]
        self._visit_order(query, SelectScope(tables, outer, {"": columns}))
        return columns

    def _of_select(self, query: exp.Select, tables: Mapping[str, Columns], outer: SelectScope | None) -> Columns:
        scope = SelectScope(tables, outer)
        clause = query.args.get("from_")
        joins = query.args.get("joins") or []
        for source in [clause.this] if clause else []:
            self._add(source, scope)
        for source in [*(query.args.get("laterals") or []), *(join.this for join in joins)]:
            self._add(source, scope)
        columns: list[tuple[str, str]] = []
        for each in query.expressions:
            columns.extend(self._selected(each, scope))
        for name in ("where", "group", "having", "distinct", "windows"):
            if query.args.get(name):
                self._visit(query.args[name], SelectScope(tables, scope, {"": columns}) if name == "group" else scope)
        for join in joins:
            if join.args.get("on"):
                self.type_of(join.args["on"], scope)
        self._visit_order(query, SelectScope(tables, scope, {"": columns}))
        return columns

    def _visit_order(self, query: exp.Expression, scope: SelectScope) -> None:
        if query.args.get("order"):
            self._visit(query.args["order"], scope)
        for name in ("limit", "offset"):
            node = query.args.get(name)
            if node is not None and isinstance(node.expression, exp.Parameter):
                self._set(node.expression, "int8")

    def _visit(self, node: exp.Expression, scope: SelectScope) -> None:
        for child in node.iter_expressions():
            self.type_of(child, scope)

    def _add(self, source: exp.Expression, scope: SelectScope) -> None:
        """A source of FROM, with the joins that stand in its parentheses."""
        alias = source.args.get("alias")
        named = [folded(column) for column in alias.columns] if alias else []
        name, columns = self._source(source, scope)
        place = (source.alias or name).lower()
        scope.sources[place] = _renamed(columns, named)
        found = find(source.db.lower(), source.name.lower()) if isinstance(source, exp.Table) else None
        if found is not None and not source.meta.get(OF_WITH):
            scope.oids[place] = found.oid
        for join in source.args.get("joins") or []:
            self._add(join.this, scope)
            if join.args.get("on"):
                self.type_of(join.args["on"], scope)

    def _source(self, source: exp.Expression, scope: SelectScope) -> tuple[str, Columns]:
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            return source.name, self._relation(source, scope)
        if isinstance(source, exp.Table) and name_of(source.this) in table_functions():
            return self._function_source(source, scope)
        if isinstance(source, exp.Subquery) and isinstance(source.unnest(), exp.Table):
            self._add(source.this, scope)
            return "", []
        if isinstance(source, exp.Subquery):
            return "", self.columns_of(source, scope.tables, scope)
        if isinstance(source, exp.Values):
            return "", self.columns_of(source, scope.tables, scope.outer)
        if isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery):
            return "", self.columns_of(source.this, scope.tables, scope)
        return self._function_source(source, scope)

    def _function_source(self, source: exp.Expression, scope: SelectScope) -> tuple[str, Columns]:
        """A function in FROM: its column has the name of the alias, or its own."""
        called = source if isinstance(source, exp.Unnest) else source.this
        if isinstance(called, exp.Unnest):
            types = [_element(self.type_of(each, scope)) for each in called.expressions]
            name = source.alias or "unnest"
            columns = [(name, type) for type in types]
        elif name_of(called) in table_functions():
            self._types(arguments_of(called), scope)
            found = table_functions()[name_of(called)]
            name, columns = name_of(called), [(column.name, column.type) for column in found.columns]
        elif isinstance(called, exp.Func):
            name = source.alias or column_name(called)
            columns = [(name, self.type_of(called, scope))]
        else:
            raise CatalogueError("0A000", f"the catalogue does not read {source.key} in FROM")
        ordinality = called.args.get("offset") or source.args.get("ordinality")
        if ordinality:
            columns.append((ordinality.name if isinstance(ordinality, exp.Identifier) else "ordinality", "int8"))
        return name, columns

    def _relation(self, table: exp.Table, scope: SelectScope) -> Columns:
        if not table.db and table.name.lower() in scope.tables:
            table.meta[OF_WITH] = True
            return scope.tables[table.name.lower()]
        schema, name = table.db.lower(), table.name.lower()
        if not is_system(schema, name):
            raise CatalogueError("0A000", "a query reads relations of the catalogue, or others, and not both")
        found = find(schema, name)
        if found is None:
            raise CatalogueError("42P01", f'relation "{table.db}.{table.name}" does not exist')
        return [(column.name, column.type) for column in found.columns]

    def _selected(self, each: exp.Expression, scope: SelectScope) -> Columns:
        if isinstance(each, exp.Star):
            each.meta[STAR] = [(alias, *column) for alias, columns in scope.sources.items() for column in columns]
            return [column for columns in scope.sources.values() for column in columns]
        if isinstance(each, exp.Column) and isinstance(each.this, exp.Star):
            if each.table.lower() not in scope.sources:
                raise CatalogueError("42P01", f'missing FROM-clause entry for table "{each.table}"')
            each.meta[STAR] = [(each.table.lower(), *column) for column in scope.sources[each.table.lower()]]
            return scope.sources[each.table.lower()]
        return [(column_name(each), self.type_of(each, scope))]

    def _types(self, nodes: Sequence[exp.Expression], scope: SelectScope) -> list[str]:
        return [self.type_of(node, scope) for node in nodes]

    def type_of(self, node: exp.Expression, scope: SelectScope) -> str:
        """The name in pg_type; UNKNOWN of a literal text, of NULL, and of a parameter."""
        found = self._type_of(node, scope)
        node.meta[TYPE] = found
        return found

    def _type_of(self, node: exp.Expression, scope: SelectScope) -> str:
        if isinstance(node, exp.Column):
            return self._column(node, scope)
        if isinstance(node, exp.Query):
            columns = self.columns_of(node, scope.tables, scope)
            return columns[0][1] if columns else UNKNOWN
        if isinstance(node, exp.Cast):
            target = type_of_cast(node)
            if self.type_of(node.this, scope) == UNKNOWN:
                self._set(node.this, target)
            return target
        if isinstance(node, exp.Array) and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Query):
            return array_of(_text(self.type_of(node.expressions[0], scope))) or "_text"
        if isinstance(node, exp.Bracket):
            self._types(node.expressions, scope)
            return _element(self.type_of(node.this, scope))
        if isinstance(node, exp.Dot):
            self.type_of(node.this, scope)
            return "int4" if node.expression.name.lower() == "n" else "int2"
        if isinstance(node, exp.Case):
            return self._case(node, scope)
        if isinstance(node, _OPERANDS):
            return self._operands(node, scope)
        if isinstance(node, exp.Any | exp.All):
            return _element(self.type_of(node.this, scope))
        if isinstance(node, exp.In):
            return self._in(node, scope)
        return self._inferred_type(node, scope)

    def _inferred_type(self, node: exp.Expression, scope: SelectScope) -> str:
        """The type of an expression that no rule of its own covers: that of its kind, or of its first operand."""
        if isinstance(node, exp.Literal):
            return UNKNOWN if node.is_string else _number(node.name)
        if isinstance(node, exp.Null | exp.Parameter | exp.ByteString):
            return UNKNOWN
        if isinstance(node, exp.Boolean):
            return "bool"
        if isinstance(node, exp.Func) and (name_of(node) or type(node) in NATIVE):
            return self._called(node, scope)
        types = self._types([child for child in node.iter_expressions() if not isinstance(child, exp.DataType)], scope)
        if isinstance(node, _BOOLEAN):
            return "bool"
        if isinstance(node, exp.Tuple):
            return RECORD
        if isinstance(node, exp.DPipe):
            arrays = [type for type in types if type.startswith("_")]
            return arrays[0] if arrays else "text"
        return types[0] if types else UNKNOWN

    def _column(self, node: exp.Column, scope: SelectScope) -> str:
        found = scope.find(node.table.lower(), folded(node.this))
        if found is None and node.name.lower() == "tableoid" and scope.table_oid(node.table.lower()) is not None:
            node.meta[TABLE_OID] = scope.table_oid(node.table.lower())
            return "oid"
        if found is None and not node.table and node.name.lower() in ("user", "current_role"):
            return "name"
        if found is None:
            name = f"{node.table}.{node.name}" if node.table else node.name
            raise CatalogueError("42703", f'column "{name}" does not exist')
        return found

    def _case(self, node: exp.Case, scope: SelectScope) -> str:
        if node.this:
            self.type_of(node.this, scope)
        for branch in node.args["ifs"]:
            self.type_of(branch.this, scope)
        values = [branch.args["true"] for branch in node.args["ifs"]]
        if node.args.get("default"):
            values.insert(0, node.args["default"])  # the type of ELSE counts most
        return _common(self._types(values, scope))

    def _operands(self, node: exp.Expression, scope: SelectScope) -> str:
        left, right = self.type_of(node.this, scope), self.type_of(node.expression, scope)
        self._pair(node.this, node.expression, left, right)
        if not isinstance(node, _ARITHMETIC):
            return "bool"
        numbers = [type for type in (left, right) if type in _NUMBERS]
        return max(numbers, key=_NUMBERS.index) if numbers else _common((left, right))

    def _pair(self, one: exp.Expression, other: exp.Expression, left: str, right: str) -> None:
        """A parameter on one side has the type of the other; within ANY, of an array of it."""
        for node, type in ((one, right), (other, left)):
            if isinstance(node, exp.Any | exp.All):
                inner = node.this.unnest()
                self._set(inner, array_of(_text(type)) or "_text")
            else:
                self._set(node, type)

    def _in(self, node: exp.In, scope: SelectScope) -> str:
        type = self.type_of(node.this, scope)
        for value in node.expressions:
            self.type_of(value, scope)
            self._set(value, type)
        if node.args.get("query"):
            self.type_of(node.args["query"], scope)
        return "bool"

    def _called(self, node: exp.Expression, scope: SelectScope) -> str:
        types = self._types(arguments_of(node), scope)
        name = name_of(node)
        if name in SESSION_FUNCTIONS:
            return SESSION_FUNCTIONS[name][0]
        if name == "generate_subscripts":
            return "int4"
        if name and name not in FUNCTIONS:
            raise CatalogueError("42883", f"function {name} does not exist, or is not one that the catalogue has")
        result = FUNCTIONS[name].result if name else NATIVE[type(node)]
        if result == SAME:
            text = isinstance(node, exp.Min | exp.Max) and types[0] in ("name", UNKNOWN)
            return "text" if text else _common(types)
        if result == ARRAY:
            return array_of(_text(_common(types))) or "_text"
        if isinstance(node, exp.Sum) and types[0] in ("int8", "numeric"):
            return "numeric"
        return _element(types[0]) if result == ELEMENT else result

    def _set(self, node: exp.Expression, type: str) -> None:
        if isinstance(node, exp.Paren):
            self._set(node.this, type)
        elif isinstance(node, exp.Parameter) and type not in (UNKNOWN, RECORD):
            node.meta[TYPE] = type
            self.parameters.setdefault(parameter_number(node), type)


def parameter_number(node: exp.Parameter) -> int:
    """Raises CatalogueError: it is not `$N`."""
    text = str(node.name)
    if not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise CatalogueError("42601", "a parameter is written $1, $2 …")
    return int(text)


def type_of_cast(node: exp.Cast) -> str:
    """Raises CatalogueError: there is no such type."""
    written = node.to.sql("postgres").lower()
    found = resolved(written.split("(")[0] + ("[]" if written.endswith("[]") and "(" in written else ""))
    if found is None:
        raise CatalogueError("42704", f'type "{written}" does not exist')
    return found


def column_name(node: exp.Expression) -> str:
    """The name that PostgreSQL gives to a column that is selected without AS."""
    return _name(node)[0] or "?column?"


def _name(node: exp.Expression) -> tuple[str, bool]:
    """A name, and whether it is more than that of a type."""
    if isinstance(node, exp.Alias):
        return folded(node.args["alias"]), True
    if isinstance(node, exp.Column | exp.Dot):
        return folded(node.this if isinstance(node, exp.Column) else node.expression), True
    if isinstance(node, exp.Bracket | exp.Paren | exp.Collate | exp.Filter | exp.Window):
        return _name(node.this)
    if isinstance(node, exp.Cast):
        name, strong = _name(node.this)
        return (name, True) if strong else (type_of_cast(node), False)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        name, strong = _name(default) if default else ("", False)
        return (name, True) if strong else ("case", False)
    if isinstance(node, exp.Query):
        selected = node.selects
        return _name(selected[0]) if selected else ("", False)
    if isinstance(node, exp.Func) and not isinstance(node, exp.And | exp.Or | exp.RegexpLike | exp.RegexpILike):
        if isinstance(node, exp.Trim):
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "btrim"), True
        return _NAMES.get(type(node)) or name_of(node) or node.sql_name().lower(), True
    return "", False


_NAMES: Mapping[type[exp.Expression], str] = {
    exp.Explode: "unnest",
    exp.ExplodingGenerateSeries: "generate_series",
    exp.GroupConcat: "string_agg",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentRole: "current_role",
    exp.StrPosition: "position",
}


def folded(name: exp.Expression | str) -> str:
    """A name as PostgreSQL means it: in lower case unless in quotes."""
    if isinstance(name, exp.Identifier):
        return str(name.name) if name.quoted else str(name.name).lower()
    return str(name).lower() if isinstance(name, str) else str(name.name).lower()


def _renamed(columns: Columns, names: Sequence[str]) -> Columns:
    return [(names[n] if n < len(names) else name, type) for n, (name, type) in enumerate(columns)]


def _number(text: str) -> str:
    if not text.isdigit():
        return "numeric"
    return "int4" if int(text) < 2**31 else "int8" if int(text) < 2**63 else "numeric"


def _common(types: Sequence[str]) -> str:
    known = [type for type in types if type != UNKNOWN]
    if "oid" in known and set(known) <= {"oid", *INTEGERS}:
        return "oid"
    numbers = [type for type in known if type in _NUMBERS]
    if numbers and len(numbers) == len(known):
        return max(numbers, key=_NUMBERS.index)
    return known[0] if known else UNKNOWN


def _element(type: str) -> str:
    return VECTORS[type] if type in VECTORS else element_of(type) if type.startswith("_") else type


def _text(type: str) -> str:
    return "text" if type in (UNKNOWN, RECORD) else type
