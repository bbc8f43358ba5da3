from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryRequest(_message.Message):
    __slots__ = ("namespace", "sql", "as_of", "instance")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SQL_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    sql: str
    as_of: int
    instance: str
    def __init__(self, namespace: _Optional[str] = ..., sql: _Optional[str] = ..., as_of: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...

class QueryHeader(_message.Message):
    __slots__ = ("as_of", "export", "column_names", "column_types")
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    EXPORT_FIELD_NUMBER: _ClassVar[int]
    COLUMN_NAMES_FIELD_NUMBER: _ClassVar[int]
    COLUMN_TYPES_FIELD_NUMBER: _ClassVar[int]
    as_of: int
    export: str
    column_names: _containers.RepeatedScalarFieldContainer[str]
    column_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, as_of: _Optional[int] = ..., export: _Optional[str] = ..., column_names: _Optional[_Iterable[str]] = ..., column_types: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryReply(_message.Message):
    __slots__ = ("header", "arrow")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ARROW_FIELD_NUMBER: _ClassVar[int]
    header: QueryHeader
    arrow: bytes
    def __init__(self, header: _Optional[_Union[QueryHeader, _Mapping]] = ..., arrow: _Optional[bytes] = ...) -> None: ...

class FrontiersRequest(_message.Message):
    __slots__ = ("namespace", "all_namespaces")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ALL_NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    all_namespaces: bool
    def __init__(self, namespace: _Optional[str] = ..., all_namespaces: _Optional[bool] = ...) -> None: ...

class CollectionFrontiers(_message.Message):
    __slots__ = ("namespace", "name", "kind", "id", "read", "write", "input", "output", "hydrated", "replicas")
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
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., id: _Optional[str] = ..., read: _Optional[int] = ..., write: _Optional[int] = ..., input: _Optional[int] = ..., output: _Optional[int] = ..., hydrated: _Optional[bool] = ..., replicas: _Optional[_Iterable[_Union[ReplicaFrontiers, _Mapping]]] = ...) -> None: ...

class ReplicaFrontiers(_message.Message):
    __slots__ = ("replica", "write", "input", "output")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    replica: str
    write: int
    input: int
    output: int
    def __init__(self, replica: _Optional[str] = ..., write: _Optional[int] = ..., input: _Optional[int] = ..., output: _Optional[int] = ...) -> None: ...

class FrontiersReply(_message.Message):
    __slots__ = ("collections", "now")
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    collections: _containers.RepeatedCompositeFieldContainer[CollectionFrontiers]
    now: int
    def __init__(self, collections: _Optional[_Iterable[_Union[CollectionFrontiers, _Mapping]]] = ..., now: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("namespace", "subject")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    subject: str
    def __init__(self, namespace: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class ExplainReply(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
