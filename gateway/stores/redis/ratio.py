"""Counts of one policy as a ratio server keeps them in Redis, so that both may count together.

`redis://host/0?ratio=POLICY` keeps the hits of that policy in sorted sets named `owner-resource`,
outside of every domain; the script is `lua/algorithms/ratio_log.lua`. It is for the time of a move:
these names are not unique, and ratio's own servers count two hits in a millisecond as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl

from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from gateway.stores.redis.script import Codec
from gateway.stores.redis.script_codec import decide_words, give_back_words
from gateway.stores.urls import split_url

OPTION: Final = "ratio"
TAG: Final = b"ratio"
"""The tag of the algorithm in the scripts."""


def shared_policy(url: str) -> str:
    """Return the policy whose counts a URL shares with ratio; empty for none."""
    return dict(parse_qsl(split_url(url).query)).get(OPTION, "")


class RatioCodec(Codec):
    """As `Codec`, but for the limits of one policy.

    Args:
        domain: the namespace of all other keys.
        policy: the policy whose keys are ratio's names; asks have these names as keys.
    """

    __slots__ = ("_policy",)

    def __init__(self, domain: str, policy: str) -> None:
        super().__init__(domain)
        self._policy = policy

    def encode_asks(
        self, asks: Sequence[Ask], not_after_us: int, now_us: int = 0, server_us: int = 0
    ) -> list[bytes]:
        """Return number of keys, keys and arguments for `DECIDE`."""
        encoded = super().encode_asks(asks, not_after_us, now_us, server_us)
        at = 1
        for ask in asks:
            self._rename(encoded, at, ask)
            at += len(ask.keys)
        return encoded

    def encode_give_back(self, ask: Ask, verdict: Verdict, now_us: int = 0) -> list[bytes]:
        """Return number of keys, keys and arguments for `GIVE_BACK`."""
        encoded = self._encode_undo(ask, verdict, now_us, self._undo_words)
        self._rename(encoded, 1, ask)
        return encoded

    def _rename(self, encoded: list[bytes], at: int, ask: Ask) -> None:
        """Replace the keys of an ask by ratio's names."""
        for place, (limit, key) in enumerate(zip(ask.limits, ask.keys, strict=True), start=at):
            if self._is_shared(limit):
                encoded[place] = key.encode("utf-8", "surrogatepass")

    def _words(self, limit: Limit, cost: int, max_wait_us: int) -> tuple[bytes, ...]:
        words = decide_words(limit, cost, max_wait_us)
        return (TAG, *words[1:]) if self._is_shared(limit) else words

    def _undo_words(self, limit: Limit, cost: int, receipt: int) -> tuple[bytes, ...]:
        words = give_back_words(limit, cost, receipt)
        return (TAG, *words[1:]) if self._is_shared(limit) else words

    def _is_shared(self, limit: Limit) -> bool:
        return limit.scope.rpartition("/")[0] == self._policy
