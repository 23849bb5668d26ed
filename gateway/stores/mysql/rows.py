"""How keys and states are stored, and the SQL that reads and writes them; no connection.

Every key has a row in `throttlex_usage`, which is its lock. What else is kept depends on the
algorithm:

- the sliding window log has one row per request in `throttlex_sw_log`: ThrottleX's column for the
  millisecond, and an additional one (`sluice_us`) for the microseconds;
- every other state is JSON in `sluice_state`, with the `tokens` and `last_refill` that were written
  with it. If these have changed, ThrottleX has written the row: for a token bucket, its values
  apply; all other algorithms start from nothing.

Policies in ThrottleX's notation use ThrottleX's keys: rows have the same names, and `tokens` stays
valid if the numbers of the policy change, as in ThrottleX.

All values in the SQL are whole numbers, lists of them, or keys made by `KeyNames` from characters
that need no escaping.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from gateway.limits import ALGORITHMS
from gateway.limits.rate import NS_PER_US, Limit
from gateway.limits.throttlex import is_scope

NS_PER_MS: Final = 1_000_000
US_PER_MS: Final = 1_000
REANCHOR_NS: Final = 1_000_000_000
EXPIRY_GRAIN_S: Final = 60
"""Expiry times are rounded up to this, so that a busy key rarely moves in the index."""
MAX_EXPIRED: Final = 1_000
"""The most old rows of one log that one transaction deletes; the next one continues."""
UNKNOWN_US: Final = 999
"""The assumed microsecond of a request of ThrottleX in its millisecond: the latest possible."""
LATEST_MS: Final = 9 * 10**15
"""Later times count as this: the column can hold times whose microseconds would overflow."""
MAX_CACHED: Final = 8_192
"""How many names of keys are cached."""
LOG: Final = "sliding_window_log"
BUCKET: Final = "token_bucket"

NOW: Final = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
"""The server's time in UTC. A separate statement, run when all locks are held, so the times of
decisions on a key are in the order of the decisions."""

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_PLAIN: Final = re.compile(r"[0-9a-z.:_-]{1,200}")
_KEY: Final = re.compile(r"(?! )[ !#-&(-\[\]-~]{1,200}(?<! )")
"""Keys of ThrottleX that need no escaping in quotes, and that every collation distinguishes, except
by case."""
_ODD: Final = re.compile(r"[^0-9A-Za-z._:/+@-]")

Row = tuple[Any, ...]


class KeyNames:
    """Names of rows, `key_id`.

    A name ends with a digest of domain, scope, algorithm and identity, so it is distinct under
    every collation and of bounded length; the part before `#` is for people. Keys that ThrottleX
    also counts are the bare identity, as ThrottleX writes it, if that needs no escaping: those of
    policies in its notation, and those of one further scope.

    Args:
        domain: the namespace of this deployment.
        throttlex: that scope; empty for none.

    Attributes:
        folds: whether the tables ignore case, as ThrottleX's often do.
    """

    __slots__ = ("_domain", "_folds", "_name", "_prefixes", "_throttlex")

    def __init__(self, domain: str, throttlex: str) -> None:
        self._domain = domain
        self._throttlex = throttlex
        self._prefixes: dict[tuple[str, str], Any] = {}
        self._folds = False
        # A few keys are used often, and a digest takes as long as the decision itself.
        self._name = lru_cache(MAX_CACHED)(self._make)

    @property
    def folds(self) -> bool:
        """See above."""
        return self._folds

    @folds.setter
    def folds(self, folds: bool) -> None:
        if folds != self._folds:
            self._folds = folds
            self._name.cache_clear()

    def name(self, limit: Limit, key: str) -> str:
        """Return the row of one identity under one limit."""
        return self._name(limit.scope, limit.algorithm, key)

    def _make(self, scope: str, algorithm: str, key: str) -> str:
        if is_scope(scope):
            if _KEY.fullmatch(key):
                return key.lower() if self._folds else key
            # ThrottleX has only the key, no policy and no algorithm.
            scope, algorithm = "throttlex", BUCKET
        elif scope == self._throttlex != "" and _PLAIN.fullmatch(key):
            return key
        prefix = self._prefixes.get((scope, algorithm))
        if prefix is None:
            # JSON marks its end, so different lists and keys never give the same text.
            parts = _encode([self._domain, scope, ALGORITHMS[algorithm].tag])
            prefix = blake2b(parts.encode(), digest_size=16)
            self._prefixes[scope, algorithm] = prefix
        digest = prefix.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        return f"{_ODD.sub('_', f'{scope}:{key}'[:160])}#{digest.hexdigest()}"


class RowSlot:
    """The state of one key while a transaction has it locked.

    Attributes:
        limit: the limit that counts it.
        state: of the algorithm; None for a new key.
    """

    __slots__ = ("_before", "_ids", "_row", "_times", "limit", "name", "state")

    def __init__(self, name: str, limit: Limit) -> None:
        self.name = name
        self.limit = limit
        self.state: Any = None
        self._before: Any = None
        self._row: Row | None = None
        self._times: list[int] = []
        self._ids: list[int] = []

    def load_row(self, row: Row, now_us: int) -> None:
        """Load a row of `throttlex_usage`: id, key_id, tokens, last_refill, state, expiry."""
        self._row = row
        if self.limit.algorithm == LOG:
            return
        if is_scope(self.limit.scope):
            self.state = self._before = throttlex_state(row, now_us, self.limit)
        else:
            self.state = self._before = self._state_of(row)

    def load_log(self, rows: list[tuple[int, int]]) -> None:
        """Load the rows of the log: times in microseconds, and ids."""
        rows.sort()
        self._times = [time_us for time_us, _ in rows]
        self._ids = [row_id for _, row_id in rows]
        self.state = self._before = tuple(self._times) if rows else None

    def _state_of(self, row: Row) -> Any:
        _, _, tokens, last_refill, text, _ = row
        if text is not None and text.startswith(start := f"[{tokens},{last_refill},"):
            rest = text[len(start) : -1]
            return int(rest) if rest.isdecimal() else _frozen(json.loads(rest))
        if self.limit.algorithm == BUCKET:
            return bucket_of(tokens, last_refill, self.limit)
        return None

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.state != self._before)

    @property
    def is_new(self) -> bool:
        """Whether the key has no row yet."""
        return self._row is None

    def values(self, now_us: int) -> str:
        """Return the values of its row, for `INSERT`."""
        limit, state = self.limit, self.state
        expires_s = expiry_s(state, limit)
        row_id, written = "NULL", None
        if self._row is not None:
            row_id, written = str(self._row[0]), self._row
        if limit.algorithm == LOG:
            # Only a lock, as in ThrottleX, which keeps the initial values of both.
            tokens, refill, text = limit.count, now_us // US_PER_MS, "NULL"
            if written is not None:
                tokens, refill = written[2], written[3]
        else:
            if limit.algorithm == BUCKET:
                anchor_ms = written[3] if written is not None else 0
                tokens, refill = bucket_row(state, now_us, limit, anchor_ms)
            else:
                look = ALGORITHMS[limit.algorithm].decide(state, now_us, 0, limit, 0)[1]
                tokens, refill = look.remaining, now_us // US_PER_MS
            text = f"'[{tokens},{refill},{state if type(state) is int else _encode(state)}]'"
        return f"({row_id},'{self.name}',{tokens},{refill},{text},{expires_s})"

    def needs_row(self) -> bool:
        """Whether its row in `throttlex_usage` must be written, in addition to its log."""
        if self.limit.algorithm != LOG or self._row is None:
            return True
        return bool((self._row[5] or 0) < expiry_s(self.state, self.limit))

    def log_changes(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return ids of rows to delete from the log, and times to add to it."""
        if self.limit.algorithm != LOG:
            return (), ()
        new: Sequence[int] = self.state or ()
        old, ids = self._times, self._ids
        gone = len(old)
        if new:
            # The usual case: the oldest have left the window, and new ones are at the end.
            gone = next((at for at, time_us in enumerate(old) if time_us >= new[0]), gone)
        kept = len(old) - gone
        if list(new[:kept]) == old[gone:]:
            return ids[: min(gone, MAX_EXPIRED)], new[kept:]
        surplus = Counter(old)
        surplus.subtract(new)
        removed = []
        for time_us, row_id in zip(old, ids, strict=True):
            if surplus[time_us] > 0:
                surplus[time_us] -= 1
                removed.append(row_id)
        missing = Counter(new)
        missing.subtract(old)
        return removed, list((+missing).elements())


