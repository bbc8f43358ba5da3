"""Compare-and-append: the winner, the present upper for the others, fenced writers, and refusals before anything is
written."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.persist.model import COLUMNS, batch, contents
from tests.s3_fixtures import Place
from tidemark_persist import (
    EMPTY,
    Appended,
    Fenced,
    InvalidBatch,
    InvalidTime,
    NotReadable,
    Shard,
    UpperMismatch,
    create_or_open,
)


@pytest.fixture
def shard(place: Place) -> Shard:
    """A new shard."""
    return create_or_open(place.location, COLUMNS, shard_id="s1")


def second_handle(shard: Shard) -> Shard:
    """A second, independent handle."""
    return create_or_open(shard.location, COLUMNS, shard_id="s1")


def test_append_at_the_expected_upper_lands(shard: Shard) -> None:
    """Data, upper and version move together."""
    outcome = shard.compare_and_append(batch([(("a", 1), 3, 2)]), expected_upper=0, new_upper=5, term=1)

    assert Appended(upper=5, version=1) == outcome
    assert contents(second_handle(shard).snapshot(4)) == {("a", 1): 2}


def test_append_at_another_upper_learns_the_current_one(shard: Shard, place: Place) -> None:
    """The loser writes nothing, not even a file."""
    other = second_handle(shard)
    shard.compare_and_append(batch([(("a", 1), 0, 1)]), expected_upper=0, new_upper=5, term=1)
    files = set(place.folder.glob("*.parquet"))

    outcome = other.compare_and_append(batch([(("b", 1), 0, 1)]), expected_upper=0, new_upper=3, term=1)

    assert UpperMismatch(current_upper=5) == outcome
    assert contents(other.snapshot(4)) == {("a", 1): 1}
    assert files == set(place.folder.glob("*.parquet"))


def test_expecting_an_upper_not_yet_reached_learns_the_current_one(shard: Shard) -> None:
    """A writer that is ahead of the shard does not open a gap."""
    assert UpperMismatch(current_upper=0) == shard.compare_and_append(None, expected_upper=7, new_upper=9, term=1)


def test_empty_append_moves_the_upper_only(shard: Shard, place: Place) -> None:
    """An idle table's tick: no data file."""
    assert Appended(5, 1) == shard.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    assert Appended(9, 2) == shard.compare_and_append(batch([]), expected_upper=5, new_upper=9, term=1)
    assert list(place.folder.glob("*.parquet")) == []
    assert contents(shard.snapshot(8)) == {}


def test_finished_shard_has_the_empty_upper_and_accepts_no_more(shard: Shard) -> None:
    """The empty frontier is an upper like any other, and the last one."""
    shard.compare_and_append(batch([(("a", 1), 7, 1)]), expected_upper=0, new_upper=EMPTY, term=1)

    assert second_handle(shard).state().upper == EMPTY
    assert contents(shard.snapshot(EMPTY - 1)) == {("a", 1): 1}
    assert UpperMismatch(EMPTY) == shard.compare_and_append(None, expected_upper=7, new_upper=8, term=1)
    with pytest.raises(InvalidTime, match="not beyond"):
        shard.compare_and_append(None, expected_upper=EMPTY, new_upper=EMPTY, term=1)


def test_since_downgrade_by_another_handle_does_not_fail_an_append(shard: Shard) -> None:
    """A lost race that left the upper alone is retried inside."""
    shard.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    second_handle(shard).downgrade_since(3)

    assert Appended(9, 3) == shard.compare_and_append(None, expected_upper=5, new_upper=9, term=1)
    assert shard.state().since == 3


def test_times_that_the_writer_knows_nothing_of_are_given_up_with_the_append(shard: Shard) -> None:
    """In one commit: nobody reads them as if nothing had changed. A since never goes back, and leaves some time."""
    shard.compare_and_append(batch([(("a", 1), 0, 1)]), expected_upper=0, new_upper=5, term=1)

    assert Appended(12, 2) == shard.compare_and_append(
        batch([(("b", 1), 9, 1)]), expected_upper=5, new_upper=12, term=1, since=9
    )
    assert (second_handle(shard).state().since, second_handle(shard).state().upper) == (9, 12)
    for at in (4, 5, 8):
        with pytest.raises(NotReadable):
            second_handle(shard).snapshot(at)
    assert contents(second_handle(shard).snapshot(9)) == {("a", 1): 1, ("b", 1): 1}
    assert Appended(15, 3) == shard.compare_and_append(None, expected_upper=12, new_upper=15, term=1, since=3)
    assert shard.state().since == 9
    with pytest.raises(InvalidTime, match="leave no time to read"):
        shard.compare_and_append(None, expected_upper=15, new_upper=20, term=1, since=20)


