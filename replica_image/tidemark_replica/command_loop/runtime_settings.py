"""Settings that take effect while the process runs. Unknown settings are logged once.

{"log_level": "debug", "colour": "blue"} ──► log level debug
                                         └─► one warning per reason, however many clients set it
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidemark_protocol.messages.replica_settings import LogLevel, parse_settings

LOG = logging.getLogger(__name__)
LOGGED_MAX = 100
"""The largest number of warnings about settings in the life of a process."""


PACKAGES = ("tidemark_replica", "tidemark_persist", "tidemark_protocol")
"""The packages whose loggers follow the setting `log_level`."""


def set_level(level: LogLevel) -> None:
    """Sets the log level of this process's own packages; loggers of libraries stay as they are."""
    for package in PACKAGES:
        logging.getLogger(package).setLevel(level.name)


class RuntimeSettings:
    """Settings of the process; they stay when the client that set them disconnects."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def apply(self, settings: Mapping[str, str]) -> None:
        meant = parse_settings(settings)
        if meant.log_level is not None:
            set_level(meant.log_level)
        for why in meant.unknown.values():
            if why not in self._logged and len(self._logged) < LOGGED_MAX:
                self._logged.add(why)
                LOG.warning("a setting is ignored (the operator may be newer than this replica): %s", why)
