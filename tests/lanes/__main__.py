"""`python -m tests.lanes`: the tests of `make test`, in lanes beside each other (docs/testing.md).

--resume        leave out what passed, or was skipped, at this commit before
--times N       so many rounds, one after the other
--lanes A,B     only these; `slow`, which is none of the four, has the slow tests
--broad K/N     of the tests marked `broad` that are not slow, the K-th of N shares, or `all`; unless said otherwise,
                the share of eight whose turn it is at this commit
--share K/N     the K-th of N shares of each lane, by file and by recorded seconds
--ledger FILE   .tidemark/lanes/ledger.jsonl unless said otherwise
--pauses        stop random processes of the tests for moments, as on a busy machine
anything else   is an argument of pytest in every lane, as -k; or of plugin.py, as --slow-minutes N
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from tests.lanes.ledger import CHECKOUT, commit_of_checkout
from tests.lanes.pauses import pauses
from tests.lanes.processor_time import adopt_orphans
from tests.lanes.runner import Lane, run_rounds
from tests.lanes.shares import turn_of

_SERVERS = "kafka or postgres or iceberg"
YIELDS = 2
"""The niceness of lanes that compute: `cluster` and `e2e`, which mostly wait, go first. With 5, a planner of the lane
`spark` did not start within BOUND on a slow machine."""
LANES = (
    Lane(
        "fast",
        ("-m", f"not (slow or spark or cluster or e2e or node or {_SERVERS})"),
        workers=2,
        niceness=YIELDS,
    ),
    Lane(
        "spark",
        ("-m", "spark and not (slow or cluster or e2e)"),
        workers=1,
        marks=("spark",),
        niceness=YIELDS,
    ),
    Lane(
        "cluster",
        ("-m", f"(cluster or {_SERVERS}) and not (slow or e2e)"),
        marks=("cluster", "kafka", "postgres", "iceberg"),
    ),
    Lane("e2e", ("-m", "e2e and not slow", "tests/e2e"), workers=1),
)
BROAD_SHARES = 8
BROAD_MINUTES = 20
"""No broad test begins later, unless all were asked for: a slow machine runs the others to their end."""
SLOW = Lane("slow", ("-m", "slow"))
SIGNALLED = 128


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description="Tests in lanes beside each other.")
    parser.add_argument("--resume", action="store_true", help="leave out what passed at this commit before")
    parser.add_argument("--times", type=int, default=1, help="so many rounds")
    parser.add_argument("--lanes", default=",".join(lane.name for lane in LANES), help="names, with commas between")
    parser.add_argument("--broad", default="", help="a share of the broad tests, as 3/8, or all")
    parser.add_argument("--ledger", type=Path, default=CHECKOUT / ".tidemark" / "lanes" / "ledger.jsonl")
    parser.add_argument("--pauses", action="store_true", help="stop random processes of the tests for moments")
    given, others = parser.parse_known_args(arguments)
    wanted = given.lanes.split(",")
    if unknown := set(wanted) - {lane.name for lane in (*LANES, SLOW)}:
        parser.error(f"no lane is called {', '.join(sorted(unknown))}")
    adopt_orphans()
    signal.signal(signal.SIGTERM, _end)
    broad = given.broad or f"{turn_of(commit_of_checkout(), BROAD_SHARES)}/{BROAD_SHARES}"
    lanes = [with_share(lane, broad, others) for lane in (*LANES, SLOW) if lane.name in wanted]
    try:
        with pauses(os.getpid()) if given.pauses else nullcontext():
            return run_rounds(lanes, given.ledger.absolute(), given.times, given.resume)
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT


def with_share(lane: Lane, broad: str, others: Sequence[str] = ()) -> Lane:
    """The lane with a share of the broad tests. The lane `slow` has all of its tests: it has shares of its own."""
    share = () if broad == "all" or lane is SLOW else (f"--broad={broad}", f"--broad-minutes={BROAD_MINUTES}")
    return replace(lane, arguments=(*lane.arguments, *share, *others))


def _end(number: int, frame: object) -> None:
    """End by an exception, so that lanes are interrupted and waited for: a second signal would leave their servers."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(SIGNALLED + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
