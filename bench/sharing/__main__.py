"""The savings of sharing: `python -m bench.sharing [--json] [--queries q1,q3,...]`.

TPC-H's 22 queries, each as a Dataflow by itself, and all as views of one Dataflow, and three views over one subquery
(`parts`), in steps of 100 lines. "After" is the planner's plan; "before" is that plan with every arrangement kept by
each of its readers, and each shared part computed by them. Both take turns over the same shards, and both hold what
DuckDB computes, before any figure is reported.

    state_ratio_QUERY   bytes of all arrangements, after over before; `together`, `parts`: of the one Dataflow; plain:
                        together
    step_ratio_QUERY    a step, after over before; plain: the greatest
    rows_ratio_QUERY    rows of all arrangements, after over before

With `--orders q5,q8,q9`, only the order of a join's inputs: "after" is the chosen one, "before" that of the text, with
primary keys and row counts known (`orders.py`).

    hydration_ratio_QUERY    a hydration, after over before, each the second one of its plan

With `--rollups`, aggregates of joins: "after" takes them before the join, too, "before" after it alone
(`reduced_first.py`). The figures are the same; `state_ratio` is the greatest.

A query whose plan shares nothing has one form, so its ratios are 1 without a measurement: `alike` of the context.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.engine import View
from bench.harness.query import Facts, Shards, described, planned_together
from bench.harness.ratios import Figures, ratio, rounded, statistics, worst
from bench.harness.workload.queries import Query, tables_of
from bench.harness.workload.tpch_history import TpchHistory
from bench.harness.workload.tpch_queries import ALL_SCHEMAS, TPCH
from bench.sharing.orders import facts, planned_in_text_order
from bench.sharing.reduced_first import ROLLUPS, planned_after_joins
from bench.steps.setting import Options, Setting, setting
from tests.oracle.variants.unshared import kept_apart
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.plan.dataflow import DataflowDescription

NAMES = [query.name for query in TPCH]
TOGETHER, PARTS = "together", "parts"
_ORDERED = """SELECT l_orderkey, count(*) AS lines, sum(l_quantity) AS quantity, max(l_extendedprice) AS price
    FROM {lineitem} GROUP BY l_orderkey"""
OF_ONE_PART = (
    Query("large", f"{_ORDERED} HAVING sum(l_quantity) > 250"),
    Query("long", f"{_ORDERED} HAVING count(*) > 6"),
    Query(
        "by_priority",
        f"""SELECT o_orderpriority, sum(p.lines) AS lines, sum(p.quantity) AS quantity, max(p.price) AS price
        FROM {{orders}} JOIN ({_ORDERED}) p ON o_orderkey = p.l_orderkey GROUP BY o_orderpriority""",
    ),
)
"""Views over one subquery, each with its own condition or join."""
WAYS = ("before", "after")
Otherwise = Callable[[Any, Mapping[str, str], Shards, Facts], Planned]
"""A plan of views that is not the chosen one."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "small tables, three queries")
    parser.add_argument("--lines", type=int, default=600_000, help="rows of lineitem (%(default)s: a tenth of SF1)")
    parser.add_argument("--queries", default=",".join(NAMES), help="which of them (%(default)s)")
    parser.add_argument("--orders", default="", help="queries whose join orders are compared, such as q5,q8,q9")
    parser.add_argument("--rollups", action="store_true", help="aggregates before and after joins are compared")
    parser.add_argument("--steps", type=int, default=20, help="deltas that are timed (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=5, help="deltas before those (%(default)s)")
    parser.add_argument("--delta-rows", type=int, default=100, help="rows of a delta (%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(lines=12_000, queries="q3,q11,q18", steps=2, warm_up=1, delta_rows=10)
    ordered = given.orders.split(",") if given.orders else []
    if unknown := {*given.queries.split(","), *ordered} - set(NAMES):
        parser.error(f"there is no query {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
    circumstances = context() | {"load_before": load(), **vars(given)}
    queries = [query for query in TPCH if query.name in given.queries.split(",")]
    options = Options(lines=given.lines, steps=given.steps, warm_up=given.warm_up, delta_rows=given.delta_rows)
    with setting(options) as held:
        if given.rollups:
            figures, alike = _chosen(held, ROLLUPS, planned_after_joins)
            figures["state_ratio"] = max(figures[f"state_ratio_{query.name}"] or 0 for query in ROLLUPS)
        elif ordered:
            figures, alike = _chosen(held, [q for q in TPCH if q.name in ordered], planned_in_text_order)
        else:
            figures, alike = _run(held, queries)
    report("sharing", figures, circumstances | {"alike": alike, "load_after": load()}, given.json)


def _run(given: Setting, queries: Sequence[Query]) -> tuple[Figures, list[str]]:
    groups = {**{query.name: [query] for query in queries}, TOGETHER: list(queries), PARTS: list(OF_ONE_PART)}
    ticks = [given.options.delta_rows] * ((given.options.warm_up + given.options.steps) * len(groups))
    figures, alike = Figures(), list[str]()
    progress(f"{given.options.lines} lines: data, shards, DuckDB")
    with tempfile.TemporaryDirectory(dir=given.folder) as home:
        history = TpchHistory(Path(home), given.options.lines, [*queries, *OF_ONE_PART], ticks, ALL_SCHEMAS)
        for name, views in groups.items():
            after = _planned(given, history, name, views)
            before = kept_apart(after)
            if before == after:
                alike.append(name)
                figures |= dict.fromkeys(
                    [f"{each}_ratio_{name}" for each in ("state", "rows", "step", "step_cpu")], 1.0
                )
                continue
            figures |= _compared(given, history, name, views, {"before": before, "after": after})
        history.close()
    figures["state_ratio"] = figures.get(f"state_ratio_{TOGETHER}")
    return rounded(figures | worst(figures, "step", list(groups), max)), alike


def _chosen(given: Setting, queries: Sequence[Query], otherwise: Otherwise) -> tuple[Figures, list[str]]:
    """The chosen plan of each query, after, and another one, before."""
    figures, alike = Figures(), list[str]()
    ticks = [given.options.delta_rows] * ((given.options.warm_up + given.options.steps) * len(queries) * 2)
    with tempfile.TemporaryDirectory(dir=given.folder) as home:
        history = TpchHistory(Path(home), given.options.lines, queries, ticks, ALL_SCHEMAS)
        known = facts(history)
        for query in queries:
            asked, shards = {query.name: query.sql}, _shards(history, [query])
            other = otherwise(given.driver.session, asked, shards, known)
            chosen = planned_together(given.driver.plan, asked, shards, known=known)
            if other.objects == chosen.objects:
                alike.append(query.name)
                continue
            plans = {"before": other, "after": chosen}
            for name in (f"{query.name}-cold", query.name):  # the first hydrations start processes and compile
                made = {way: described(plan, history.now, name) for way, plan in plans.items()}
                of_all = _compared(given, history, name, [query], made)
            figures |= of_all
        history.close()
    names = [query.name for query in queries]
    return rounded(figures | worst(figures, "step", names, max) | worst(figures, "hydration", names, max)), alike


def _shards(history: TpchHistory, views: Sequence[Query]) -> Shards:
    return {table: (history.sources[table].location, history.sources[table].schema) for table in tables_of(views)}


def _planned(given: Setting, history: TpchHistory, name: str, views: Sequence[Query]) -> DataflowDescription:
    asked = {view.name: view.sql for view in views}
    return described(planned_together(given.driver.plan, asked, _shards(history, views)), history.now, name)


def _compared(
    given: Setting,
    history: TpchHistory,
    name: str,
    queries: Sequence[Query],
    descriptions: Mapping[str, DataflowDescription],
) -> Figures:
    """Both forms of one Dataflow, in turns."""
    sources = {table: history.sources[table] for table in tables_of(queries)}
    views = {
        way: View(given.driver.session, history.folder / f"{name}-{way}", d, sources, given.driver.workers)
        for way, d in descriptions.items()
    }
    hydrations = {way: measured(view.hydrate)[0] for way, view in views.items()}
    progress(f"{name}: hydrated in {' and '.join(f'{h.wall / 1e3:.1f} s' for h in hydrations.values())}")
    _check(history, queries, views)
    costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
    for number in range(given.options.warm_up + given.options.steps):
        history.tick()
        for way in WAYS if number % 2 else reversed(WAYS):
            cost, phases = measured(views[way].step)
            if number >= given.options.warm_up:
                costs[way].append(Cost(phases.all, cost.cpu))
    _check(history, queries, views)
    figures = ratio("step", costs["after"], costs["before"], name)
    figures |= ratio("hydration", [hydrations["after"]], [hydrations["before"]], name)
    for way, view in views.items():
        rows, size = view.state
        figures |= statistics("step", costs[way], f"{name}_{way}")
        figures |= {f"state_rows_{name}_{way}": rows, f"state_mib_{name}_{way}": size / 2**20}
        figures |= {
            f"arrangements_{name}_{way}": view.arrangements,
            f"hydration_s_{name}_{way}": hydrations[way].wall / 1e3,
        }
        view.close()
    for figure, kept in (("state", "state_mib"), ("rows", "state_rows")):
        after, before = (figures[f"{kept}_{name}_{way}"] for way in ("after", "before"))
        figures[f"{figure}_ratio_{name}"] = after / before if after and before else None
    return figures


def _check(history: TpchHistory, queries: Sequence[Query], views: Mapping[str, View]) -> None:
    """Raises WrongAnswer unless every view, in both forms, is what DuckDB computes."""
    for number, query in enumerate(queries):
        wanted = history.answer(query)[1]
        for way, view in views.items():
            what = f"{query.name}, {way}, after {history.ticks} deltas, compared with DuckDB"
            check(what, view.answer(number), wanted)


if __name__ == "__main__":
    main()
