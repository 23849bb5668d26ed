"""Work beside decisions, on a connection of its own: heartbeats, and removal of expired rows.

Expired rows are removed in pieces, each a short transaction that skips rows in use, so it delays no
decision. Rows that ThrottleX has written since are left to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Final

from gateway.base.clock import US
from gateway.base.errors import StoreError
from gateway.stores.heartbeat import Heartbeat
from gateway.stores.mysql.driver import Conflict, Link
from gateway.stores.mysql.rows import NOW

FORGOTTEN_BEATS: Final = 1_000
"""After this many heartbeats without a sign of life, a gateway's row is removed."""
TIDYING_BEATS: Final = 20
"""While there is more to remove, a piece is removed in this fraction of a heartbeat."""
KEYS_A_PIECE: Final = 200
ROWS_A_PIECE: Final = 2_000


class Maintenance(Heartbeat):
    """The heartbeats of one gateway, and its share of removing expired rows.

    Args:
        domain: the namespace of this deployment; gateways of others are not counted.
        heartbeat_s: seconds between two heartbeats.
        tidy_every_s: seconds between two searches for expired rows.
    """

    def __init__(self, domain: str, heartbeat_s: float, tidy_every_s: float) -> None:
        super().__init__(heartbeat_s, soon_s=heartbeat_s / TIDYING_BEATS)
        self._domain = f"x'{domain.encode().hex()}'"
        self._id = f"x'{secrets.token_hex(8)}'"
        self._tidy_every_s = tidy_every_s
        self._tidy_at = 0.0
        self._link: Link | None = None

    async def keep(self, link: Link) -> None:
        """Run until the connection fails; if cancelled, sign off and close it."""
        self._link = link
        self._tidy_at = asyncio.get_running_loop().time()
        try:
            await self.run()
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError):
                await self.sign_off()
            await link.aclose()
            raise

    async def beat(self) -> bool:
        """Send a heartbeat, and remove expired rows if due; return whether none are left."""
        assert self._link is not None
        loop = asyncio.get_running_loop()
        with contextlib.suppress(Conflict):
            await self._count(self._link)
            if loop.time() >= self._tidy_at and not await self._delete_expired(self._link):
                self._tidy_at = loop.time() + self._tidy_every_s
        return loop.time() < self._tidy_at

    async def _count(self, link: Link) -> None:
        """Send a heartbeat, and count the gateways that have sent one lately."""
        ((now_us,),) = (await link.run(NOW))[0]
        gone_us = now_us - int(self.silence_s * US)
        results = await link.run(
            "REPLACE INTO sluice_gateways (domain, id, seen_us)"
            f" VALUES ({self._domain}, {self._id}, {now_us}); COMMIT;"
            "SELECT COUNT(*) FROM sluice_gateways"
            f" WHERE domain = {self._domain} AND seen_us > {gone_us}; COMMIT"
        )
        ((count,),) = results[2]
        self.gateways = int(count)

    async def sign_off(self) -> None:
        """Sign this gateway off, and forget those that left without signing off."""
        assert self._link is not None
        forgotten_us = int(self.heartbeat_s * US) * FORGOTTEN_BEATS
        await self._link.run(
            "DELETE FROM sluice_gateways"
            f" WHERE domain = {self._domain} AND id = {self._id}; COMMIT;"
            "DELETE FROM sluice_gateways"
            f" WHERE domain = {self._domain} AND seen_us < ({NOW}) - {forgotten_us}; COMMIT"
        )

    async def _delete_expired(self, link: Link) -> bool:
        """Remove a piece of the expired rows; return whether there may be more."""
        # What is found is named, so that no more is found than can be sent.
        most_keys = min(KEYS_A_PIECE, link.max_packet // 128)
        most_rows = min(ROWS_A_PIECE, link.max_packet // 64)
        found = await link.run(
            "SELECT id, sluice_state IS NULL"
            " OR sluice_state LIKE CONCAT('[', tokens, ',', last_refill, ',%')"
            " FROM throttlex_usage FORCE INDEX (idx_sluice_expires)"
            " WHERE sluice_expires < UNIX_TIMESTAMP() ORDER BY sluice_expires"
            f" LIMIT {most_keys} FOR UPDATE SKIP LOCKED"
        )
        ours = [str(row_id) for row_id, is_ours in found[0] if is_ours]
        theirs = [str(row_id) for row_id, is_ours in found[0] if not is_ours]
        statements = []
        if theirs:
            statements.append(
                "UPDATE throttlex_usage SET sluice_state = NULL, sluice_expires = NULL"
                f" WHERE id IN ({','.join(theirs)})"
            )
        rows: list[str] = []
        if ours:
            logged = await link.run(
                "SELECT l.id FROM throttlex_usage u STRAIGHT_JOIN throttlex_sw_log l"
                " FORCE INDEX (idx_sw_key_time) ON l.key_id = u.key_id"
                f" WHERE u.id IN ({','.join(ours)}) AND l.sluice_us IS NOT NULL"
                f" LIMIT {most_rows}"
            )
            rows = [str(row_id) for (row_id,) in logged[0]]
        if rows:
            statements.append(f"DELETE FROM throttlex_sw_log WHERE id IN ({','.join(rows)})")
        if ours and len(rows) < most_rows:
            # Only when nothing of its log is left: it would never be found again.
            statements.append(f"DELETE FROM throttlex_usage WHERE id IN ({','.join(ours)})")
        await link.run(";".join((*statements, "COMMIT")))
        return len(found[0]) == most_keys or len(rows) == most_rows
