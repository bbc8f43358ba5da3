"""`readStream.format("tidemark")` in a real Spark, against a scripted gateway: checkpoints, ends with a name.

All are slow: Spark gives the worker of a stream ten seconds to begin, whatever else runs.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_spark_source import STREAM_OF_ROWS

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Stream:
    """A stream into memory of this process, by batches that are each taken once, as a sink that is idempotent does."""

    def __init__(self, session: Any, options: dict[str, str], checkpoint: Path) -> None:
        self._session, self._options, self._checkpoint = session, options, checkpoint
        self.batches: dict[int, list[Any]] = {}

    def load(self, **more: str) -> Any:
        options = {**self._options, "readChangeFeed": "true", **more}
        return self._session.readStream.format("tidemark").options(**options).load("counts")

    def run(self, **more: str) -> None:
        """All that there is now, in a query that begins where the one before ended."""

        def take(frame: Any, id: int) -> None:
            rows = [tuple(row) for row in frame.collect()]
            assert self.batches.setdefault(id, rows) == rows

        writer = self.load(**more).writeStream.foreachBatch(take).option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    @property
    def rows(self) -> list[Any]:
        return [row for id in sorted(self.batches) for row in self.batches[id]]

    def sums(self) -> Counter[tuple[str, int]]:
        total: Counter[tuple[str, int]] = Counter()
        for name, n, _, diff, _ in self.rows:
            total[name, n] += diff
        return +total


def test_crash_a_stream_goes_on_from_its_checkpoint_and_has_each_change_once(
    session: Any, gateway: Any, tmp_path: Path
) -> None:
    """After a restart, after a subscribe that broke off, and after a batch whose end was not committed."""
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run()
    assert sorted(row[:4] for row in stream.rows) == [("a", 1, "insert", 1), ("b", 2, "insert", 1)]
    assert {row[4].timestamp() for row in stream.rows} == {1.0}

    history.updates += [("a", 1, 2000, -1), ("a", 3, 2000, 2), ("c", 4, 3000, 1)]
    history.upper, history.breaks = 3001, 1
    stream.run()
    assert stream.sums() == Counter({("a", 3): 2, ("b", 2): 1, ("c", 4): 1})
    assert [row[2] for row in stream.rows if row[0] == "a"] == ["insert", "delete", "insert"]

    last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdigit())
    for path in (tmp_path / "commits").glob(f"*{last}*"):
        path.unlink()  # as where the process died before the end of the batch was written
    history.upper = 4001
    stream.run()
    assert stream.sums() == Counter({("a", 3): 2, ("b", 2): 1, ("c", 4): 1})
    again = [request for request in history.subscribes if request.up_to == 3001]
    assert len(again) >= 3
    assert all(request.without_snapshot and request.as_of == 1000 for request in again)


def test_a_stream_that_cannot_go_on_ends_with_a_name(session: Any, gateway: Any, tmp_path: Path) -> None:
    """It never leaves changes out, nor applies those of another relation."""
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run()
    history.upper, history.reads = 2001, "second"
    with pytest.raises(Exception, match="RELATION_CHANGED: counts is not what the stream has read before"):
        stream.run()
    history.reads, history.since = "first", 1500
    with pytest.raises(
        Exception, match="OFFSET_TOO_OLD: changes of counts cannot be read from the checkpoint's time on"
    ):
        stream.run()
    history.since = 0
    stream.run()
    assert len(stream.rows) == 2


def test_a_stream_without_the_snapshot_has_changes_alone(session: Any, gateway: Any, tmp_path: Path) -> None:
    history, options = gateway
    stream = Stream(session, options, tmp_path)
    stream.run(snapshot="false")
    history.updates.append(("a", 1, 2000, -1))
    history.upper = 2001
    stream.run(snapshot="false")
    assert [row[:4] for row in stream.rows] == [("a", 1, "delete", -1)]


def test_a_stream_of_rows_is_refused(session: Any, gateway: Any, tmp_path: Path) -> None:
    _, options = gateway
    with pytest.raises(Exception, match=STREAM_OF_ROWS):
        Stream(session, options, tmp_path).run(readChangeFeed="false")
