"""The kinds of statements: a query, which the gateway or the catalogue answers, or a command of the session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from sys import getsizeof

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, READ_ONLY, TOO_COMPLEX, WireError
from tidemark_pgwire.statements import by_key, definitions, inserts, prepared
from tidemark_pgwire.statements.binding import parameter_count, parameter_types
from tidemark_pgwire.statements.copy_options import CopyOptions, parse_copy_options
from tidemark_pgwire.statements.explanations import Explain as Explain
from tidemark_pgwire.statements.explanations import explain
from tidemark_pgwire.statements.lexer import Statement
from tidemark_pgwire.statements.words import Words

ALL = -1
"""The count of a FETCH of all rows that are left."""


@dataclass(frozen=True)
class Select:
    """A query. `at`: how many characters further its own characters stand in the client's text; None: in none."""

    sql: str
    at: int | None = 0


@dataclass(frozen=True)
class Subscribe:
    """The rows of a name or a query, then their changes. `subject`: SQL or a name."""

    subject: str
    as_of: int | None = None
    up_to: int | None = None
    snapshot: bool = True


Source = Select | Subscribe


@dataclass(frozen=True)
class Begin:
    """BEGIN, whose text is the tag of its completion, or START TRANSACTION. `read_only` None: not said."""

    tag: str = "BEGIN"
    read_only: bool | None = None


@dataclass(frozen=True)
class Commit:
    pass


@dataclass(frozen=True)
class Rollback:
    """`to`: a savepoint; empty: the whole transaction."""

    to: str = ""


@dataclass(frozen=True)
class Savepoint:
    name: str


@dataclass(frozen=True)
class Release:
    name: str


@dataclass(frozen=True)
class SetTo:
    """`value` None: the default. `local`: for the transaction alone."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True)
class Reset:
    """`name` empty: all."""

    name: str


@dataclass(frozen=True)
class Discard:
    """`what`: ALL, PLANS, SEQUENCES, TEMP."""

    what: str


@dataclass(frozen=True)
class Declare:
    name: str
    source: Source
    hold: bool = False


@dataclass(frozen=True)
class Fetch:
    """`count`: rows; ALL: as many as are left. `move`: no rows are sent."""

    name: str
    count: int = 1
    move: bool = False


@dataclass(frozen=True)
class CloseCursor:
    """`name` empty: all."""

    name: str


@dataclass(frozen=True)
class Prepare:
    """`types`: oids of the parameters; 0: of an untyped text. `size`: bytes of the text."""

    name: str
    types: tuple[int, ...]
    statement: Select | inserts.Write
    size: int


@dataclass(frozen=True)
class ExecuteStatement:
    name: str
    values: tuple[inserts.Cell, ...] = ()


@dataclass(frozen=True)
class Deallocate:
    """`name` empty: all."""

    name: str


@dataclass(frozen=True)
class CopyOut:
    source: Source
    options: CopyOptions = field(default_factory=CopyOptions)


@dataclass(frozen=True)
class CopyIn:
    """`columns` empty: the table's."""

    table: inserts.TableName
    columns: tuple[str, ...] = ()
    options: CopyOptions = field(default_factory=CopyOptions)
    tag = "COPY FROM"


@dataclass(frozen=True)
class Nothing:
    """A command that has no effect here: UNLISTEN. `tag`: of its completion."""

    tag: str


Command = (
    Select | Subscribe | Begin | Commit | Rollback | Savepoint | Release | SetTo | Reset | Discard | Declare | Fetch
    | CloseCursor | Prepare | ExecuteStatement | Deallocate | CopyOut | Explain | Nothing | definitions.Define
    | definitions.Drop | inserts.Write | CopyIn
)  # fmt: skip
_WRITES = frozenset(
    "MERGE CREATE ALTER DROP TRUNCATE GRANT REVOKE COMMENT VACUUM ANALYZE REINDEX REFRESH LOCK "
    "CALL DO CLUSTER IMPORT REASSIGN SECURITY NOTIFY".split()
)


def parse(statement: Statement) -> Command:
    """Raises WireError: a command is malformed, too deep, or it is none that is there."""
    try:
        return _parse(statement)
    except RecursionError:
        raise WireError(TOO_COMPLEX, "the statement is nested too deeply") from None


def _parse(statement: Statement) -> Command:
    words = Words(statement.sql, statement.tokens, statement.dialect)
    first = words.peek()
    if (parser := _PARSERS.get(first.word)) is not None:
        words.next()
        made = parser(words)
        words.end()
        return made
    if (defined := definitions.parse(words)) is not None:
        words.end()
        return defined
    if first.word in _WRITES:
        raise WireError(
            READ_ONLY,
            f"cannot execute {first.word}: connections of this kind read, insert, update and delete rows, and define "
            "views, indexes and tables",
            hint="Apply other objects with kubectl; a schema comes with its first table.",
        )
    if first.word == "LISTEN":
        raise WireError(FEATURE_NOT_SUPPORTED, "LISTEN is not supported")
    return Select(statement.sql)


