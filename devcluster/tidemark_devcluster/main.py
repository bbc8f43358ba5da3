"""`tidemark-devcluster build|up|down|status|supervise|node|images`: the control plane from the command line.

Results go to standard output, progress and errors (one line, exit status 1) to standard error.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tidemark_devcluster.control_plane.control_plane import ControlPlane, ControlPlaneStatus
from tidemark_devcluster.control_plane.start import StartOptions
from tidemark_devcluster.demo import status as demo_status
from tidemark_devcluster.demo.home import DemoHome
from tidemark_devcluster.errors import DevClusterError
from tidemark_devcluster.images import command as images_command
from tidemark_devcluster.node import command as node_command
from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import ensure_binaries, ensure_helm, ensure_toxiproxy, ensure_versitygw
from tidemark_devcluster.programs.module_files import ensure_monitoring_kinds
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.supervision import plane as supervised
from tidemark_devcluster.supervision import table
from tidemark_devcluster.supervision.process import SUPERVISOR, supervise
from tidemark_devcluster.supervision.process import stop as stop_supervisor

DEFAULT_STATE = Path(".tidemark") / "control-plane"


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="tidemark-devcluster", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="compile the programs into the cache (minutes, once)")
    up = commands.add_parser("up", help="start what does not run; builds first if needed")
    down = commands.add_parser("down", help="end the servers of a state folder; data stay")
    status = commands.add_parser("status", help="what runs; exit status 3 when not all is ready")
    supervise = commands.add_parser("supervise", help="restart servers that die, until SIGTERM (started by `up`)")
    node_command.add_parser(commands)
    images_command.add_parser(commands)
    build.add_argument(
        "--api-server", action="store_true", help="only etcd, kube-apiserver and kubectl, which are used first"
    )
    build.add_argument("--with-helm", action="store_true", help="helm too, which the tests of the chart need")
    build.add_argument("--with-toxiproxy", action="store_true", help="toxiproxy too, which tests of faults need")
    build.add_argument("--with-versitygw", action="store_true", help="versitygw too, an S3 server for tests")
    build.add_argument(
        "--with-monitoring-kinds", action="store_true", help="kinds of the Prometheus operator too, for tests"
    )
    for command in (up, down, status, supervise):
        command.add_argument("--state", type=Path, default=DEFAULT_STATE, help="state folder (%(default)s)")
        command.add_argument("--kubeconfig", type=Path, help="where it is written (STATE/kubeconfig)")
    for command in (build, up, status):
        command.add_argument("--json", action="store_true", help="print one JSON object")
    up.add_argument("--port", type=int, help="of the API server on 127.0.0.1 (any free one, then kept)")
    for command in (up, supervise):
        command.add_argument("--no-fsync", action="store_true", help="faster; a power failure may lose the data")
    down.add_argument("--delete", action="store_true", help="remove the state folder too")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error of ours is one line."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except DevClusterError as error:
        print(f"tidemark-devcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tidemark-devcluster: interrupted", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.command == "node":
        return node_command.run(options)
    if options.command == "images":
        return images_command.run(options)
    if options.command == "build":
        return _build(options)
    if options.command == "up":
        return _up(options)
    plane = ControlPlane(options.state, options.kubeconfig)
    if options.command == "status":
        status = plane.status()
        print(_as_json(plane, status) if options.json else _as_text(plane, status))
        return 0 if status.ready else 3
    if options.command == "supervise":
        group = supervised.PlaneGroup(plane, durable=not options.no_fsync)
        supervise([group], supervised.record_of(plane), plane.layout.log(SUPERVISOR))
        return 0
    stop_supervisor(plane.layout.pid_file(SUPERVISOR))
    if options.delete:
        plane.delete()
    else:
        plane.down()
    return 0


def _build(options: argparse.Namespace) -> int:
    progress = ProgressOutput(sys.stderr)
    programs = recipe.API_SERVER_PROGRAMS if options.api_server else recipe.PROGRAMS
    binaries = ensure_binaries(os.environ, progress, programs)
    paths = {name: str(path) for name, path in asdict(binaries).items() if path is not None}
    if options.with_helm:
        paths["helm"] = str(ensure_helm(os.environ, progress))
    if options.with_toxiproxy:
        paths["toxiproxy"] = str(ensure_toxiproxy(os.environ, progress))
    if options.with_versitygw:
        paths["versitygw"] = str(ensure_versitygw(os.environ, progress))
    if options.with_monitoring_kinds:
        paths |= {path.stem: str(path) for path in ensure_monitoring_kinds(os.environ, progress)}
    print(json.dumps(paths) if options.json else "\n".join(paths.values()))
    return 0


def _up(options: argparse.Namespace) -> int:
    binaries = ensure_binaries(os.environ, ProgressOutput(sys.stderr))
    began = time.monotonic()
    plane = ControlPlane(options.state, options.kubeconfig)
    plane.up(binaries, StartOptions(options.port, durable=not options.no_fsync))
    supervised.start_supervisor(plane, durable=not options.no_fsync)
    print(f"control plane ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
    status = plane.status()
    print(_as_json(plane, status) if options.json else _as_text(plane, status))
    return 0


def _as_json(plane: ControlPlane, status: ControlPlaneStatus) -> str:
    paths = {"kubeconfig": str(plane.kubeconfig), "kubectl": str(plane.layout.kubectl)}
    return json.dumps({**asdict(status), **paths})


def _as_text(plane: ControlPlane, status: ControlPlaneStatus) -> str:
    """One row for each program, those of a demo in the same folder too; then where the API server is."""
    home = DemoHome(plane.layout.root.parent)
    rows = demo_status.rows(home) if demo_status.is_demo(plane, home) else supervised.all_rows(plane)
    lines = [
        table.text(rows),
        f"API server {status.server or 'never started'}, {'ready' if status.ready else 'not ready'}",
        f"export KUBECONFIG={plane.kubeconfig}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
