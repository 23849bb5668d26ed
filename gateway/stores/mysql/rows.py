"""How keys and states are stored, and the SQL that reads and writes them; no connection.

Every key has a row in `throttlex_usage`, which is its lock. What else is kept depends on the
algorithm:

- the sliding window log has one row per request in `throttlex_sw_log`, ThrottleX's column for
  the millisecond and one of ours (`sluice_us`) for the microseconds on top;
- every other state is JSON in `sluice_state`, together with the `tokens` and `last_refill` that
  were written with it. If those have changed, ThrottleX has written:
  for a token bucket its values apply (it is a bucket in ThrottleX's terms), all others begin anew.

Where a policy is in ThrottleX's words, its keys are ThrottleX's: rows have the same names, and
what `tokens` says holds also when the numbers of the policy have changed, as it does there.

All values in the SQL are whole numbers, lists of such, or keys made by `KeyNames` of letters that
need no escaping.
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
"""Expiries are rounded up to this, so that a busy key does not move in the index each time."""
MAX_EXPIRED: Final = 1_000
"""The most old rows of one log that one transaction deletes; the next one continues."""
UNKNOWN_US: Final = 999
"""Where in its millisecond a request of ThrottleX is taken to be: as late as it can have been."""
LATEST_MS: Final = 9 * 10**15
"""Times after this count as this: a column has room for some whose microseconds have none."""
MAX_CACHED: Final = 8_192
"""How many names of keys are cached."""
LOG: Final = "sliding_window_log"
BUCKET: Final = "token_bucket"

NOW: Final = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
"""The server's time, in no time zone. A statement of its own, begun when all locks are held: so
the times of decisions on a key are in the order of the decisions."""

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_PLAIN: Final = re.compile(r"[0-9a-z.:_-]{1,200}")
_KEY: Final = re.compile(r"(?! )[ !#-&(-\[\]-~]{1,200}(?<! )")
"""Keys of ThrottleX that stand between quotes as they are, and that no collation takes for others
but for their case."""
_ODD: Final = re.compile(r"[^0-9A-Za-z._:/+@-]")

Row = tuple[Any, ...]


class KeyNames:
    """Names of rows, `key_id`.

    A name ends with a digest of domain, scope, algorithm and identity, so it is distinct under
    every collation and of bounded length; what comes before `#` is for people. Keys that ThrottleX
    counts too are the bare identity, as it writes them, where it is plain enough: those of policies
    in its words, and those of one further scope.

    Args:
        domain: the namespace of this deployment.
        throttlex: that scope; empty for none.

    Attributes:
        folds: whether the tables take capitals for small letters, as ThrottleX's often do.
    """

    __slots__ = ("_domain", "_folds", "_name", "_prefixes", "_throttlex")

    def __init__(self, domain: str, throttlex: str) -> None:
        self._domain = domain
        self._throttlex = throttlex
        self._prefixes: dict[tuple[str, str], Any] = {}
        self._folds = False
        # Keys that are asked for often are, and a digest takes as long as the decision itself.
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
            # To ThrottleX a key is all there is: no policy, no algorithm.
            scope, algorithm = "throttlex", BUCKET
        elif scope == self._throttlex != "" and _PLAIN.fullmatch(key):
            return key
        prefix = self._prefixes.get((scope, algorithm))
        if prefix is None:
            # JSON has an end, so no two lists and keys make the same text.
            parts = _encode([self._domain, scope, ALGORITHMS[algorithm].tag])
            prefix = blake2b(parts.encode(), digest_size=16)
            self._prefixes[scope, algorithm] = prefix
        digest = prefix.copy()
        digest.update(key.encode("utf-8", "surrogatepass"))
        return f"{_ODD.sub('_', f'{scope}:{key}'[:160])}#{digest.hexdigest()}"


class RowSlot:
    """The state of one key while a transaction has it locked.

    Attributes:
        limit: by which it is counted.
        state: what the algorithm keeps; None for nothing.
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
        """Whether anything is to be written."""
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
            # Only the lock, as in ThrottleX, which leaves both at what they were made with.
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
        """Whether its row in `throttlex_usage` is to be written, apart from its log's."""
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
            # The usual case: the oldest have left the window, the newest came at the end.
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
    """The state of a key of ThrottleX's: as many tokens as the row says.

    Our own exact state is about the numbers that it was written by. Is it not what the row says
    under those of now, they have changed, and the tokens are what counts, as in ThrottleX.
    """
    _, _, tokens, last_refill, text, _ = row
    if limit.algorithm != BUCKET:
        # Never refilled: a window that has no end.
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
    """A token bucket in ThrottleX's terms: whole tokens, and when there were just so many.

    The moment (in milliseconds) is rounded up, so nobody who reads it has too many tokens; it
    lies in the future if requests wait for their turns. The same bucket can be told from any
    moment, with as many fewer tokens as come back since: `anchor_ms`, the moment of the row as
    it is, is kept for a second, as ThrottleX keeps it. A moved one is moved in an index, too.
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
    """Lock the rows of keys, in the order of the index, and read all there is of them.

    Results: rows of `throttlex_usage`, rows of the logs, the server's time.
    """
    slots = list(slots)
    names = _names(slots)
    logs = _names([slot for slot in slots if slot.limit.algorithm == LOG])
    # Without the index named, a small table would be read, and locked, from its beginning.
    usage = (
        "SELECT id, key_id, COALESCE(tokens, 0), COALESCE(last_refill, 0), sluice_state,"
        " sluice_expires"
        f" FROM throttlex_usage FORCE INDEX (idx_usage_key_id) WHERE key_id IN ({names})"
        " ORDER BY key_id FOR UPDATE"
    )
    # Tables that were made by hand may hold what ThrottleX never writes.
    time_ms = f"COALESCE(LEAST(GREATEST(request_time, 0), {LATEST_MS}), 0)"
    log = (
        f"SELECT key_id, {time_ms} * 1000 + COALESCE(sluice_us, {UNKNOWN_US}), id"
        f" FROM throttlex_sw_log FORCE INDEX (idx_sw_key_time) WHERE key_id IN ({logs})"
    )
    return ";".join((usage, log, NOW) if logs else (usage, NOW))


def owners_sql(slots: dict[str, RowSlot], usage: Sequence[Row], logs: Sequence[Row]) -> str:
    """Ask whose the rows are that have other names than were asked for; empty if there are none.

    ThrottleX's tables may take capitals for small letters, `ß` for `ss` or a soft hyphen for
    nothing: what is equal only the server knows, by the collation that it has found them by.

    Results: names, and the places among the slots of those they are equal to, counted from 1.
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
    """Load what was read into each slot; `whose` are the answers to `owners_sql`."""
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
    """Return the slot of a row as far as it is known without asking the server."""
    return slots.get(name) or slots.get(name.lower())


def write_sql(slots: Iterable[RowSlot], now_us: int) -> str:
    """Return the SQL that writes what has changed and commits; empty if nothing has.

    A row that is new to us is inserted plainly: if another gateway was faster, that fails as a
    duplicate, and the transaction is run again.
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
        # Found by its id, which is locked; another way would lock gaps as well.
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
