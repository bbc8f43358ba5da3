"""The dialect of a statement, with the time zone of its session: `postgres`, or `postgres, time_zone=Europe/Berlin`."""

from __future__ import annotations

from dataclasses import dataclass
from zoneinfo import ZoneInfo

from tidemark_planner.errors import refuse

POSTGRES, UTC_ZONE = "postgres", "UTC"
_SETTING = "time_zone="


@dataclass(frozen=True)
class SessionDialect:
    """`zone`: the zone in which times without one are read, and days begin."""

    name: str
    zone: str = UTC_ZONE

    @staticmethod
    def of(text: str) -> SessionDialect:
        """Raises Refusal for a setting that the dialect does not have, and for a zone that is not known."""
        name, _, setting = (part.strip() for part in text.partition(","))
        if not setting:
            return SessionDialect(name)
        zone = setting.removeprefix(_SETTING)
        if name != POSTGRES or zone == setting:
            refuse("UNSUPPORTED", f"dialect {name} has no setting {setting:.80}: leave it out", word=name)
        try:
            return SessionDialect(name, ZoneInfo(zone).key)
        except (ValueError, OSError, KeyError):
            refuse("UNSUPPORTED", f"the time zone {zone:.80} is not known: choose a name such as Europe/Berlin")

    @property
    def is_postgres(self) -> bool:
        return self.name == POSTGRES

    @property
    def in_utc(self) -> bool:
        """Whether a time without a zone, and the begin of a day, are those of Spark's settings."""
        return self.zone == UTC_ZONE
