"""SHOW statements, and the settings that they name."""

from __future__ import annotations

import re

_NAME = re.compile(r"[\w.]{1,128}")
_PHRASES = ("transaction isolation level", "time zone", "session authorization")


def setting_of_show(statement: str) -> str:
    """The name of the setting, in lower case with `_` for blanks; empty: the statement is no SHOW of one."""
    words = statement.strip().removesuffix(";").lower().split(None, 4)
    if len(words) < 2 or words[0] != "show":
        return ""
    name = " ".join(words[1:])
    return name.replace(" ", "_") if name in _PHRASES or _NAME.fullmatch(name) else ""
