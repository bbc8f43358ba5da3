"""How much the replica's process logs: what its controller has set last. Other libraries' lines stay as they are."""

from __future__ import annotations

import logging

from tidemark_protocol.messages.replica_settings import LogLevel

PACKAGES = ("tidemark_replica", "tidemark_persist", "tidemark_protocol")


def set_level(level: LogLevel) -> None:
    """From the next line on."""
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level.name)
