"""CREATE, ALTER and DROP of views, indexes and tables.

    CREATE [OR REPLACE] [MATERIALIZED] VIEW [IF NOT EXISTS] NAME [WITH (OPTION = VALUE, ...)] AS QUERY
    CREATE INDEX [CONCURRENTLY] [[IF NOT EXISTS] NAME] ON VIEW (COLUMN, ...) [WITH (...)]
    ALTER [MATERIALIZED] VIEW [IF EXISTS] NAME AS QUERY
    DROP [MATERIALIZED] VIEW | INDEX [CONCURRENTLY] | TABLE [IF EXISTS] NAME [RESTRICT]
    CREATE [SOURCE] TABLE [IF NOT EXISTS] [SOURCE.]NAME (COLUMN TYPE ..., PRIMARY KEY (COLUMN, ...)) [WITH (...)]
    ALTER TABLE [IF EXISTS] [ONLY] NAME ADD [COLUMN] [IF NOT EXISTS] COLUMN TYPE

The query is the gateway's to judge; all else that would mean something other than in PostgreSQL is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, WireError
from tidemark_pgwire.statements.columns import added_column, table_columns
from tidemark_pgwire.statements.inserts import TableName, table_name
from tidemark_pgwire.statements.words import Words

MATERIALIZED_VIEW, INDEX, TABLE = "materializedView", "index", "table"
CREATE, REPLACE, CREATE_OR_REPLACE, ADD = "create", "replace", "createOrReplace", "add"
MAX_OPTIONS, MAX_KEY = 32, 32


@dataclass(frozen=True)
class Define:
    """`tag`: of its completion. `at`: how many characters further the query's own characters stand in the client's
    text; None: the query is not the client's. `key`: of an index or a table. `optional`: IF NOT EXISTS, or IF EXISTS of
    ALTER. `columns`: of a table, names and types. `required`: those of them that are NOT NULL, beside the key's.
    `table`: of the DataSource `name`, to which ADD adds it; empty: its own. `optional_column`: IF NOT EXISTS of a
    column."""

    tag: str
    action: str
    kind: str
    name: str
    sql: str
    at: int | None = None
    key: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    optional: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    table: str = ""
    optional_column: bool = False

    @property
    def relation(self) -> str:
        """The name as SQL has it."""
        return f"{self.name}.{self.table}" if self.table else self.name


@dataclass(frozen=True)
class Drop:
    """`what`: MATERIALIZED VIEW, VIEW, INDEX or TABLE. `table`: of the DataSource `name`; empty: its own."""

    what: str
    kind: str
    name: str
    optional: bool = False
    table: str = ""

    @property
    def tag(self) -> str:
        return f"DROP {self.what}"

    @property
    def relation(self) -> str:
        """The name as SQL has it."""
        return f"{self.name}.{self.table}" if self.table else self.name


def parse(words: Words) -> Define | Drop | None:
    """None: the statement defines nothing that SQL defines here. Raises WireError."""
    parsers: dict[str, Callable[[Words], Define | Drop | None]] = {"CREATE": create, "ALTER": alter, "DROP": drop}
    if (found := parsers.get(words.peek().word)) is None:
        return None
    words.next()
    return found(words)


def create(words: Words) -> Define | None:
    """The definition after the word CREATE; None: it creates something else."""
    replaces = words.take("OR", "REPLACE")
    if words.take("UNIQUE"):
        raise WireError(FEATURE_NOT_SUPPORTED, "an index is not UNIQUE here: it checks nothing")
    if words.take("INDEX") and not replaces:
        return _index(words)
    if not replaces and (words.take("TABLE") or words.take("SOURCE", "TABLE")):
        return _table(words)
    if words.peek().word in _OTHER_TABLES:
        raise WireError(FEATURE_NOT_SUPPORTED, f"CREATE {words.peek().word} is not supported: CREATE TABLE is")
    if (what := _view(words)) is None:
        return None
    optional = not replaces and words.take("IF", "NOT", "EXISTS")
    name = _name(words)
    if words.peek().text == "(":
        raise WireError(FEATURE_NOT_SUPPORTED, "name the columns in the query (AS): a list of columns is not supported")
    options = _options(words)
    key = tuple(each.strip() for each in options.pop("key", "").split(",") if each.strip())
    words.require("AS")
    action, kind = CREATE_OR_REPLACE if replaces else CREATE, _KINDS[what]
    return Define(f"CREATE {what}", action, kind, name, *words.take_remaining_text(), key, options, optional)


def alter(words: Words) -> Define | None:
    """The definition after the word ALTER; None: it alters something else."""
    if words.take("TABLE"):
        return _add_column(words)
    if (what := _view(words)) is None:
        return None
    optional = words.take("IF", "EXISTS")
    name = _name(words)
    if not words.take("AS"):
        raise WireError(FEATURE_NOT_SUPPORTED, f"ALTER {what} can only be followed by NAME AS QUERY")
    return Define(f"ALTER {what}", REPLACE, _KINDS[what], name, *words.take_remaining_text(), optional=optional)


def drop(words: Words) -> Drop | None:
    """The definition after the word DROP; None: it drops something else."""
    what = next((each for each in ("INDEX", "TABLE") if words.take(each)), None) or _view(words)
    if what is None:
        return None
    if what == "INDEX":
        words.take("CONCURRENTLY")
    optional = words.take("IF", "EXISTS")
    of = table_name(words) if what == "TABLE" else TableName(_name(words))
    if words.take_mark(","):
        raise WireError(FEATURE_NOT_SUPPORTED, "DROP takes one name: several are not dropped as one here")
    if words.take("CASCADE"):
        raise WireError(FEATURE_NOT_SUPPORTED, "DROP ... CASCADE is not supported: drop first what reads it")
    words.take("RESTRICT")
    return Drop(what, _KINDS[what], of.source, optional, of.table)


_KINDS = {"MATERIALIZED VIEW": MATERIALIZED_VIEW, "VIEW": INDEX, "INDEX": INDEX, "TABLE": TABLE}
_CONSTRAINTS = ("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE")
_OTHER_TABLES = ("TEMP", "TEMPORARY", "UNLOGGED", "GLOBAL", "LOCAL", "FOREIGN")


def _view(words: Words) -> str | None:
    if words.take("MATERIALIZED", "VIEW"):
        return "MATERIALIZED VIEW"
    return "VIEW" if words.take("VIEW") else None


def _index(words: Words) -> Define:
    words.take("CONCURRENTLY")
    optional = words.take("IF", "NOT", "EXISTS")
    name = "" if words.peek().word == "ON" else _name(words)
    words.require("ON")
    at = words.peek().at
    of = _name(words)
    view = words.sql[at : words.peek().at].strip()
    if words.take("USING"):
        raise WireError(FEATURE_NOT_SUPPORTED, "CREATE INDEX has no USING: there is one kind of index")
    key = words.names()
    if len(key) > MAX_KEY:
        raise words.syntax_error()
    name = name or "-".join([of, *key, "idx"]).replace("_", "-").lower()  # underscores are in no name of Kubernetes
    sql = f"SELECT * FROM {view}"
    return Define("CREATE INDEX", CREATE, INDEX, name, sql, None, key, _options(words), optional)


def _table(words: Words) -> Define:
    optional = words.take("IF", "NOT", "EXISTS")
    of = table_name(words)
    if words.peek().word in ("AS", "OF", "PARTITION"):
        text = f"CREATE TABLE ... {words.peek().word} is not supported: rows of a query are a view's"
        raise WireError(FEATURE_NOT_SUPPORTED, text, position=words.peek().at + 1)
    found = table_columns(words.inner())
    if words.peek().word in ("INHERITS", "PARTITION", "USING", "TABLESPACE", "ON", "AS"):
        raise WireError(FEATURE_NOT_SUPPORTED, f"CREATE TABLE ... {words.peek().word} is not supported")
    options = _options(words)
    action = ADD if of.table else CREATE
    made = "CREATE TABLE", action, TABLE, of.source, "", None, found.key, options, optional
    return Define(*made, columns=found.columns, required=tuple(found.required), table=of.table)


def _add_column(words: Words) -> Define:
    optional = words.take("IF", "EXISTS")
    words.take("ONLY")
    of = table_name(words)
    action = words.peek()
    if not words.take("ADD") or words.peek().word in _CONSTRAINTS:
        named = " ".join(each for each in (action.word, words.peek().word if action.word == "ADD" else "") if each)
        text = f"ALTER TABLE ... {named or action.text:.40} is not supported: ADD COLUMN is"
        raise WireError(FEATURE_NOT_SUPPORTED, text, position=action.at + 1)
    words.take("COLUMN")
    skips = words.take("IF", "NOT", "EXISTS")
    name, type = added_column(words)
    if words.take_mark(","):
        raise WireError(FEATURE_NOT_SUPPORTED, "ALTER TABLE adds one column: write a statement for each")
    words.end()
    made = "ALTER TABLE", REPLACE, TABLE, of.source, ""
    return Define(*made, optional=optional, columns={name: type}, table=of.table, optional_column=skips)


def _name(words: Words) -> str:
    """NAME, public.NAME or NAME.NAME: the catalogue shows an object as a schema that has it."""
    first = words.peek()
    name = words.name()
    if words.take_mark("."):
        schema, name = name, words.name()
        if schema not in ("public", name):
            raise WireError("3F000", f'schema "{schema:.80}" takes no such object: leave it out', position=first.at + 1)
    return name


def _options(words: Words) -> dict[str, str]:
    """WITH (NAME [=] VALUE, ...), if it comes next."""
    options: dict[str, str] = {}
    if not words.take("WITH"):
        return options
    for name, value in words.inside(_option):
        if name in options or len(options) >= MAX_OPTIONS:
            raise WireError("42601", f'option "{name:.80}" is given twice, or there are too many')
        options[name] = value
    return options


def _option(words: Words) -> tuple[str, str]:
    name = words.name()
    words.take_mark("=")
    token = words.next()
    if token.kind not in ("text", "word", "name", "number"):
        raise words.syntax_error(token)
    return name, token.value if token.kind == "text" else token.identifier
