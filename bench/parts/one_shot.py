"""A query with operators beside the same query as a view that hydrates: `python -m bench.parts.one_shot [--json]`.

The query is computed at one time and dropped; the view goes on. Both begin with the same shards and the same plan. The
query knows that its tables are append-only, as it does of most tables of a load generator.

    one_shot_ratio_QUERY          the query over the view, by the clock; ..._cpu_ratio_QUERY by CPU time
    kept_ratio_QUERY              bytes in scratch after the step, the query's over the view's
    peak_ratio_QUERY              the most bytes in scratch at once, the query's over the view's
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.engine import View
from bench.harness.measure import Engine
from bench.harness.peaks import sampled_peak
from bench.harness.query import describe
from bench.harness.ratios import Figures, ratio, rounded, statistics
from bench.harness.workload.queries import HYDRATED, STATE, Query
from bench.harness.workload.tpch_history import TpchHistory
from bench.steps.setting import Options, setting
from tidemark_protocol.ids import Time

FIRST_TEN = Query(
    "first_ten", "SELECT l_orderkey, l_linenumber, l_extendedprice FROM {lineitem} ORDER BY 3 DESC, 1, 2 LIMIT 10"
)
MOST = Query("most", "SELECT l_partkey, max(l_extendedprice) AS most FROM {lineitem} GROUP BY l_partkey", exact=False)
QUERIES = (*HYDRATED, FIRST_TEN, MOST, *(query for query in STATE if query.name in ("join", "distinct", "topk")))
WARM_UP_LINES, POLL_SECONDS = 6000, 0.005


@dataclass(frozen=True)
class Hydrated:
    """The cost of a hydration, and the bytes in scratch: kept after it, and the most at once."""

    cost: Cost
    kept: int
    peak: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "small tables")
    parser.add_argument("--lines", type=int, default=600_000, help="rows of lineitem (%(default)s: SF0.1)")
    parser.add_argument("--queries", default=",".join(q.name for q in QUERIES), help="which of them (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="how often each is computed (%(default)s)")
    given = parser.parse_args(arguments)
    lines = 60_000 if given.quick else given.lines
    circumstances = context() | {"load_before": load(), "lines": lines, "repeat": given.repeat}
    queries = [query for query in QUERIES if query.name in given.queries.split(",")]
    figures = rounded(_run(queries, lines, given.repeat))
    report("one_shot", figures, circumstances | {"load_after": load()}, given.json)


def _run(queries: Sequence[Query], lines: int, repeat: int) -> Figures:
    figures = Figures()
    with setting(Options()) as given, given.histories([WARM_UP_LINES, lines], queries, [2]) as (small, history):
        for query in queries:
            _hydrated(given.driver, small, query, once=True)
            views, shots = list[Hydrated](), list[Hydrated]()
            for _ in range(repeat):  # by turns: neighbours slow both
                views.append(_hydrated(given.driver, history, query, once=False))
                shots.append(_hydrated(given.driver, history, query, once=True))
            costs, others = [s.cost for s in shots], [v.cost for v in views]
            figures |= statistics("one_shot", costs, query.name) | ratio("one_shot", costs, others, query.name)
            for name, of in (("kept", lambda h: h.kept), ("peak", lambda h: h.peak)):
                query_bytes, view_bytes = max(map(of, shots)), max(map(of, views))
                figures[f"{name}_bytes_{query.name}"] = query_bytes
                figures[f"{name}_ratio_{query.name}"] = query_bytes / max(view_bytes, 1)
    return figures


def _hydrated(engine: Engine, history: TpchHistory, query: Query, *, once: bool) -> Hydrated:
    """From shards to an index, checked, and thrown away."""
    home = Path(tempfile.mkdtemp(prefix=query.name, dir=history.folder))
    sources = {name: history.sources[name] for name in query.tables}
    shards = {name: (source.location, source.schema) for name, source in sources.items()}
    description = describe(engine.plan, query.sql, shards, history.now)
    if once:
        growing = tuple(replace(each, monotonic=True) for each in description.source_imports)
        description = replace(description, until=Time(history.now + 1), source_imports=growing)
    view = View(engine.session, home, description, sources, engine.workers, engine.max_rows)
    with sampled_peak(lambda: _bytes_in(home), POLL_SECONDS) as sampled:
        cost, _ = measured(view.hydrate)
    kept, peak = view.state[1], int(sampled[0])
    check(f"{query.name}, compared with DuckDB", view.answer(), history.answer(query)[1])
    view.close()
    progress(f"{query.name}, {'query' if once else 'view'}: {cost.wall / 1e3:.2f} s, {kept} bytes, {peak} at most")
    return Hydrated(cost, kept, max(peak, kept))


def _bytes_in(folder: Path) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.stat(os.path.join(root, file)).st_size
            except FileNotFoundError:  # deleted meanwhile
                continue
    return total


if __name__ == "__main__":
    main()
