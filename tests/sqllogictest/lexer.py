"""SQL text as tokens: enough to take statements apart that are no queries.

INSERT INTO "t 1" (a) VALUES (-1, 'it''s')
word   word  name  (   ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      |(?P<string>'(?:[^'\\]|''|\\.)*')
      |(?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[A-Za-z_]\w*\])
      |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_]))
      |(?P<word>[A-Za-z_$][\w$]*|\d+[A-Za-z_]\w*)
      |(?P<other>\|\||<=>|<>|!=|<=|>=|::|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """`kind`: string, quoted, number, word or other; `start` and `end`: where in the text."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text

    @property
    def name(self) -> str:
        """The name that an identifier means."""
        if self.kind == "quoted":
            return self.text[1:-1].replace(self.text[0] * 2, self.text[0])
        return self.text


def tokens(sql: str) -> list[Token]:
    """The tokens of a text, without spaces and comments."""
    found = _TOKEN.finditer(sql)
    return [Token(str(m.lastgroup), m[0], m.start(), m.end()) for m in found if m.lastgroup != "space"]


def split_statements(sql: str) -> list[str]:
    """The statements of a text, divided by semicolons."""
    pieces, start = [], 0
    for token in tokens(sql):
        if token.text == ";":
            pieces.append(sql[start : token.start])
            start = token.end
    pieces.append(sql[start:])
    return [piece.strip() for piece in pieces if piece.strip()]


def divided(inside: Sequence[Token], by: str = ",") -> Iterator[list[Token]]:
    """Tokens divided at the outermost commas."""
    part: list[Token] = []
    depth = 0
    for token in inside:
        depth += (token.text in "([") - (token.text in ")]")
        if token.text == by and not depth:
            yield part
            part = []
        else:
            part.append(token)
    if part:
        yield part


def enclosed(found: Sequence[Token], at: int) -> int:
    """The position behind the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(found)):
        depth += (found[i].text == "(") - (found[i].text == ")")
        if not depth:
            return i + 1
    return len(found)


def words_of(sql: str) -> frozenset[str]:
    """All words and names of a text, in lower case."""
    return frozenset(t.name.lower() for t in tokens(sql) if t.kind in ("word", "quoted"))


def created_name(sql: str) -> str:
    """The name of what a CREATE makes."""
    found = tokens(sql)[:12]
    words = [t.upper for t in found]
    at = next((i + 1 for i, w in enumerate(words) if w in ("TABLE", "VIEW")), 0)
    if not words or words[0] != "CREATE" or not at:
        return ""
    at += 3 if words[at : at + 3] == ["IF", "NOT", "EXISTS"] else 0
    while at + 2 < len(found) and found[at + 1].text == ".":
        at += 2
    return found[at].name.lower() if at < len(found) else ""
