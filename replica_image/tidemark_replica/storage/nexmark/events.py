"""The events of Nexmark: of each 50, the first makes a person, the next three make auctions, the others are bids.

    event   0      1 2 3     4 ... 49    50     51 52 53    54 ...
            person auctions  bids        person auctions    bids

Event n is a function of the seed, the rate and n, and its `date_time` is n / rate seconds after the beginning. The
proportions, the ids, the hot auctions, bidders and sellers, prices, lengths of auctions and of texts are those of the
published generator (Tucker et al., NEXMark, 2010, as in Apache Beam). Its random numbers are not: these are hashes, so
that any range of events can be made alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.storage.nexmark.tables import TABLES
from tidemark_replica.storage.nexmark.texts import letters, random_texts
from tidemark_replica.storage.tpch.random import Draws, Ints
from tidemark_replica.values.arrow_types import arrow_schema

GENERATOR = "nexmark 1"
"""Another version makes other rows."""
EPOCH, PEOPLE, AUCTIONS = 50, 1, 3
"""The events of an epoch, and how many of them make people and auctions."""
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_GROUP = 100
"""One of so many auctions, and of so many people, is hot at a time."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1000, 10
"""Bids are for one of the last auctions, and by one of the last people, or one of the next that come."""
CHANNELS = 10_000
BYTES = {"person": 200, "auction": 500, "bid": 100}
"""The mean size of a row, which `extra` fills up."""
_STEPS = 1024
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = tuple("Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne".split(","))
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


