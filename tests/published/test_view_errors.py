"""With `onError: empty`, a table has the view's rows at its time, or none where the view has errors then."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.published.test_publication import View, contents, times_of_versions
from tidemark_persist import PersistError, delete_shard
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.destinations.destination import IDLE_MS
from tidemark_replica.sinks.destinations.shard_contents import check_no_errors
from tidemark_replica.sinks.published import publication
from tidemark_replica.sinks.published.publication import Published, TablePublication


class FailingView(View):
    """A view with errors at some times."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.errors: Counter[str] = Counter()
        self.in_error: dict[int, bool] = {}

    def step_with_errors(self, changes: int) -> int:
        """Appends updates of rows at one time, and of errors at the next one, which come or go."""
        time = self.step(changes)
        self.in_error[time] = bool(self.errors)
        text = self.random.choice(["DIVIDE_BY_ZERO", "CAST_INVALID_INPUT"])
        diff = 0
        if self.random.random() < 0.5:
            diff = -1 if self.errors[text] else 1
        self.errors[text] += diff
        self.errors += Counter()
        self.append([], self.upper + 1, [(text, self.upper, diff)] if diff else [])
        self.in_error[self.upper - 1] = bool(self.errors)
        return self.upper - 1

    def emptied(self, folder: Path) -> TablePublication:
        return replace(self.publication(folder, 2_000), empty_on_error=True)


@pytest.mark.parametrize("seed", range(6))
def test_each_version_has_the_rows_of_its_time_or_none(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random histories. A table is made while the view has errors, too."""
    view, chance = FailingView(tmp_path, seed), random.Random(seed)
    monkeypatch.setattr(publication, "IDLE_MS", chance.choice([0, 3]))
    for _ in range(14):
        time = view.step_with_errors(chance.choice([0, 5, 20]))
        if chance.random() < 0.2:
            view.shard.downgrade_since(chance.randrange(time + 1))
        at = Time(chance.randrange(max(view.shard.refresh().since, time - 2), time + 1))
        published = view.emptied(tmp_path).publish(at)
        assert published.is_in_error == view.in_error[published.checked]
        assert view.in_error[published.time] == view.in_error[published.checked]
        assert published.rows == (0 if published.is_in_error else view.at[published.checked].total())
    assert any(view.in_error.values())
    for version, time in times_of_versions(tmp_path).items():
        assert contents(tmp_path, version) == (Counter() if view.in_error[time] else view.at[time]), (version, time)


def test_a_view_that_stays_in_error_is_committed_once_a_minute(tmp_path: Path) -> None:
    view = FailingView(tmp_path, 1)
    view.append([((1, None, None, None), 0, 1)], 1, [("DIVIDE_BY_ZERO", 0, 1)])
    for _ in range(3):
        view.append([], view.upper + 1)
        assert view.emptied(tmp_path).publish(Time(view.upper - 1)).time == 1
    view.append([], IDLE_MS + 10)
    assert view.emptied(tmp_path).publish(Time(view.upper - 1)).time == IDLE_MS + 9
    assert sorted(times_of_versions(tmp_path)) == [0, 1]
    view.append([], view.upper + 1, [("DIVIDE_BY_ZERO", view.upper, -1)])
    assert view.emptied(tmp_path).publish(Time(view.upper - 1)).anew_because == "the view had rows in error"
    assert contents(tmp_path) == Counter([(1, None, None, None)])


def test_a_later_publication_is_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica publishes the time at which the errors are corrected, while this one still finds them."""
    view = FailingView(tmp_path, 1)
    view.emptied(tmp_path).publish(Time(view.step(9)))
    view.append([], view.upper + 1, [("DIVIDE_BY_ZERO", view.upper, 1)])
    view.append([], view.upper + 1, [("DIVIDE_BY_ZERO", view.upper, -1)])
    in_error, right = Time(view.upper - 2), Time(view.upper - 1)
    slower, update = view.emptied(tmp_path), TablePublication._update

    def overtaken(of: TablePublication, *arguments: Any) -> Published:
        if of is slower:
            assert not view.emptied(tmp_path).publish(right).is_in_error
        return update(of, *arguments)

    monkeypatch.setattr(publication, "IDLE_MS", 0)
    monkeypatch.setattr(TablePublication, "_update", overtaken)
    published = slower.publish(in_error)
    assert (published.time, published.is_in_error, published.rows) == (right, False, view.at[right].total())
    assert contents(tmp_path) == view.at[right]
    assert [*times_of_versions(tmp_path).values()] == sorted(times_of_versions(tmp_path).values())


def test_no_table_is_emptied_for_a_view_that_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that is cut off would make it: view and table are deleted once it has found the errors."""
    view, check = FailingView(tmp_path, 1), check_no_errors
    view.append([], 1, [("DIVIDE_BY_ZERO", 0, 1)])

    def then_deleted(*arguments: Any) -> None:
        try:
            check(*arguments)
        finally:
            delete_shard(str(tmp_path / "shard"), view.shard.shard_id)

    monkeypatch.setattr(publication, "check_no_errors", then_deleted)
    with pytest.raises(PersistError):
        view.emptied(tmp_path).publish(Time(0))
    assert not (tmp_path / "published").exists()


def test_a_view_that_is_made_anew_is_written_over_an_emptied_table(tmp_path: Path) -> None:
    """Another shard, at an earlier time, which has no errors."""
    first, second = FailingView(tmp_path / "a", 1), View(tmp_path / "b", 2, shard_id="u2")
    first.append([], 50, [("DIVIDE_BY_ZERO", 0, 1)])
    first.emptied(tmp_path).publish(Time(49))
    time = Time(second.step(9))
    second.publication(tmp_path).publish(time)
    assert contents(tmp_path) == second.at[time]
