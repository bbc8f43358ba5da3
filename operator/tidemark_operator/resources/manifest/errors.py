"""Errors of a manifest.

ResourceError                 root: names the field
├── MissingField              a required field is absent
├── WrongType                 a field holds another type of value
└── InvalidValue              a field's value is not allowed
"""


class ResourceError(Exception):
    """A manifest that cannot be read. `path` names the field, as in `spec.files.tables[2].glob`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class MissingField(ResourceError):
    """A required field is absent."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "is required")


class WrongType(ResourceError):
    """A field holds another type of value."""

    def __init__(self, path: str, expected: str, actual: object) -> None:
        super().__init__(path, f"must be {expected}, not {type(actual).__name__} {actual!r:.100}")


class InvalidValue(ResourceError):
    """A field's value is not allowed."""
