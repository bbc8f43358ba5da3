"""Options of a source's reader, as names and texts."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.vocabulary import wire_name


@wire_name("Option")
@dataclass(frozen=True)
class Option:
    """One option of a reader, as texts: `header` = `true`."""

    name: str
    value: str
