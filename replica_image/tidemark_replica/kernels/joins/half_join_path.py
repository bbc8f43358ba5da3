"""The first path of a delta join as separate operators, so that each lookup can run in the tasks that hold its rows.

    input 0 ─exchange by k1─┐                 ┌─exchange by k2─┐
                            ├─ half_join ─────┘                ├─ half_join ──> the joined rows
    input 1 ─exchange by k1─┘  (keeps input 1 by k1)   input 2 ┘
    input 1 ─exchange by k2─── arrange_input                                     for other paths, in later steps

Right for a hydration that ends with the as_of: all updates then have one time, and the first input's path sees all of
them (`half_join`). State and output are those of `delta_join`. Cost: the inputs and the matches on the path. In a
dataflow's only step there are no other paths, and no arrangements for them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidemark_replica.arrangement.rows.updates import Updates, as_error_rows, rechunk
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.joins.half_join import ArrangementLookup, HalfJoin
from tidemark_replica.kernels.kernel_input import net_oks, ok_and_err_chunks


@dataclass(frozen=True)
class ArrangeInputSpec:
    """An input of a delta join, and one arrangement of it."""

    arrangement: ArrangementId
    types: tuple[pa.DataType, ...]
    output_types: tuple[pa.DataType, ...]
    errors: bool
    """Whether the input's errs rows come out here. They come out at one of its arrangements."""


@dataclass(frozen=True)
class HalfJoinSpec:
    """A lookup on the first path."""

    lookup: ArrangementLookup
    stream_types: tuple[pa.DataType, ...]
    output_types: tuple[pa.DataType, ...]
    arranged_input: ArrangeInputSpec | None
    """The input that is looked up; None: a shared arrangement."""
    errors: bool
    """Whether the errs rows of a shared arrangement come out here."""


def arrange_input(context: StepContext, spec: ArrangeInputSpec, updates: Iterable[Updates]) -> Iterator[Updates]:
    """Arrange the input's ok rows. Yields its errs rows."""
    runs = StepRuns(context, spec.arrangement)
    yield from _arranged(context, spec, updates, runs)
    runs.commit_state()


def half_join(
    context: StepContext, spec: HalfJoinSpec, met: Iterable[Updates], stream: Iterable[Updates]
) -> Iterator[Updates]:
    """Yield the stream's updates with their matches. Reads `met`, the input looked up, to its end first."""
    runs: dict[ArrangementId, StepRuns] = {}
    if spec.arranged_input is not None:
        runs[spec.arranged_input.arrangement] = own = StepRuns(context, spec.arranged_input.arrangement)
        yield from _arranged(context, spec.arranged_input, met, own)
    elif spec.errors and context.share.index == 0:
        errs = context.trace(spec.lookup.arrangement).errors_at(context.lower)
        yield as_error_rows(errs, spec.output_types)
    join = HalfJoin(context, 0, spec.lookup, runs)
    for oks, errs in ok_and_err_chunks(context, stream, spec.stream_types):
        if errs.num_rows:
            yield as_error_rows(errs, spec.output_types)
        joined = join.feed([oks] if oks.num_rows else [])
        yield from (packed for _, packed in rechunk(((None, out) for out in joined), context.chunk_rows))
    for each in runs.values():
        each.commit_state()


def _arranged(
    context: StepContext, spec: ArrangeInputSpec, updates: Iterable[Updates], runs: StepRuns
) -> Iterator[Updates]:
    layout = context.manifest(spec.arrangement).layout
    for oks, errs in ok_and_err_chunks(context, updates, spec.types, context.run_rows):
        if errs.num_rows and spec.errors:
            yield as_error_rows(errs, spec.output_types)
        net = net_oks(context, oks)
        if net.num_rows:
            runs.add(sorted_rows(net, layout))
