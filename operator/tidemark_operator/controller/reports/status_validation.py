"""What replicas say of themselves in the fields of a Status: text, of which only what makes sense is kept.

    Status erroring {errors: 3, code: DIVIDE_BY_ZERO}      kept
    Status erroring {errors: many}                         not: a count is a number
    the 33rd kind, or half a megabyte of words             not: what is kept of each export is bounded

So a replica that lies, or is of another version, neither ends the operator nor fills its memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

KINDS, CHARACTERS, DIGITS = 32, 64 * 1024, 18
_COUNTS = {
    "erroring": ("errors",),
    "steps": ("steps", "elapsed_ms", "max_ms", "hydration_ms"),
    "arrangements": ("arrangements", "records", "batches", "bytes"),
}
_OF_FAILURES = ("failures",)


def makes_sense(kind: str, fields: Mapping[str, str], known: Collection[str]) -> bool:
    """`known`: the kinds that are kept already, of which this may be one."""
    if kind not in known and len(known) >= KINDS:
        return False
    if len(kind) + sum(len(name) + len(value) for name, value in fields.items()) > CHARACTERS:
        return False
    counts = _COUNTS.get(kind, _OF_FAILURES if kind.endswith("_failed") else ())
    return all(_is_count(fields[name]) for name in counts if name in fields)


def sendable_name(said: object, most: int) -> str:
    """A name, so long at most. Half of a surrogate pair, which JSON can spell, could be sent to nobody."""
    return str(said)[:most].encode(errors="replace").decode()


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= DIGITS
