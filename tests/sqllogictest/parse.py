"""Files of sqllogictest as records: SQLite's format, and the additions of other engines.

Blocks are divided by empty lines; `#` begins a comment. Directives of one line stand before the record that they
speak of, or for themselves:

    hash-threshold n, halt, mode ..., control ..., subtest, sleep, include, require, loop, skipif, onlyif

`loop` and `foreach` repeat records with a variable; `simple` blocks are statements; `let` asks for values that later
texts name. A directive that no engine of this kind can run is Unknown, with its name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path

from tests.sqllogictest.blocks import LOOPS, Lines
from tests.sqllogictest.lexer import split_statements
from tests.sqllogictest.loops import holds, substituted, values_of
from tests.sqllogictest.records import Let, Place, Query, Record, Reset, Statement, Unknown

ENGINES = frozenset({"tidemark"})
SORTS = ("nosort", "rowsort", "valuesort", "partialsort", "sort")
_OPTIONS = ("colnames", "retry", "noticetrace", "async", "multiline", "kvtrace")
_HASH = re.compile(r"(\d+) values? hashing to ([0-9a-fA-F]{32})")
_TYPES = re.compile(r"[A-Za-z?]*")
_RETRY = re.compile(r"\bretry \d+( backoff \S+)?")
_CONNECTION = re.compile(r"con\w*|conn=\S+")
# Directives that say nothing about results.
_IGNORED = frozenset(
    "hash-threshold subtest sleep control connection user cluster-opt load reconnect tags set reset continue "
    "traceon traceoff kv-batch-size unzip".split()
)
# What DuckDB's files may require and any engine has.
_HAD = frozenset(
    "vector_size skip_reload noforcestorage noalternativeverify no_alternative_verify notwindows notmingw "
    "no_extension_autoloading no_vector_verification strinline allow_unsigned_extensions longdouble 64bit".split()
)
_RECORDS = frozenset(
    "statement query simple halt mode require let system include restart reset-server skipif onlyif endloop copy "
    "test-env require-env template awaitstatement repeat upgrade".split()
)
_MOST_INCLUDED = 8  # files inside each other


@dataclass
class _Parser:
    path: Path
    lines: Lines
    engines: Collection[str] = ENGINES
    mode: str = "standard"
    sort: str = "nosort"
    skipped: bool = False
    skipping: bool = False
    halted: bool = False
    connection: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    included: int = 0

    def records(self) -> Iterator[Record]:
        while self.lines.left and not self.halted:
            number, line = self.lines.next()
            words = line.split()
            if words and not words[0].startswith("#"):
                found = list(self._directive(words, Place(self.path, number)))
                if not self.skipping:
                    yield from found

    def _directive(self, words: list[str], place: Place) -> Iterator[Record]:
        word = words[0].lower()
        if word in ("skipif", "onlyif"):
            self.skipped = self.skipped or self._is_meant(words[1:]) == (word == "skipif")
            return
        skipped, self.skipped = self.skipped, False
        if word in ("statement", "query"):
            record = self._statement(words, place) if word == "statement" else self._query(words, place)
            if not skipped:
                yield record
        elif word in LOOPS:
            found = list(self._repeated(words))
            yield from found if not skipped else ()
        elif word == "simple":
            yield from self._simple(place)
        elif not skipped:
            yield from self._setting(word, words[1:], place)
        elif word in _RECORDS:
            self.lines.block()

    def _is_meant(self, words: list[str]) -> bool:
        """Whether a condition speaks of this engine, or is true of a loop's variable."""
        found = holds(words[0], self.variables) if words else False
        return words[0].lower() in self.engines if found is None else found

    def _setting(self, word: str, rest: list[str], place: Place) -> Iterator[Record]:
        """A record that stands for itself, and says how the rest of the file is to be read."""
        if word == "halt":
            self.halted = True
        elif word == "mode":
            mode = rest[0].lower() if rest else "standard"
            self.skipping = mode == "skip" or (self.skipping and mode != "unskip")
            self.mode = mode if mode not in ("skip", "unskip") else self.mode
        elif word in ("require", "require-env") and not (rest and rest[0].lower() in _HAD):
            self.halted = not self.skipping
            yield Unknown(place, f"the file requires {' '.join(rest)}")
        elif word == "control" and rest and rest[-1].lower() in SORTS:
            self.sort = rest[-1].lower()
        elif word == "include":
            yield from self._included(" ".join(rest), place)
        elif word == "let":
            names = re.findall(r"\w+", " ".join(rest))
            yield Let(place, self._body(multiline=False)[0], tuple(names))
        elif word in ("restart", "reset-server"):
            yield Reset(place)
        elif word in ("connection", "user"):
            self.connection = "" if rest[:1] in ([], ["default"], ["root"]) else rest[0]
        elif word not in _IGNORED and word != "require":
            self.lines.block()
            self.lines.more_of_a_message(_begins_a_record)
            yield Unknown(place, f"{word} is no record of this format that can be run")

    def _included(self, pattern: str, place: Place) -> Iterator[Record]:
        """The records of files beside this one."""
        found = [p for p in map(Path, sorted(glob(str(self.path.parent / pattern)))) if p.is_file()]
        if not found or self.included == _MOST_INCLUDED:
            yield Unknown(place, f"there is no file {pattern} to include")
        for path in found if self.included < _MOST_INCLUDED else ():
            inner = replace(self, path=path, lines=_lines_of(path), included=self.included + 1)
            yield from inner.records()

    def _repeated(self, words: list[str]) -> Iterator[Record]:
        """The records of a loop, once for each value of its variable."""
        body = self.lines.until("endloop")
        name = words[1] if len(words) > 1 else ""
        for value in values_of(words[0].lower(), words[2:]):
            lines = Lines([(number, substituted(line, name, value)) for number, line in body])
            inner = replace(self, lines=lines, variables={**self.variables, name: value}, skipped=False)
            yield from inner.records()
            self.halted = self.halted or inner.halted

    def _statement(self, words: list[str], place: Place) -> Record:
        expects, rest = (words[1].lower() if len(words) > 1 else "ok"), _RETRY.sub("", " ".join(words[2:])).split()
        sql, below, marked = self._body(multiline=False)
        if expects == "error":
            if marked:
                below += self.lines.more_of_a_message(_begins_a_record)
            rest, own = _own_connection(rest)
            message = " ".join(rest) or "\n".join(below)
            return Statement(place, sql, expects, message, connection=own or self.connection)
        connection = _own_connection(rest)[1] or self.connection
        if expects == "count":
            count = int(rest[0]) if rest and rest[0].isdigit() else None
            return Statement(place, sql, count=count, connection=connection)
        if expects in ("ok", "maybe", "notice", "debug"):
            return Statement(place, sql, "maybe" if expects == "maybe" else "ok", connection=connection)
        return Unknown(place, f"statement {expects}")

    def _query(self, words: list[str], place: Place) -> Record:
        if len(words) > 1 and words[1].lower() == "error":
            sql, below, marked = self._body(multiline=False)
            if marked:
                below += self.lines.more_of_a_message(_begins_a_record)
            error = _RETRY.sub("", " ".join(words[2:])).strip()
            return Query(place, sql, "", error=error or "\n".join(below), connection=self.connection)
        types = words[1] if len(words) > 1 and _TYPES.fullmatch(words[1]) and words[1] not in SORTS else ""
        settings = _RETRY.sub("", " ".join(words[2 if types else 1 :])).split()
        rest, connection = _own_connection(settings)
        options = [o for w in rest for o in re.split(r",(?![^(]*\))", w) if o]
        sort = next((o.split("(")[0] for o in options if o.split("(")[0] in SORTS), self.sort)
        label = next((o for o in options if o.split("(")[0] not in SORTS and o not in _OPTIONS), "")
        sql, below, marked = self._body("multiline" in options or self.mode == "multiline")
        found = _HASH.fullmatch(below[0].strip()) if len(below) == 1 else None
        return Query(
            place,
            sql,
            types,
            "rowsort" if sort in ("sort", "partialsort") else sort,
            label,
            tuple(below),
            (int(found[1]), found[2].lower()) if found else None,
            checked=marked,
            rows_are_lines=self.mode == "cockroach",
            names="colnames" in options,
            connection=connection or self.connection,
        )

    def _body(self, multiline: bool) -> tuple[str, list[str], bool]:
        """The SQL, the lines below `----`, and whether there was such a mark."""
        block = self.lines.block()
        marks = [i for i, line in enumerate(block) if line.strip() == "----"]
        sql = block[: marks[0]] if marks else block
        below = block[marks[0] + 1 :] if marks else []
        if multiline and "EOF" not in (line.strip() for line in below):
            below += [line for _, line in self.lines.until("EOF")]
        return "\n".join(sql).strip().rstrip(";"), below, bool(marks)

    def _simple(self, place: Place) -> Iterator[Record]:
        """Statements over a connection of another engine: what they change is wanted, what it says of them is not."""
        for sql in split_statements(self._body(multiline=False)[0]):
            yield Statement(place, sql, "maybe")


def _own_connection(words: list[str]) -> tuple[list[str], str]:
    """Words without the connection that one of them names."""
    named = [w for w in words if _CONNECTION.fullmatch(w)]
    return [w for w in words if w not in named], named[0] if named else ""


def _begins_a_record(line: str) -> bool:
    word = (line.split() or [""])[0].lower()
    return word.startswith("#") or word in LOOPS or word in _IGNORED or word in _RECORDS


def _lines_of(path: Path) -> Lines:
    """The lines; bytes that are no UTF-8 are replaced."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    return Lines(list(enumerate(text.split("\n"), 1)))


def parse(path: Path, engines: Collection[str] = ENGINES) -> Iterator[Record]:
    """The records of a file that are for these engines."""
    return _Parser(path, _lines_of(path), engines).records()
