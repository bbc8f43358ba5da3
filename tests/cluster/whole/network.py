"""Packets of pods that come nowhere: a table of nftables in the node's own network namespace.

pods ── service 10.96.0.1:443 ──► translated to the node's 6443 ──► hook input      the API server
pod  ── another pod's address ────────────────────────────────────► hook forward    operator and driver
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidemark_devcluster.node import host_requirements
from tidemark_devcluster.node.cluster import OneNode

TABLE = "inet tidemark_cut"
DROP = "drop"
"""A black hole: also connections that are open hang."""
RESET = "reject with tcp reset"
UNKNOWN = ("Operation not supported", "No such file or directory")


@contextmanager
def cut(node: OneNode, hook: str, which: str, verdict: str) -> Iterator[None]:
    """While it lasts, packets that are `which` get that verdict, after addresses of services were translated. One that
    an earlier test left, on a node that stays, is replaced."""
    chain = f"type filter hook {hook} priority -10; policy accept; {which} {verdict}"
    _nft(node, f"add table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n chain cut {{\n{chain}\n}}\n}}\n")
    try:
        yield
    finally:
        _nft(node, f"delete table {TABLE}\n")


def _nft(node: OneNode, rules: str) -> None:
    command = node.enter(host_requirements.find("nft"), "--file", "-")
    done = subprocess.run(command, input=rules, capture_output=True, text=True, check=False)
    if any(message in done.stderr for message in UNKNOWN):
        pytest.skip(f"this kernel's nftables cannot do this: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
