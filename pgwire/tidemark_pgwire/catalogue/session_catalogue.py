"""The catalogue of one session: its answers, and what it keeps between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tidemark_pgwire.catalogue import children
from tidemark_pgwire.catalogue.answering import Question
from tidemark_pgwire.catalogue.facts import AnswerDescription, CatalogueAnswer, CatalogueRelation, SessionFacts
from tidemark_pgwire.catalogue.settings import setting
from tidemark_pgwire.catalogue.show_statement import setting_of_show
from tidemark_pgwire.catalogue.types import oid_of

_NAMES = {"time_zone": "TimeZone", "transaction_isolation_level": "transaction_isolation"}


class Catalogue:
    """The catalogue of one session. The oid of a relation is the same as long as the session lasts."""

    def __init__(self, session: SessionFacts) -> None:
        self._session = session
        self._oids: dict[tuple[str, ...], int] = {}

    async def describe(self, statement: str, relations: Sequence[CatalogueRelation]) -> AnswerDescription:
        """The columns and parameters of the answer. Raises CatalogueError."""
        name = setting_of_show(statement)
        if name:
            return AnswerDescription((), (self._setting_column(name)[0],), (oid_of("text"),))
        found = await self._ask(statement, None, relations)
        assert isinstance(found, AnswerDescription)
        return found

    async def answer(
        self, statement: str, parameters: Sequence[str | None], relations: Sequence[CatalogueRelation]
    ) -> CatalogueAnswer:
        """`parameters`: the values of $1, $2 ... as texts. Raises CatalogueError."""
        name = setting_of_show(statement)
        if name:
            column, value = self._setting_column(name)
            return CatalogueAnswer(pa.table({column: [value]}), [oid_of("text")])
        found = await self._ask(statement, parameters, relations)
        assert isinstance(found, CatalogueAnswer)
        return found

    async def _ask(
        self, statement: str, values: Sequence[str | None] | None, relations: Sequence[CatalogueRelation]
    ) -> CatalogueAnswer | AnswerDescription:
        """Ask a process of the catalogue about a statement, and take over the oids and settings that it gives. Raises
        CatalogueError."""
        session = replace(self._session, parameters=dict(self._session.parameters))
        reply = await children.ask(Question(statement, values, session, relations, self._oids))
        self._oids.update(reply.oids)
        self._session.parameters.update(reply.settings)
        return reply.found

    def _setting_column(self, name: str) -> tuple[str, str]:
        """The name of the column in which SHOW returns a setting, and the setting's value. Raises CatalogueError."""
        if name == "session_authorization":
            return name, self._session.user
        return _NAMES.get(name, name), setting(self._session, name)
