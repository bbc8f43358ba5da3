from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class PlanRequest(_message.Message):
    __slots__ = ("request", "cpu_seconds")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    cpu_seconds: float
    def __init__(self, request: _Optional[bytes] = ..., cpu_seconds: _Optional[float] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: bytes
    def __init__(self, outcome: _Optional[bytes] = ...) -> None: ...

class PlanQueryRequest(_message.Message):
    __slots__ = ("request", "cpu_seconds")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    request: bytes
    cpu_seconds: float
    def __init__(self, request: _Optional[bytes] = ..., cpu_seconds: _Optional[float] = ...) -> None: ...

class PlanQueryResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: bytes
    def __init__(self, outcome: _Optional[bytes] = ...) -> None: ...
