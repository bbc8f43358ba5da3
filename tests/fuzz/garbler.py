"""Garbled frames: valid ones, truncated, flipped, spliced, reordered, and filled with extremes.

    valid messages ──► fields changed ──► frames (versions, fragments) ──► bytes changed

One `random.Random` decides everything, so a seed is a whole conversation.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.wire.frames import FRAME_VERSION

NUMBERS = (0, 1, -1, 2, 250, 2**31, 2**32, 2**53, 2**63 - 2, 2**63 - 1, -(2**63))
TEXTS = ("", "u1", "\0", "a\nb", "é" * 3, "\U0001f40b", "x" * 1025, "/", "..", "%s%n", "null")
JSON_VALUES: tuple[Any, ...] = (None, True, 0, -1, 2**63, 10**40, 1.5, "", "\ud800", [], {}, [[[[]]]], {"@": "Get"})


class Garbler:
    """`valid`: makes protobuf messages of one side, all of them acceptable alone; `field`: where a frame has them."""

    def __init__(self, chance: random.Random, valid: Sequence[Message], field: str) -> None:
        self._chance, self._valid, self._field = chance, valid, field

    def frame(self) -> bytes:
        """A frame: in half of the cases valid, or nearly."""
        frame = self._frame()
        data: bytes = frame.SerializeToString()
        if self._chance.random() < 0.25:
            data = self._bytes(data)
        return data

    def single(self) -> bytes:
        """One message without a frame, as in unary calls."""
        data: bytes = self._message().SerializeToString()
        return self._bytes(data) if self._chance.random() < 0.4 else data

    def _frame(self) -> pb.Frame:
        messages = [self._message() for _ in range(self._chance.choice((0, 1, 1, 1, 2, 5)))]
        version = FRAME_VERSION if self._chance.random() < 0.95 else self._chance.choice((0, 2, 99, 2**32 - 1))
        if messages and self._chance.random() < 0.15:
            return pb.Frame(version=version, fragments=self._fragments(messages[0]))
        content: dict[str, Any] = {self._field: messages}
        return pb.Frame(version=version, **content)

    def _message(self) -> Any:
        message = self._chance.choice(self._valid)
        if self._chance.random() < 0.5:
            return message
        copy = type(message)()
        copy.CopyFrom(message)
        self._change(copy)
        return copy

    def _fragments(self, message: Message) -> list[pb.Fragment]:
        data = message.SerializeToString()
        cuts = sorted(self._chance.randrange(len(data) + 1) for _ in range(self._chance.randrange(4)))
        bounds = [0, *cuts, len(data)]
        pieces = [data[a:b] for a, b in pairwise(bounds)]
        if self._chance.random() < 0.2:
            self._chance.shuffle(pieces)
        fragments = [pb.Fragment(data=piece, last=piece is pieces[-1]) for piece in pieces]
        return fragments if self._chance.random() < 0.8 else fragments[:-1]

    # --- one field of a message ---

    def _change(self, message: Message) -> None:
        """Change one field of the message, or of a message inside."""
        set_fields = message.ListFields()
        fields = [f for f, _ in set_fields] or list(message.DESCRIPTOR.fields)
        if not fields:
            return
        field = self._chance.choice(fields)
        if self._chance.random() < 0.05:
            message.ClearField(field.name)
        elif field.is_repeated:
            self._change_repeated(message, field)
        elif field.message_type is not None:
            self._change(getattr(message, field.name))
        else:
            setattr(message, field.name, self._scalar(field, getattr(message, field.name)))

    def _change_repeated(self, message: Message, field: FieldDescriptor) -> None:
        """One of them; of a map, another value under some key; of numbers and texts, one more."""
        values, kind = getattr(message, field.name), field.message_type
        if kind is None:
            values.append(self._scalar(field, None))
        elif kind.GetOptions().map_entry:
            values[self._chance.choice(TEXTS)] = self._scalar(kind.fields_by_name["value"], None)
        elif len(values):
            self._change(values[self._chance.randrange(len(values))])

    def _scalar(self, field: FieldDescriptor, old: Any) -> Any:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._json(old) if self._chance.random() < 0.8 else self._bytes(old or b"")
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._chance.choice(TEXTS)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return not old
        number = self._chance.choice(NUMBERS)
        if field.type == FieldDescriptor.TYPE_INT32:
            return (number + 2**31) % 2**32 - 2**31
        widths = {FieldDescriptor.TYPE_UINT32: 32, FieldDescriptor.TYPE_UINT64: 64}
        return number if field.type not in widths else number % 2 ** widths[field.type]

    # --- plans ---

    def _json(self, data: bytes) -> bytes:
        """Replace, drop, repeat or nest one node of a plan."""
        try:
            tree = json.loads(data)
        except ValueError:
            return self._bytes(data)
        if self._chance.random() < 0.02:
            return b"[" * 100_000
        changed = self._in_tree(tree, self._chance.choice((self._replaced, self._doubled, self._wrapped)))
        return json.dumps(changed).encode()

    def _in_tree(self, tree: Any, change: Callable[[Any], Any]) -> Any:
        if not isinstance(tree, dict | list) or not tree or self._chance.random() < 0.15:
            return change(tree)
        if isinstance(tree, list):
            at = self._chance.randrange(len(tree))
            return [*tree[:at], self._in_tree(tree[at], change), *tree[at + 1 :]]
        key = self._chance.choice(list(tree))
        if self._chance.random() < 0.1:
            return {k: v for k, v in tree.items() if k != key}
        return {**tree, key: self._in_tree(tree[key], change)}

    def _replaced(self, value: Any) -> Any:
        return self._chance.choice((*JSON_VALUES, *NUMBERS, *TEXTS))

    def _doubled(self, value: Any) -> Any:
        return value + value if isinstance(value, list | str) else value

    def _wrapped(self, value: Any) -> Any:
        for _ in range(self._chance.choice((1, 5, 300))):
            value = [value] if self._chance.random() < 0.9 else {"@": "Negate", "input": value}
        return value

    # --- bytes ---

    def _bytes(self, data: bytes) -> bytes:
        for _ in range(self._chance.choice((1, 1, 2, 8))):
            data = self._chance.choice((self._flipped, self._cut, self._inserted, self._spliced, self._noise))(data)
        return data

    def _flipped(self, data: bytes) -> bytes:
        if not data:
            return b"\xff"
        at = self._chance.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self._chance.randrange(8))]) + data[at + 1 :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._chance.randrange(len(data) + 1)]

    def _inserted(self, data: bytes) -> bytes:
        at = self._chance.randrange(len(data) + 1)
        return data[:at] + self._chance.randbytes(self._chance.choice((1, 2, 9))) + data[at:]

    def _spliced(self, data: bytes) -> bytes:
        other = self._chance.choice(self._valid).SerializeToString()
        return self._cut(data) + other[self._chance.randrange(len(other) + 1) :]

    def _noise(self, data: bytes) -> bytes:
        return self._chance.randbytes(self._chance.choice((0, 1, 5, 40)))