def test_older_term_is_fenced_by_the_first_append_of_a_newer_one(shard: Shard) -> None:
    """The zombie changes nothing, also when its upper would match."""
    zombie = second_handle(shard)
    zombie.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    shard.compare_and_append(batch([(("new", 1), 5, 1)]), expected_upper=5, new_upper=9, term=2)

    with pytest.raises(Fenced, match="a writer of term 2 took over from term 1"):
        zombie.compare_and_append(batch([(("old", 1), 9, 1)]), expected_upper=9, new_upper=12, term=1)

    assert contents(second_handle(shard).snapshot(8)) == {("new", 1): 1}
    assert second_handle(shard).state().upper == 9


def test_fence_without_data_shuts_out_older_terms(shard: Shard) -> None:
    """The new owner need not have anything to write yet."""
    zombie = second_handle(shard)
    shard.fence(2)
    shard.fence(2)  # again, by another replica of the same revision

    with pytest.raises(Fenced):
        zombie.compare_and_append(None, expected_upper=0, new_upper=5, term=1)
    with pytest.raises(Fenced):
        zombie.fence(1)
    assert Appended(5, 2) == shard.compare_and_append(None, expected_upper=0, new_upper=5, term=2)


def test_replicas_of_one_term_compete_by_upper_alone(shard: Shard) -> None:
    """An equal term fences nobody."""
    other = second_handle(shard)
    assert isinstance(shard.compare_and_append(None, expected_upper=0, new_upper=5, term=3), Appended)
    assert isinstance(other.compare_and_append(None, expected_upper=5, new_upper=9, term=3), Appended)


REFUSED = {
    "time before the range": (batch([(("a", 1), 4, 1)]), "outside the range"),
    "time at the new upper": (batch([(("a", 1), 9, 1)]), "outside the range"),
    "null time": (batch([(("a", 1), None, 1)]), "must not be NULL"),  # type: ignore[list-item]
    "missing column": (batch([(("a", 1), 5, 1)]).drop(["v"]), "has columns"),
    "other type": (batch([(("a", 1), 5, 1)]).set_column(1, "v", pa.array([1.0])), "has type double"),
    "error with values": (batch([(("a", 1, "boom"), 5, 1)]), "must have NULL"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_batch_that_does_not_fit_is_refused_and_nothing_is_written(shard: Shard, name: str) -> None:
    """Checked before the commit: the shard stays as it was."""
    rows, message = REFUSED[name]
    shard.compare_and_append(None, expected_upper=0, new_upper=5, term=1)

    with pytest.raises(InvalidBatch, match=message):
        shard.compare_and_append(rows, expected_upper=5, new_upper=9, term=1)
    assert (shard.refresh().upper, shard.state().version) == (5, 1)


@pytest.mark.parametrize(
    ("expected", "new", "term"),
    [(5, 5, 1), (5, 4, 1), (-1, 5, 1), (0, EMPTY + 1, 1), (0, 1, -1), (0, 1, EMPTY)],
)
def test_frontiers_that_make_no_sense_are_refused(shard: Shard, expected: int, new: int, term: int) -> None:
    """The caller's mistake is told apart from a lost race."""
    with pytest.raises(InvalidTime):
        shard.compare_and_append(None, expected_upper=expected, new_upper=new, term=term)


def test_rows_with_a_diff_of_zero_are_no_rows(shard: Shard) -> None:
    """They mean nothing and leave nothing."""
    rows = batch([(("a", 1), 1, 0), (("b", 1), 1, 1)])
    shard.compare_and_append(rows, expected_upper=0, new_upper=5, term=1)
    assert contents(shard.snapshot(4)) == {("b", 1): 1}
