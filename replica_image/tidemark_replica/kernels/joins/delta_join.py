"""A delta join: one path per input over arrangements of the inputs alone, so nothing in between is kept.

    inputs 0, 1, 2        path 0:  updates of 0 ──half-join──> 1 ──half-join──> 2 ──┐
                          path 1:  updates of 1 ──half-join──> 0 ──half-join──> 2 ──┼──> the joined rows
                          path 2:  updates of 2 ──half-join──> 1 ──half-join──> 0 ──┘

An input is kept once for each key that it is looked up by, whatever the number of paths; imported indexes are looked
up in place. First everything new is arranged, then each path follows its input's updates (`half_join` says why every
combination is met exactly once). A step's cost is that of its updates and their matches on the way: a path may meet
rows that a later lookup drops, which a linear join would have kept out of its next stage.

At hydration all of the past happens at one time, the as_of. Of updates of one time the first input's is the last, so
its path alone is followed for them: hydration costs what that path does.

State: the inputs' ok rows, once per key. Errs rows of every input pass through. Output comes in slices of at most
`chunk_rows`, and so does every stream on the way: a skewed key costs time, not memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.updates import (
    Updates,
    as_error_rows,
    check_updates,
    rechunk,
    split_errors,
    times,
)
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.arrangement.spines.trace import file_updates
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.arrangement.step_runs import StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.kernels.joins.half_join import HalfJoin, Lookup
from tidemark_replica.kernels.kernel_input import net_oks


@dataclass(frozen=True)
class DeltaInput:
    """One input: its stream's columns, the join's own arrangements of it, and what its updates meet, in order.

    Without arrangements of its own it is an index, looked up in place by all other paths; its stream is then read when
    its path is followed.
    """

    types: tuple[pa.DataType, ...]
    arrangements: tuple[ArrangementId, ...]
    path: tuple[Lookup, ...]


@dataclass(frozen=True)
class DeltaSpec:
    """A delta join; every path gives rows of the same columns `types`."""

    inputs: tuple[DeltaInput, ...]
    types: tuple[pa.DataType, ...]


def delta_join(context: StepContext, spec: DeltaSpec, streams: Sequence[Iterable[Updates]]) -> Iterator[Updates]:
    """Join the inputs' updates."""
    join = _DeltaJoin(context, spec)
    for _, packed in rechunk(((None, out) for out in join.run(streams)), context.chunk_rows):
        yield packed
    join.commit()


class _DeltaJoin:
    """The join during one step."""

    def __init__(self, context: StepContext, spec: DeltaSpec) -> None:
        self._context, self._spec = context, spec
        self._runs = {a: StepRuns(context, a) for i in spec.inputs for a in i.arrangements}

    def run(self, streams: Sequence[Iterable[Updates]]) -> Iterator[Updates]:
        pairs = list(zip(self._spec.inputs, streams, strict=True))
        for read, stream in pairs:
            if read.arrangements:
                for oks, errs in self._split(read, stream):
                    self._arrange(read, oks)
                    if errs is not None:
                        yield errs
        for source, (read, stream) in enumerate(pairs):
            if read.arrangements:
                for oks in self._arranged(read):
                    yield from self._follow(source, oks)
            else:
                for oks, errs in self._split(read, stream):
                    yield from self._follow(source, oks)
                    if errs is not None:
                        yield errs

    def commit(self) -> None:
        """Hand the batches of the join's own arrangements to the step."""
        for runs in self._runs.values():
            runs.commit()

    def _split(self, read: DeltaInput, stream: Iterable[Updates]) -> Iterator[tuple[Updates, Updates | None]]:
        """An input's updates in chunks: ok rows in their canonical form, and errors, if any, as they come out."""

        def check(_: None, updates: Updates) -> None:
            check_updates(updates, read.types, self._context.lower, self._context.upper)

        for _, chunk in rechunk(((None, u) for u in stream), self._context.run_rows, check):
            oks, errs = split_errors(chunk)
            errors = as_error_rows(errs, self._spec.types) if errs.num_rows else None
            yield net_oks(self._context, canonical_rows(oks)), errors

    def _arrange(self, read: DeltaInput, oks: Updates) -> None:
        for arrangement in read.arrangements if oks.num_rows else ():
            layout = self._context.manifest(arrangement).layout
            self._runs[arrangement].add(sorted_rows(oks, layout))

    def _arranged(self, kept: DeltaInput) -> Iterator[Updates]:
        """This step's ok rows of an input, back from one of its arrangements."""
        runs = self._runs[kept.arrangements[0]]
        layout = self._context.manifest(kept.arrangements[0]).layout
        for segment in runs.segments():
            for start in range(0, segment.rows.num_rows, self._context.chunk_rows):
                yield file_updates(segment.rows.slice(start, self._context.chunk_rows), layout)

    def _follow(self, source: int, oks: Updates) -> Iterator[Updates]:
        """What updates of an input meet, lookup after lookup."""
        able = self._able(source, oks)
        stream = iter([able] if able.num_rows else [])
        for lookup in self._spec.inputs[source].path:
            met = HalfJoin(self._context, source, lookup, self._runs).feed(stream)
            stream = _repacked(met, self._context.chunk_rows)
        yield from stream

    def _able(self, source: int, oks: Updates) -> Updates:
        """Without what can meet nothing: at hydration, what happened at the as_of, but for the first input."""
        if not self._context.is_hydration or source == 0:
            return oks
        return oks.filter(pa.array(times(oks) > self._context.lower))


def _repacked(updates: Iterator[Updates], rows: int) -> Iterator[Updates]:
    """Many small slices as few chunks."""
    return (chunk for _, chunk in rechunk(((None, u) for u in updates), rows))
