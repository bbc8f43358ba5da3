"""Hooks of MkDocs for the site of docs/.

Fences in docs/ mark the kind of a block for tests (`sh usage`, `sql refused: needs a name`). MkDocs takes one word and
options, so the first word stays, and the reason of a refusal becomes the block's title.
"""

from __future__ import annotations

import re
from typing import Any

FENCE = re.compile(r"^( *```)(\w+) ([^\n{=]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with fences that MkDocs understands."""
    return FENCE.sub(lambda fence: fence[1] + fence[2] + title(fence[2], fence[3]), markdown)


def title(language: str, kind: str) -> str:
    """The title of the block, as an option of its fence."""
    return f' title="{kind}"' if language == "sql" and kind.startswith("refused") else ""
