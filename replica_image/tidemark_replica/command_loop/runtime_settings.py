"""Settings at work: what this version understands is done at once, what it does not is said once in the log.

{"log_level": "debug", "colour": "blue"} ──► debug
                                         └─► "... there is no setting 'colour' ...": one line for each reason,
                                             however often it is set, by however many clients
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidemark_protocol.messages.replica_settings import parse_settings
from tidemark_replica.command_loop.log_level import set_level

LOG = logging.getLogger(__name__)
TOLD_MOST = 100
"""Lines about settings in the life of a process."""


class Settings:
    """Of the process: whoever set them, they stay."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def apply(self, settings: Mapping[str, str]) -> None:
        meant = parse_settings(settings)
        if meant.log_level is not None:
            set_level(meant.log_level)
        for why in meant.unknown.values():
            if why not in self._told and len(self._told) < TOLD_MOST:
                self._told.add(why)
                LOG.warning("left as it is, the operator may be newer than this replica: %s", why)
