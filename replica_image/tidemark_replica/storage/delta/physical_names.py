"""Names of columns in data files, which column mapping chooses: of a column, and of the fields inside it.

    id bigint                       "col-1"
    address struct<street, zip>     ["col-2", {"street": ["col-3", null], "zip": ["col-4", null]}]

The fields of an array are those of its elements. Null: nothing inside has another name than in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PHYSICAL = "delta.columnMapping.physicalName"
Physical = Any
"""A name, or a list of a name and what is inside, as JSON has it."""
Inside = Mapping[str, list[Any]] | None


def physical_of(field: Mapping[str, Any]) -> Physical:
    """The physical names of a field of the log's schema, under column mapping of mode `name`."""
    name, inside = str(field["metadata"][PHYSICAL]), _inside(field["type"])
    return name if inside is None else [name, inside]


def name_of(physical: Physical) -> str:
    """The name of the column in data files."""
    return physical if isinstance(physical, str) else str(physical[0])


def inside_of(physical: Physical) -> Inside:
    return None if isinstance(physical, str) else physical[1]


def conformed(array: pa.Array, type: pa.DataType, inside: Inside) -> pa.Array:
    """The values as the type, with the names of SQL. A field that the file is older than is NULL."""
    if inside is None:
        return array if array.type == type else array.cast(type)
    if pa.types.is_list(type):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        values = conformed(array.flatten(), type.value_type, inside)
        return pa.ListArray.from_arrays(offsets, values, type, mask=pc.is_null(array))
    # flatten, unlike field, has the offset of the array and NULL where the struct is NULL
    present = dict(zip((f.name for f in array.type), array.flatten(), strict=True))
    fields = []
    for field in type:
        name, further = inside[field.name]
        found = present.get(name)
        fields.append(pa.nulls(len(array), field.type) if found is None else conformed(found, field.type, further))
    return pa.StructArray.from_arrays(fields, fields=list(type), mask=pc.is_null(array))


def _inside(type: Any) -> dict[str, list[Any]] | None:
    if isinstance(type, str):
        return None
    if type["type"] == "array":
        return _inside(type["elementType"])
    found = {f["name"]: [f.get("metadata", {}).get(PHYSICAL, f["name"]), _inside(f["type"])] for f in type["fields"]}
    return found if any(physical != name or inside is not None for name, (physical, inside) in found.items()) else None
