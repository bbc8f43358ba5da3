"""`tidemark-devcluster build|up|down|status|node|images`: the control plane from the command line.

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

from tidemark_devcluster.control_plane.commands import SERVERS
from tidemark_devcluster.control_plane.control_plane import ControlPlane, Status
from tidemark_devcluster.control_plane.start import Options
from tidemark_devcluster.errors import DevClusterError
from tidemark_devcluster.images import command as images_command
from tidemark_devcluster.node import command as node_command
from tidemark_devcluster.programs import recipe
from tidemark_devcluster.programs.build import ensure_binaries, ensure_helm, ensure_toxiproxy, ensure_versitygw
from tidemark_devcluster.programs.module_files import ensure_monitoring_kinds
from tidemark_devcluster.programs.progress import Progress

DEFAULT_STATE = Path(".tidemark") / "control-plane"


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="tidemark-devcluster", description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="compile the programs into the cache (minutes, once)")
    up = commands.add_parser("up", help="start what does not run; builds first if needed")
    down = commands.add_parser("down", help="end the servers of a state folder; data stay")
    status = commands.add_parser("status", help="what runs; exit status 3 when not all is ready")
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
    for command in (up, down, status):
        command.add_argument("--state", type=Path, default=DEFAULT_STATE, help="state folder (%(default)s)")
        command.add_argument("--kubeconfig", type=Path, help="where it is written (STATE/kubeconfig)")
    for command in (build, up, status):
        command.add_argument("--json", action="store_true", help="print one JSON object")
    up.add_argument("--port", type=int, help="of the API server on 127.0.0.1 (any free one, then kept)")
    up.add_argument("--no-fsync", action="store_true", help="faster; a power failure may lose the data")
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
    if options.delete:
        plane.delete()
    else:
        plane.down()
    return 0


def _build(options: argparse.Namespace) -> int:
    progress = Progress(sys.stderr)
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
    binaries = ensure_binaries(os.environ, Progress(sys.stderr))
    began = time.monotonic()
    plane = ControlPlane(options.state, options.kubeconfig)
    plane.up(binaries, Options(options.port, durable=not options.no_fsync))
    print(f"control plane ready after {time.monotonic() - began:.1f} s", file=sys.stderr)
    status = plane.status()
    print(_as_json(plane, status) if options.json else _as_text(plane, status))
    return 0


def _as_json(plane: ControlPlane, status: Status) -> str:
    paths = {"kubeconfig": str(plane.kubeconfig), "kubectl": str(plane.layout.kubectl)}
    return json.dumps({**asdict(status), **paths})


def _as_text(plane: ControlPlane, status: Status) -> str:
    """One line per server, then where it is."""
    lines = []
    for name in SERVERS:
        if name in status.pids:
            memory = status.resident_bytes[name] / (1 << 20)
            lines.append(f"{name:<24} running  pid {status.pids[name]:<8} {memory:>5.0f} MiB")
        else:
            lines.append(f"{name:<24} stopped")
    lines.append(f"API server {status.server or 'never started'}, {'ready' if status.ready else 'not ready'}")
    lines.append(f"export KUBECONFIG={plane.kubeconfig}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