def throttlex_state(row: Row, now_us: int, limit: Limit) -> Any:
    """Return the state of a key of ThrottleX: as many tokens as the row has.

    The exact state in the row depends on the numbers of the policy when it was written. If it does
    not match the tokens under the present numbers, these have changed, and the tokens apply, as in
    ThrottleX.
    """
    _, _, tokens, last_refill, text, _ = row
    if limit.algorithm != BUCKET:
        # Never refilled: a window without an end.
        used = limit.count - min(max(tokens, 0), limit.count)
        return (now_us, used) if used else None
    start = f"[{tokens},{last_refill},"
    if text is not None and text.startswith(start) and (rest := text[len(start) : -1]).isdecimal():
        state = int(rest)
        held = (last_refill * NS_PER_MS - state + limit.tolerance_ns) // limit.interval_ns
        # The moment was rounded up by less than a millisecond.
        if tokens <= held <= tokens + NS_PER_MS // limit.interval_ns:
            return state
    return bucket_of(tokens, last_refill, limit)


def _frozen(value: Any) -> Any:
    """Return a state as the algorithms use it, with tuples instead of JSON's lists."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def bucket_row(state: int | None, now_us: int, limit: Limit, anchor_ms: int = 0) -> tuple[int, int]:
    """Return a token bucket as ThrottleX stores it: whole tokens, and when there were that many.

    The moment (in milliseconds) is rounded up, so a reader never sees too many tokens; it is in the
    future if requests wait for their turns. The same bucket can be expressed for any moment, with
    fewer tokens for an earlier one. So `anchor_ms`, the moment in the row, is kept for a second, as
    in ThrottleX: a change would also change an index.
    """
    now = now_us * NS_PER_US
    tat = now if state is None or state < now else state
    empty = tat - limit.tolerance_ns
    if now - REANCHOR_NS <= anchor_ms * NS_PER_MS <= now:
        tokens = (anchor_ms * NS_PER_MS - empty) // limit.interval_ns
        if tokens >= 0:
            return tokens, anchor_ms
    tokens = max((now - empty) // limit.interval_ns, 0)
    return tokens, -(-(empty + tokens * limit.interval_ns) // NS_PER_MS)


def bucket_of(tokens: int, last_refill_ms: int, limit: Limit) -> int:
    """Return the state of a bucket that ThrottleX has written."""
    spent = limit.tolerance_ns - max(tokens, 0) * limit.interval_ns
    return last_refill_ms * NS_PER_MS + max(spent, 0)


def expiry_s(state: Any, limit: Limit) -> int:
    """Return when a row may be removed, in seconds since 1970, rounded up."""
    if state is None:
        return 0
    expires_us = ALGORITHMS[limit.algorithm].expires_us(state, limit)
    return -(-expires_us // (EXPIRY_GRAIN_S * 1_000_000)) * EXPIRY_GRAIN_S


def read_sql(slots: Iterable[RowSlot]) -> str:
    """Return the SQL that locks the rows of keys, in index order, and reads all their data.

    Results: rows of `throttlex_usage`, rows of the logs, the server's time.
    """
    slots = list(slots)
    names = _names(slots)
    logs = _names([slot for slot in slots if slot.limit.algorithm == LOG])
    # Without a named index, a small table would be read and locked from its beginning.
    usage = (
        "SELECT id, key_id, COALESCE(tokens, 0), COALESCE(last_refill, 0), sluice_state,"
        " sluice_expires"
        f" FROM throttlex_usage FORCE INDEX (idx_usage_key_id) WHERE key_id IN ({names})"
        " ORDER BY key_id FOR UPDATE"
    )
    # Tables made by hand may have values that ThrottleX never writes.
    time_ms = f"COALESCE(LEAST(GREATEST(request_time, 0), {LATEST_MS}), 0)"
    log = (
        f"SELECT key_id, {time_ms} * 1000 + COALESCE(sluice_us, {UNKNOWN_US}), id"
        f" FROM throttlex_sw_log FORCE INDEX (idx_sw_key_time) WHERE key_id IN ({logs})"
    )
    return ";".join((usage, log, NOW) if logs else (usage, NOW))


def owners_sql(slots: dict[str, RowSlot], usage: Sequence[Row], logs: Sequence[Row]) -> str:
    """Return the SQL that assigns rows with unexpected names to slots; empty if there are none.

    ThrottleX's tables may ignore case, equate `ß` with `ss`, or ignore soft hyphens. Only the
    server knows which names its collation treats as equal.

    Results: names, and the positions of the equal slots, counted from 1.
    """
    questions = []
    for table, rows in (
        ("throttlex_usage", {row[1]: row[0] for row in usage}),
        ("throttlex_sw_log", {row[0]: row[2] for row in logs}),
    ):
        ids = [str(row_id) for name, row_id in rows.items() if _known(slots, name) is None]
        if ids:
            names = ",".join(f"'{name}'" for name in slots)
            where = f"FROM {table} WHERE id IN ({','.join(ids)})"
            questions.append(f"SELECT key_id, FIELD(key_id, {names}) {where}")
    return ";".join(questions)


def load(
    slots: dict[str, RowSlot],
    usage: Sequence[Row],
    logs: Sequence[Row],
    now_us: int,
    whose: Iterable[Row] = (),
) -> None:
    """Load the rows into their slots; `whose` has the answers to `owners_sql`."""
    places = (None, *slots.values())
    others = {name: places[int(place)] for name, place in whose}
    for row in usage:
        slot = _known(slots, row[1]) or others.get(row[1])
        if slot is not None:
            slot.load_row(row, now_us)
    by_slot: dict[str, list[tuple[int, int]]] = {}
    for name, time_us, row_id in logs:
        slot = _known(slots, name) or others.get(name)
        if slot is not None:
            by_slot.setdefault(slot.name, []).append((int(time_us), row_id))
    for name, times in by_slot.items():
        slots[name].load_log(times)


def _known(slots: dict[str, RowSlot], name: str) -> RowSlot | None:
    """Return the slot of a row, if that is certain without asking the server."""
    return slots.get(name) or slots.get(name.lower())


def write_sql(slots: Iterable[RowSlot], now_us: int) -> str:
    """Return the SQL that writes what has changed and commits; empty if nothing has.

    A new row is inserted without a check: if another gateway was faster, the insert fails as a
    duplicate, and the transaction is repeated.
    """
    changed = [slot for slot in slots if slot.is_changed]
    if not changed:
        return ""
    columns = "(id, key_id, tokens, last_refill, sluice_state, sluice_expires)"
    insert = f"INSERT INTO throttlex_usage {columns} VALUES "
    statements: list[str] = []
    new = [slot.values(now_us) for slot in changed if slot.is_new]
    if new:
        statements.append(insert + ",".join(new))
    known = [slot.values(now_us) for slot in changed if not slot.is_new and slot.needs_row()]
    if known:
        # By its id, which is locked; other conditions would lock gaps as well.
        statements.append(
            f"{insert}{','.join(known)} ON DUPLICATE KEY UPDATE tokens=VALUES(tokens),"
            " last_refill=VALUES(last_refill), sluice_state=VALUES(sluice_state),"
            " sluice_expires=VALUES(sluice_expires)"
        )
    removed: list[int] = []
    added: list[str] = []
    for slot in changed:
        ids, times = slot.log_changes()
        removed += ids
        added += [
            f"('{slot.name}',{time_us // US_PER_MS},{time_us % US_PER_MS})" for time_us in times
        ]
    if removed:
        ids_text = ",".join(map(str, removed))
        statements.append(f"DELETE FROM throttlex_sw_log WHERE id IN ({ids_text})")
    if added:
        statements.append(
            "INSERT INTO throttlex_sw_log (key_id, request_time, sluice_us) VALUES "
            + ",".join(added)
        )
    return ";".join((*statements, "COMMIT"))


def _names(slots: Sequence[RowSlot]) -> str:
    return ",".join(sorted(f"'{slot.name}'" for slot in slots))
