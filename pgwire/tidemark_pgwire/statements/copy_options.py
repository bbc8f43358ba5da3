"""The options of COPY, and the lines that they make."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemark_pgwire.errors import FEATURE_NOT_SUPPORTED, INVALID_PARAMETER, WireError
from tidemark_pgwire.statements.words import Words

_ESCAPES = {
    b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\v": b"\\v",
}  # fmt: skip
_ESCAPED = re.compile(rb"[\\\b\f\n\r\t\v]")


@dataclass(frozen=True)
class CopyOptions:
    """`csv`: the format is csv, and not text. `delimiter` empty, `null` None: the default of the format."""

    csv: bool = False
    header: bool = False
    delimiter: str = ""
    null: str | None = None

    @property
    def separator(self) -> str:
        return self.delimiter or ("," if self.csv else "\t")

    @property
    def nothing(self) -> str:
        """What stands for NULL."""
        return self.null if self.null is not None else "" if self.csv else "\\N"

    def line(self, values: tuple[bytes | None, ...]) -> bytes:
        """The line of a row."""
        delimiter, null = self.separator.encode(), self.nothing.encode()
        if self.csv:
            cells = [null if each is None else _csv(each, delimiter, null) for each in values]
            if cells == [b"\\."]:
                cells = [b'"\\."']
        else:
            cells = [null if each is None else _escaped(each, delimiter) for each in values]
        return delimiter.join(cells) + b"\n"


def _escaped(value: bytes, delimiter: bytes) -> bytes:
    found = _ESCAPED.sub(lambda mark: _ESCAPES[mark[0]], value)
    return found if delimiter == b"\t" else found.replace(delimiter, b"\\" + delimiter)


def _csv(value: bytes, delimiter: bytes, null: bytes) -> bytes:
    if value == null or any(mark in value for mark in (delimiter, b'"', b"\n", b"\r")):
        return b'"' + value.replace(b'"', b'""') + b'"'
    return value


def parse_copy_options(words: Words) -> CopyOptions:
    """`WITH (FORMAT csv, HEADER)` or the older `CSV HEADER`. Raises WireError."""
    csv, header, delimiter, null = False, False, "", None
    words.take("WITH")
    listed = words.take_mark("(")
    while words.peek().kind != "end" and not (listed and words.take_mark(")")):
        token = words.next()
        match token.word:
            case "FORMAT" if listed:
                csv = _format(words)
            case "CSV" if not listed:
                csv = True
            case "HEADER":
                if words.peek().word == "MATCH":
                    raise WireError(FEATURE_NOT_SUPPORTED, "COPY has no HEADER MATCH: HEADER leaves the first line out")
                header = not (words.take("FALSE") or words.take("OFF"))
                words.take("TRUE") or words.take("ON")
            case "DELIMITER" | "DELIMITERS":
                words.take("AS")
                delimiter = _text(words)
            case "NULL":
                words.take("AS")
                null = _text(words)
            case "ENCODING":
                if _text(words).upper().replace("-", "") != "UTF8":
                    raise WireError(FEATURE_NOT_SUPPORTED, "the encoding is UTF8")
            case "BINARY":
                raise _no_binary()
            case _:
                raise words.wrong(token)
        words.take_mark(",")
    if delimiter and (len(delimiter.encode()) != 1 or delimiter in '\r\n\\."' or delimiter.isalnum()):
        raise WireError(INVALID_PARAMETER, "COPY delimiter must be a single one-byte character, and no letter or digit")
    if null is not None and set(null) & {"\r", "\n"}:
        raise WireError(INVALID_PARAMETER, "COPY null representation cannot use newline or carriage return")
    return CopyOptions(csv, header, delimiter, null)


def _format(words: Words) -> bool:
    name = words.name().lower()
    if name == "binary":
        raise _no_binary()
    if name not in ("csv", "text"):
        raise WireError(INVALID_PARAMETER, f'COPY format "{name}" not recognized')
    return name == "csv"


def _no_binary() -> WireError:
    return WireError(FEATURE_NOT_SUPPORTED, "COPY has text and csv, not binary")


def _text(words: Words) -> str:
    token = words.next()
    if token.kind != "text":
        raise words.wrong(token)
    if token.text[0] in "eE":
        return token.text[2:-1].encode().decode("unicode_escape")
    return token.value
