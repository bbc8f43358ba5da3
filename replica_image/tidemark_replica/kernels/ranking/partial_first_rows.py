"""Partial first rows: a task of a dataflow's only step thins its rows out before an exchange.

    task 0   a: 3 1 4  ──>  a: 1 3  ─┐ exchange
                                     ├──────────> a: 1 1     limit 2
    task 1   a: 1 5 9  ──>  a: 1 5  ─┘

State: none. Rows that may be taken back pass as they are; it is known at the step whether there are such
(`ranking/state/ranking_state.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.trace import file_updates
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.kernel_input import ok_and_err_chunks
from tidemark_replica.kernels.ranking.ranking import Ranking, value_ordered_rows
from tidemark_replica.kernels.ranking.state import RankingStateSpec
from tidemark_replica.kernels.ranking.thinning import has_retractions, thinned


@dataclass(frozen=True)
class PartialFirstRowsSpec:
    """The ranking behind the exchange, and its state there."""

    state: RankingStateSpec
    ranking: Ranking


def partial_first_rows(
    context: StepContext, spec: PartialFirstRowsSpec, updates: Iterable[Updates]
) -> Iterator[Updates]:
    """Yield rows among which are the first ones of each group, and the errs rows."""
    thins, layout = spec.state.adds_only(context), spec.ranking.layout
    for oks, errs in ok_and_err_chunks(context, updates, spec.ranking.types):
        if errs.num_rows:
            yield errs
        if not oks.num_rows:
            continue
        if not thins or has_retractions(oks):  # the state behind the exchange reports them
            yield oks
        else:
            yield file_updates(thinned(value_ordered_rows(oks, layout), spec.ranking), layout)
