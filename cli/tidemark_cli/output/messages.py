"""Replies of the gateway as JSON, YAML and CSV, with the names of gateway.proto."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from tidemark_cli.output.formats import lines
from tidemark_cli.output.yaml_text import yaml_text


def print_reply(output: str, reply: Message, rows: str) -> None:
    """Print the reply as `json` or `yaml`, or the messages of its field `rows` as `csv`. Fields of a row that hold
    messages are JSON within CSV; an optional field that a row lacks is NULL."""
    match output:
        case "json":
            json.dump(as_object(reply), sys.stdout, indent=2)
            print()
        case "yaml":
            sys.stdout.write(yaml_text(as_object(reply)))
        case _:
            names = fields(reply, rows)
            writer = lines(output, names, [], sys.stdout)
            writer.rows([values(message, names) for message in getattr(reply, rows)])


def as_object(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(message, preserving_proto_field_name=True)
    return found


def fields(reply: Message, rows: str) -> list[str]:
    """The names of the fields of `rows`."""
    reply_type: Any = reply.DESCRIPTOR
    return [field.name for field in reply_type.fields_by_name[rows].message_type.fields]


def values(message: Message, names: Iterable[str]) -> list[Any]:
    """The fields as values; None where an optional one is not there."""
    return [_value(message, message.DESCRIPTOR.fields_by_name[name]) for name in names]


def _value(message: Message, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is not None:
        return [as_object(each) for each in value]
    return value
