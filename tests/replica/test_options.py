"""A replica's command-line options."""

from __future__ import annotations

import pytest

from tidemark_replica.options import parse
from tidemark_replica.spark.settings import RESERVED_SETTINGS, SETTINGS

LEAST = ["--listen", "unix:///s/x", "--scratch", "/scratch"]


def test_spark_is_told_of_executors() -> None:
    """In the order given; a value may hold an equals sign, and spaces."""
    options = parse([*LEAST, "--spark-conf", "spark.a=1", "--spark-conf=spark.b=-Dx=y -Dz"])

    assert options.spark_conf == (("spark.a", "1"), ("spark.b", "-Dx=y -Dz"))
    assert parse(LEAST).spark_conf == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spark.a", "is not spark.NAME=VALUE"),
        ("java.a=1", "is not spark.NAME=VALUE"),
        ("spark.sql.ansi.enabled=false", "cannot be set"),
        ("spark.driver.memory=1g", "cannot be set"),
    ],
)
def test_spark_settings_that_answers_depend_on_are_refused(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that is given is ignored."""
    with pytest.raises(SystemExit):
        parse([*LEAST, "--spark-conf", text])

    assert message in capsys.readouterr().err
    assert SETTINGS.keys() < RESERVED_SETTINGS


def test_metrics_are_on_loopback_unless_told_otherwise() -> None:
    """In a pod, Prometheus comes from elsewhere."""
    assert parse(LEAST).metrics_host == "127.0.0.1"
    assert parse([*LEAST, "--metrics-host", "0.0.0.0"]).metrics_host == "0.0.0.0"


def test_scratch_has_the_end_that_is_given() -> None:
    """Or that of its disk."""
    assert parse(LEAST).scratch_bytes is None
    assert parse([*LEAST, "--scratch-size", str(1 << 30)]).scratch_bytes == 1 << 30


@pytest.mark.parametrize("size", ["0", "-1", "1000", "1Gi"])
def test_a_scratch_in_which_nothing_has_room_is_refused(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A word of Kubernetes' is for the operator to read."""
    with pytest.raises(SystemExit):
        parse([*LEAST, f"--scratch-size={size}"])
    assert "--scratch-size" in capsys.readouterr().err
