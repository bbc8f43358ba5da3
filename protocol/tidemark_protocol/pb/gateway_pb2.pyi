from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryRequest(_message.Message):
    __slots__ = ("namespace", "sql", "as_of", "instance", "strict", "replica", "places", "skip_errors", "dialect", "lease")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    SKIP_ERRORS_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    sql: str
    as_of: int
    instance: str
    strict: bool
    replica: str
    places: bool
    skip_errors: bool
    dialect: str
    lease: str
    def __init__(self, namespace: _Optional[str] = ..., sql: _Optional[str] = ..., as_of: _Optional[int] = ..., instance: _Optional[str] = ..., strict: _Optional[bool] = ..., replica: _Optional[str] = ..., places: _Optional[bool] = ..., skip_errors: _Optional[bool] = ..., dialect: _Optional[str] = ..., lease: _Optional[str] = ...) -> None: ...

class QueryHeader(_message.Message):
    __slots__ = ("as_of", "export", "column_names", "column_types", "skipped_errors", "leased", "lease_refused")
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    COLUMN_NAMES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_ERRORS_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    LEASE_REFUSED_FIELD_NUMBER: _ClassVar[int]
    as_of: int
    export: str
    column_names: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    skipped_errors: int
    leased: _containers.RepeatedScalarFieldContainer[str]
    lease_refused: str
    def __init__(self, as_of: _Optional[int] = ..., export: _Optional[str] = ..., column_names: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ..., skipped_errors: _Optional[int] = ..., leased: _Optional[_Iterable[str]] = ..., lease_refused: _Optional[str] = ...) -> None: ...

class QueryReply(_message.Message):
    __slots__ = ("header", "arrow", "waiting")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    header: QueryHeader
    arrow: bytes
    waiting: str
    def __init__(self, header: _Optional[_Union[QueryHeader, _Mapping]] = ..., arrow: _Optional[bytes] = ..., waiting: _Optional[str] = ...) -> None: ...

class QueryCalls(_message.Message):
    __slots__ = ("begin", "next", "cancel")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    begin: _containers.RepeatedCompositeFieldContainer[QueryCall]
    next: _containers.RepeatedScalarFieldContainer[int]
    cancel: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, begin: _Optional[_Iterable[_Union[QueryCall, _Mapping]]] = ..., next: _Optional[_Iterable[int]] = ..., cancel: _Optional[_Iterable[int]] = ...) -> None: ...

class QueryCall(_message.Message):
    __slots__ = ("id", "authorization", "query", "trace_context")
    ID_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZATION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    id: int
    authorization: str
    query: QueryRequest
    trace_context: str
    def __init__(self, id: _Optional[int] = ..., authorization: _Optional[str] = ..., query: _Optional[_Union[QueryRequest, _Mapping]] = ..., trace_context: _Optional[str] = ...) -> None: ...

class QueryPieces(_message.Message):
    __slots__ = ("pieces",)
    PIECES_FIELD_NUMBER: _ClassVar[int]
    pieces: _containers.RepeatedCompositeFieldContainer[QueryPiece]
    def __init__(self, pieces: _Optional[_Iterable[_Union[QueryPiece, _Mapping]]] = ...) -> None: ...

class QueryPiece(_message.Message):
    __slots__ = ("id", "header", "arrow", "last", "failure")
    ID_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    id: int
    header: QueryHeader
    arrow: bytes
    last: bool
    failure: QueryFailure
    def __init__(self, id: _Optional[int] = ..., header: _Optional[_Union[QueryHeader, _Mapping]] = ..., arrow: _Optional[bytes] = ..., last: _Optional[bool] = ..., failure: _Optional[_Union[QueryFailure, _Mapping]] = ...) -> None: ...

class QueryFailure(_message.Message):
    __slots__ = ("code", "message", "sqlstate", "position")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SQLSTATE_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    sqlstate: str
    position: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., sqlstate: _Optional[str] = ..., position: _Optional[str] = ...) -> None: ...

class FrontiersRequest(_message.Message):
    __slots__ = ("namespace", "all_namespaces")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ALL_NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    all_namespaces: bool
    def __init__(self, namespace: _Optional[str] = ..., all_namespaces: _Optional[bool] = ...) -> None: ...

