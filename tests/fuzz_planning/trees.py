"""Mutations of a statement's tree, as sqlglot parses it: what comes is mostly valid SQL.

    SELECT a FROM t WHERE b > 1   ──►   SELECT (SELECT max(a) FROM u) AS a FROM t WHERE EXISTS (SELECT ...) > 1

A mutation takes the tree, a donor (the tree of another statement) and the generator of random numbers. It changes the
tree in place, or returns another one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

DIALECT = "spark"
NAMED, AT_HOME = 0.8, 0.8
"""The share of statements whose columns are named, and of expressions that read columns of their new place."""
Tree: TypeAlias = exp.Expression
Mutation = Callable[[Tree, Tree, random.Random], Tree]
_LITERALS = (
    "NULL", "0", "-1", "1.5", "9223372036854775807", "1e300", "''", "'x'", "true", "DATE '2020-02-30'", "X'00'",
    "DATE '2020-01-31'", "TIMESTAMP '2020-01-01 00:00:00'", "INTERVAL 1 DAY", "INTERVAL 2 MONTH", "'today'", "now()",
    "CAST(NULL AS string)", "array(1, NULL)", "named_struct('a', 1)", "1L", "CAST(2 AS decimal(38, 10))",
)  # fmt: skip
_WRAPPERS = (
    "sum({})", "count(DISTINCT {})", "max({})", "first({})", "string_agg({}, ',')", "median({})", "max_by({}, 1)",
    "sum({}) OVER (PARTITION BY 1)", "row_number() OVER (ORDER BY {})", "lag({}) OVER (ORDER BY 1)",
    "rank() OVER (PARTITION BY {} ORDER BY {})", "avg({}) OVER (ORDER BY 1 ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
    "(SELECT {})", "(SELECT sum({}) OVER ())", "EXISTS (SELECT {})", "({}) IN (SELECT {})", "coalesce({}, {})",
    "CASE WHEN {} THEN {} END", "CAST({} AS string)", "TRY_CAST({} AS int)", "({}) IS NULL", "NOT ({})", "explode({})",
    "array({}, {})", "transform(array({}), x -> x)", "struct({}, {})", "10 / ({})", "({}) = ({})", "({}) <=> ({})",
    "sum({}) FILTER (WHERE {})", "grouping({})", "upper({})", "date_add({}, 1)", "nullif({}, {})",
    "percentile({}, 0.5)", "try_sum({})", "bool_and({})", "({}) BETWEEN 1 AND {}", "({}) LIKE ({})",
    "count(*) OVER (ORDER BY {} RANGE 1 PRECEDING)",
)  # fmt: skip
_JOINS = (
    "CROSS JOIN {0}", "LEFT JOIN {0} ON {1}", "FULL JOIN {0} ON {1}", "LEFT SEMI JOIN {0} ON {1}",
    "LEFT ANTI JOIN {0} ON {1}", "NATURAL JOIN {0}", "JOIN LATERAL (SELECT * FROM {0} WHERE {1})",
    "LEFT JOIN LATERAL (SELECT * FROM {0} WHERE {1} LIMIT 1) ON {1}", "JOIN {0} ON {1}",
)  # fmt: skip
_WHOLE = (
    "SELECT * FROM ({0}) AS q",
    "SELECT DISTINCT * FROM ({0}) AS q LIMIT 3",
    "SELECT count(*) AS n FROM ({0}) AS q",
    "SELECT * FROM ({0}) AS q ORDER BY 1 DESC LIMIT 2 OFFSET 1",
    "SELECT *, row_number() OVER (ORDER BY 1) AS rn FROM ({0}) AS q",
    "SELECT * FROM (SELECT *, rank() OVER (ORDER BY 1) AS rn FROM ({0}) AS p) AS q WHERE rn <= 2",
    "WITH w AS ({0}) SELECT * FROM w AS a CROSS JOIN w AS b",
    "WITH w AS ({0}) SELECT * FROM w WHERE EXISTS (SELECT * FROM w AS v LIMIT 1)",
    "({0}) UNION ALL ({0})",
    "({0}) EXCEPT ({0})",
    "({0}) INTERSECT ALL ({1})",
    "({0}) UNION ({1})",
    "SELECT * FROM ({0}) AS q WHERE EXISTS ({1})",
    "SELECT * FROM ({0}) AS q, LATERAL ({1}) AS r",
    "SELECT * FROM ({0}) AS q WHERE 1 IN ({1})",
    "SELECT ({1}) AS s FROM ({0}) AS q",
    "SELECT * FROM ({0}) AS q GROUP BY ALL",
    "SELECT count(*) AS n FROM ({0}) AS q GROUP BY EXISTS ({1})",
    "WITH RECURSIVE w AS ({0} UNION SELECT * FROM w) SELECT * FROM w",
)
_DROPPED = ("where", "having", "group", "order", "limit", "offset", "distinct", "joins", "with_", "qualify")


@lru_cache(4096)
def parsed(sql: str) -> Tree | None:
    """The tree, not to be changed; None where sqlglot cannot parse the text."""
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    try:
        found = sqlglot.parse_one(sql, read=DIALECT)
    except (SqlglotError, RecursionError):
        return None
    return found if isinstance(found, exp.Query) else None


def mutated(sql: str, donor: str, rng: random.Random, times: int) -> str | None:
    """The statement after so many mutations; None where a text cannot be parsed or the tree cannot be written."""
    tree, other = parsed(sql), parsed(donor)
    if tree is None or other is None:
        return None
    made = tree.copy()
    for _ in range(times):
        made = rng.choice(_MUTATIONS)(made, other, rng)
    if rng.random() < NAMED:
        _name_outputs(made)
    try:
        return str(made.sql(dialect=DIALECT))
    except (SqlglotError, RecursionError, AttributeError, TypeError, ValueError, KeyError):
        return None


def _expressions(tree: Tree) -> list[Tree]:
    """Expressions that stand for a value, other than whole queries."""
    return [n for n in tree.walk() if isinstance(n, exp.Condition) and n.parent and not isinstance(n.parent, exp.Table)]


def _read(text: str) -> Tree:
    return sqlglot.parse_one(text, read=DIALECT)


def _text(tree: Tree) -> str:
    return str(tree.sql(dialect=DIALECT))


def _name_outputs(tree: Tree) -> None:
    """A view needs a name for each column."""
    select = tree if isinstance(tree, exp.Select) else None
    for at, output in enumerate(select.expressions if select else ()):
        if not isinstance(output, exp.Alias | exp.Column | exp.Star):
            output.replace(exp.alias_(output.copy(), f"c{at}"))


def _at_home(given: Tree, tree: Tree, rng: random.Random) -> Tree:
    """A copy of the donor's expression, mostly over columns of the tree's own."""
    made, columns = given.copy(), list(tree.find_all(exp.Column))
    if columns and rng.random() < AT_HOME:
        for column in list(made.find_all(exp.Column)):
            if column is made:
                return rng.choice(columns).copy()
            column.replace(rng.choice(columns).copy())
    return made


def _replace_by_donor(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    own, others = _expressions(tree), _expressions(donor)
    if own and others:
        rng.choice(own).replace(_at_home(rng.choice(others), tree, rng))
    return tree


def _swap(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    own = _expressions(tree)
    if own:
        one, other = rng.choice(own), rng.choice(own)
        left, right = one.copy(), other.copy()
        one.replace(right)
        other.replace(left)
    return tree


def _replace_by_literal(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    own = _expressions(tree)
    if own:
        rng.choice(own).replace(_read(rng.choice(_LITERALS)))
    return tree


def _wrap(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    own = _expressions(tree)
    if own:
        chosen, wrapper = rng.choice(own), rng.choice(_WRAPPERS)
        others = [chosen, *_expressions(donor)[:20]] if rng.random() < 0.2 else own
        texts = [_text(chosen), *(_text(rng.choice(others)) for _ in range(wrapper.count("{}") - 1))]
        chosen.replace(_read(wrapper.format(*texts)))
    return tree


def _wrap_in_query(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    """An expression beside, or inside, a query of the donor's."""
    own, queries = _expressions(tree), list(donor.find_all(exp.Select))
    if own and queries:
        chosen, query = rng.choice(own), _text(rng.choice(queries))
        form = rng.choice(("({1})", "EXISTS ({1})", "({0}) IN ({1})", "({0}) NOT IN ({1})", "({0}) > ({1})"))
        chosen.replace(_read(form.format(_text(chosen), query)))
    return tree


