"""The answer to Describe, to protobuf and back."""

from __future__ import annotations

from dataclasses import replace

from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.wire.fields import fields_of, from_fields


def description_to_proto(description: Description) -> pb.DescribeResponse:
    fields = fields_of(description, pb.DescribeResponse.DESCRIPTOR)
    return pb.DescribeResponse(**fields, understands=description.plan_features)


def description_from_proto(message: pb.DescribeResponse) -> Description:
    """Raises MalformedFrame."""
    try:
        return replace(from_fields(message, Description), plan_features=tuple(message.understands))
    except ValueError as error:
        raise MalformedFrame(f"the answer to Describe: {error}") from None
