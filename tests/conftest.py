"""Fixtures that all tests may use, and the settings of all property tests.

Property tests draw the same examples each time, and may take as long as they like: what a run finds depends on the code
alone, not on how busy the machine is. Whoever wants others each time says so (tests/oracle/test_fuzz.py).
"""

from hypothesis import HealthCheck, settings

from tests.checked_patches import monkeypatch
from tests.devcluster_fixtures import control_plane, control_plane_binaries, namespace
from tests.disk_fixtures import small_disk
from tests.kafka.broker import kafka
from tests.kinds_fixtures import kinds_installed
from tests.leftovers_fixtures import nothing_is_left_running
from tests.published.iceberg.rest_catalogue import iceberg_catalogue
from tests.s3_fixtures import place, places, s3
from tests.spark_fixtures import spark

__all__ = [
    "control_plane",
    "control_plane_binaries",
    "iceberg_catalogue",
    "kafka",
    "kinds_installed",
    "monkeypatch",
    "namespace",
    "nothing_is_left_running",
    "place",
    "places",
    "s3",
    "small_disk",
    "spark",
]

settings.register_profile(
    "tidemark", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tidemark")
