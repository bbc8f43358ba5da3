"""Statement number n of a seed: a statement of the corpus after one to four mutations, of its tree or of its tokens.

The same seed and number give the same text, whatever came before: a campaign can begin anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from sqlglot.errors import SqlglotError

from tests.fuzz_planning.trees import mutated
from tests.sqllogictest.lexer import enclosed, tokens

BY_TOKENS = 0.12
"""The share of statements whose tokens are mutated: many of them are no SQL."""
_INSERTED = (
    "DISTINCT", "DISTINCT ON (a)", "ALL", "NOT", "(", ")", ",", "OVER ()", "FILTER (WHERE true)", "LATERAL",
    "NATURAL", "LIMIT 1", "OFFSET 1", "IS NULL", "AS x", ".*", "::int", "ORDER BY 1", "GROUP BY ALL",
    "WITH w AS (SELECT 1)", "ANY", "WITHIN GROUP (ORDER BY 1)", "IGNORE NULLS", "USING (a)", "TABLESAMPLE (1 ROWS)",
    "|> WHERE true", "IN (SELECT 1)", "WITH RECURSIVE r AS (SELECT 1 UNION SELECT * FROM r)",
    "/*+ BROADCAST(t) */", "--", "'", "`", ";", "?", ":x", "\\",
)  # fmt: skip
_LONGEST = 20_000


def statement(seed: int, number: int, corpus: Sequence[str]) -> str:
    """The text of statement `number`."""
    rng = random.Random(f"{seed}/{number}")
    sql, donor, times = rng.choice(corpus), rng.choice(corpus), rng.choice((1, 1, 1, 2, 2, 3))
    if rng.random() >= BY_TOKENS:
        try:
            made = mutated(sql, donor, rng, times)
        except (SqlglotError, RecursionError):
            made = None
        if made is not None and made != sql and len(made) < _LONGEST:
            return made
    for _ in range(times):
        sql = _by_tokens(sql, donor, rng)
    return sql


def _by_tokens(sql: str, donor: str, rng: random.Random) -> str:
    words = [t.text for t in tokens(sql)]
    others = [t.text for t in tokens(donor)]
    if not words or not others:
        return sql
    at, to = rng.randrange(len(words)), rng.randrange(len(words))
    form = rng.randrange(7)
    if form == 0:
        words[at], words[to] = words[to], words[at]
    elif form == 1:
        del words[at]
    elif form == 2:
        words.insert(at, words[to])
    elif form == 3:
        words[at] = rng.choice(others)
    elif form == 4:
        words.insert(at, rng.choice(_INSERTED))
    elif form == 5:
        start = rng.randrange(len(others))
        words[at : at + rng.randint(0, 3)] = others[start : start + rng.randint(1, 12)]
    else:
        _move_group(words, rng)
    return " ".join(words)


def _move_group(words: list[str], rng: random.Random) -> None:
    """A group in parentheses stands elsewhere, too."""
    opened = [at for at, word in enumerate(words) if word == "("]
    if opened:
        start = rng.choice(opened)
        group = words[start : enclosed(tokens(" ".join(words)), start)]
        at = rng.randrange(len(words))
        words[at : at + 1] = group
