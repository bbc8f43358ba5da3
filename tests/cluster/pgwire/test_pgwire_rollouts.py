"""Pods of the SQL port come and go by a rollout or by their number: whoever connects meanwhile is served."""

from __future__ import annotations

from tests.cluster.pgwire.polling_pods import errors_of, polling, summary
from tests.cluster.pgwire.sql_port import DEPLOYMENT, SqlPort
from tidemark_devcluster.images.build import Image


def test_a_rollout_refuses_no_connection(served: SqlPort, images: dict[str, Image]) -> None:
    """Each pod that ends accepts connections until no node leads any to it. A session on it ends with the reason."""
    before = set(served.wait_for_pods(2))
    with polling(served, images["replica"].name) as clients:
        served.kubectl("rollout", "restart", DEPLOYMENT)
        served.kubectl("rollout", "status", DEPLOYMENT, "--timeout=280s")
        after = set(served.wait_for_pods(2))
        for client in clients:
            client.wait_for_answers()
        anew, held = [client.end() for client in clients]
    assert not before & after
    assert errors_of(anew) == [], summary(anew)
    assert {each["sqlstate"] for each in errors_of(held)} == {"57P01"}, summary(held)


def test_pods_that_are_added_and_taken_away_refuse_no_connection(served: SqlPort, images: dict[str, Image]) -> None:
    """One, three, and one again."""
    with polling(served, images["replica"].name, ["connections"]) as [client]:
        for number in (1, 3, 1):
            served.kubectl("scale", DEPLOYMENT, f"--replicas={number}")
            served.wait_for_pods(number)
            client.wait_for_answers()
        tries = client.end()
    served.kubectl("scale", DEPLOYMENT, "--replicas=2")
    served.wait_for_pods(2)
    assert errors_of(tries) == [], summary(tries)
