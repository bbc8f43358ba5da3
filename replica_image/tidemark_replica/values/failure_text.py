"""The texts of failures. Statuses become conditions and Events, which everybody with `view` reads and which must not
show rows.

    an error of this project                its text, which never has data
    any other error (Arrow, Spark, Python)  its type, its code if it has one, and the line of this project's code: such
                                            texts quote values ("Could not convert 'alice'", CAST_INVALID_INPUT)
    the log of the replica                  everything

An error of another process arrives as a text with a Python or Java traceback; its type is parsed from that.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

SEE_LOG = "its text is in the replica's log"
LOGGED_LENGTH_MAX, CAUSES_MAX = 8_000, 4
_OURS = "tidemark_"
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?P<frames>(?:[ \t].*\n)+)(?P<name>[\w.]+)(?:: (?P<says>.*))?"
)
_FRAME = re.compile(rf'File "[^"\n]*/({_OURS}\w+/[^"\n]+)", line (\d+)')
_ERRNO = re.compile(r"\[Errno (\d+)\]")
# where Spark and py4j begin to describe the exception; no row data precede it
_BEGINS = r"(?:^|\): |\n: )"
_JAVA = re.compile(_BEGINS + r"(?:[a-z]\w*\.)+(?P<name>[A-Z]\w*)(?:: (?P<says>.*))?")
_LOST = re.compile(_BEGINS + r"(?P<says>ExecutorLostFailure \(executor .*)")
_CODE = re.compile(r"\[([A-Z][A-Z0-9_.]*)\] ")
_LAST_TASK = "most recent failure: "
_LOST_LENGTH_MAX = 500


def public_text(error: BaseException) -> str:
    """The failure on one line, without data."""
    kind = type(error)
    if _is_ours(error):
        return str(error)
    if kind.__module__.startswith(("pyspark.", "py4j.")):
        return public_spark_text(str(error), kind.__name__)
    what = os.strerror(error.errno) if isinstance(error, OSError) and error.errno is not None else ""
    return _text(kind.__name__, what, _our_frame(error))


def public_text_with_type(error: BaseException) -> str:
    """Like `public_text`, always with the type."""
    return f"{type(error).__name__}: {error}" if _is_ours(error) else public_text(error)


def public_spark_text(text: str, kind: str) -> str:
    """The failure of a Spark job, from Spark's text: the Python error in it, else the Java one. `kind`: the type it was
    raised as."""
    head = text.split("\n\tat ")[0]
    if tracebacks := list(_TRACEBACK.finditer(head)):
        return _public_python_text(tracebacks[-1])
    last = head.rpartition(_LAST_TASK)[2]
    if coded := _CODE.match(last):
        return _text(kind, coded[1])
    if lost := _LOST.search(last):
        return lost["says"][:_LOST_LENGTH_MAX]
    if raised := _JAVA.search(last):
        coded = _CODE.match(raised["says"] or "")
        return _text(raised["name"], coded[1] if coded else "")
    return _text(kind)


def log_text(error: BaseException) -> str:
    """The failure with its causes, for the log. May contain data."""
    texts: list[str] = []
    each: BaseException | None = error
    while each is not None and len(texts) < CAUSES_MAX:
        texts.append(f"{type(each).__name__}: {each}")
        each = each.__cause__
    return "; because of ".join(texts)[:LOGGED_LENGTH_MAX]


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith(_OURS)


def _public_python_text(found: re.Match[str]) -> str:
    module, _, name = found["name"].rpartition(".")
    says = found["says"] or ""
    if module.startswith(_OURS):
        return f"{name}: {says}"
    frames = _FRAME.findall(found["frames"])
    errno = _ERRNO.match(says)
    return _text(name, os.strerror(int(errno[1])) if errno else "", "{}, line {}".format(*frames[-1]) if frames else "")


def _text(name: str, what: str = "", place: str = "") -> str:
    where = f" in {place}" if place else ""
    return f"{name}: {what or 'unexpected error'}{where}; {SEE_LOG}"


def _our_frame(error: BaseException) -> str:
    """The innermost line of this project's code in the traceback."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        parts = Path(frame.f_code.co_filename).parts
        if ours := [at for at, part in enumerate(parts[:-1]) if part.startswith(_OURS)]:
            return f"{'/'.join(parts[ours[-1] :])}, line {line}"
    return ""