def _begin(words: Words) -> Command:
    words.take("WORK") or words.take("TRANSACTION")
    return _modes(words, Begin())


def _start(words: Words) -> Command:
    words.require("TRANSACTION")
    return _modes(words, Begin("START TRANSACTION"))


def _modes(words: Words, begin: Begin) -> Begin:
    """Isolation levels mean nothing: each statement of a transaction reads at one time, whatever they say."""
    while words.peek().kind != "end":
        if words.take("ISOLATION", "LEVEL"):
            taken = words.take("READ", "COMMITTED") or words.take("REPEATABLE", "READ") or words.take("SERIALIZABLE")
            if not (taken or words.take("READ", "UNCOMMITTED")):
                raise words.syntax_error()
        elif words.take("READ", "ONLY") or words.take("READ", "WRITE"):
            begin = replace(begin, read_only=words.before().word == "ONLY")
        elif not words.take("DEFERRABLE"):
            words.require("NOT", "DEFERRABLE")
        words.take_mark(",")
    return begin


def _commit(words: Words) -> Command:
    words.take("WORK") or words.take("TRANSACTION")
    return Commit()


def _rollback(words: Words) -> Command:
    words.take("WORK") or words.take("TRANSACTION")
    if words.take("TO"):
        words.take("SAVEPOINT")
        return Rollback(words.name())
    return Rollback()


def _release(words: Words) -> Command:
    words.take("SAVEPOINT")
    return Release(words.name())


def _set(words: Words) -> Command:
    local = words.take("LOCAL")
    if not local:
        words.take("SESSION")
    if words.take("TIME", "ZONE"):
        return SetTo("timezone", _value(words), local)
    of_session = words.take("CHARACTERISTICS", "AS", "TRANSACTION")
    if of_session or words.take("TRANSACTION"):
        if (read_only := _modes(words, Begin()).read_only) is None:
            return Nothing("SET")
        setting = "default_transaction_read_only" if of_session else "transaction_read_only"
        return SetTo(setting, "on" if read_only else "off")
    if words.take("NAMES"):
        return SetTo("client_encoding", _value(words), local)
    name = setting_name(words)
    if not (words.take_mark("=") or words.take("TO")):
        raise words.syntax_error()
    return SetTo(name, _value(words), local)


def setting_name(words: Words) -> str:
    """NAME, or PART.NAME, in lower case."""
    name = words.name()
    while words.take_mark("."):
        name += "." + words.name()
    return name.lower()


def _value(words: Words) -> str | None:
    """The values, with commas between; None for DEFAULT."""
    if words.take("DEFAULT") or words.take("LOCAL"):
        return None
    return ", ".join(words.listed(_one_value))


def _one_value(words: Words) -> str:
    token = words.next()
    sign = token.text if token.kind == "mark" and token.text in ("-", "+") else ""
    if sign:
        token = words.next()
    if token.kind == "text":
        return token.value
    if token.kind not in ("word", "name", "number"):
        raise words.syntax_error(token)
    return sign + (token.identifier if token.kind == "name" else token.text)


def _reset(words: Words) -> Command:
    if words.take("ALL"):
        return Reset("")
    if words.take("TIME", "ZONE"):
        return Reset("timezone")
    return Reset(setting_name(words))


def _discard(words: Words) -> Command:
    what = words.next().word
    if what not in ("ALL", "PLANS", "SEQUENCES", "TEMP", "TEMPORARY"):
        raise words.syntax_error()
    return Discard(what)


def _declare(words: Words) -> Command:
    name, hold = words.name(), False
    while not words.take("CURSOR"):
        if words.take("SCROLL"):
            raise WireError(FEATURE_NOT_SUPPORTED, "cursors go forward only: leave SCROLL out")
        if not (words.take("BINARY") or words.take("INSENSITIVE") or words.take("ASENSITIVE")):
            words.require("NO", "SCROLL")
    if words.take("WITH", "HOLD"):
        hold = True
    else:
        words.take("WITHOUT", "HOLD")
    words.require("FOR")
    return Declare(name, source_of(words), hold)


def source_of(words: Words) -> Source:
    """The query or SUBSCRIBE that the rest of the statement is."""
    if words.take("SUBSCRIBE"):
        return subscribe(words)
    return Select(*words.take_remaining_text())


def _fetch(words: Words, move: bool = False) -> Command:
    count = 1
    if words.take("FIRST") or words.take("LAST") or words.take("PRIOR") or words.take("BACKWARD"):
        raise WireError(FEATURE_NOT_SUPPORTED, "cursors go forward only")
    if words.take("ALL") or words.take("FORWARD", "ALL"):
        count = ALL
    elif not words.take("NEXT"):
        words.take("FORWARD")
        if words.peek().kind == "number":
            digits = words.next().text
            if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
                raise words.syntax_error()
            count = int(digits)
    if not words.take("FROM"):
        words.take("IN")
    return Fetch(words.name(), count, move)


