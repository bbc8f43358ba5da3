"""The Status of an export's rows: coarse, sent when it changes, and seldom."""

from __future__ import annotations

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.telemetry.row_status import REPORT_SECONDS, RowStatus
from tidemark_replica.telemetry.status_repeater import StatusRepeater


def test_rows_are_powers_of_two_and_told_once() -> None:
    """RowStatus counts and reports at most every REPORT_SECONDS; a new client gets the figure again."""
    sent, now, counted = list[Response](), [0.0], [0]
    repeater = StatusRepeater(sent.append)
    status = RowStatus(GlobalId("x"), repeater, lambda: now[0])

    def report(rows: int | None, later: float) -> list[str]:
        def count() -> int | None:
            counted[0] += 1
            return rows

        now[0] += later
        sent.clear()
        status.report(count)
        assert all(isinstance(s, Status) and (s.id, s.kind) == ("x", "rows") for s in sent)
        return [s.fields["rows"] for s in sent if isinstance(s, Status)]

    assert report(None, 0) == []  # a view that has not been appended
    assert report(0, 0) == ["0"]
    assert report(1500, REPORT_SECONDS / 2) == []
    assert counted == [2]
    assert report(1500, REPORT_SECONDS) == ["1024"]
    assert report(2000, REPORT_SECONDS) == []
    assert report(2048, REPORT_SECONDS) == ["2048"]
    sent.clear()
    repeater.report_again()
    assert sent == [Status(GlobalId("x"), "rows", {"rows": "2048"})]
