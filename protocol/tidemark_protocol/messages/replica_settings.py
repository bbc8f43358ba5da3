"""What a controller may set on all replicas of an instance at any time, without starting them anew.

    UpdateConfiguration.settings     {"log_level": "debug"}     texts on the wire; what is absent stays as it is

A replica may be older than its operator, by a version, and outlives it: so a setting that it does not know, or a value
that it does not know, leaves everything as it is, and says so. Ending the connection for it would take the instance
down for as long as the upgrade lasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class LogLevel(Enum):
    """The least that a replica's process writes to its log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LOG_LEVEL = "log_level"
_VALUES: Mapping[str, type[Enum]] = {LOG_LEVEL: LogLevel}
_MAX_SHOWN = 64


@dataclass(frozen=True)
class ParsedSettings:
    """What is meant by settings. None: it stays as it is. `unknown`: of each setting that this version does not
    understand, by its name, why."""

    log_level: LogLevel | None
    unknown: Mapping[str, str]


def parse_settings(settings: Mapping[str, str]) -> ParsedSettings:
    """Whatever they are."""
    unknown = {name: why for name, value in settings.items() if (why := _refusal(name, value))}
    known = LOG_LEVEL in settings and LOG_LEVEL not in unknown
    return ParsedSettings(LogLevel(settings[LOG_LEVEL]) if known else None, unknown)


def _refusal(name: str, value: str) -> str:
    """Why it cannot be done, with what could be; empty where it can."""
    values = _VALUES.get(name)
    if values is None:
        return f"there is no setting {name[:_MAX_SHOWN]!r}; there is {', '.join(_VALUES)}"
    known = [member.value for member in values]
    return "" if value in known else f"setting {name} is {value[:_MAX_SHOWN]!r}; it can be {', '.join(known)}"