def _close(words: Words) -> Command:
    return CloseCursor("" if words.take("ALL") else words.name())


def _prepare(words: Words) -> Command:
    name, given = words.name(), prepared.types_of(words)
    words.require("AS")
    first, found = words.peek(), words.remaining_tokens()
    if first.word in ("INSERT", "UPDATE", "DELETE"):
        words.next()
        made = _PARSERS[first.word](words)
    elif first.word in ("SELECT", "WITH", "VALUES") or first.text == "(":
        made = Select(words.take_remaining_text()[0], None)
    else:
        raise words.syntax_error()
    assert isinstance(made, Select | inserts.Write)
    known = parameter_types(found)
    count = max(parameter_count(found), len(given))
    types = tuple(given[at] if at < len(given) else known.get(at + 1, 0) for at in range(count))
    return Prepare(name, types, made, getsizeof(words.sql))


def _deallocate(words: Words) -> Command:
    words.take("PREPARE")
    return Deallocate("" if words.take("ALL") else words.name())


_ALL_OF = "SELECT * FROM "


def _copy(words: Words) -> Command:
    if words.peek().text == "(":
        inner = words.inner()
        source = subscribe(inner) if inner.take("SUBSCRIBE") else Select(*inner.take_remaining_text())
    else:
        at = words.peek().at
        table, columns = inserts.table_name(words), inserts.column_names(words)
        if words.take("FROM"):
            return _copy_in(words, table, columns)
        if columns:
            raise WireError(FEATURE_NOT_SUPPORTED, "name the columns in a query: COPY (SELECT ...) TO STDOUT")
        source = Select(_ALL_OF + words.sql[at : words.peek().at], at - len(_ALL_OF))
    words.require("TO", "STDOUT")
    return CopyOut(source, parse_copy_options(words, reads=False))


def _copy_in(words: Words, table: inserts.TableName, columns: tuple[str, ...]) -> CopyIn:
    if not words.take("STDIN"):
        raise WireError(FEATURE_NOT_SUPPORTED, "COPY reads FROM STDIN alone: \\copy of psql sends a file of the client")
    return CopyIn(table, columns, parse_copy_options(words, reads=True))


def subscribe(words: Words) -> Subscribe:
    """SUBSCRIBE [TO] name | (query) [WITH (SNAPSHOT [=] bool)] [AS OF ms] [UP TO ms], after its first word."""
    words.take("TO")
    if words.peek().text == "(":
        subject, _ = words.in_parentheses()
    else:
        subject = words.name()
        if words.take_mark("."):
            subject += "." + words.name()
    snapshot, as_of, up_to = True, None, None
    while words.peek().kind != "end":
        if words.take("AS", "OF"):
            as_of = _milliseconds(words)
        elif words.take("UP", "TO"):
            up_to = _milliseconds(words)
        else:
            words.require("WITH")
            snapshot = _with_snapshot(words)
    return Subscribe(subject, as_of, up_to, snapshot)


def _with_snapshot(words: Words) -> bool:
    """(SNAPSHOT), (SNAPSHOT = false)"""
    if not words.take_mark("("):
        raise words.syntax_error()
    words.require("SNAPSHOT")
    words.take_mark("=")
    snapshot = not words.take("FALSE")
    words.take("TRUE")
    if not words.take_mark(")"):
        raise words.syntax_error()
    return snapshot


def _milliseconds(words: Words) -> int:
    token = words.next()
    text = token.value if token.kind == "text" else token.text
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise words.syntax_error(token)
    return int(text)


def _unlisten(words: Words) -> Command:
    words.take_remaining_text()
    return Nothing("UNLISTEN")


_PARSERS: dict[str, Callable[[Words], Command]] = {
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "END": _commit,
    "ROLLBACK": _rollback,
    "ABORT": _rollback,
    "SAVEPOINT": lambda words: Savepoint(words.name()),
    "RELEASE": _release,
    "SET": _set,
    "RESET": _reset,
    "DISCARD": _discard,
    "DECLARE": _declare,
    "DELETE": by_key.delete,
    "FETCH": _fetch,
    "MOVE": lambda words: _fetch(words, move=True),
    "CLOSE": _close,
    "DEALLOCATE": _deallocate,
    "PREPARE": _prepare,
    "EXECUTE": lambda words: ExecuteStatement(words.name(), prepared.values_of(words)),
    "COPY": _copy,
    "INSERT": inserts.insert,
    "EXPLAIN": explain,
    "SUBSCRIBE": subscribe,
    "UNLISTEN": _unlisten,
    "UPDATE": by_key.update,
}
