"""A real S3 server that hangs (SIGSTOP): the calling thread waits, and other threads of the process run.

    this thread      asks ............................ has its answer
    another thread           lets the server go on

So if nobody else runs while somebody asks, the server never goes on, and the request fails.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import pytest

from tests.persist.model import COLUMNS, batch
from tests.s3_server import S3Server
from tidemark_persist import (
    Appended,
    Shard,
    StorageError,
    check_store,
    create_or_open,
    open_shard,
    put_if_absent,
    read_part,
)
from tidemark_persist.log.deletion import remove_everything
from tidemark_persist.storage.objects import ANSWERED_SECONDS
from tidemark_persist.storage.storage import Storage

NAMES = itertools.count()
ROWS, LATER = batch([(("a", 1), 3, 1)]), batch([(("b", 2), 5, 1)])
# what hangs is given up a little sooner than always
SETTINGS = {"timeout": "10s", "max_retries": "0"}


def made(s3: S3Server) -> Shard:
    """A shard with rows and a history of two commits."""
    location = s3.location(f"hanging/{next(NAMES)}")
    shard = create_or_open(location, COLUMNS, shard_id="s", storage_options={**s3.environ, **SETTINGS})
    appended = shard.compare_and_append(ROWS, expected_upper=0, new_upper=5, term=1, commit_id="c1")
    assert isinstance(appended, Appended)
    return shard


def storage(shard: Shard) -> Storage:
    return shard._log.storage


def options(shard: Shard) -> dict[str, str]:
    return dict(storage(shard).options or {})


def read_all(shard: Shard) -> int:
    return sum(b.num_rows for part in shard.snapshot_parts(4) for b in read_part(part, options(shard)))


def write(shard: Shard) -> None:
    with storage(shard).open_output("some.parquet") as stream:
        stream.write(b"x")


ASKED: dict[str, Callable[[Shard], object]] = {
    "a look with nothing new": lambda shard: shard.refresh(),
    "opening": lambda shard: open_shard(shard.location, options(shard)),
    "making": lambda shard: create_or_open(
        f"{shard.location}-new", COLUMNS, shard_id="s", storage_options=options(shard)
    ),
    "reading": read_all,
    "reading a file": lambda shard: list(read_part(shard._file_parts(0, 5)[0], options(shard))),  # type: ignore[arg-type]
    "appending": lambda shard: shard.compare_and_append(LATER, expected_upper=5, new_upper=6, term=1),
    "fencing": lambda shard: shard.fence(2),
    "a checkpoint": lambda shard: shard._log.checkpoint(),
    "a lease": lambda shard: shard.lease().release(),
    "writing a file": write,
    "a size": lambda shard: storage(shard).stat("some.parquet"),
    "a listing": lambda shard: storage(shard).list(""),
    "deleting a file": lambda shard: storage(shard).remove("nothing.parquet"),
    "whatever is read": lambda shard: storage(shard).read("nothing.json"),
    "deleting": lambda shard: remove_everything(storage(shard), shard.shard_id),
    "a claim": lambda shard: put_if_absent(f"{shard.location}-claim", {"attempt": 1}, options(shard)),
}


@pytest.mark.parametrize("what", ASKED)
def test_other_calls_run_while_one_waits_for_a_hanging_store(s3: S3Server, what: str) -> None:
    shard = made(s3)
    with s3.hanging() as go_on:
        _let_go_on(go_on)
        ASKED[what](shard)


def test_others_run_while_the_store_itself_is_looked_at(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    with s3.hanging() as go_on:
        _let_go_on(go_on)
        check_store(s3.location("hanging"))


def test_a_store_that_hangs_for_good_is_an_error_and_serves_again_when_it_goes_on(s3: S3Server) -> None:
    shard = made(s3)
    with s3.hanging(), pytest.raises(StorageError) as silence:
        storage(shard).read("nothing.json")
    assert silence.value.problem is not None
    assert silence.value.problem.value == "Unreachable"
    assert isinstance(shard.compare_and_append(LATER, expected_upper=5, new_upper=6, term=1), Appended)


def _let_go_on(go_on: Callable[[], None]) -> None:
    """By another thread, a little later: by then it is waited for. A store that has answered just now is believed to
    be there, so that is to be over."""
    time.sleep(ANSWERED_SECONDS)
    threading.Timer(0.5, go_on).start()
