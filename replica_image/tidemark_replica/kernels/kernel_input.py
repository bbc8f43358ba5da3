"""The input of every kernel: checked, cut into chunks, and split into oks and errs."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.updates import (
    Updates,
    as_error_rows,
    check_updates,
    diffs,
    rechunk,
    split_errors,
)
from tidemark_replica.arrangement.step import StepContext


def consume_oks(
    context: StepContext,
    updates: Iterable[Updates],
    types: Sequence[pa.DataType],
    output_types: Sequence[pa.DataType],
    keep: Callable[[Updates], None],
) -> Iterator[Updates]:
    """Pass the ok rows of each chunk to `keep`. Yields the errs rows with columns of `output_types`."""
    for oks, errs in ok_and_err_chunks(context, updates, types):
        if errs.num_rows:
            yield as_error_rows(errs, output_types)
        if oks.num_rows:
            keep(oks)


def net_oks(context: StepContext, oks: Updates) -> Updates:
    """Ok rows to be kept: at a hydration with retractions, where all times are equal, consolidated."""
    if context.is_hydration and oks.num_rows and int(diffs(oks).min()) < 0:
        return consolidate(oks)
    return oks


def ok_and_err_chunks(
    context: StepContext, updates: Iterable[Updates], types: Sequence[pa.DataType], rows: int | None = None
) -> Iterator[tuple[Updates, Updates]]:
    """(oks, errs) per chunk of at most `rows` rows (None: the step's `chunk_rows`); either may be empty."""
    yield from map(split_errors, checked_chunks(context, updates, types, rows))


def checked_chunks(
    context: StepContext, updates: Iterable[Updates], types: Sequence[pa.DataType], rows: int | None = None
) -> Iterator[Updates]:
    """The input in chunks. Raises MalformedUpdates for other columns, or times outside the step."""

    def check(_: None, batch: Updates) -> None:
        check_updates(batch, types, context.lower, context.upper)

    for _, chunk in rechunk(((None, u) for u in updates), rows or context.chunk_rows, check):
        yield chunk
