"""One stage reading a stream several times, by way of a spool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.arrangement.histories import contents, updates
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.task.description import StepDescription
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots
from tidemark_replica.render.task.stage import Stage
from tidemark_replica.render.task.update_files import UpdatesFile

TYPES = (pa.int64(),)
ROWS = [((1,), 5, 1), ((None,), 5, 2), ("boom", 6, 1)]
SOURCE = p.Constants("rows.arrow", TYPES)
READ_AGAIN = p.ReadSpool("spool1", TYPES)


def stage(folder: Path) -> Stage:
    """An attempt that hydrates at 5; its constants are `ROWS`."""
    steps = folder / "steps" / "s1"
    steps.mkdir(parents=True)
    with UpdatesFile(folder, "rows.arrow", TYPES) as out:
        out.write(updates(list(TYPES), ROWS))
    description = StepDescription(StepId("s1"), 5, 8, 8, True, folder / "store")
    description.write(steps / "fragment.json")
    return Stage(steps / "fragment.json", 7, JvmInputSlots((), ()))


def test_all_readers_get_the_same_updates(tmp_path: Path) -> None:
    """One from the stream, the others from the file."""
    attempt = stage(tmp_path)
    once = contents(attempt.evaluate(SOURCE))

    thrice = contents(attempt.evaluate(p.Concat((p.Spool("spool1", SOURCE, TYPES), READ_AGAIN, READ_AGAIN))))

    assert once
    assert thrice == {key: 3 * n for key, n in once.items()}


def test_an_empty_stream_is_read_again_as_an_empty_one(tmp_path: Path) -> None:
    """A file without a chunk is a file."""
    attempt = stage(tmp_path)
    empty = p.Spool("spool1", p.Concat(()), TYPES)

    assert list(attempt.evaluate(p.Concat((empty, READ_AGAIN)))) == []


def test_a_spool_that_is_not_whole_yet_is_not_read(tmp_path: Path) -> None:
    """The order of a pipeline's readers is the renderer's to get right: a wrong one must not lose rows."""
    attempt = stage(tmp_path)

    def interleaved() -> Iterator[Updates]:
        spooling = attempt.evaluate(p.Spool("spool1", SOURCE, TYPES))
        yield next(spooling)
        yield from attempt.evaluate(READ_AGAIN)

    with pytest.raises(AssertionError, match="spool1 is read before"):
        list(interleaved())
