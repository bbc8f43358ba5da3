"""Settings that a controller can change on all replicas of an instance at any time, without a restart.

    UpdateConfiguration.settings     {"log_level": "debug"}     texts on the wire; absent settings keep their values

A replica may be older than its operator. So it ignores settings and values that it does not know, and reports them.
Ending the connection instead would take the instance down during an upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class LogLevel(Enum):
    """The lowest level that a replica's process logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


LOG_LEVEL = "log_level"
_VALUES: Mapping[str, type[Enum]] = {LOG_LEVEL: LogLevel}
_MAX_SHOWN = 64


@dataclass(frozen=True)
class ParsedSettings:
    """The settings that this version knows; None: unchanged. `unknown`: by name, why a setting is ignored."""

    log_level: LogLevel | None
    unknown: Mapping[str, str]


def parse_settings(settings: Mapping[str, str]) -> ParsedSettings:
    """Never raises: unknown settings and values are reported in `unknown`."""
    unknown = {name: why for name, value in settings.items() if (why := _refusal(name, value))}
    known = LOG_LEVEL in settings and LOG_LEVEL not in unknown
    return ParsedSettings(LogLevel(settings[LOG_LEVEL]) if known else None, unknown)


def _refusal(name: str, value: str) -> str:
    """The reason why the setting is ignored; empty where it is valid."""
    values = _VALUES.get(name)
    if values is None:
        return f"there is no setting {name[:_MAX_SHOWN]!r}; choose one of {', '.join(_VALUES)}"
    known = [member.value for member in values]
    return "" if value in known else f"setting {name} is {value[:_MAX_SHOWN]!r}; choose one of {', '.join(known)}"
