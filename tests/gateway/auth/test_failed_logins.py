"""The bound of logins that fail and of the users that it remembers; the text of a login in the place of a token."""

from __future__ import annotations

import random

import pytest

from tests.gateway.auth.test_access import Clock
from tidemark_operator.gateway.auth.failed_logins import MAX_USERS, OF_ALL, OF_USER, FailedLogins
from tidemark_protocol.wire.password_login import PasswordLogin, decode, encode


def test_a_user_fails_so_often_and_then_a_few_times_a_minute() -> None:
    clock = Clock()
    failed = FailedLogins(clock)
    assert [failed.take("anne") for _ in range(12)] == [True] * 10 + [False] * 2
    assert failed.take("ben")
    clock.now += OF_USER.seconds
    assert [failed.take("anne"), failed.take("anne")] == [True, False]
    clock.now += 60.0
    assert sum(failed.take("anne") for _ in range(20)) == OF_USER.maximum


def test_a_login_that_does_not_fail_is_taken_back() -> None:
    failed = FailedLogins(Clock())
    for _ in range(100):
        assert failed.take("anne")
        failed.give_back("anne")


def test_all_users_fail_so_often_however_many_names_they_have() -> None:
    """No user is forgotten before its failures are."""
    clock, chosen, taken = Clock(), random.Random(7), dict[str, list[float]]()
    failed = FailedLogins(clock)
    for number in range(30_000):
        name = f"user-{number}" if chosen.random() < 0.9 else "anne"
        if failed.take(name):
            taken.setdefault(name, []).append(clock.now)
        clock.now += 0.01
    assert len(failed._users) <= MAX_USERS
    assert sum(map(len, taken.values())) <= OF_ALL.maximum + 300 / OF_ALL.seconds + 1
    assert len(taken["anne"]) <= OF_USER.maximum + 300 / OF_USER.seconds + 1


@pytest.mark.parametrize("parts", [("ns", "anne", "p\xe4ss: /word"), ("", "", ""), ("a", "b:c/d", "e~f\n")])
def test_a_login_is_text_in_the_place_of_a_token(parts: tuple[str, str, str]) -> None:
    made = encode(PasswordLogin(*parts))
    assert made.isascii()
    assert decode(made) == PasswordLogin(*parts)


@pytest.mark.parametrize("token", ["", "login", "login~", "login~YQ", "login~!!!!", "login~/w==", "eyJh.e30.c"])
def test_other_tokens_are_none_of_a_login(token: str) -> None:
    assert decode(token) is None
