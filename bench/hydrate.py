"""The cost of hydrating a view: `python -m bench.hydrate [--json]`.

Views like TPC-H's Q1, Q3, Q5 and Q18, from shards to an index. Rows are compared before times: ours with DuckDB's at
the same data, and those of all other engines with the same.

    spark_batch_ratio_QUERY   ours over Spark computing the query from Parquet, as a batch; plain: the greatest
    pathway_ratio_QUERY       Pathway, from CSV files, over ours; plain: the least
    dd_ratio_QUERY            ours over differential-dataflow, from rows in memory; plain: the greatest

Ratios are by the clock; ..._cpu_ratio are by CPU time, which neighbours change less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.harness.answers import check
from bench.harness.clock import Cost
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.measure import Run
from bench.harness.ratios import Figures, ratio, rounded, statistics, worst
from bench.harness.workload.queries import HYDRATED, Query
from bench.harness.workload.tpch_history import TpchHistory
from bench.peers import differential_peer, pathway_peer
from bench.peers.absent import PEERS as PEER_NAMES
from bench.peers.absent import PeerAbsent, check_wanted
from bench.peers.exchange import Handed, PeerRun, expected, hand_over
from bench.peers.spark_batch import recompute
from bench.steps.setting import Options, Setting, setting

NAMES = [query.name for query in HYDRATED]
PEERS: Mapping[str, Callable[[Handed], PeerRun]] = {"pathway": pathway_peer.run, "dd": differential_peer.run}
WARM_UP_LINES = 6000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "small tables")
    parser.add_argument("--lines", type=int, default=6_000_000, help="rows of lineitem (%(default)s: SF1)")
    parser.add_argument("--queries", default=",".join(NAMES), help="which of them (%(default)s)")
    parser.add_argument("--repeat", type=int, default=2, help="how often each is hydrated and computed (%(default)s)")
    parser.add_argument("--peers", default=",".join(PEER_NAMES), help="engines outside of Python (%(default)s)")
    parser.add_argument("--spark-memory", default="4g", help="heap of the Spark that runs batches (%(default)s)")
    given = parser.parse_args(arguments)
    lines = 60_000 if given.quick else given.lines
    circumstances = context() | {"load_before": load(), "lines": lines, "repeat": given.repeat}
    queries = [query for query in HYDRATED if query.name in given.queries.split(",")]
    options = Options(spark_memory=given.spark_memory, peers=given.peers)
    figures, absent = _run(queries, lines, given.repeat, options)
    report("hydrate", figures, circumstances | {"absent": absent, "load_after": load()}, given.json)


def _run(queries: Sequence[Query], lines: int, repeat: int, options: Options) -> tuple[Figures, dict[str, str]]:
    figures, absent = Figures(), dict[str, str]()
    with setting(options) as given:
        with given.histories([WARM_UP_LINES], queries, [2]) as (small,):
            for query in queries:
                _ours(given, small, query, 1)
        with given.histories([lines], HYDRATED, [2]) as (history,):
            folder = hand_over(history, history.folder / "handed", ())
            for query in queries:
                ours = _ours(given, history, query, repeat)
                figures |= statistics("hydration", ours, query.name)
                figures |= ratio("spark_batch", ours, _spark(history, query, options.spark_memory, repeat), query.name)
                rows = expected(history, query)
                for peer, run in PEERS.items():
                    try:
                        check_wanted(peer, given.options.peers)
                        progress(f"{peer}: {query.name}")
                        theirs = [run(Handed(query, folder, rows, rows)).hydration]
                    except PeerAbsent as reason:
                        absent[peer] = str(reason)
                        continue
                    pair = (ours, theirs) if peer == "dd" else (theirs, ours)
                    figures |= statistics(peer, theirs, query.name) | ratio(peer, *pair, query.name)
    names = [query.name for query in queries]
    for name, pick in (("spark_batch", max), ("pathway", min), ("dd", max)):
        figures |= worst(figures, name, names, pick)
    return rounded(figures), absent


def _ours(given: Setting, history: TpchHistory, query: Query, repeat: int) -> list[Cost]:
    """Each time from shards to an index, checked, and thrown away."""
    return [Run(given.driver, history, query).finish().hydration for _ in range(repeat)]


def _spark(history: TpchHistory, query: Query, memory: str, repeat: int) -> Sequence[Cost]:
    progress(f"Spark as a batch: {query.name}")
    costs, answer = recompute(history.tables, query, history.folder, memory, repeat, cached=False)
    check(f"Spark, {query.name}, compared with DuckDB", answer, history.answer(query)[1])
    return costs.parquet


if __name__ == "__main__":
    main()
