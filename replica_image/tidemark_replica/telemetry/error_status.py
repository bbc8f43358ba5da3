"""Reports the errors that stand in an export whenever their number changes.

The errors of a materialized view are the sum of its deltas' error rows; those of an index are read from its files,
where errors come first. There are few such rows: an error is a code and an expression, never data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, times
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.stepped_dataflow import SinkDelta

Errors = Counter[str]


def error_changes(delta: SinkDelta) -> dict[int, Errors]:
    """The change of each error's multiplicity, by time."""
    total: dict[int, Errors] = {}
    for batch in delta.batches():
        for time, error, weight in _error_rows(batch):
            total.setdefault(time, Counter())[error] += weight
    return total


def total_errors(by_time: Mapping[int, Errors]) -> Errors:
    """The changes of all times together."""
    found: Errors = Counter()
    for change in by_time.values():
        found.update(change)
    return found


def errors_in(updates: Updates) -> Errors:
    """The error rows of a batch. A batch without errors costs one null count."""
    total: Errors = Counter()
    for _, error, weight in _error_rows(updates):
        total[error] += weight
    return total


def _error_rows(updates: Updates) -> Iterator[tuple[int, str, int]]:
    column = errors(updates)
    if column.null_count < len(column):
        positions = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        rows = (times(updates)[positions].tolist(), column.take(positions).to_pylist(), diffs(updates)[positions])
        yield from ((time, error, int(weight)) for time, error, weight in zip(*rows, strict=True))


def may_be_in_error(index: IndexTrace) -> bool:
    return any(batch.errors for batch in index.manifest.batches)


def index_errors(index: IndexTrace) -> tuple[int, Errors]:
    """Runs on a pool: the index's upper, and its errors at the time before."""
    with index.store.pin(index.arrangement) as pinned:
        manifest = pinned[index.arrangement]
        trace = Trace(manifest, BatchCache(index.store.directory))
        return manifest.upper, errors_in(trace.errors_at(manifest.upper - 1))


class ErrorStatus:
    """The errors of one export."""

    def __init__(self, id: GlobalId, respond: Callable[[Response], None]) -> None:
        self._id, self._respond = id, respond
        self._errors: Errors = Counter()
        self._upper = 0

    @property
    def has_errors(self) -> bool:
        return bool(self._errors)

    def change(self, by: Errors) -> None:
        """Adds the changes of a step."""
        if by:
            total = Counter(self._errors)
            total.update(by)
            self.set_errors(total)

    def replace(self, upper: int, errors: Errors) -> None:
        """Replaces the errors by those found before `upper`; an older result is ignored."""
        if upper >= self._upper:
            self._upper = upper
            self.set_errors(errors)

    def set_errors(self, errors: Errors) -> None:
        """Replaces the errors, and reports them where they have changed."""
        before, self._errors = self._errors, Counter({error: count for error, count in errors.items() if count})
        if self._errors != before:
            self._respond(Status(self._id, "erroring", _fields(self._errors)))


def _fields(errors: Errors) -> dict[str, str]:
    """The number of errors, and the first of them."""
    if not errors:
        return {"errors": "0"}
    fields = {"errors": str(sum(errors.values()))}
    try:
        first = json.loads(min(errors))
        return {**fields, "code": str(first["code"]), "expression": str(first["expression"])}
    except (ValueError, KeyError, TypeError):
        return {**fields, "code": min(errors)}
