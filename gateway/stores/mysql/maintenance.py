"""What is done beside decisions, on a connection of its own: signs of life, and tidying up.

Tidying goes in pieces, each a short transaction that passes over rows that are in use, so it
holds up no decision. What ThrottleX has written since is left to it.
"""

from __future__ import annotations

import secrets
from typing import Final

from gateway.base.clock import US
from gateway.stores.mysql.driver import Link
from gateway.stores.mysql.rows import NOW

MISSED_BEATS: Final = 3
"""After so many heartbeats without a word a gateway counts as gone."""
FORGOTTEN_BEATS: Final = 1_000
"""After so many its row is removed."""
KEYS_A_PIECE: Final = 200
ROWS_A_PIECE: Final = 2_000


class Maintenance:
    """The words of one gateway to the others, and its share of the tidying.

    Args:
        domain: the namespace of this deployment; gateways of others are not counted.
        heartbeat_s: seconds between two signs of life.
    """

    def __init__(self, domain: str, heartbeat_s: float) -> None:
        self._domain = f"x'{domain.encode().hex()}'"
        self._id = f"x'{secrets.token_hex(8)}'"
        self._heartbeat_us = int(heartbeat_s * US)

    async def beat(self, link: Link) -> int:
        """Give a sign of life; how many gateways have given one lately."""
        ((now_us,),) = (await link.run(NOW))[0]
        gone_us = now_us - self._heartbeat_us * MISSED_BEATS
        results = await link.run(
            "REPLACE INTO sluice_gateways (domain, id, seen_us)"
            f" VALUES ({self._domain}, {self._id}, {now_us}); COMMIT;"
            "SELECT COUNT(*) FROM sluice_gateways"
            f" WHERE domain = {self._domain} AND seen_us > {gone_us}; COMMIT"
        )
        ((count,),) = results[2]
        return max(int(count), 1)

    async def sign_off(self, link: Link) -> None:
        """Say that this gateway leaves, and forget those that left without a word."""
        forgotten_us = self._heartbeat_us * FORGOTTEN_BEATS
        await link.run(
            "DELETE FROM sluice_gateways"
            f" WHERE domain = {self._domain} AND id = {self._id}; COMMIT;"
            "DELETE FROM sluice_gateways"
            f" WHERE domain = {self._domain} AND seen_us < ({NOW}) - {forgotten_us}; COMMIT"
        )

    async def tidy(self, link: Link) -> bool:
        """Remove a piece of what has expired; whether there may be more."""
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
            # Only when nothing of its log is left: nobody would find that any more.
            statements.append(f"DELETE FROM throttlex_usage WHERE id IN ({','.join(ours)})")
        await link.run(";".join((*statements, "COMMIT")))
        return len(found[0]) == most_keys or len(rows) == most_rows
