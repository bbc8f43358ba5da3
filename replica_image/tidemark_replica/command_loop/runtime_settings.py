"""Settings at work: what this version understands is done at once, what it does not is said once in the log.

{"log_level": "debug", "colour": "blue"} ──► debug
                                         └─► "... there is no setting 'colour' ...": one line for each reason,
                                             however often it is set, by however many clients
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidemark_protocol.messages.replica_settings import LogLevel, parse_settings

LOG = logging.getLogger(__name__)
LOGGED_MAX = 100
"""Lines about settings in the life of a process."""


PACKAGES = ("tidemark_replica", "tidemark_persist", "tidemark_protocol")
"""The packages whose loggers follow the setting `log_level`."""


def set_level(level: LogLevel) -> None:
    """Sets the log level of this process's own packages; loggers of libraries stay as they are."""
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level.name)


class RuntimeSettings:
    """Of the process: whoever set them, they stay."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def apply(self, settings: Mapping[str, str]) -> None:
        meant = parse_settings(settings)
        if meant.log_level is not None:
            set_level(meant.log_level)
        for why in meant.unknown.values():
            if why not in self._logged and len(self._logged) < LOGGED_MAX:
                self._logged.add(why)
                LOG.warning("left as it is, the operator may be newer than this replica: %s", why)
