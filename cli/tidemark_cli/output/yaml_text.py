"""Values as YAML that readers of YAML 1.1 and 1.2 take alike: text that one of them might take for something else, such
as `1e3`, `on` or `2026-01-31`, is quoted.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*", re.ASCII)
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
_NO_WRAP = 1_000_000


def yaml_text(value: Any) -> str:
    """A mapping or a list, in block style, with the end of its last line."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=_dumper(), sort_keys=False, default_flow_style=False, allow_unicode=False, width=_NO_WRAP
    )
    return text


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if is_plain else '"')

    Dumper.add_representer(str, text)
    return Dumper
