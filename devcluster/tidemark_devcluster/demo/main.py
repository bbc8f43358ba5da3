"""`python -m tidemark_devcluster.demo up|down|feed|supervise`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.control_plane.commands import CONTROLLER_MANAGER
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.control_plane.start import StartOptions
from tidemark_devcluster.demo import cluster, existing_cluster, flights, services, show, status
from tidemark_devcluster.demo.checks import check_machine
from tidemark_devcluster.demo.existing_cluster import ExistingCluster
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.errors import DevClusterError
from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.supervision.process import SUPERVISOR

CHECKOUT = Path(__file__).parents[3]
SECONDS_PER_MONTH = 10.0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m tidemark_devcluster.demo", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="bring everything up and show it; leave it running")
    down = commands.add_parser("down", help="end everything that `up` left running; data stay")
    feed = commands.add_parser("feed", help="bring the flights, a month at a time (started by `up`)")
    supervise = commands.add_parser("supervise", help="restart what dies (started by `up`)")
    for command in (start, down, feed, supervise):
        command.add_argument("--home", type=Path, default=Path(".tidemark"), help="(%(default)s)")
    for command in (start, feed):
        command.add_argument("--seconds-per-month", type=float, default=SECONDS_PER_MONTH, help="(%(default)s)")
    show_it = "how often the views are shown while they run (%(default)s)"
    start.add_argument("--looks", type=int, default=show.FRONTIER_LOOKS, help=show_it)
    start.add_argument("--reset", action="store_true", help="apply examples/ over edits of them")
    down.add_argument("--delete", action="store_true", help="remove the data, too")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error of ours is one line."""
    options = parser().parse_args(arguments)
    home = DemoHome(options.home.absolute())
    try:
        if options.command == "up":
            up(home, options.seconds_per_month, options.looks, reset=options.reset)
        elif options.command == "feed":
            flights.feed(home.incoming, options.seconds_per_month)
        elif options.command == "supervise":
            services.supervise(home)
        else:
            down(home, delete=options.delete)
        return 0
    except DevClusterError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; `make demo` goes on from here, `make demo-down` ends it", file=sys.stderr)
        return 130


def up(home: DemoHome, seconds_per_month: float, looks: int, *, reset: bool = False) -> None:
    """Start missing processes, create absent objects, and show the first rows.

    Running processes stay, and so do the user's edits of the examples, unless `reset`.
    """
    progress = ProgressOutput(sys.stderr)
    home.make()
    check_machine(home.root)
    found = status.rows(home)
    api = _existing_cluster(home, progress) or _own_control_plane(home, progress, recipe.API_SERVER_PROGRAMS)
    step = progress.step("resources", "the CRDs, the operator, then examples/")
    api.serve(CHECKOUT / "crds")
    services.start_operator(home)
    services.start_supervisor(home)
    services.start_feeder(home, seconds_per_month)
    manifests = cluster.examples(CHECKOUT, home)
    step.done(_make_examples(api, manifests, reset=reset))
    progress.say(status.compared(found, status.rows(home)))
    show.wait_for_gateway(home, progress)
    show.wait_until_hydrated(home, api, cluster.example_dataflows(manifests), progress)
    show.show_frontiers(home, api, looks, sys.stdout)
    if isinstance(api, ControlPlane) and api.running(CONTROLLER_MANAGER) is None:
        _own_control_plane(home, progress, recipe.PROGRAMS)
    show.say_what_next(home, sys.stdout)


def _make_examples(api: cluster.Cluster, manifests: str, *, reset: bool) -> str:
    """Create the absent examples, or apply all of them. Returns a note about existing ones."""
    if reset:
        cluster.reset_examples(api, manifests)
        return ", examples/ applied anew"
    found = cluster.create_examples(api, manifests)
    return f", {found} objects of examples/ were there and stay as they are" if found else ""


def _existing_cluster(home: DemoHome, progress: ProgressOutput) -> ExistingCluster | None:
    """The user's cluster, if KUBECONFIG or CONTEXT names one that may be used, or if an earlier `up` used it."""
    kubectl = existing_cluster.find_kubectl(os.environ)
    context = existing_cluster.chosen_context(os.environ, kubectl, home) or existing_cluster.recorded(home)
    if context is None or kubectl is None:
        return None
    if not (context.is_local or os.environ.get("CONTEXT") or existing_cluster.recorded(home) == context):
        progress.say(
            f"KUBECONFIG's context {context.name} ({context.server}) is not on this machine: the demo starts a control "
            f"plane of its own; `make demo CONTEXT={context.name}` uses that cluster"
        )
        return None
    home.link_kubectl(kubectl)
    progress.say(f"control plane: context {context.name}, {context.server}")
    return existing_cluster.adopt(context, kubectl, home)


def _own_control_plane(home: DemoHome, progress: ProgressOutput, programs: tuple[recipe.Program, ...]) -> ControlPlane:
    """The demo's own control plane, started with `programs` and with all other programs that are built.

    kube-controller-manager is compiled last: views are computed without it.
    """
    binaries = ensure_binaries(os.environ, progress, programs)
    step = progress.step("control plane", "starts in seconds")
    plane = home.plane()
    plane.up(binaries, StartOptions())
    home.link_kubectl(binaries.kubectl)
    step.done()
    return plane


def down(home: DemoHome, *, delete: bool) -> None:
    """End the supervisor, the feeder, the operator with its replicas and planner, and the control plane; nothing
    else."""
    step = ProgressOutput(sys.stderr).step("ending the demo", "some seconds")
    context = existing_cluster.recorded(home)
    if delete and context is not None and processes.running(home.pid_file(services.OPERATOR)) is not None:
        cluster.delete_examples(ExistingCluster(home.bin / "kubectl", home.kubeconfig), CHECKOUT, home)
    for name in (SUPERVISOR, services.FEEDER, services.OPERATOR):
        services.stop(home, name)
    services.stop_operated(home)
    home.plane().down()
    note = ""
    if delete:
        shutil.rmtree(home.root, ignore_errors=True)
    elif home.root.exists():
        note = f"; `make demo` goes on with the data in {home.root}; `make demo-down DELETE=1` removes them"
    if context is not None:
        note += f"; context {context.name} keeps Tidemark's CRDs" + ("" if delete else " and the examples")
    step.done(note)


if __name__ == "__main__":
    sys.exit(main())
