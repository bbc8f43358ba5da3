"""Names that a shell offers: of namespaces and objects, as kubectl lists them, and of relations, as the gateway does.

A shell waits for the names, so they come within SECONDS or not at all. Where there is an error, no name is
offered. The terminal is not read: the keys that are typed meanwhile are the shell's.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from tidemark.gateway.kubectl import Kubectl
from tidemark_cli.gateway_choice import locate

SECONDS = 4.0
NAMES_MAX = 500
_GROUP = "compute.tidemark.dev"
Complete = Callable[[click.Context, click.Parameter, str], list[str]]


class _TooLong(BaseException):
    """The time that a shell waits is over."""


def names(list_names: Callable[[dict[str, Any]], list[str]]) -> Complete:
    """The completion of a parameter. `list_names`: all names, from the options that the line has already."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        found: list[str] = []
        try:
            with _soon(), _no_input():
                found = list_names(ctx.params)
        except (Exception, _TooLong):  # a shell has no place for an error
            return []
        return sorted(name for name in set(found) if name.startswith(incomplete))[:NAMES_MAX]

    return complete


def objects(kind: str) -> Complete:
    """Names of objects of a kind of the namespace."""
    return names(lambda params: _listed(params, f"{kind}.{_GROUP}", "--namespace", _namespace(params)))


def _relations(params: dict[str, Any]) -> list[str]:
    """Tables and exports, and the Dataflows and DataSources that have them."""
    from tidemark_protocol.pb.gateway_pb2 import FrontiersRequest

    find, namespace = locate(params)
    gateway = find()
    from tidemark.gateway.channel import connected

    with connected(gateway) as stub:
        request = FrontiersRequest(namespace=namespace)
        reply = stub.Frontiers(request, metadata=gateway.metadata, timeout=SECONDS)
    found = [collection.name for collection in reply.collections]
    return [*found, *(name.partition(".")[0] for name in found)]


def _listed(params: dict[str, Any], kind: str, *more: str) -> list[str]:
    done = _kubectl(params).run("completion", "get", kind, "--output", "name", "--request-timeout", "3s", *more)
    return [line.rpartition("/")[2] for line in done.stdout.splitlines()]


def _kubectl(params: dict[str, Any]) -> Kubectl:
    return Kubectl(params.get("kubeconfig"), params.get("context"))


def _namespace(params: dict[str, Any]) -> str:
    return params.get("namespace") or _kubectl(params).namespace()


@contextmanager
def _soon() -> Iterator[None]:
    """Raises _TooLong in the block after SECONDS; in a thread of its own there is no such end."""

    def end(number: int, _: FrameType | None) -> None:
        raise _TooLong

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _no_input() -> Iterator[None]:
    """Programs that the block starts, such as a plugin of kubectl that logs in, have no terminal to read."""
    with open(os.devnull) as nothing:
        kept = os.dup(0)
        try:
            os.dup2(nothing.fileno(), 0)
            yield
        finally:
            os.dup2(kept, 0)
            os.close(kept)


relations = names(_relations)
namespaces = names(lambda params: _listed(params, "namespaces"))
sources, instances, replicas = objects("datasources"), objects("computeinstances"), objects("computereplicas")
dataflows = objects("dataflows")