@dataclass(frozen=True)
class Auctioneer:
    """The arguments of the events, beside their numbers. `began`: milliseconds since 1970."""

    seed: int
    events_per_second: int
    began: int

    def events_before(self, time: int) -> int:
        """The number of events with a `date_time` before `time`."""
        return -((self.began - time) * self.events_per_second // 1000) if time > self.began else 0

    def rows(self, table: str, first: int, last: int) -> pa.RecordBatch:
        """The rows of a table that the events first..last-1 make, in their order."""
        make, start, stop = {
            "person": (self._people, 0, PEOPLE),
            "auction": (self._auctions, PEOPLE, PEOPLE + AUCTIONS),
            "bid": (self._bids, PEOPLE + AUCTIONS, EPOCH),
        }[table]
        numbers = np.arange(first, last)
        place = numbers % EPOCH
        numbers = numbers[(start <= place) & (place < stop)]
        columns = make(numbers, Draws(self.seed, numbers))
        return pa.record_batch(columns, schema=arrow_schema(TABLES[table].columns))

    def _people(self, number: Ints, draw: Draws) -> list[pa.Array]:
        mail = pc.binary_join_element_wise(random_texts(draw, "mail", 3, 6), random_texts(draw, "host", 3, 4), "@")
        texts = [
            pc.binary_join_element_wise(_pick(_FIRST_NAMES, draw, "first"), _pick(_LAST_NAMES, draw, "last"), " "),
            pc.binary_join_element_wise(mail, "com", "."),
            pc.binary_join_element_wise(*(_four_digits(draw, f"card {i}") for i in range(4)), " "),
            _pick(_CITIES, draw, "city"),
            _pick(_STATES, draw, "state"),
        ]
        extra = _extra(draw, "person", 8, texts)
        return [pa.array(FIRST_ID + _last_person(number)), *texts, self._date_time(number), extra]

    def _auctions(self, number: Ints, draw: Draws) -> list[pa.Array]:
        item, description = random_texts(draw, "item", 3, 19), random_texts(draw, "description", 3, 99)
        first = _price(draw, "initial bid")
        begins = self._millis(number)
        horizon = self._millis(number + IN_FLIGHT * EPOCH // AUCTIONS) - begins
        expires = begins + 1 + draw.below("length", np.maximum(2 * horizon, 1))
        return [
            pa.array(FIRST_ID + _last_auction(number)),
            item,
            description,
            pa.array(first),
            pa.array(first + _price(draw, "reserve")),
            _timestamps(begins),
            _timestamps(expires),
            pa.array(_person(number, draw, hot=0)),
            pa.array(FIRST_CATEGORY + draw.below("category", CATEGORIES)),
            _extra(draw, "auction", 48, [item, description]),
        ]

    def _bids(self, number: Ints, draw: Draws) -> list[pa.Array]:
        last = _last_auction(number)
        first = np.maximum(last - IN_FLIGHT, 0)
        cold = first + draw.below("auction", last - first + 1 + LEAD)
        auction = np.where(draw.below("hot auction", 2) > 0, last // HOT_GROUP * HOT_GROUP, cold)
        channel, url = self._channels(draw)
        return [
            pa.array(FIRST_ID + auction),
            pa.array(_person(number, draw, hot=1)),
            pa.array(_price(draw, "price")),
            channel,
            url,
            self._date_time(number),
            _extra(draw, "bid", 32, []),
        ]

    def _channels(self, draw: Draws) -> tuple[pa.Array, pa.Array]:
        """Channels and their urls. A url is a function of the channel; one in ten, and those of hot channels, have no
        `channel_id`."""
        is_hot = draw.below("hot channel", 2) > 0
        channel = np.where(is_hot, CHANNELS + draw.below("which", len(_HOT_CHANNELS)), draw.below("channel", CHANNELS))
        of = Draws(self.seed, channel)
        cold = pc.binary_join_element_wise("channel", pa.array(channel).cast(pa.string()), "-")
        hot = pa.array(_HOT_CHANNELS, pa.string()).take(pa.array(np.where(is_hot, channel - CHANNELS, 0)))
        five = np.full(len(channel), 5)
        folders = [letters(of, f"folder {i}", five) for i in range(3)]
        url = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")
        number = pa.array(of.below("id", 1 << 31)).cast(pa.string())
        numbered = pc.binary_join_element_wise(url, number, "&channel_id=")
        has_id = pa.array(~is_hot & (of.below("has id", 10) > 0))
        return pc.if_else(pa.array(is_hot), hot, cold), pc.if_else(has_id, numbered, url)

    def _millis(self, number: Ints) -> Ints:
        return self.began + number * 1000 // self.events_per_second

    def _date_time(self, number: Ints) -> pa.Array:
        return _timestamps(self._millis(number))


def _last_person(number: Ints) -> Ints:
    """The last person that was made up to the event, from 0 on."""
    return number // EPOCH * PEOPLE


def _last_auction(number: Ints) -> Ints:
    """Likewise; -1 before the first one."""
    return number // EPOCH * AUCTIONS + np.minimum(number % EPOCH - PEOPLE, AUCTIONS - 1)


def _person(number: Ints, draw: Draws, hot: int) -> Ints:
    """The id of a bidder or seller: three of four times the hot one, `hot` being its place in the group."""
    last = _last_person(number)
    active = np.minimum(last + 1, ACTIVE)
    cold = last + 1 - active + draw.below("person", active + LEAD)
    return FIRST_ID + np.where(draw.below("hot person", 4) > 0, last // HOT_GROUP * HOT_GROUP + hot, cold)


def _price(draw: Draws, field: str) -> Ints:
    """10^0 to 10^6 dollars in cents, by a uniform logarithm. In whole numbers: powers of floats differ by machine."""
    uniform, table = draw.below(field, _STEPS << 20), _powers()
    at, part = uniform >> 20, uniform & (1 << 20) - 1
    price: Ints = (table[at] * ((1 << 20) - part) + table[at + 1] * part + (1 << 35)) >> 36
    return price


@cache
def _powers() -> Ints:
    """10^(6 i / _STEPS) dollars in 2^-16 cents, by i; between them a price is interpolated."""
    exponents = (Decimal(6 * i) / _STEPS for i in range(_STEPS + 1))
    return np.array([int((100 << 16) * Decimal(10) ** exponent) for exponent in exponents], np.int64)


def _extra(draw: Draws, table: str, fixed: int, texts: Sequence[pa.Array]) -> pa.Array:
    """Letters that fill the row up to its mean size, give or take a fifth."""
    lengths = [pc.binary_length(text).to_numpy(zero_copy_only=False).astype(np.int64) for text in texts]
    wanted = np.maximum(BYTES[table] - fixed - sum(lengths, np.zeros(draw.rows, np.int64)), 0)
    spread = wanted // 5
    return letters(draw, "extra", wanted - spread + draw.below("size", 2 * spread + 1))


def _four_digits(draw: Draws, field: str) -> pa.Array:
    return pc.utf8_lpad(pa.array(draw.below(field, 10_000)).cast(pa.string()), width=4, padding="0")


def _pick(words: Sequence[str], draw: Draws, field: str) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(draw.below(field, len(words))))


def _timestamps(millis: Ints) -> pa.Array:
    return pa.array(millis * 1000).cast(pa.timestamp("us", "UTC"))
