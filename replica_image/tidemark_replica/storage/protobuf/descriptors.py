"""Message types from FileDescriptorSets, and whether messages of one type can be read as another."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

_MODULES: Sequence[Any] = (
    any_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
WELL_KNOWN = {module.DESCRIPTOR.name: module.DESCRIPTOR.serialized_pb for module in _MODULES}
FILES_MAX, TEXT_LENGTH_MAX = 256, 4 << 20
MAIN_FILE = "value.proto"
_WIDER = {
    (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64),
    (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64),
    (FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_INT64),
    (FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64),
    (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES),
}


class DescriptorRefused(ValueError):
    """A text is no set of descriptors, lacks what is needed, or is not supported. The message names the place."""


class Descriptors:
    """The files of one set, the last of which has the messages of the values. Raises DescriptorRefused."""

    def __init__(self, files: descriptor_pb2.FileDescriptorSet) -> None:
        if not 0 < len(files.file) <= FILES_MAX:
            raise DescriptorRefused(f"a set of descriptors has 1 to {FILES_MAX} files")
        self._pool: Any = descriptor_pool.DescriptorPool()
        given = {file.name for file in files.file}
        try:
            for name, data in WELL_KNOWN.items():
                if name not in given:
                    self._pool.AddSerializedFile(data)
            for file in files.file:
                self._last: Any = self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, ValueError, KeyError) as error:
            raise DescriptorRefused(f"the descriptors do not fit together: {str(error)[:300]}") from None

    def message(self, name: str) -> Any:
        """The message type of this full name; the last file's first one where it is empty. Raises DescriptorRefused."""
        if name:
            try:
                return self._pool.FindMessageTypeByName(name)
            except KeyError:
                raise DescriptorRefused(f"the schema has no message {name}") from None
        return self.by_indexes([0])

    def by_indexes(self, indexes: Sequence[int]) -> Any:
        """The message type at this place of the last file: the message, then those inside it.
        Raises DescriptorRefused."""
        types = list(self._last.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(types):
                raise DescriptorRefused(f"the schema has no message at {list(indexes)}")
            found = types[index]
            types = list(found.nested_types)
        if found is None:
            raise DescriptorRefused("the schema has no message")
        return found


def descriptors_of_text(text: str) -> Descriptors:
    """The set in base64, as `protoc --include_imports --descriptor_set_out` writes it. Raises DescriptorRefused."""
    if len(text) > TEXT_LENGTH_MAX:
        raise DescriptorRefused(f"the descriptors are longer than {TEXT_LENGTH_MAX} characters")
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(base64.b64decode("".join(text.split()), validate=True))
    except (DecodeError, ValueError):
        raise DescriptorRefused(
            "the schema is no FileDescriptorSet in base64, as protoc --descriptor_set_out writes one"
        ) from None
    return Descriptors(files)


def text_of_files(main: str, imports: Sequence[tuple[str, str]]) -> str:
    """The set, in base64, of a file and of the files that it imports, each a FileDescriptorProto in base64. Raises
    DescriptorRefused."""
    files = descriptor_pb2.FileDescriptorSet()
    for name, text in (*imports, (MAIN_FILE, main)):
        if name in WELL_KNOWN:
            continue
        try:
            file = files.file.add()
            file.ParseFromString(base64.b64decode(text, validate=True))
            file.name = name
        except (DecodeError, ValueError):
            raise DescriptorRefused(
                f"the registry does not give {name} as a serialized descriptor; take the schema inline"
            ) from None
    return base64.b64encode(files.SerializeToString(deterministic=True)).decode()


def renumbered(before: Any, now: Any, at: str = "$", checked: set[tuple[str, str]] | None = None) -> str:
    """The first field of the message type `before` whose name has another number in the type `now`, or is absent in
    another way, as a text; empty without one. `checked`: as of `misfit`."""
    checked, pair = set() if checked is None else checked, (before.full_name, now.full_name)
    if pair in checked:
        return ""
    checked.add(pair)
    for field in before.fields:
        other, place = now.fields_by_name.get(field.name), f"{at}.{field.name}"
        if other is None:
            continue
        if other.number != field.number:
            return f"{place}: the field has the number {other.number} in the new schema, and had {field.number}"
        if other.has_presence != field.has_presence:
            return f"{place}: the field may be absent, and is NULL then, in one of the schemas alone"
        inner = field.message_type, other.message_type
        if None not in inner and (why := renumbered(*inner, place, checked)):
            return why
    return ""


def misfit(writer: Any, reader: Any, at: str = "$", checked: set[tuple[str, str]] | None = None) -> str:
    """Return why messages of the writer's type cannot be read as the reader's; empty where they can. Fields go by
    number; a field that only one type has is ignored. `checked`: pairs of types that are not checked again."""
    checked, pair = set() if checked is None else checked, (writer.full_name, reader.full_name)
    if pair in checked:
        return ""
    checked.add(pair)
    known = {field.number: field for field in writer.fields}
    for field in reader.fields:
        other, place = known.get(field.number), f"{at}.{field.name}"
        if other is None:
            continue
        if bool(other.is_repeated) != bool(field.is_repeated):
            return f"{place}: field {field.number} is repeated in one of the schemas alone"
        if other.type != field.type and (other.type, field.type) not in _WIDER:
            return f"{place}: field {field.number} has another type in the writer's schema"
        if field.message_type is not None and (why := misfit(other.message_type, field.message_type, place, checked)):
            return why
    return ""