class CollectionFrontiers(_message.Message):
    __slots__ = ("namespace", "name", "kind", "id", "read", "write", "input", "output", "hydrated", "replicas", "hydrated_percent", "behind", "unit", "snapshot_percent", "stopped")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    HYDRATED_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    HYDRATED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    kind: str
    id: str
    read: int
    write: int
    input: int
    output: int
    hydrated: bool
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaFrontiers]
    hydrated_percent: int
    behind: int
    unit: str
    snapshot_percent: int
    stopped: bool
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ..., read: _Optional[int] = ..., write: _Optional[int] = ..., input: _Optional[int] = ..., output: _Optional[int] = ..., hydrated: _Optional[bool] = ..., replicas: _Optional[_Iterable[_Union[ReplicaFrontiers, _Mapping]]] = ..., hydrated_percent: _Optional[int] = ..., behind: _Optional[int] = ..., unit: _Optional[str] = ..., snapshot_percent: _Optional[int] = ..., stopped: _Optional[bool] = ...) -> None: ...

class OperatorHydration(_message.Message):
    __slots__ = ("name", "percent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    percent: int
    def __init__(self, name: _Optional[str] = ..., percent: _Optional[int] = ...) -> None: ...

class ReplicaFrontiers(_message.Message):
    __slots__ = ("replica", "write", "input", "output", "hydrated_percent", "operators")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    HYDRATED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    replica: str
    write: int
    input: int
    output: int
    hydrated_percent: int
    operators: _containers.RepeatedCompositeFieldContainer[OperatorHydration]
    def __init__(self, replica: _Optional[str] = ..., write: _Optional[int] = ..., input: _Optional[int] = ..., output: _Optional[int] = ..., hydrated_percent: _Optional[int] = ..., operators: _Optional[_Iterable[_Union[OperatorHydration, _Mapping]]] = ...) -> None: ...

class FrontiersReply(_message.Message):
    __slots__ = ("collections", "now")
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    collections: _containers.RepeatedCompositeFieldContainer[CollectionFrontiers]
    now: int
    def __init__(self, collections: _Optional[_Iterable[_Union[CollectionFrontiers, _Mapping]]] = ..., now: _Optional[int] = ...) -> None: ...

class TopRequest(_message.Message):
    __slots__ = ("namespace", "all_namespaces")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ALL_NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    all_namespaces: bool
    def __init__(self, namespace: _Optional[str] = ..., all_namespaces: _Optional[bool] = ...) -> None: ...

class DataflowUsage(_message.Message):
    __slots__ = ("namespace", "name", "instance", "replica", "cores", "bytes", "records", "elapsed_ms", "steps", "hydrated", "hydrated_percent")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    CORES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_MS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    HYDRATED_FIELD_NUMBER: _ClassVar[int]
    HYDRATED_PERCENT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    instance: str
    replica: str
    cores: float
    bytes: int
    records: int
    elapsed_ms: int
    steps: int
    hydrated: bool
    hydrated_percent: int
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., instance: _Optional[str] = ..., replica: _Optional[str] = ..., cores: _Optional[float] = ..., bytes: _Optional[int] = ..., records: _Optional[int] = ..., elapsed_ms: _Optional[int] = ..., steps: _Optional[int] = ..., hydrated: _Optional[bool] = ..., hydrated_percent: _Optional[int] = ...) -> None: ...

