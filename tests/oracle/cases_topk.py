"""Cases of Threshold, top-k, min and max."""

from __future__ import annotations

from tests.oracle.check import Case
from tests.oracle.plans import GET_T, project, quotients
from tests.oracle.tables import TU, T, U
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.lir import Get, Negate, Threshold, Union

GET_U = Get(GlobalId("u"), U.schema)

THRESHOLDS = (
    Case(
        "threshold: except all",
        "SELECT a FROM t EXCEPT ALL SELECT a FROM u",
        TU,
        Threshold(Union((project(GET_T, 0), Negate(project(GET_U, 0))), consolidate_output=True)),
        duckdb="same",
    ),
    Case(
        "threshold: intersect all",
        "SELECT a FROM t INTERSECT ALL SELECT a FROM u",
        TU,
        Union(
            (
                project(GET_T, 0),
                Negate(Threshold(Union((project(GET_T, 0), Negate(project(GET_U, 0))), consolidate_output=True))),
            ),
            consolidate_output=True,
        ),
        duckdb="same",
    ),
    Case(
        "threshold: errors stay",
        "SELECT 10 div b AS q FROM t EXCEPT ALL SELECT a FROM t",
        {"t": T},
        Threshold(Union((quotients(GET_T), Negate(project(GET_T, 0))), consolidate_output=True)),
    ),
)

QUERIES = THRESHOLDS
