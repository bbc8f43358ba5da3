"""`python -m tidemark_devcluster.demo up|down|feed`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark_devcluster.control_plane.start import Options
from tidemark_devcluster.demo import cluster, flights, services, show
from tidemark_devcluster.demo.checks import check_machine
from tidemark_devcluster.demo.home import Home
from tidemark_devcluster.errors import DevClusterError
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import Progress

CHECKOUT = Path(__file__).parents[3]
SECONDS_PER_MONTH = 10.0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m tidemark_devcluster.demo", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="bring everything up and show it; leave it running")
    down = commands.add_parser("down", help="end everything that `up` left running; data stay")
    feed = commands.add_parser("feed", help="bring the flights, a month at a time (started by `up`)")
    for command in (start, down, feed):
        command.add_argument("--home", type=Path, default=Path(".tidemark"), help="(%(default)s)")
    for command in (start, feed):
        command.add_argument("--seconds-per-month", type=float, default=SECONDS_PER_MONTH, help="(%(default)s)")
    show_it = "how often the views are shown while they run (%(default)s)"
    start.add_argument("--looks", type=int, default=show.FRONTIER_LOOKS, help=show_it)
    down.add_argument("--delete", action="store_true", help="remove the data, too")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error of ours is one line."""
    options = parser().parse_args(arguments)
    home = Home(options.home.absolute())
    try:
        if options.command == "up":
            up(home, options.seconds_per_month, options.looks)
        elif options.command == "feed":
            flights.feed(home.incoming, options.seconds_per_month)
        else:
            down(home, delete=options.delete)
        return 0
    except DevClusterError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; `make demo` goes on from here, `make demo-down` ends it", file=sys.stderr)
        return 130


def up(home: Home, seconds_per_month: float, looks: int) -> None:
    """Everything, in order; what runs already is left alone."""
    progress = Progress(sys.stderr)
    home.make()
    check_machine(home.root)
    binaries = ensure_binaries(os.environ, progress)
    step = progress.step("control plane", "starts in seconds")
    plane = home.plane()
    plane.up(binaries, Options())
    home.link_kubectl(binaries.kubectl)
    step.done()
    step = progress.step("resources", "the CRDs, the operator, then examples/")
    plane.serve(CHECKOUT / "crds")
    services.start_operator(home)
    services.start_feeder(home, seconds_per_month)
    cluster.apply_examples(plane, CHECKOUT, home)
    step.done()
    show.wait_until_hydrated(home, plane, progress)
    show.show_frontiers(home, plane, looks, sys.stdout)
    show.say_what_next(home, sys.stdout)


def down(home: Home, *, delete: bool) -> None:
    """Ends the feeder, the operator, what the operator runs, and the control plane; nothing else."""
    step = Progress(sys.stderr).step("ending the demo", "some seconds")
    for name in (services.FEEDER, services.OPERATOR):
        services.stop(home, name)
    services.stop_operated(home)
    home.plane().down()
    note = ""
    if delete:
        shutil.rmtree(home.root, ignore_errors=True)
    elif home.root.exists():
        note = f"; `make demo` goes on with the data in {home.root}, which may be removed to begin anew"
    step.done(note)


if __name__ == "__main__":
    sys.exit(main())