class TopReply(_message.Message):
    __slots__ = ("dataflows", "now")
    DATAFLOWS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    dataflows: _containers.RepeatedCompositeFieldContainer[DataflowUsage]
    now: int
    def __init__(self, dataflows: _Optional[_Iterable[_Union[DataflowUsage, _Mapping]]] = ..., now: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("namespace", "subject", "dialect", "output", "replan", "analyze", "manifests", "definition")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REPLAN_FIELD_NUMBER: _ClassVar[int]
    ANALYZE_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    subject: str
    dialect: str
    output: str
    replan: bool
    analyze: bool
    manifests: _containers.RepeatedScalarFieldContainer[str]
    definition: DefineRequest
    def __init__(self, namespace: _Optional[str] = ..., subject: _Optional[str] = ..., dialect: _Optional[str] = ..., output: _Optional[str] = ..., replan: _Optional[bool] = ..., analyze: _Optional[bool] = ..., manifests: _Optional[_Iterable[str]] = ..., definition: _Optional[_Union[DefineRequest, _Mapping]] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("text", "output", "replan", "analyzed", "manifests")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REPLAN_FIELD_NUMBER: _ClassVar[int]
    ANALYZED_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    text: str
    output: str
    replan: str
    analyzed: bool
    manifests: _containers.RepeatedCompositeFieldContainer[ExplainedManifest]
    def __init__(self, text: _Optional[str] = ..., output: _Optional[str] = ..., replan: _Optional[str] = ..., analyzed: _Optional[bool] = ..., manifests: _Optional[_Iterable[_Union[ExplainedManifest, _Mapping]]] = ...) -> None: ...

class ExplainedManifest(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("namespace", "subject", "instance", "as_of", "up_to", "without_snapshot", "progress", "replica", "dialect", "parts")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    subject: str
    instance: str
    as_of: int
    up_to: int
    without_snapshot: bool
    progress: bool
    replica: str
    dialect: str
    parts: bool
    def __init__(self, namespace: _Optional[str] = ..., subject: _Optional[str] = ..., instance: _Optional[str] = ..., as_of: _Optional[int] = ..., up_to: _Optional[int] = ..., without_snapshot: _Optional[bool] = ..., progress: _Optional[bool] = ..., replica: _Optional[str] = ..., dialect: _Optional[str] = ..., parts: _Optional[bool] = ...) -> None: ...

class SubscribeHeader(_message.Message):
    __slots__ = ("as_of", "column_names", "column_types", "reads", "relations")
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    COLUMN_NAMES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    as_of: int
    column_names: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    reads: str
    relations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, as_of: _Optional[int] = ..., column_names: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ..., reads: _Optional[str] = ..., relations: _Optional[_Iterable[str]] = ...) -> None: ...

class SubscribeBatch(_message.Message):
    __slots__ = ("lower", "lower_part", "upper", "arrow", "more")
    LOWER_FIELD_NUMBER: _ClassVar[int]
    LOWER_PART_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    lower: int
    lower_part: int
    upper: int
    arrow: bytes
    more: bool
    def __init__(self, lower: _Optional[int] = ..., lower_part: _Optional[int] = ..., upper: _Optional[int] = ..., arrow: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class SubscribeReply(_message.Message):
    __slots__ = ("header", "batch")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    header: SubscribeHeader
    batch: SubscribeBatch
    def __init__(self, header: _Optional[_Union[SubscribeHeader, _Mapping]] = ..., batch: _Optional[_Union[SubscribeBatch, _Mapping]] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("namespace", "subject", "instance", "as_of", "to", "format")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    subject: str
    instance: str
    as_of: int
    to: str
    format: str
    def __init__(self, namespace: _Optional[str] = ..., subject: _Optional[str] = ..., instance: _Optional[str] = ..., as_of: _Optional[int] = ..., to: _Optional[str] = ..., format: _Optional[str] = ...) -> None: ...

class CopyReply(_message.Message):
    __slots__ = ("as_of", "row_count", "location")
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    as_of: int
    row_count: int
    location: str
    def __init__(self, as_of: _Optional[int] = ..., row_count: _Optional[int] = ..., location: _Optional[str] = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Cause(_message.Message):
    __slots__ = ("subject", "kind", "write", "says", "holds", "because")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    SAYS_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    kind: str
    write: int
    says: str
    holds: bool
    because: _containers.RepeatedCompositeFieldContainer[Cause]
    def __init__(self, subject: _Optional[str] = ..., kind: _Optional[str] = ..., write: _Optional[int] = ..., says: _Optional[str] = ..., holds: _Optional[bool] = ..., because: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ...) -> None: ...

class WhyReply(_message.Message):
    __slots__ = ("causes", "now")
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    causes: _containers.RepeatedCompositeFieldContainer[Cause]
    now: int
    def __init__(self, causes: _Optional[_Iterable[_Union[Cause, _Mapping]]] = ..., now: _Optional[int] = ...) -> None: ...

class FilesRequest(_message.Message):
    __slots__ = ("namespace", "source")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    source: str
    def __init__(self, namespace: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class ListedFile(_message.Message):
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

class FilesReply(_message.Message):
    __slots__ = ("files", "bound", "changes")
    FILES_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[ListedFile]
    bound: int
    changes: _containers.RepeatedCompositeFieldContainer[FileChange]
    def __init__(self, files: _Optional[_Iterable[_Union[ListedFile, _Mapping]]] = ..., bound: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[FileChange, _Mapping]]] = ...) -> None: ...

class ChangeFileRequest(_message.Message):
    __slots__ = ("namespace", "source", "action", "file")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    source: str
    action: str
    file: str
    def __init__(self, namespace: _Optional[str] = ..., source: _Optional[str] = ..., action: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class ChangeFileReply(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    def __init__(self, id: _Optional[int] = ...) -> None: ...

class FileChange(_message.Message):
    __slots__ = ("id", "action", "table", "file", "outcome", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    action: str
    table: str
    file: str
    outcome: str
    message: str
    def __init__(self, id: _Optional[int] = ..., action: _Optional[str] = ..., table: _Optional[str] = ..., file: _Optional[str] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class InsertHeader(_message.Message):
    __slots__ = ("namespace", "source", "table", "operation", "format", "key", "table_id", "must_find", "sections", "tables")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    MUST_FIND_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    source: str
    table: str
    operation: str
    format: str
    key: str
    table_id: str
    must_find: int
    sections: _containers.RepeatedCompositeFieldContainer[WriteSection]
    tables: _containers.RepeatedCompositeFieldContainer[WriteTable]
    def __init__(self, namespace: _Optional[str] = ..., source: _Optional[str] = ..., table: _Optional[str] = ..., operation: _Optional[str] = ..., format: _Optional[str] = ..., key: _Optional[str] = ..., table_id: _Optional[str] = ..., must_find: _Optional[int] = ..., sections: _Optional[_Iterable[_Union[WriteSection, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[WriteTable, _Mapping]]] = ...) -> None: ...

class WriteTable(_message.Message):
    __slots__ = ("table", "table_id", "operation", "must_find", "sections", "size")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    MUST_FIND_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_id: str
    operation: str
    must_find: int
    sections: _containers.RepeatedCompositeFieldContainer[WriteSection]
    size: int
    def __init__(self, table: _Optional[str] = ..., table_id: _Optional[str] = ..., operation: _Optional[str] = ..., must_find: _Optional[int] = ..., sections: _Optional[_Iterable[_Union[WriteSection, _Mapping]]] = ..., size: _Optional[int] = ...) -> None: ...

class WriteSection(_message.Message):
    __slots__ = ("operation", "rows", "changed")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    operation: str
    rows: int
    changed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, operation: _Optional[str] = ..., rows: _Optional[int] = ..., changed: _Optional[_Iterable[str]] = ...) -> None: ...

class InsertRequest(_message.Message):
    __slots__ = ("header", "data", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: InsertHeader
    data: bytes
    end: int
    def __init__(self, header: _Optional[_Union[InsertHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[int] = ...) -> None: ...

class InsertReply(_message.Message):
    __slots__ = ("time", "rows", "repeated", "table")
    TIME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    time: int
    rows: int
    repeated: bool
    table: str
    def __init__(self, time: _Optional[int] = ..., rows: _Optional[int] = ..., repeated: _Optional[bool] = ..., table: _Optional[str] = ...) -> None: ...

class DescribeTableRequest(_message.Message):
    __slots__ = ("namespace", "source", "table", "operation")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    source: str
    table: str
    operation: str
    def __init__(self, namespace: _Optional[str] = ..., source: _Optional[str] = ..., table: _Optional[str] = ..., operation: _Optional[str] = ...) -> None: ...

class DescribeTableReply(_message.Message):
    __slots__ = ("table", "column_names", "column_types", "primary_key", "table_id")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_NAMES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_KEY_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    table: str
    column_names: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    primary_key: _containers.RepeatedScalarFieldContainer[str]
    table_id: str
    def __init__(self, table: _Optional[str] = ..., column_names: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ..., primary_key: _Optional[_Iterable[str]] = ..., table_id: _Optional[str] = ...) -> None: ...

class RetainedTablesRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class RetainedTable(_message.Message):
    __slots__ = ("name", "part", "version", "kind", "owner", "state", "location", "instance", "bytes", "upper", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    part: str
    version: int
    kind: str
    owner: str
    state: str
    location: str
    instance: str
    bytes: int
    upper: int
    error: str
    def __init__(self, name: _Optional[str] = ..., part: _Optional[str] = ..., version: _Optional[int] = ..., kind: _Optional[str] = ..., owner: _Optional[str] = ..., state: _Optional[str] = ..., location: _Optional[str] = ..., instance: _Optional[str] = ..., bytes: _Optional[int] = ..., upper: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class RetainedTablesReply(_message.Message):
    __slots__ = ("tables", "more", "unlisted")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    UNLISTED_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedCompositeFieldContainer[RetainedTable]
    more: bool
    unlisted: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tables: _Optional[_Iterable[_Union[RetainedTable, _Mapping]]] = ..., more: _Optional[bool] = ..., unlisted: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTableRequest(_message.Message):
    __slots__ = ("namespace", "table", "instance")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    table: str
    instance: str
    def __init__(self, namespace: _Optional[str] = ..., table: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class DeleteTableReply(_message.Message):
    __slots__ = ("location",)
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    location: str
    def __init__(self, location: _Optional[str] = ...) -> None: ...

class CallerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CallerReply(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("column_names", "column_types", "nullable")
    COLUMN_NAMES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    column_names: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    nullable: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, column_names: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ..., nullable: _Optional[_Iterable[bool]] = ...) -> None: ...

class RelationsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class RelationColumn(_message.Message):
    __slots__ = ("name", "type", "nullable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NULLABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    nullable: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., nullable: _Optional[bool] = ...) -> None: ...

class KeyColumns(_message.Message):
    __slots__ = ("columns",)
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, columns: _Optional[_Iterable[str]] = ...) -> None: ...

class RelationDescription(_message.Message):
    __slots__ = ("parent", "name", "kind", "columns", "keys", "index_key", "short")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    INDEX_KEY_FIELD_NUMBER: _ClassVar[int]
    SHORT_FIELD_NUMBER: _ClassVar[int]
    parent: str
    name: str
    kind: str
    columns: _containers.RepeatedCompositeFieldContainer[RelationColumn]
    keys: _containers.RepeatedCompositeFieldContainer[KeyColumns]
    index_key: _containers.RepeatedScalarFieldContainer[str]
    short: bool
    def __init__(self, parent: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[RelationColumn, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[KeyColumns, _Mapping]]] = ..., index_key: _Optional[_Iterable[str]] = ..., short: _Optional[bool] = ...) -> None: ...

class RelationsReply(_message.Message):
    __slots__ = ("relations", "more")
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    relations: _containers.RepeatedCompositeFieldContainer[RelationDescription]
    more: bool
    def __init__(self, relations: _Optional[_Iterable[_Union[RelationDescription, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class DefineRequest(_message.Message):
    __slots__ = ("namespace", "name", "action", "kind", "sql", "dialect", "key", "options", "if_absent", "if_present", "wait", "id", "columns", "table", "instance")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    IF_ABSENT_FIELD_NUMBER: _ClassVar[int]
    IF_PRESENT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    action: str
    kind: str
    sql: str
    dialect: str
    key: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.ScalarMap[str, str]
    if_absent: bool
    if_present: bool
    wait: bool
    id: str
    columns: _containers.RepeatedCompositeFieldContainer[TableColumn]
    table: str
    instance: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., action: _Optional[str] = ..., kind: _Optional[str] = ..., sql: _Optional[str] = ..., dialect: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, str]] = ..., if_absent: _Optional[bool] = ..., if_present: _Optional[bool] = ..., wait: _Optional[bool] = ..., id: _Optional[str] = ..., columns: _Optional[_Iterable[_Union[TableColumn, _Mapping]]] = ..., table: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class TableColumn(_message.Message):
    __slots__ = ("name", "type", "required")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    required: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., required: _Optional[bool] = ...) -> None: ...

class DefineReply(_message.Message):
    __slots__ = ("outcome", "warning")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    warning: str
    def __init__(self, outcome: _Optional[str] = ..., warning: _Optional[str] = ...) -> None: ...

class DropRequest(_message.Message):
    __slots__ = ("namespace", "name", "kind", "if_present", "wait", "repeated", "table")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    IF_PRESENT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    kind: str
    if_present: bool
    wait: bool
    repeated: bool
    table: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., if_present: _Optional[bool] = ..., wait: _Optional[bool] = ..., repeated: _Optional[bool] = ..., table: _Optional[str] = ...) -> None: ...

class DropReply(_message.Message):
    __slots__ = ("outcome", "warning")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    warning: str
    def __init__(self, outcome: _Optional[str] = ..., warning: _Optional[str] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("namespace", "id", "as_of", "relations")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    id: str
    as_of: int
    relations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[str] = ..., id: _Optional[str] = ..., as_of: _Optional[int] = ..., relations: _Optional[_Iterable[str]] = ...) -> None: ...

class LeaseReply(_message.Message):
    __slots__ = ("relations",)
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    relations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, relations: _Optional[_Iterable[str]] = ...) -> None: ...

class EndLeasesRequest(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EndLeasesReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
