"""Clients' statements with words lost, changed and added: each is answered or refused, and none ends the session."""

from __future__ import annotations

import logging
import random
import re

import pytest

from tests.pg_catalogue.driver_statements import DRIVERS
from tests.pg_catalogue.samples import RELATIONS, session
from tests.pg_catalogue.tool_statements import TOOLS
from tidemark_pgwire.catalogue import sandbox
from tidemark_pgwire.catalogue.answering import statement_of, typed
from tidemark_pgwire.catalogue.contents.entries import CatalogueContents
from tidemark_pgwire.catalogue.facts import CatalogueError
from tidemark_pgwire.catalogue.oids import Oids
from tidemark_pgwire.catalogue.sql.rewriting import rewritten
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK
from tidemark_pgwire.statements.subjects import subject_of

STATEMENTS = [each for clients in (DRIVERS, TOOLS) for statements in clients.values() for each in statements]
WORDS = [re.findall(r"\w+|'[^']*'|\s+|\S", sql) for sql, _ in STATEMENTS]
ANY_WORD = [word for words in WORDS for word in words if word.strip()]


def mutated(draw: random.Random, words: list[str]) -> str:
    words = list(words)
    for _ in range(draw.choice((1, 1, 2, 3))):
        place = draw.randrange(len(words))
        if draw.random() < 0.35 and len(words) > 1:
            del words[place]
        else:
            words[place : place + draw.choice((0, 1, 1))] = [draw.choice(ANY_WORD)]
    return "".join(words)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_statements_are_answered_or_refused(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    draw, answered = random.Random(seed), 0
    contents = CatalogueContents(session(), RELATIONS, Oids())
    with caplog.at_level(logging.DEBUG):
        for number in range(250):
            place = draw.randrange(len(STATEMENTS))
            sql = mutated(draw, WORDS[place])
            subject_of(sql, POSTGRES)
            subject_of(sql, SPARK)
            try:
                found = rewritten(sql, contents, STATEMENTS[place][1])
                if number % 10 == 0:
                    typed(sandbox.answer(statement_of(found, contents)), found)
                answered += 1
            except CatalogueError:
                continue
    assert answered
    assert caplog.records == [], "a statement was logged"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT current_setting()::int/100",
        "SELECT current_setting() FROM pg_class",
        "SELECT pg_catalog.case(1) FROM pg_class",
    ],
)
def test_calls_without_arguments_are_refused(sql: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        rewritten(sql, CatalogueContents(session(), RELATIONS, Oids()), ())
    assert refused.value.sqlstate == "42883"
