"""Files of sqllogictest as records: SQLite's format, and what other engines added to it.

Blocks are divided by empty lines; `#` begins a comment. Directives of one line stand before the record that they
speak of, or for themselves:

    hash-threshold n, halt, mode ..., control ..., subtest, sleep, include, require, loop, skipif, onlyif

`loop` and `foreach` repeat records with a variable; `simple` blocks are statements. What no engine of this kind can
run is Unknown, with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.sqllogictest.lexer import split_statements
from tests.sqllogictest.records import Place, Query, Record, Statement, Unknown

ENGINES = frozenset({"tidemark"})
SORTS = ("nosort", "rowsort", "valuesort", "partialsort", "sort")
_OPTIONS = ("colnames", "retry", "noticetrace", "async", "multiline")
_HASH = re.compile(r"(\d+) values hashing to ([0-9a-fA-F]{32})")
_TYPES = re.compile(r"[A-Za-z?]*")
# Directives that say nothing about results.
_IGNORED = frozenset("hash-threshold subtest sleep control user connection cluster-opt reset-server load".split())
# What DuckDB's files may require and any engine has.
_HAD = frozenset(
    "vector_size skip_reload noforcestorage noalternativeverify notwindows no_extension_autoloading".split()
)
_LOOPS = ("loop", "foreach", "concurrentloop", "concurrentforeach")
_MAX_ROUNDS = 200


@dataclass
class _Lines:
    """The lines of a file, numbered as in the file."""

    lines: list[tuple[int, str]]
    at: int = 0

    @property
    def left(self) -> bool:
        return self.at < len(self.lines)

    def next(self) -> tuple[int, str]:
        self.at += 1
        return self.lines[self.at - 1]

    def block(self) -> list[str]:
        """The lines up to the next empty one."""
        found = []
        while self.left and self.lines[self.at][1].strip():
            found.append(self.next()[1])
        return found

    def until(self, mark: str) -> list[tuple[int, str]]:
        """The lines up to the one that is `mark`, which is passed by too; loops inside are whole."""
        found, depth = [], 0
        while self.left:
            number, line = self.next()
            word = (line.split() or [""])[0].lower()
            if line.strip() == mark and not depth:
                break
            depth += (word in _LOOPS) - (word == "endloop")
            found.append((number, line))
        return found


@dataclass
class _Parser:
    path: Path
    lines: _Lines
    mode: str = "standard"
    sort: str = "nosort"
    skipped: bool = False
    skipping: bool = False
    halted: bool = False

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
            ours = len(words) > 1 and words[1].lower() in ENGINES
            self.skipped = self.skipped or ours == (word == "skipif")
            return
        skipped, self.skipped = self.skipped, False
        if word in ("statement", "query"):
            record = self._statement(words, place) if word == "statement" else self._query(words, place)
            if not skipped:
                yield record
        elif word in _LOOPS:
            yield from self._repeated(words)
        elif word == "simple":
            yield from self._simple(place)
        elif not skipped:
            yield from self._setting(word, words[1:], place)

    def _setting(self, word: str, rest: list[str], place: Place) -> Iterator[Record]:
        """What stands for itself, and says how the rest of the file is to be read."""
        if word == "halt":
            self.halted = True
        elif word == "mode":
            said = rest[0].lower() if rest else "standard"
            self.skipping = said == "skip" or (self.skipping and said != "unskip")
            self.mode = said if said not in ("skip", "unskip") else self.mode
        elif word == "require" and not (rest and rest[0].lower() in _HAD):
            self.halted = True
            yield Unknown(place, f"the file requires {' '.join(rest)}")
        elif word == "control" and rest and rest[-1].lower() in SORTS:
            self.sort = rest[-1].lower()
        elif word not in _IGNORED and word != "require":
            self.lines.block()
            yield Unknown(place, f"{word} is no record of this format")

    def _repeated(self, words: list[str]) -> Iterator[Record]:
        """The records of a loop, once for each value of its variable."""
        body = self.lines.until("endloop")
        name = words[1] if len(words) > 1 else ""
        values = words[2:]
        if words[0].lower().endswith("loop") and len(values) == 2 and all(v.isdigit() for v in values):
            values = [str(i) for i in range(int(values[0]), int(values[1]))]
        for value in values[:_MAX_ROUNDS]:
            lines = [(number, line.replace("${" + name + "}", value)) for number, line in body]
            yield from _Parser(self.path, _Lines(lines), self.mode, self.sort).records()

    def _statement(self, words: list[str], place: Place) -> Record:
        expects, rest = (words[1].lower() if len(words) > 1 else "ok"), words[2:]
        sql, below, _ = self._body(multiline=False)
        if expects == "count":
            return Statement(place, sql, count=int(rest[0]) if rest and rest[0].isdigit() else None)
        if expects in ("ok", "maybe"):
            return Statement(place, sql, expects)
        if expects == "error":
            return Statement(place, sql, expects, " ".join(rest) or "\n".join(below))
        return Unknown(place, f"statement {expects}")

    def _query(self, words: list[str], place: Place) -> Record:
        if len(words) > 1 and words[1].lower() == "error":
            sql, below, _ = self._body(multiline=False)
            return Query(place, sql, "", error=" ".join(words[2:]) or "\n".join(below))
        types = words[1] if len(words) > 1 and _TYPES.fullmatch(words[1]) and words[1] not in SORTS else ""
        options = [o for w in words[2 if types else 1 :] for o in re.split(r",(?![^(]*\))", w) if o]
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


def parse(path: Path) -> list[Record]:
    """The records of a file that are for this engine; bytes that are no UTF-8 are replaced."""
    text = path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n")
    return list(_Parser(path, _Lines(list(enumerate(text.split("\n"), 1)))).records())
