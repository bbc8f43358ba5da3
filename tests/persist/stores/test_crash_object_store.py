"""Commits to a real S3 server over a network that loses, repeats and delays messages: each commit lands exactly once.

Unlike test_crash_lost_reply.py, nothing of ours is wrapped: the faults are in the connection (s3_proxy.py, toxiproxy).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.failures.network_faults import Proxy, Toxiproxy, toxiproxy
from tests.persist.model import COLUMNS, batch, contents
from tests.persist.stores.s3_proxy import Middleman, middleman
from tests.s3_server import S3Server
from tidemark_persist import Appended, IndeterminateCommit, Shard, StorageError, UpperMismatch, create_or_open
from tidemark_persist.log.deletion import remove_everything

ROWS = batch([(("a", 1), 3, 1)])
NAMES = itertools.count()
# so that what hangs is given up soon; otherwise as always
IMPATIENT = {"timeout": "2s", "max_retries": "0"}


@pytest.fixture
def between(s3: S3Server) -> Iterator[Middleman]:
    with middleman(s3.port) as running:
        yield running


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    with toxiproxy(tmp_path_factory.mktemp("toxiproxy")) as running:
        yield running


@pytest.fixture
def location(s3: S3Server) -> str:
    return s3.location(f"faults/{next(NAMES)}")


def open_by(server: S3Server, port: int, location: str, **options: str) -> Shard:
    """A handle whose way to the server leads through this port."""
    return create_or_open(location, COLUMNS, shard_id="s", storage_options={**server.through(port), **options})


def append(shard: Shard, commit_id: str = "c1") -> Appended | UpperMismatch:
    """The append under test."""
    return shard.compare_and_append(ROWS, expected_upper=0, new_upper=5, term=1, commit_id=commit_id)


FAULTS = {
    "reply lost": ["reply_lost"],
    "reply lost again and again": ["reply_lost"] * 5,
    "request lost": ["request_lost"],
    "request lost, then a reply": ["request_lost", "reply_lost"],
    "too busy": ["refused"],
    "too busy for long": ["refused"] * 6,
    "landed, and called a failure": ["lied"],
    "landed, called a failure, and a reply lost": ["lied", "reply_lost"],
}


@pytest.mark.parametrize("name", FAULTS)
def test_crash_of_a_commits_connection_is_resolved_inside(
    s3: S3Server, between: Middleman, location: str, name: str
) -> None:
    """Landed or not, the log tells; the caller notices nothing, and a retry by another process finds the same."""
    shard = open_by(s3, between.port, location)
    between.meet("commits", *FAULTS[name])

    assert append(shard) == Appended(5, 1)
    assert append(open_by(s3, s3.port, location)) == Appended(5, 1)
    assert contents(open_by(s3, s3.port, location).snapshot(4)) == {("a", 1): 1}
    assert append(shard, "another") == UpperMismatch(5)


@pytest.mark.parametrize("fault", ["reply_lost", "request_lost", "refused", "lied"])
def test_crash_of_a_data_files_connection_leaves_one_whole_file(
    s3: S3Server, between: Middleman, location: str, fault: str
) -> None:
    """Written under a name that nobody else chooses: to write it again is to write the same."""
    shard = open_by(s3, between.port, location)
    between.meet("writes", fault)

    assert append(shard) == Appended(5, 1)
    assert between.left() == 0
    assert contents(open_by(s3, s3.port, location).snapshot(4)) == {("a", 1): 1}
    assert len(list(s3.on_disk(location).glob("*.parquet"))) == 1


def test_crash_commit_that_was_stuck_arrives_after_its_retry_and_others(
    s3: S3Server, between: Middleman, location: str
) -> None:
    """The slot is taken by then: the server refuses it, and nothing changes."""
    shard = open_by(s3, between.port, location)
    between.meet("commits", "held")
    assert append(shard) == Appended(5, 1)
    assert shard.compare_and_append(None, expected_upper=5, new_upper=7, term=1) == Appended(7, 2)

    assert between.release() == 412
    again = open_by(s3, s3.port, location)
    assert (again.state().upper, again.state().version) == (7, 2)
    assert contents(again.snapshot(6)) == {("a", 1): 1}


def test_crash_commit_that_was_stuck_arrives_before_its_retry(s3: S3Server, between: Middleman, location: str) -> None:
    """It wins; the retry finds its own commit in the slot."""
    shard = open_by(s3, between.port, location)
    between.meet("commits", "held", "overtaken")
    assert append(shard) == Appended(5, 1)
    assert between.release() == 200
    assert open_by(s3, s3.port, location).state().version == 1


def test_crash_of_the_network_is_indeterminate_and_a_retry_finishes_it(
    s3: S3Server, network: Toxiproxy, location: str
) -> None:
    """Whatever was on its way: the caller learns that nobody knows, and the same call later ends in one commit."""
    way = Proxy(network, f"cut-{next(NAMES)}", s3.port)
    shard = open_by(s3, int(way.address.rpartition(":")[2]), location)
    staged = shard._log.table  # the commit itself meets the cut: what comes before it has passed

    class CutAtCommit:
        def create_write_transaction(self, *args: object, **kwargs: object) -> None:
            way.cut()
            staged.create_write_transaction(*args, **kwargs)

        def __getattr__(self, name: str) -> object:
            return getattr(staged, name)

    shard._log.table = CutAtCommit()  # type: ignore[assignment]
    with pytest.raises(IndeterminateCommit) as unknown:
        append(shard)
    with pytest.raises(StorageError):
        shard.refresh()
    way.heal()

    shard._log.table = staged
    assert append(shard, unknown.value.commit_id) == Appended(5, 1)
    assert contents(open_by(s3, s3.port, location).snapshot(4)) == {("a", 1): 1}


def test_crash_of_a_network_that_swallows_everything_is_given_up(
    s3: S3Server, network: Toxiproxy, location: str
) -> None:
    """No end, no reset: the request is given up in bounded time, and all is well once it passes again."""
    create_or_open(location, COLUMNS, shard_id="s", storage_options=s3.environ)
    way = Proxy(network, f"hole-{next(NAMES)}", s3.port)
    shard = open_by(s3, int(way.address.rpartition(":")[2]), location, **IMPATIENT)
    way.swallow()
    with pytest.raises(StorageError):
        shard.refresh()
    way.heal()

    patient = open_by(s3, int(way.address.rpartition(":")[2]), location)
    assert append(patient) == Appended(5, 1)


def test_crash_of_every_third_commits_reply_leaves_one_winner_a_time(
    s3: S3Server, between: Middleman, location: str
) -> None:
    """Several writers over a bad line: each time is won once, by one who knows it."""
    handles = [open_by(s3, between.port, location) for _ in range(3)]
    between.meet("commits", *["reply_lost", "passed", "request_lost", "passed", "lied"] * 8)

    def race(index: int) -> list[int]:
        shard, won = handles[index], []
        while (upper := shard.refresh().upper) < 12:
            rows = batch([((f"w{index}", upper), upper, 1)])
            if isinstance(shard.compare_and_append(rows, expected_upper=upper, new_upper=upper + 1, term=1), Appended):
                won.append(upper)
        return won

    with ThreadPoolExecutor(len(handles)) as pool:
        won = list(pool.map(race, range(len(handles))))
    assert sorted(tick for ticks in won for tick in ticks) == list(range(12))
    expected = {(f"w{index}", tick): 1 for index, ticks in enumerate(won) for tick in ticks}
    assert contents(open_by(s3, s3.port, location).snapshot(11)) == expected


def test_middleman_passes_everything_on(s3: S3Server, between: Middleman, location: str) -> None:
    """Without faults, a life through it is a life: the tests above do not pass because nothing went through."""
    shard = open_by(s3, between.port, location)
    assert append(shard) == Appended(5, 1)
    assert (between.seen("commits") > 0, between.seen("writes") > 0) == (True, True)
    remove_everything(shard._log.storage, shard.shard_id)
    assert [path for path in s3.on_disk(location).rglob("*") if path.is_file()] == []
