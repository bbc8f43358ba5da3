"""The gaps that a table passed over (`onGap: skip`): durable with its position, and shown for a day."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

SHOWN_MS = 24 * 3600 * 1000
WHY_LENGTH = 300


@dataclass(frozen=True)
class Gaps:
    """The number of gaps, and of the last one the time (of its binding) and what was met."""

    count: int = 0
    time: int = 0
    why: str = ""

    def text(self, table: str) -> str:
        """The gaps of the table of this name, for a status."""
        return f"table {table}: gaps passed over: {self.count}; the last one: {self.why}"

    def to_json(self) -> str:
        """One line of JSON; `from_json` reads it."""
        return json.dumps(asdict(self) | {"why": self.why[:WHY_LENGTH]})

    @classmethod
    def from_json(cls, text: str) -> Gaps:
        """The gaps that `to_json` wrote."""
        return cls(**json.loads(text))
