"""Delta joins: one path per input over arrangements of the inputs alone.

    out = in0 join in1 join in2 ...

    inputs 0, 1, 2        path 0:  updates of 0 ──half-join──> 1 ──half-join──> 2 ──┐
                          path 1:  updates of 1 ──half-join──> 0 ──half-join──> 2 ──┼──> the joined rows
                          path 2:  updates of 2 ──half-join──> 1 ──half-join──> 0 ──┘

State: the ok rows of each input, once per key that a path looks it up by; nothing between the inputs. Shared
arrangements are looked up in place. Cost of an update: its matches along its input's path. A path may match rows that a
later lookup drops, which a linear join would not have passed to its next stage.

The kernel first arranges all new updates, then follows the path of each input (`half_join` explains why it matches
every combination exactly once). At hydration all contents have one time, the as_of, and of updates of one time those of
the first input come last: only its path is followed for them.

In a dataflow's only step the first path is the only one, and an input is arranged once at most. So is the first one,
which no path looks up: Catalyst's rows come in the order of the inputs, and it would else be read last.

Errs rows of every input pass through. Output, and every stream between lookups, comes in slices of at most
`chunk_rows`: a skewed key costs time, not memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
from tidemark_replica.kernels.joins.half_join import ArrangementLookup, HalfJoin
from tidemark_replica.kernels.kernel_input import net_oks


@dataclass(frozen=True)
class DeltaInput:
    """One input: its column types, the join's own arrangements of it, and the lookups of its path in order.

    An input without arrangements is a shared arrangement that all other paths look up in place; the kernel reads its
    stream when it follows its path.
    """

    types: tuple[pa.DataType, ...]
    arrangements: tuple[ArrangementId, ...]
    path: tuple[ArrangementLookup, ...]


@dataclass(frozen=True)
class DeltaSpec:
    """A delta join. Every path puts out rows with columns of `types`."""

    inputs: tuple[DeltaInput, ...]
    types: tuple[pa.DataType, ...]


def delta_join(context: StepContext, spec: DeltaSpec, streams: Sequence[Iterable[Updates]]) -> Iterator[Updates]:
    """Yield the joined updates; `streams` are the inputs' updates. Raises MalformedUpdates, DiffOverflow."""
    join = _DeltaJoin(context, spec)
    for _, packed in rechunk(((None, out) for out in join.run(streams)), context.chunk_rows):
        yield packed
    join.commit()


class _DeltaJoin:
    """The join during one step."""

    def __init__(self, context: StepContext, spec: DeltaSpec) -> None:
        self._context, self._spec = context, spec
        inputs = spec.inputs
        if context.is_only_step:
            first, *others = of_first_path(spec)
            inputs = (replace(first, arrangements=spec.inputs[0].arrangements[:1]), *others)
        self._inputs = inputs
        self._runs = {a: StepRuns(context, a) for i in inputs for a in i.arrangements}

    def run(self, streams: Sequence[Iterable[Updates]]) -> Iterator[Updates]:
        pairs = list(zip(self._inputs, streams, strict=True))
        for read, stream in pairs:
            if read.arrangements:
                for oks, errs in self._split(read, stream):
                    self._arrange(read, oks)
                    if errs is not None:
                        yield errs
        for source, (read, stream) in enumerate(pairs):
            if read.arrangements and source and self._context.is_only_step:
                continue  # it has no path: all updates of the as_of meet on that of the first input
            if read.arrangements:
                for oks in self._arranged(read):
                    yield from self._follow(source, oks)
            else:
                for oks, errs in self._split(read, stream):
                    yield from self._follow(source, oks)
                    if errs is not None:
                        yield errs

    def commit(self) -> None:
        """Pass the batches of the join's own arrangements to the step."""
        for runs in self._runs.values():
            runs.commit_state()

    def _split(self, read: DeltaInput, stream: Iterable[Updates]) -> Iterator[tuple[Updates, Updates | None]]:
        """An input's updates in chunks: canonical ok rows, and errs rows with the output's columns or None."""

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
        """This step's ok rows of an input, read back from one of its arrangements."""
        runs = self._runs[kept.arrangements[0]]
        layout = self._context.manifest(kept.arrangements[0]).layout
        for segment in runs.segments():
            for start in range(0, segment.rows.num_rows, self._context.chunk_rows):
                yield file_updates(segment.rows.slice(start, self._context.chunk_rows), layout)

    def _follow(self, source: int, oks: Updates) -> Iterator[Updates]:
        """Follow the path of an input: one lookup after another."""
        able = self._able(source, oks)
        stream = iter([able] if able.num_rows else [])
        for lookup in self._spec.inputs[source].path:
            met = HalfJoin(self._context, source, lookup, self._runs).feed(stream)
            stream = _repacked(met, self._context.chunk_rows)
        yield from stream

    def _able(self, source: int, oks: Updates) -> Updates:
        """The updates to follow: at hydration, updates at the as_of match on the first input's path only."""
        if not self._context.is_hydration or source == 0:
            return oks
        return oks.filter(pa.array(times(oks) > self._context.lower))


def of_first_path(spec: DeltaSpec) -> tuple[DeltaInput, ...]:
    """The inputs with the arrangements that the first input's path looks up, which are all that the only step needs."""
    met = {lookup.arrangement for lookup in spec.inputs[0].path}
    return tuple(replace(i, arrangements=tuple(a for a in i.arrangements if a in met)) for i in spec.inputs)


def _repacked(updates: Iterator[Updates], rows: int) -> Iterator[Updates]:
    """Combine small slices into chunks of at most `rows` rows."""
    return (chunk for _, chunk in rechunk(((None, u) for u in updates), rows))