def _correlate(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    """A condition of an inner query that reads a column of an outer one."""
    inner = [s for s in tree.find_all(exp.Select) if s.parent_select is not None]
    if inner:
        select = rng.choice(inner)
        outer = select.parent_select
        columns = list(outer.find_all(exp.Column)) if outer is not None else []
        mine = list(select.find_all(exp.Column))
        if columns and mine:
            condition = f"{_text(rng.choice(mine))} {rng.choice(('=', '<', '<=>'))} {_text(rng.choice(columns))}"
            select.where(_read(condition), copy=False)
    return tree


def _drop(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    selects = list(tree.find_all(exp.Select))
    held = [(s, part) for s in selects for part in _DROPPED if s.args.get(part)]
    if held:
        select, part = rng.choice(held)
        select.set(part, [] if part == "joins" else None)
    return tree


def _add_clause(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    selects = list(tree.find_all(exp.Select))
    others = list(donor.find_all(exp.Select))
    held = [(s, part) for s in others for part in _DROPPED if s.args.get(part)]
    if selects and held:
        given, part = rng.choice(held)
        value = given.args[part]
        copied = [v.copy() for v in value] if isinstance(value, list) else value.copy()
        rng.choice(selects).set(part, copied)
    return tree


def _join(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    selects = [s for s in tree.find_all(exp.Select) if s.args.get("from_")]
    tables = [t for t in (*tree.find_all(exp.Table), *donor.find_all(exp.Table)) if not t.args.get("joins")]
    conditions = [e for e in (*_expressions(tree), *_expressions(donor)) if isinstance(e, exp.Predicate)]
    if selects and tables:
        select, table = rng.choice(selects), _text(rng.choice(tables).copy())
        condition = _text(rng.choice(conditions)) if conditions else "true"
        made = _read(f"SELECT 1 FROM a {rng.choice(_JOINS).format(table, condition)}")
        select.append("joins", made.args["joins"][0].copy() if made.args.get("joins") else None)
    return tree


def _nest_table(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    tables = [t for t in tree.find_all(exp.Table) if t.parent and isinstance(t.parent, exp.From | exp.Join)]
    if tables:
        table = rng.choice(tables)
        query = rng.choice(("SELECT * FROM {0}", "SELECT DISTINCT * FROM {0}", "SELECT * FROM {0} LIMIT 2"))
        alias = table.alias_or_name or "q"
        table.replace(_read(f"SELECT 1 FROM ({query.format(_text(table))}) AS `{alias}`").args["from_"].this.copy())
    return tree


def _nest_whole(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    return _read(rng.choice(_WHOLE).format(_text(tree), _text(donor)))


def _group(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    selects, own = list(tree.find_all(exp.Select)), _expressions(tree)
    if selects and own:
        form = rng.choice(("{0}", "{0}, {1}", "ROLLUP ({0}, {1})", "CUBE ({0})", "GROUPING SETS (({0}), ({1}), ())"))
        keys = form.format(_text(rng.choice(own)), _text(rng.choice(own)))
        rng.choice(selects).set("group", _read(f"SELECT 1 FROM a GROUP BY {keys}").args["group"])
    return tree


def _order(tree: Tree, donor: Tree, rng: random.Random) -> Tree:
    selects, own = list(tree.find_all(exp.Select)), _expressions(tree)
    if selects and own:
        made = _read(f"SELECT 1 FROM a ORDER BY {_text(rng.choice(own))} DESC LIMIT {rng.randint(0, 3)}")
        select = rng.choice(selects)
        for part in ("order", "limit"):
            select.set(part, made.args[part].copy())
    return tree


_MUTATIONS: tuple[Mutation, ...] = (
    _replace_by_donor, _swap, _replace_by_literal, _wrap, _wrap, _wrap, _wrap_in_query, _wrap_in_query, _correlate,
    _drop, _add_clause, _join, _nest_table, _nest_whole, _group, _order,
)  # fmt: skip
