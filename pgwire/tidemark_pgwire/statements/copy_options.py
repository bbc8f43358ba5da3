"""The options of COPY, and the lines that they make in text and csv."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark_pgwire.errors import (
    FEATURE_NOT_SUPPORTED,
    INVALID_PARAMETER,
    SYNTAX_ERROR,
    UNDEFINED_COLUMN,
    WireError,
)
from tidemark_pgwire.statements.words import Words

TEXT, CSV, BINARY = "text", "csv", "binary"
_ESCAPES = {
    b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\v": b"\\v",
}  # fmt: skip
_ESCAPED = re.compile(rb"[\\\b\f\n\r\t\v]")


@dataclass(frozen=True)
class CopyOptions:
    """`format`: text, csv or binary. `delimiter` empty, `null` None: the default of the format. `quote`, `escape`: of
    csv; empty: a double quote, and the quote. `force_quote`: the columns of COPY TO whose values have quotes, `*` for
    all of them; `force_null`, `force_not_null`: those of COPY FROM where quoted values may be NULL, and where none is.
    """

    format: str = TEXT
    header: bool = False
    delimiter: str = ""
    null: str | None = None
    quote: str = ""
    escape: str = ""
    force_quote: tuple[str, ...] = ()
    force_null: tuple[str, ...] = ()
    force_not_null: tuple[str, ...] = ()

    @property
    def csv(self) -> bool:
        return self.format == CSV

    @property
    def binary(self) -> bool:
        return self.format == BINARY

    @property
    def separator(self) -> str:
        return self.delimiter or ("," if self.csv else "\t")

    @property
    def nothing(self) -> str:
        """The text that stands for NULL."""
        return self.null if self.null is not None else "" if self.csv else "\\N"

    @property
    def marks(self) -> tuple[str, str]:
        """The quote of csv, and what stands before a quote in a value."""
        quote = self.quote or '"'
        return quote, self.escape or quote

    def forced(self, columns: Sequence[str]) -> tuple[bool, ...]:
        """Whether the values of each column of COPY TO have quotes. Raises WireError where FORCE_QUOTE names another
        one."""
        if self.force_quote == (ALL,):
            return (True,) * len(columns)
        check_columns("FORCE_QUOTE", self.force_quote, columns)
        return tuple(name in self.force_quote for name in columns)

    def line(self, values: tuple[bytes | None, ...], forced: Sequence[bool] = ()) -> bytes:
        """The line of a row. `forced`: which values have quotes in any case; empty: none of them."""
        delimiter, null = self.separator.encode(), self.nothing.encode()
        if self.csv:
            quoted = self._quoted(delimiter, null)
            cells = [
                null if each is None else quoted(each, force)
                for each, force in zip(values, forced or (False,) * len(values), strict=True)
            ]
            if cells == [b"\\."]:
                cells = [quoted(cells[0], True)]
        else:
            cells = [null if each is None else _escaped(each, delimiter) for each in values]
        return delimiter.join(cells) + b"\n"

    def _quoted(self, delimiter: bytes, null: bytes) -> Callable[[bytes, bool], bytes]:
        """The function that writes a value of csv; its second argument: in quotes, whatever the value is."""
        quote, escape = (mark.encode() for mark in self.marks)
        marks = (delimiter, quote, b"\n", b"\r")

        def written(value: bytes, force: bool) -> bytes:
            if not force and value != null and not any(mark in value for mark in marks):
                return value
            if escape != quote:
                value = value.replace(escape, escape + escape)
            return quote + value.replace(quote, escape + quote) + quote

        return written


ALL = "*"


def _escaped(value: bytes, delimiter: bytes) -> bytes:
    found = _ESCAPED.sub(lambda mark: _ESCAPES[mark[0]], value)
    return found if delimiter == b"\t" else found.replace(delimiter, b"\\" + delimiter)


def check_columns(option: str, named: Sequence[str], columns: Sequence[str]) -> None:
    """Raises WireError where the option names a column that COPY has not."""
    if missing := next((name for name in named if name not in columns), ""):
        raise WireError(UNDEFINED_COLUMN, f'column "{missing:.80}" of {option} is none of COPY')


def parse_copy_options(words: Words, reads: bool) -> CopyOptions:
    """`WITH (FORMAT csv, HEADER)` or the older `CSV HEADER`. `reads`: of COPY FROM. Raises WireError."""
    options = CopyOptions()
    words.take("WITH")
    listed = words.take_mark("(")
    while words.peek().kind != "end" and not (listed and words.take_mark(")")):
        token = words.next()
        match token.word:
            case "FORMAT" if listed:
                options = replace(options, format=_format(words))
            case "CSV" | "BINARY" if not listed:
                options = replace(options, format=token.word.lower())
            case "HEADER":
                options = replace(options, header=_header(words))
            case "DELIMITER" | "DELIMITERS":
                options = replace(options, delimiter=_text(words))
            case "NULL":
                options = replace(options, null=_text(words))
            case "QUOTE":
                options = replace(options, quote=_mark("quote", _text(words)))
            case "ESCAPE":
                options = replace(options, escape=_mark("escape", _text(words)))
            case "FORCE_QUOTE" | "FORCE_NULL" | "FORCE_NOT_NULL" if listed:
                options = _with_columns(options, token.word, (ALL,) if words.take_mark("*") else words.names(), listed)
            case "FORCE" if not listed:
                name = _forces(words)
                columns = (ALL,) if words.take_mark("*") else words.listed(Words.name)
                options = _with_columns(options, name, columns, listed)
            case "ENCODING":
                if _text(words).upper().replace("-", "") != "UTF8":
                    raise WireError(FEATURE_NOT_SUPPORTED, "the encoding is UTF8")
            case _:
                raise words.syntax_error(token)
        words.take_mark(",")
    _check(options, reads)
    return options


def _header(words: Words) -> bool:
    if words.peek().word == "MATCH":
        raise WireError(FEATURE_NOT_SUPPORTED, "COPY has no HEADER MATCH: HEADER leaves the first line out")
    found = not (words.take("FALSE") or words.take("OFF"))
    words.take("TRUE") or words.take("ON")
    return found


def _forces(words: Words) -> str:
    """The option after the word FORCE, of the older form."""
    if words.take("QUOTE"):
        return "FORCE_QUOTE"
    if words.take("NOT", "NULL"):
        return "FORCE_NOT_NULL"
    words.require("NULL")
    return "FORCE_NULL"


def _with_columns(options: CopyOptions, name: str, columns: tuple[str, ...], listed: bool) -> CopyOptions:
    if columns == (ALL,) and name != "FORCE_QUOTE":
        raise WireError(
            INVALID_PARAMETER if listed else SYNTAX_ERROR, f"{name} names columns: * is of FORCE_QUOTE alone"
        )
    changes: dict[str, Any] = {name.lower(): columns}
    return replace(options, **changes)


def _mark(name: str, text: str) -> str:
    if len(text.encode()) != 1:
        raise WireError(FEATURE_NOT_SUPPORTED, f"COPY {name} must be a single one-byte character")
    return text


def _check(options: CopyOptions, reads: bool) -> None:
    """Raises WireError, as PostgreSQL does, where options do not fit each other."""
    delimiter, null = options.delimiter, options.null
    if delimiter and (len(delimiter.encode()) != 1 or delimiter in '\r\n\\."' or delimiter.isalnum()):
        raise WireError(INVALID_PARAMETER, "COPY delimiter must be a single one-byte character, and no letter or digit")
    if null is not None and set(null) & {"\r", "\n"}:
        raise WireError(INVALID_PARAMETER, "COPY null representation cannot use newline or carriage return")
    of_csv = {"quote": options.quote, "escape": options.escape, "force quote": options.force_quote}
    of_csv |= {"force not null": options.force_not_null, "force null": options.force_null}
    for name, given in of_csv.items():
        if given and not options.csv:
            raise WireError(FEATURE_NOT_SUPPORTED, f"COPY {name} available only in CSV mode")
        if given and name.startswith("force") and (name == "force quote") == reads:
            raise WireError(FEATURE_NOT_SUPPORTED, f"COPY {name} only available using COPY {'TO' if reads else 'FROM'}")
    if options.binary:
        _require_none_of_lines(options)
    elif options.csv:
        _check_marks(options, reads)


def _check_marks(options: CopyOptions, reads: bool) -> None:
    quote, escape = options.marks
    if quote == options.separator:
        raise WireError(INVALID_PARAMETER, "COPY delimiter and quote must be different")
    if quote in "\r\n" or escape in "\r\n":
        raise WireError(FEATURE_NOT_SUPPORTED, "COPY quote and escape are no newline and no carriage return")
    if quote in options.nothing:
        raise WireError(FEATURE_NOT_SUPPORTED, "CSV quote character must not appear in the NULL specification")
    if reads and escape != quote:
        raise WireError(
            FEATURE_NOT_SUPPORTED, "COPY FROM has no ESCAPE beside the quote: write a quote in a value twice"
        )
    if both := set(options.force_null) & set(options.force_not_null):
        text = f'column "{min(both):.80}" is in FORCE_NULL and in FORCE_NOT_NULL: name it in one of them'
        raise WireError(FEATURE_NOT_SUPPORTED, text)


def _require_none_of_lines(options: CopyOptions) -> None:
    """Raises WireError where an option is of lines, which the binary format has none of."""
    if options.delimiter or options.null is not None:
        name = "DELIMITER" if options.delimiter else "NULL"
        raise WireError(SYNTAX_ERROR, f"cannot specify {name} in BINARY mode")
    if options.header:
        raise WireError(FEATURE_NOT_SUPPORTED, "cannot specify HEADER in BINARY mode")


def _format(words: Words) -> str:
    name = words.name().lower()
    if name not in (TEXT, CSV, BINARY):
        raise WireError(INVALID_PARAMETER, f'COPY format "{name}" not recognized')
    return name


def _text(words: Words) -> str:
    words.take("AS")
    token = words.next()
    if token.kind != "text":
        raise words.syntax_error(token)
    if token.text[0] in "eE":
        return token.text[2:-1].encode().decode("unicode_escape")
    return token.value
