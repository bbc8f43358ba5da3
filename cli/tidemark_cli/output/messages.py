"""Replies of the gateway as JSON."""

from __future__ import annotations

import json
import sys

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message


def print_json(reply: Message) -> None:
    """Prints the reply with the field names of gateway.proto."""
    json.dump(MessageToDict(reply, preserving_proto_field_name=True), sys.stdout, indent=2)
    print()
