"""What a controller may set on all replicas of an instance at any time, without starting them anew.

    UpdateConfiguration.settings     {"log_level": "debug"}     texts on the wire; what is absent stays as it is

What is not here has no meaning, and is refused: whoever sends it would wait in vain for what it should do.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tidemark_protocol.errors import MalformedFrame


class LogLevel(Enum):
    """The least that a replica's process writes to its log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LOG_LEVEL = "log_level"
_VALUES: Mapping[str, type[Enum]] = {LOG_LEVEL: LogLevel}
_SHOWN_MOST = 64


def check_settings(settings: Mapping[str, str]) -> None:
    """Raises MalformedFrame, with what could be set."""
    for name, value in settings.items():
        values = _VALUES.get(name)
        if values is None:
            raise MalformedFrame(f"there is no setting {name[:_SHOWN_MOST]!r}; there is {', '.join(_VALUES)}")
        known = [member.value for member in values]
        if value not in known:
            raise MalformedFrame(f"setting {name} is {value[:_SHOWN_MOST]!r}; it can be {', '.join(known)}")


def log_level(settings: Mapping[str, str]) -> LogLevel | None:
    """Of settings that were checked."""
    return LogLevel(settings[LOG_LEVEL]) if LOG_LEVEL in settings else None
