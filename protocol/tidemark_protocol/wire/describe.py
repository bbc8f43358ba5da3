"""The answer to Describe, to protobuf and back."""

from __future__ import annotations

from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import DescribedCollection, DescribedDataflow, DescribedShard, Description
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.types import Column, SqlType
from tidemark_protocol.wire.protobuf import epoch_from_proto, epoch_to_proto


def description_to_proto(description: Description) -> pb.DescribeResponse:
    return pb.DescribeResponse(
        incarnation=description.incarnation,
        epoch=epoch_to_proto(description.epoch) if description.epoch else None,
        hydrations=description.hydrations,
        dataflows=[
            pb.DescribedDataflow(
                export_ids=d.export_ids,
                digest=d.digest,
                as_of=d.as_of,
                reads_from=None if d.reads_from is None else d.reads_from.encode(),
            )
            for d in description.dataflows
        ],
        collections=[
            pb.DescribedCollection(id=c.id, since=c.since.encode(), write=c.write.encode())
            for c in description.collections
        ],
        shards=[_shard_to_proto(s) for s in description.shards],
        understands=description.plan_features,
    )


def description_from_proto(message: pb.DescribeResponse) -> Description:
    """Raises MalformedFrame where the message is not a valid description."""
    try:
        return _description(message)
    except ValueError as error:
        raise MalformedFrame(f"the answer to Describe: {error}") from None


def _description(message: pb.DescribeResponse) -> Description:
    return Description(
        incarnation=message.incarnation,
        epoch=epoch_from_proto(message.epoch) if message.HasField("epoch") else None,
        hydrations=message.hydrations,
        dataflows=tuple(
            DescribedDataflow(
                tuple(GlobalId(i) for i in d.export_ids),
                d.digest,
                Time(d.as_of),
                Frontier.decode(d.reads_from) if d.HasField("reads_from") else None,
            )
            for d in message.dataflows
        ),
        collections=tuple(
            DescribedCollection(GlobalId(c.id), Frontier.decode(c.since), Frontier.decode(c.write))
            for c in message.collections
        ),
        shards=tuple(_shard_from_proto(s) for s in message.shards),
        plan_features=tuple(message.understands),
    )


def _shard_to_proto(shard: DescribedShard) -> pb.DescribedShard:
    return pb.DescribedShard(
        id=shard.id,
        exists=shard.exists,
        upper=shard.upper.encode(),
        since=shard.since.encode(),
        term=shard.term,
        error=shard.error or "",
        owner=shard.owner or "",
        columns=[pb.DescribedColumn(name=column.name, type=str(column.type)) for column in shard.columns],
    )


def _shard_from_proto(message: pb.DescribedShard) -> DescribedShard:
    return DescribedShard(
        id=ShardId(message.id),
        exists=message.exists,
        upper=Frontier.decode(message.upper),
        since=Frontier.decode(message.since),
        term=WriterTerm(message.term),
        error=message.error or None,
        owner=ShardId(message.owner) if message.owner else None,
        columns=tuple(Column(column.name, SqlType.parse(column.type)) for column in message.columns),
    )
