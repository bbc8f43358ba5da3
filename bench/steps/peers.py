"""The same rounds of changes through Pathway and differential-dataflow.

pathway_100_ratio, pathway_10k_ratio   Pathway's step over ours
dd_100_ratio, dd_10k_ratio             ours over differential-dataflow's, by one worker or one per core, whichever is
                                       faster

Each also by query (dd_100_ratio_q3); the plain one is that of the least favourable query. dd_ratio is dd_100_ratio.

A peer that is not installed has null for its figures, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bench.harness.clock import Cost, wall_p50
from bench.harness.context import progress
from bench.harness.measure import Measured
from bench.harness.ratios import Figures, ratio, statistics, worst
from bench.harness.workload.queries import HYDRATED, Q1, Q3, Query
from bench.harness.workload.tpch import label
from bench.peers import differential_peer, pathway_peer
from bench.peers.absent import PeerAbsent, check_wanted
from bench.peers.exchange import Handed, PeerRun, expected, hand_over
from bench.steps.setting import Setting

QUERIES: Sequence[Query] = (Q1, Q3)
PATHWAY, DD = "pathway", "dd"
PEERS: Mapping[str, Mapping[str, Callable[[Handed], PeerRun]]] = {
    PATHWAY: {PATHWAY: pathway_peer.run},
    DD: {DD: differential_peer.run, "dd_1_worker": partial(differential_peer.run, workers=1)},
}
Steps = dict[int, list[Cost]]


def figures(given: Setting) -> tuple[Figures, dict[str, str]]:
    """(figures, why peers have none)"""
    options = given.options
    small, large = options.delta_rows, options.large_rows
    sizes = [small] * (options.warm_up + options.steps) + [large] * (1 + options.large_steps)
    with given.histories([options.lines], HYDRATED, sizes) as (history,):
        folder = hand_over(history, history.folder / "handed", history.coming)
        before = {query.name: expected(history, query) for query in QUERIES}
        views = given.measure([history], QUERIES, steps=len(sizes) - options.warm_up).views
        handed = [Handed(q, folder, before[q.name], expected(history, q)) for q in QUERIES]
        ours = {view.query.name: _by_size(view, sizes[options.warm_up :]) for view in views}
        found, absent = Figures(), dict[str, str]()
        for name, steps in ours.items():
            for size, costs in steps.items():
                found |= statistics("step", costs, f"{label(size)}_{name}")
        for peer, variants in PEERS.items():
            try:
                check_wanted(peer, options.peers)
                found |= _against(peer, variants, handed, ours)
            except PeerAbsent as reason:
                absent[peer] = str(reason)
    return found | _worst(found, sorted({small, large})), absent


def _against(
    peer: str, variants: Mapping[str, Callable[[Handed], PeerRun]], handed: Sequence[Handed], ours: Mapping[str, Steps]
) -> Figures:
    found = Figures()
    for given in handed:
        name, best = given.query.name, Steps()
        for variant, run in variants.items():
            progress(f"{variant}: {name}")
            for size, costs in run(given).rounds.items():
                counted = costs[-len(ours[name][size]) :]
                found |= statistics(f"{variant}_step", counted, f"{label(size)}_{name}")
                if size not in best or wall_p50(counted) < wall_p50(best[size]):
                    best[size] = counted
        for size, costs in best.items():
            pair = (ours[name][size], costs) if peer == DD else (costs, ours[name][size])
            found |= ratio(f"{peer}_{label(size)}", *pair, name)
    return found


def _by_size(view: Measured, sizes: Sequence[int]) -> Steps:
    """The first large step warms up for its kind."""
    steps = Steps()
    for size, cost in zip(sizes, view.steps, strict=True):
        steps.setdefault(size, []).append(cost)
    return {size: costs if size == sizes[0] else costs[1:] for size, costs in steps.items()}


def _worst(found: Figures, sizes: Sequence[int]) -> Figures:
    """The figures of the least favourable query; None if the peer is not installed."""
    names, figures = [query.name for query in QUERIES], Figures()
    for size in sizes:
        figures |= worst(found, f"{PATHWAY}_{label(size)}", names, min)
        figures |= worst(found, f"{DD}_{label(size)}", names, max)
    return figures | {"dd_ratio": figures[f"{DD}_{label(sizes[0])}_ratio"]}
