"""`tidemark-devcluster node up|down|status|load|packages|check`: the one-node cluster from the command line."""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidemark_devcluster.node import host_requirements
from tidemark_devcluster.node.binaries import ensure_node_binaries
from tidemark_devcluster.node.cluster import NodeStatus, OneNode
from tidemark_devcluster.programs.progress import ProgressOutput

DEFAULT_STATE = Path(".tidemark") / "node"


def add_parser(commands: Any) -> None:
    """Add `node` to the commands of `tidemark-devcluster`."""
    node = commands.add_parser("node", help="a real one-node cluster: pods run (needs root)")
    actions = node.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", help="start it if it does not run; builds first if needed")
    down = actions.add_parser("down", help="end it, and remove all of it")
    status = actions.add_parser("status", help="what runs; exit status 3 when pods would not run")
    load = actions.add_parser("load", help="give it images, from archives of docker or OCI")
    actions.add_parser("check", help="whether this machine can run it")
    packages = actions.add_parser("packages", help="the Debian packages that this machine lacks for it and for images")
    for action in (up, down, status, load):
        action.add_argument("--state", type=Path, default=DEFAULT_STATE, help="state folder (%(default)s)")
        action.add_argument("--kubeconfig", type=Path, help="where it is written (STATE/kubeconfig)")
    for action in (up, status, packages):
        action.add_argument("--json", action="store_true", help="print one JSON object")
    load.add_argument("images", nargs="+", type=Path, metavar="ARCHIVE")


def run(options: argparse.Namespace) -> int:
    """Run one action."""
    if options.action == "packages":
        missing = host_requirements.missing_packages(host_requirements.PACKAGES | host_requirements.IMAGE_PACKAGES)
        print(json.dumps(missing) if options.json else " ".join(missing))
        return 0
    if options.action == "check":
        host_requirements.require_all()
        return 0
    node = OneNode(options.state, options.kubeconfig)
    if options.action == "down":
        node.down()
        return 0
    if options.action == "load":
        for image in options.images:
            node.load(image)
        return 0
    if options.action == "up":
        _up(node)
    status = node.status()
    print(_as_json(node, status) if options.json else _as_text(node, status))
    return 0 if status.ready else 3


def _up(node: OneNode) -> None:
    host_requirements.require_all()  # before minutes are spent on compiling
    binaries = ensure_node_binaries(os.environ, ProgressOutput(sys.stderr))
    began = time.monotonic()
    node.up(binaries)
    print(f"node ready after {time.monotonic() - began:.1f} s", file=sys.stderr)


def _as_json(node: OneNode, status: NodeStatus) -> str:
    paths = {"kubeconfig": str(node.layout.kubeconfig), "kubectl": str(node.layout.kubectl)}
    return json.dumps({**asdict(status), **paths})


def _as_text(node: OneNode, status: NodeStatus) -> str:
    lines = [f"{name:<24} running  pid {pid}" for name, pid in status.pids.items()]
    lines.append(f"API server {status.server or 'stopped'}, pods {'run' if status.ready else 'do not run'}")
    lines.append(f"export KUBECONFIG={node.layout.kubeconfig}")
    return "\n".join(lines)
