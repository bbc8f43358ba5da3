"""Random histories against the model: at every readable time the shard holds what the list of updates adds
up to.

Appends, empty appends, lost appends, since downgrades, maintenance and reopening come in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.persist.model import COLUMNS, Model, Update, batch, changes, contents
from tests.s3_fixtures import Places
from tidemark_persist import (
    Appended,
    InvalidTime,
    MaintenancePolicy,
    NotReadable,
    Shard,
    UpperMismatch,
    create_or_open,
    write_staged,
)

EAGER = MaintenancePolicy(
    checkpoint_commits=2,
    compact_runs=2,
    compact_rows_in_memory=3,
    vacuum_grace_seconds=0.0,
    log_retention_seconds=0,
)


@dataclass(frozen=True)
class Append:
    """Rows at offsets from the expected upper; a stale one expects an upper that is gone."""

    rows: tuple[tuple[tuple[str | int | None, ...], int, int], ...]
    width: int
    stale: bool
    staged: bool


@dataclass(frozen=True)
class Downgrade:
    """Give up all but the last `keep` times."""

    keep: int


@dataclass(frozen=True)
class Tidy:
    """Do all maintenance that is due."""


@dataclass(frozen=True)
class Reopen:
    """Go on with a fresh handle."""


OK_ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, None]))
ERR_ROWS = st.tuples(st.none(), st.none(), st.sampled_from(["division by zero", "overflow"]))
ROWS = st.tuples(OK_ROWS | ERR_ROWS, st.integers(0, 3), st.sampled_from([-2, -1, 1, 1, 3]))
STEPS = st.one_of(
    st.builds(Append, st.lists(ROWS, max_size=6).map(tuple), st.integers(1, 4), st.booleans(), st.booleans()),
    st.builds(Append, st.lists(ROWS, max_size=6).map(tuple), st.integers(1, 4), st.just(False), st.booleans()),
    st.builds(Downgrade, st.integers(1, 9)),
    st.builds(Tidy),
    st.builds(Reopen),
)


HISTORIES = st.lists(STEPS, min_size=4, max_size=14)


@pytest.mark.parametrize("places", ["disk"], indirect=True)
@settings(max_examples=40)
@given(HISTORIES)
def test_oracle_random_history_reads_the_same_at_every_time(places: Places, steps: list[object]) -> None:
    """Two handles, one history: snapshots and listings equal the model's, and nothing else is readable."""
    read_at_every_time(places, steps)


@pytest.mark.parametrize("places", ["s3"], indirect=True)
@settings(max_examples=6)
@given(HISTORIES)
def test_oracle_random_history_in_an_object_store_reads_the_same_at_every_time(
    places: Places, steps: list[object]
) -> None:
    """Fewer: a request takes longer than a file."""
    read_at_every_time(places, steps)


@pytest.mark.slow
@settings(max_examples=500, derandomize=False)
@given(HISTORIES)
def test_oracle_many_random_histories_read_the_same_at_every_time(places: Places, steps: list[object]) -> None:
    """Others each time."""
    read_at_every_time(places, steps)


def read_at_every_time(places: Places, steps: list[object]) -> None:
    location = places.new().location
    shard, watcher, model = open_it(location), open_it(location), Model()
    for step in steps:
        shard = act(shard, model, step)
    compare(shard, model)
    for handle in (watcher, open_it(location)):
        assert shard.refresh() == handle.refresh()
        assert_same_contents(handle, model, model.upper - 1)


def open_it(location: str) -> Shard:
    """A handle with eager maintenance."""
    return create_or_open(location, COLUMNS, shard_id="s", policy=EAGER)


def act(shard: Shard, model: Model, step: object) -> Shard:
    """One step on both sides."""
    match step:
        case Append():
            append(shard, model, step)
        case Downgrade(keep):
            if model.upper:
                model.since = max(model.since, model.upper - keep)
                assert model.since == shard.downgrade_since(max(0, model.upper - keep))
        case Tidy():
            tidy(shard)
        case Reopen():
            return open_it(shard.location)
    return shard


def append(shard: Shard, model: Model, step: Append) -> None:
    """The same append on both sides, with the same outcome."""
    lower = model.upper + (3 if step.stale else 0)
    upper = lower + step.width
    updates: list[Update] = [(row, lower + at % step.width, diff) for row, at, diff in step.rows]
    rows = batch(updates)
    file = write_staged(shard.location, rows) if step.staged else None
    given = rows if not step.staged else [] if file is None else [file]
    outcome = shard.compare_and_append(given, expected_upper=lower, new_upper=upper, term=1)
    if model.append(updates, lower, upper):
        assert isinstance(outcome, Appended)
    else:
        assert UpperMismatch(model.upper) == outcome


def tidy(shard: Shard) -> None:
    """Maintenance until none is due; vacuum, always due here, once."""
    for work in shard.maintenance_due():
        shard.run_maintenance(work)


def compare(shard: Shard, model: Model) -> None:
    """Every time, readable or not."""
    state = shard.refresh()
    assert (model.upper, model.since) == (state.upper, state.since)
    for time in range(model.upper + 2):
        assert_same_contents(shard, model, time)
    for lower in range(model.since + 1, model.upper + 1):
        assert model.changes(lower, model.upper) == changes(shard.listen(lower, model.upper))
        middle = (lower + model.upper) // 2
        assert model.changes(lower, middle) == changes(shard.listen(lower, middle))
    if model.since > 0:
        with pytest.raises(NotReadable):
            shard.listen(model.since, model.upper)


def assert_same_contents(shard: Shard, model: Model, time: int) -> None:
    """The contents at a time, or the refusal to read it."""
    if model.since <= time < model.upper:
        assert model.contents(time) == contents(shard.snapshot(time))
    else:
        with pytest.raises((NotReadable, InvalidTime)):
            shard.snapshot(time)
