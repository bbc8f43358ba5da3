"""Table functions of other engines as Spark's: a relation of one column, named as the other engine names it.

generate_series(1, 3) AS g(i)     ──►     (SELECT id AS i FROM range(1, 3 + 1)) AS g
unnest([1, 2]) AS u(x)            ──►     (SELECT explode(array(1, 2)) AS x) AS u
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from tidemark_planner.dialects.errors import NotTranslated


def as_relation(node: Any) -> exp.Expression:
    """A table, or a function in the place of one. Raises NotTranslated."""
    function = node.this
    if not isinstance(function, exp.GenerateSeries | exp.ExplodingGenerateSeries):
        if isinstance(function, exp.Func):
            raise NotTranslated(f"what {function.sql_name()} means as a relation is not known here", function)
        return node
    others = [name for name, value in node.args.items() if value and name not in ("this", "alias", "joins")]
    if others:
        raise NotTranslated(f"what {', '.join(others)} of {function.sql_name()} means is not known here", function)
    alias = node.args.get("alias")
    own = "range" if function.args.get("is_end_exclusive") else "generate_series"
    name = alias.name if alias is not None and alias.name else own
    columns = (alias.args.get("columns") or []) if alias is not None else []
    step = function.args.get("step") or exp.Literal.number(1)
    backwards = isinstance(step, exp.Neg)
    end = function.args["end"]
    if not function.args.get("is_end_exclusive"):
        end = (exp.Sub if backwards else exp.Add)(this=exp.paren(end.copy()), expression=exp.Literal.number(1))
    numbers = exp.Anonymous(this="range", expressions=[function.args["start"].copy(), end.copy(), step.copy()])
    shown = columns[0].name if columns else name if alias is not None and alias.name and own != "range" else own
    rows = exp.select(exp.alias_(exp.column("id"), shown)).from_(exp.Table(this=numbers))
    made = rows.subquery(name)
    if node.args.get("joins"):
        made.set("joins", node.args["joins"])
    return made
