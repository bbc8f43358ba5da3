"""Ports for servers that cannot be told to take any.

Between the moment in which a port is found free and the one in which its server listens, the system may give it to
any connection that goes out. So they are taken from below those that the system gives away by itself.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

_LOWEST, _ATTEMPTS = 10_000, 1000
_RANDOM = random.SystemRandom()


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens, and that no connection is given."""
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(_ATTEMPTS):
        port = _RANDOM.randrange(_LOWEST, given) if given > _LOWEST else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    raise AssertionError("there is no free port")
