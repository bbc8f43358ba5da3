"""What MkDocs asks of us while it builds the site of docs/.

Our fences say to tests what a block is (`sh usage`, `sql refused: needs a name`). MkDocs takes one word and options, so
the first word stays, and what SQL is refused for becomes the block's title.
"""

from __future__ import annotations

import re
from typing import Any

FENCE = re.compile(r"^( *```)(\w+) ([^\n{=]+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with fences that MkDocs understands."""
    return FENCE.sub(lambda fence: fence[1] + fence[2] + title(fence[2], fence[3]), markdown)


def title(language: str, kind: str) -> str:
    """What a reader is to know of the block, as an option of its fence."""
    return f' title="{kind}"' if language == "sql" and kind.startswith("refused") else ""
