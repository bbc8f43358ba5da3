"""Run by test_shared_volume.py, in a process of its own: the driver on one node, its two executors on another.

driver (node a) ── <folder>/shared/... ── executors (node b)

disk     the dataflow with its state on this machine's disk       how long its steps take there
volume   all of it on the volume: every file is written on one    the same updates, and Spark's batch answers
         node and read on the other

Before some steps it waits for a line of its standard input, so that what goes wrong goes wrong then. Its lines:

hydrated PLACE MS     step N PLACE MS     failed TYPE TEXT     waits N     incarnations N     agrees
"""

from __future__ import annotations

import sys
import time
import traceback
import uuid
from contextlib import closing
from pathlib import Path

from tests.oracle.check import Case
from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import History, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.tables import T
from tests.waiting import BOUND
from tidemark_protocol.frontier import Frontier
from tidemark_replica.process.scratch import Scratch
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.spark.session import start_spark

CASE = Case(
    "join, reduce and top-k",
    "SELECT a, n, x FROM (SELECT l.a, count(*) AS n, sum(r.b) AS x FROM t l JOIN u r ON l.a = r.a GROUP BY l.a) "
    "ORDER BY n DESC, a NULLS LAST, x LIMIT 3",
    {"t": T, "u": T},
)
SEED, TIMES, CHANGES = 11, 12, 60
FAULTS_AT = (4, 7)
TRY_AGAIN_SECONDS = 0.5


def main(local: Path, shared: Path, waits: bool) -> None:
    spark = start_spark("local-cluster[2,1,1024]", "1g", local / "spark")
    oracle = Oracle(spark)
    history = random_history(CASE.tables, SEED, times=TIMES, changes=CHANGES)
    expected = None
    if waits:
        run(oracle, history, local / "warm", "warm")
        expected = run(oracle, history, local / "harness", "disk")
    made = run(oracle, history, shared / "harness", "volume", FAULTS_AT if waits else (), check=True)
    assert expected is None or made == expected, "the volume gives other updates than the disk"
    say("agrees")
    sys.stdin.readline()
    spark.stop()


def run(
    oracle: Oracle, history: History, folder: Path, place: str, waits: tuple[int, ...] = (), *, check: bool = False
) -> Updates:
    """The updates of all steps; `check`: they are what Spark answers as a batch."""
    scratch = Scratch(folder, uuid.uuid4().hex)
    with closing(scratch), harness(oracle.spark, scratch.folder, CASE.tables, history) as of:
        say(f"incarnations {sum(path.is_dir() for path in folder.iterdir())}")
        description = oracle.describe(CASE, of)
        dataflow, made = of.build(description), Updates()
        for number, bound in enumerate(history.times):
            if number in waits:
                say(f"waits {number}")
                sys.stdin.readline()
            began = time.monotonic()
            made.update(until_done(of, dataflow, bound + 1))
            what = f"step {number}" if number else "hydrated"
            say(f"{what} {place} {1000 * (time.monotonic() - began):.0f}")
        made = consolidated(made)
        if check:
            oracle.check_updates(CASE, history, description, made)
        return made


def until_done(of: DataflowHarness, dataflow: RenderedDataflow, upper: int) -> Updates:
    """The steps up to there; one that fails is tried again, as a replica does it."""
    made = Updates()
    deadline = time.monotonic() + BOUND
    while dataflow.frontier < Frontier.at(upper):
        try:
            outcome = of.step(dataflow, upper)
            found = delta(outcome, SINK)
        except StepFailed as error:
            say(f"failed {type(error).__name__} {' '.join(str(error).split())[:300]}")
            assert time.monotonic() < deadline, "the step fails for ever"
            time.sleep(TRY_AGAIN_SECONDS)
        else:
            made.update(found)
            outcome.release()
    return made


def say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "waits")
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        raise
