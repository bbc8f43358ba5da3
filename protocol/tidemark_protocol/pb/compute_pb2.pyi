from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("version", "commands", "responses", "fragments")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    FRAGMENTS_FIELD_NUMBER: _ClassVar[int]
    version: int
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    fragments: _containers.RepeatedCompositeFieldContainer[Fragment]
    def __init__(self, version: _Optional[int] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ..., fragments: _Optional[_Iterable[_Union[Fragment, _Mapping]]] = ...) -> None: ...

class Fragment(_message.Message):
    __slots__ = ("data", "last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    last: bool
    def __init__(self, data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("hello", "create_instance", "initialization_complete", "update_configuration", "create_dataflow", "schedule", "allow_writes", "allow_compaction", "peek", "cancel_peek", "create_timely", "allow_all_writes", "run_ingestion", "drop_ingestion", "allow_shard_compaction", "delete_shard")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CREATE_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    INITIALIZATION_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    CREATE_DATAFLOW_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_WRITES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_COMPACTION_FIELD_NUMBER: _ClassVar[int]
    PEEK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_PEEK_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIMELY_FIELD_NUMBER: _ClassVar[int]
    ALLOW_ALL_WRITES_FIELD_NUMBER: _ClassVar[int]
    RUN_INGESTION_FIELD_NUMBER: _ClassVar[int]
    DROP_INGESTION_FIELD_NUMBER: _ClassVar[int]
    ALLOW_SHARD_COMPACTION_FIELD_NUMBER: _ClassVar[int]
    DELETE_SHARD_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    create_instance: CreateInstance
    initialization_complete: InitializationComplete
    update_configuration: UpdateConfiguration
    create_dataflow: CreateDataflow
    schedule: Schedule
    allow_writes: AllowWrites
    allow_compaction: AllowCompaction
    peek: Peek
    cancel_peek: CancelPeek
    create_timely: CreateTimely
    allow_all_writes: AllowAllWrites
    run_ingestion: RunIngestion
    drop_ingestion: DropIngestion
    allow_shard_compaction: AllowShardCompaction
    delete_shard: DeleteShard
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., create_instance: _Optional[_Union[CreateInstance, _Mapping]] = ..., initialization_complete: _Optional[_Union[InitializationComplete, _Mapping]] = ..., update_configuration: _Optional[_Union[UpdateConfiguration, _Mapping]] = ..., create_dataflow: _Optional[_Union[CreateDataflow, _Mapping]] = ..., schedule: _Optional[_Union[Schedule, _Mapping]] = ..., allow_writes: _Optional[_Union[AllowWrites, _Mapping]] = ..., allow_compaction: _Optional[_Union[AllowCompaction, _Mapping]] = ..., peek: _Optional[_Union[Peek, _Mapping]] = ..., cancel_peek: _Optional[_Union[CancelPeek, _Mapping]] = ..., create_timely: _Optional[_Union[CreateTimely, _Mapping]] = ..., allow_all_writes: _Optional[_Union[AllowAllWrites, _Mapping]] = ..., run_ingestion: _Optional[_Union[RunIngestion, _Mapping]] = ..., drop_ingestion: _Optional[_Union[DropIngestion, _Mapping]] = ..., allow_shard_compaction: _Optional[_Union[AllowShardCompaction, _Mapping]] = ..., delete_shard: _Optional[_Union[DeleteShard, _Mapping]] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("leader_term", "connection")
    LEADER_TERM_FIELD_NUMBER: _ClassVar[int]
    CONNECTION_FIELD_NUMBER: _ClassVar[int]
    leader_term: int
    connection: int
    def __init__(self, leader_term: _Optional[int] = ..., connection: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("nonce", "epoch")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    nonce: str
    epoch: Epoch
    def __init__(self, nonce: _Optional[str] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ...) -> None: ...

class CreateTimely(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: Epoch
    def __init__(self, epoch: _Optional[_Union[Epoch, _Mapping]] = ...) -> None: ...

class AllowAllWrites(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateInstance(_message.Message):
    __slots__ = ("config",)
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    config: bytes
    def __init__(self, config: _Optional[bytes] = ...) -> None: ...

class InitializationComplete(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateConfiguration(_message.Message):
    __slots__ = ("max_result_bytes", "settings", "stash_above_bytes")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MAX_RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    STASH_ABOVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_result_bytes: int
    settings: _containers.ScalarMap[str, str]
    stash_above_bytes: int
    def __init__(self, max_result_bytes: _Optional[int] = ..., settings: _Optional[_Mapping[str, str]] = ..., stash_above_bytes: _Optional[int] = ...) -> None: ...

class CreateDataflow(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: bytes
    def __init__(self, description: _Optional[bytes] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class AllowWrites(_message.Message):
    __slots__ = ("id", "term")
    ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    id: str
    term: int
    def __init__(self, id: _Optional[str] = ..., term: _Optional[int] = ...) -> None: ...

class AllowCompaction(_message.Message):
    __slots__ = ("id", "frontier")
    ID_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    id: str
    frontier: int
    def __init__(self, id: _Optional[str] = ..., frontier: _Optional[int] = ...) -> None: ...

class Peek(_message.Message):
    __slots__ = ("request", "skip_errors", "trace_context")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SKIP_ERRORS_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    skip_errors: bool
    trace_context: str
    def __init__(self, request: _Optional[bytes] = ..., skip_errors: _Optional[bool] = ..., trace_context: _Optional[str] = ...) -> None: ...

class CancelPeek(_message.Message):
    __slots__ = ("uuid",)
    UUID_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    def __init__(self, uuid: _Optional[str] = ...) -> None: ...

class RunIngestion(_message.Message):
    __slots__ = ("ingestion", "term", "controller_now", "max_ahead_ms", "requests")
    INGESTION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_NOW_FIELD_NUMBER: _ClassVar[int]
    MAX_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ingestion: bytes
    term: int
    controller_now: int
    max_ahead_ms: int
    requests: _containers.RepeatedCompositeFieldContainer[FileRequest]
    def __init__(self, ingestion: _Optional[bytes] = ..., term: _Optional[int] = ..., controller_now: _Optional[int] = ..., max_ahead_ms: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[FileRequest, _Mapping]]] = ...) -> None: ...

class FileRequest(_message.Message):
    __slots__ = ("id", "action", "table", "file")
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    id: int
    action: str
    table: str
    file: str
    def __init__(self, id: _Optional[int] = ..., action: _Optional[str] = ..., table: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class DropIngestion(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class AllowShardCompaction(_message.Message):
    __slots__ = ("id", "location", "frontier")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    id: str
    location: str
    frontier: int
    def __init__(self, id: _Optional[str] = ..., location: _Optional[str] = ..., frontier: _Optional[int] = ...) -> None: ...

class DeleteShard(_message.Message):
    __slots__ = ("id", "location")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    location: str
    def __init__(self, id: _Optional[str] = ..., location: _Optional[str] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("frontiers", "peek_response", "subscribe_response", "copy_to_response", "status", "failure", "shard_frontiers", "ingestion_status", "shard_deleted")
    FRONTIERS_FIELD_NUMBER: _ClassVar[int]
    PEEK_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FRONTIERS_FIELD_NUMBER: _ClassVar[int]
    INGESTION_STATUS_FIELD_NUMBER: _ClassVar[int]
    SHARD_DELETED_FIELD_NUMBER: _ClassVar[int]
    frontiers: Frontiers
    peek_response: PeekResponse
    subscribe_response: SubscribeResponse
    copy_to_response: CopyToResponse
    status: Status
    failure: Failure
    shard_frontiers: ShardFrontiers
    ingestion_status: IngestionStatus
    shard_deleted: ShardDeleted
    def __init__(self, frontiers: _Optional[_Union[Frontiers, _Mapping]] = ..., peek_response: _Optional[_Union[PeekResponse, _Mapping]] = ..., subscribe_response: _Optional[_Union[SubscribeResponse, _Mapping]] = ..., copy_to_response: _Optional[_Union[CopyToResponse, _Mapping]] = ..., status: _Optional[_Union[Status, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., shard_frontiers: _Optional[_Union[ShardFrontiers, _Mapping]] = ..., ingestion_status: _Optional[_Union[IngestionStatus, _Mapping]] = ..., shard_deleted: _Optional[_Union[ShardDeleted, _Mapping]] = ...) -> None: ...

class Frontiers(_message.Message):
    __slots__ = ("id", "write", "input", "output")
    ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    write: int
    input: int
    output: int
    def __init__(self, id: _Optional[str] = ..., write: _Optional[int] = ..., input: _Optional[int] = ..., output: _Optional[int] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("uuid", "rows", "error", "canceled", "stashed_bytes", "row_count", "error_everywhere", "skipped", "trace_context")
    UUID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CANCELED_FIELD_NUMBER: _ClassVar[int]
    STASHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_EVERYWHERE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    rows: bytes
    error: str
    canceled: bool
    stashed_bytes: int
    row_count: int
    error_everywhere: bool
    skipped: int
    trace_context: str
    def __init__(self, uuid: _Optional[str] = ..., rows: _Optional[bytes] = ..., error: _Optional[str] = ..., canceled: _Optional[bool] = ..., stashed_bytes: _Optional[int] = ..., row_count: _Optional[int] = ..., error_everywhere: _Optional[bool] = ..., skipped: _Optional[int] = ..., trace_context: _Optional[str] = ...) -> None: ...

class SubscribeResponse(_message.Message):
    __slots__ = ("id", "lower", "upper", "updates", "error", "dropped", "lower_part", "upper_part", "is_void")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    LOWER_PART_FIELD_NUMBER: _ClassVar[int]
    UPPER_PART_FIELD_NUMBER: _ClassVar[int]
    IS_VOID_FIELD_NUMBER: _ClassVar[int]
    id: str
    lower: int
    upper: int
    updates: bytes
    error: str
    dropped: bool
    lower_part: int
    upper_part: int
    is_void: bool
    def __init__(self, id: _Optional[str] = ..., lower: _Optional[int] = ..., upper: _Optional[int] = ..., updates: _Optional[bytes] = ..., error: _Optional[str] = ..., dropped: _Optional[bool] = ..., lower_part: _Optional[int] = ..., upper_part: _Optional[int] = ..., is_void: _Optional[bool] = ...) -> None: ...

class CopyToResponse(_message.Message):
    __slots__ = ("id", "row_count", "error", "dropped")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    id: str
    row_count: int
    error: str
    dropped: bool
    def __init__(self, id: _Optional[str] = ..., row_count: _Optional[int] = ..., error: _Optional[str] = ..., dropped: _Optional[bool] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("id", "kind", "message", "reason", "attempts", "stopped", "repeated")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    message: str
    reason: str
    attempts: int
    stopped: bool
    repeated: bool
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., message: _Optional[str] = ..., reason: _Optional[str] = ..., attempts: _Optional[int] = ..., stopped: _Optional[bool] = ..., repeated: _Optional[bool] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("id", "kind", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    fields: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ShardFrontiers(_message.Message):
    __slots__ = ("id", "upper", "since")
    ID_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    upper: int
    since: int
    def __init__(self, id: _Optional[str] = ..., upper: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class IngestionStatus(_message.Message):
    __slots__ = ("id", "state", "message", "counters", "outcomes", "activity", "files", "tables")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    message: str
    counters: _containers.ScalarMap[str, int]
    outcomes: _containers.RepeatedCompositeFieldContainer[FileOutcome]
    activity: str
    files: _containers.RepeatedCompositeFieldContainer[SourceFile]
    tables: _containers.RepeatedCompositeFieldContainer[TableReport]
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., message: _Optional[str] = ..., counters: _Optional[_Mapping[str, int]] = ..., outcomes: _Optional[_Iterable[_Union[FileOutcome, _Mapping]]] = ..., activity: _Optional[str] = ..., files: _Optional[_Iterable[_Union[SourceFile, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[TableReport, _Mapping]]] = ...) -> None: ...

class TableReport(_message.Message):
    __slots__ = ("table", "rows", "bytes", "behind", "unit", "snapshot_percent", "malformed", "error", "errors", "error_time", "stopped")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    ERROR_TIME_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    table: str
    rows: int
    bytes: int
    behind: int
    unit: str
    snapshot_percent: int
    malformed: int
    error: str
    errors: int
    error_time: int
    stopped: bool
    def __init__(self, table: _Optional[str] = ..., rows: _Optional[int] = ..., bytes: _Optional[int] = ..., behind: _Optional[int] = ..., unit: _Optional[str] = ..., snapshot_percent: _Optional[int] = ..., malformed: _Optional[int] = ..., error: _Optional[str] = ..., errors: _Optional[int] = ..., error_time: _Optional[int] = ..., stopped: _Optional[bool] = ...) -> None: ...

class FileOutcome(_message.Message):
    __slots__ = ("id", "refusal")
    ID_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    id: int
    refusal: str
    def __init__(self, id: _Optional[int] = ..., refusal: _Optional[str] = ...) -> None: ...

class SourceFile(_message.Message):
    __slots__ = ("table", "file", "size", "rows", "errors", "state", "reason", "time")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    table: str
    file: str
    size: int
    rows: int
    errors: int
    state: str
    reason: str
    time: int
    def __init__(self, table: _Optional[str] = ..., file: _Optional[str] = ..., size: _Optional[int] = ..., rows: _Optional[int] = ..., errors: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., time: _Optional[int] = ...) -> None: ...

class ShardDeleted(_message.Message):
    __slots__ = ("id", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    error: str
    def __init__(self, id: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class ShardRef(_message.Message):
    __slots__ = ("id", "location")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    id: str
    location: str
    def __init__(self, id: _Optional[str] = ..., location: _Optional[str] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("shards", "frontiers_alone")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    FRONTIERS_ALONE_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[ShardRef]
    frontiers_alone: bool
    def __init__(self, shards: _Optional[_Iterable[_Union[ShardRef, _Mapping]]] = ..., frontiers_alone: _Optional[bool] = ...) -> None: ...

class DescribedDataflow(_message.Message):
    __slots__ = ("export_ids", "digest", "as_of", "reads_from")
    EXPORT_IDS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    READS_FROM_FIELD_NUMBER: _ClassVar[int]
    export_ids: _containers.RepeatedScalarFieldContainer[str]
    digest: str
    as_of: int
    reads_from: int
    def __init__(self, export_ids: _Optional[_Iterable[str]] = ..., digest: _Optional[str] = ..., as_of: _Optional[int] = ..., reads_from: _Optional[int] = ...) -> None: ...

class DescribedCollection(_message.Message):
    __slots__ = ("id", "since", "write")
    ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    id: str
    since: int
    write: int
    def __init__(self, id: _Optional[str] = ..., since: _Optional[int] = ..., write: _Optional[int] = ...) -> None: ...

class DescribedShard(_message.Message):
    __slots__ = ("id", "upper", "since", "term", "error", "exists", "owner", "columns")
    ID_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    id: str
    upper: int
    since: int
    term: int
    error: str
    exists: bool
    owner: str
    columns: _containers.RepeatedCompositeFieldContainer[DescribedColumn]
    def __init__(self, id: _Optional[str] = ..., upper: _Optional[int] = ..., since: _Optional[int] = ..., term: _Optional[int] = ..., error: _Optional[str] = ..., exists: _Optional[bool] = ..., owner: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[DescribedColumn, _Mapping]]] = ...) -> None: ...

class DescribedColumn(_message.Message):
    __slots__ = ("name", "type")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("incarnation", "epoch", "hydrations", "dataflows", "collections", "shards", "understands")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HYDRATIONS_FIELD_NUMBER: _ClassVar[int]
    DATAFLOWS_FIELD_NUMBER: _ClassVar[int]
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    UNDERSTANDS_FIELD_NUMBER: _ClassVar[int]
    incarnation: str
    epoch: Epoch
    hydrations: int
    dataflows: _containers.RepeatedCompositeFieldContainer[DescribedDataflow]
    collections: _containers.RepeatedCompositeFieldContainer[DescribedCollection]
    shards: _containers.RepeatedCompositeFieldContainer[DescribedShard]
    understands: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incarnation: _Optional[str] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ..., hydrations: _Optional[int] = ..., dataflows: _Optional[_Iterable[_Union[DescribedDataflow, _Mapping]]] = ..., collections: _Optional[_Iterable[_Union[DescribedCollection, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[DescribedShard, _Mapping]]] = ..., understands: _Optional[_Iterable[str]] = ...) -> None: ...

class ListShardsRequest(_message.Message):
    __slots__ = ("location", "after", "without", "published", "elsewhere")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    ELSEWHERE_FIELD_NUMBER: _ClassVar[int]
    location: str
    after: str
    without: _containers.RepeatedScalarFieldContainer[str]
    published: bool
    elsewhere: bool
    def __init__(self, location: _Optional[str] = ..., after: _Optional[str] = ..., without: _Optional[_Iterable[str]] = ..., published: _Optional[bool] = ..., elsewhere: _Optional[bool] = ...) -> None: ...

class ListShardsResponse(_message.Message):
    __slots__ = ("shards", "next", "error")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[ListedShard]
    next: str
    error: str
    def __init__(self, shards: _Optional[_Iterable[_Union[ListedShard, _Mapping]]] = ..., next: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class ListedShard(_message.Message):
    __slots__ = ("location", "owner", "upper", "bytes", "error", "table")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    location: str
    owner: str
    upper: int
    bytes: int
    error: str
    table: str
    def __init__(self, location: _Optional[str] = ..., owner: _Optional[str] = ..., upper: _Optional[int] = ..., bytes: _Optional[int] = ..., error: _Optional[str] = ..., table: _Optional[str] = ...) -> None: ...

class FetchStashRequest(_message.Message):
    __slots__ = ("uuid", "offset")
    UUID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    offset: int
    def __init__(self, uuid: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class FetchStashResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class InspectSourceRequest(_message.Message):
    __slots__ = ("source", "ingestion")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    INGESTION_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    ingestion: bytes
    def __init__(self, source: _Optional[bytes] = ..., ingestion: _Optional[bytes] = ...) -> None: ...

class InspectSourceResponse(_message.Message):
    __slots__ = ("tables", "error", "published", "unexamined")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    UNEXAMINED_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedScalarFieldContainer[bytes]
    error: str
    published: _containers.RepeatedScalarFieldContainer[bytes]
    unexamined: int
    def __init__(self, tables: _Optional[_Iterable[bytes]] = ..., error: _Optional[str] = ..., published: _Optional[_Iterable[bytes]] = ..., unexamined: _Optional[int] = ...) -> None: ...

class ReleaseSourceRequest(_message.Message):
    __slots__ = ("ingestion",)
    INGESTION_FIELD_NUMBER: _ClassVar[int]
    ingestion: bytes
    def __init__(self, ingestion: _Optional[bytes] = ...) -> None: ...

class ReleaseSourceResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class WriteRowsHeader(_message.Message):
    __slots__ = ("ingestion", "table", "operation", "format", "key", "must_find", "sections", "tables")
    INGESTION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MUST_FIND_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    ingestion: str
    table: str
    operation: str
    format: str
    key: str
    must_find: int
    sections: _containers.RepeatedCompositeFieldContainer[WriteRowsSection]
    tables: _containers.RepeatedCompositeFieldContainer[WriteRowsTable]
    def __init__(self, ingestion: _Optional[str] = ..., table: _Optional[str] = ..., operation: _Optional[str] = ..., format: _Optional[str] = ..., key: _Optional[str] = ..., must_find: _Optional[int] = ..., sections: _Optional[_Iterable[_Union[WriteRowsSection, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[WriteRowsTable, _Mapping]]] = ...) -> None: ...

class WriteRowsTable(_message.Message):
    __slots__ = ("table", "operation", "must_find", "sections", "size")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    MUST_FIND_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    table: str
    operation: str
    must_find: int
    sections: _containers.RepeatedCompositeFieldContainer[WriteRowsSection]
    size: int
    def __init__(self, table: _Optional[str] = ..., operation: _Optional[str] = ..., must_find: _Optional[int] = ..., sections: _Optional[_Iterable[_Union[WriteRowsSection, _Mapping]]] = ..., size: _Optional[int] = ...) -> None: ...

class WriteRowsSection(_message.Message):
    __slots__ = ("operation", "rows", "changed")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    operation: str
    rows: int
    changed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, operation: _Optional[str] = ..., rows: _Optional[int] = ..., changed: _Optional[_Iterable[str]] = ...) -> None: ...

class WriteRowsRequest(_message.Message):
    __slots__ = ("header", "data", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: WriteRowsHeader
    data: bytes
    end: int
    def __init__(self, header: _Optional[_Union[WriteRowsHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[int] = ...) -> None: ...

class WriteRowsResponse(_message.Message):
    __slots__ = ("time", "rows", "repeated", "refusal")
    TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    time: int
    rows: int
    repeated: bool
    refusal: str
    def __init__(self, time: _Optional[int] = ..., rows: _Optional[int] = ..., repeated: _Optional[bool] = ..., refusal: _Optional[str] = ...) -> None: ...
