"""The interface to asyncmy: one connection, and the meaning of the server's errors.

No other module knows the driver. Several statements travel in one packet, because a round trip
costs more than a statement; all of their text is made by us (`rows`, `schema`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from asyncmy.connection import Connection, connect
from asyncmy.errors import MySQLError

from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.stores.mysql.address import MySQLAddress
from gateway.stores.mysql.session import SESSION, read_session, setting_error
from gateway.stores.tls_options import why

Rows = Sequence[tuple[Any, ...]]
"""One result of a packet; empty for a statement that returns none."""

CONNECT_TIMEOUT_S: Final = 2.0
CONFLICTS: Final = {1213: "deadlock", 1205: "lock_timeout", 1062: "duplicate", 1020: "changed"}
"""Errors after which the same transaction may be run again, once it is rolled back."""

OPTION: Final = 1290
"""An option of the server prevents the statement; `read_only` is one."""

REASONS: Final = {
    **dict.fromkeys((OPTION, 1792, 1836), "read_only"),
    **dict.fromkeys((1040, 1135, 1203, 1226, 1637), "too_many_connections"),
    **dict.fromkeys((1044, 1045, 1129, 1130, 1142, 1143, 1227, 1698), "access_denied"),
    # An expired password, and a locked account.
    **dict.fromkeys((1820, 1862, 3118, 3955, 4151), "access_denied"),
    **dict.fromkeys((1049, 1051, 1054, 1146, 1176), "schema"),
    **dict.fromkeys((1053, 1927, 2003, 2006, 2013, 2014, 3032), "connection_lost"),
    **dict.fromkeys((1158, 1159, 1160, 1161), "connection_lost"),
    **dict.fromkeys((1021, 1041, 1114, 1206), "full"),
    **dict.fromkeys((126, 145, 1030, 1034, 1194, 1195), "table"),
    # The statement was killed.
    **dict.fromkeys((1317, 1969, 3024), "stalled"),
    # An unsuitable engine, page, packet or log.
    **dict.fromkeys((1071, 1118, 1153, 1286, 1665, 1709), "settings"),
}
"""Errors by which a server says that it cannot serve now, or not this client."""


class Conflict(StoreUnavailable):
    """Nothing was spent: another transaction was in the way, and this one may be run again."""

    reason = "conflict"


def server_error(error: Exception) -> StoreError:
    """Return the store error for an error of the driver."""
    code = error.args[0] if error.args else 0
    if code in CONFLICTS:
        return Conflict(f"the transaction was in conflict with another ({code})", CONFLICTS[code])
    text = str(error.args[1])[:200] if len(error.args) > 1 else type(error).__name__
    if code == OPTION and "read" not in text:
        return setting_error(f"{text} ({code})")
    if code in REASONS:
        return StoreUnavailable(f"the store cannot serve: {text} ({code})", REASONS[code])
    return StoreReplyError(f"the store answered an error: {code} {text}")


class Link:
    """One open connection; its session is set up, and in no transaction.

    A call that fails other than with `Conflict`, or is cancelled, leaves the stream in no known
    state: the connection is closed and the server rolls back what was under way.

    Attributes:
        max_packet: so many bytes can be sent to it at a time.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.max_packet = 0

    @classmethod
    async def open(cls, address: MySQLAddress) -> Link:
        """Connect and set the session up.

        Raises:
            StoreError: it did not work.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                link = cls(await _connect(address))
                try:
                    await link._begin()
                except BaseException:
                    link.drop()
                    raise
                return link
        except StoreUnavailable as error:
            if error.reason != "connection_lost":
                raise
            raise StoreUnavailable("the store could not be reached", "connect") from error
        except TimeoutError:
            raise StoreUnavailable("the store did not accept a connection", "connect") from None
        except MySQLError as error:
            known = server_error(error)
            if known.reason == "connection_lost" or isinstance(known, StoreReplyError):
                known = StoreUnavailable(f"the store could not be reached: {error}", "connect")
            raise known from error
        except OSError as error:
            message = f"the store could not be reached: {why(error)}"
            raise StoreUnavailable(message, "connect") from error
        except Exception as error:
            # What does not speak the protocol makes the driver stumble in many ways; and a way
            # to log in may need a library that is not there.
            message = f"the store could not be spoken to: {type(error).__name__}: {error}"
            raise StoreUnavailable(message, "connect") from error

    async def _begin(self) -> None:
        """Set the session up."""
        try:
            *_, variables, ((ahead_s,),) = await self.run(SESSION)
            session = read_session(dict(variables), int(ahead_s))
            if session.pins:
                await self.run(session.pins)
        except StoreReplyError as error:
            raise setting_error(str(error)) from error
        self.max_packet = session.max_packet

    async def run(self, packet: str, within_s: float = CONNECT_TIMEOUT_S) -> list[Rows]:
        """Send statements in one packet; the results of each, in order.

        Raises:
            Conflict: the server gave up in favour of another transaction; roll back.
            StoreTimeout: no answer within the time; what was sent may yet be done.
            StoreError: anything else, with the connection closed.
        """
        try:
            async with asyncio.timeout(within_s):
                return await self._run(packet)
        except TimeoutError:
            self.drop()
            raise StoreTimeout("the store stopped answering", "stalled") from None
        except MySQLError as error:
            known = server_error(error)
            if not isinstance(known, Conflict):
                self.drop()
            raise known from error
        except Exception as error:
            self.drop()
            raise StoreUnavailable(
                "the connection to the store was lost", "connection_lost"
            ) from error
        except asyncio.CancelledError:
            self.drop()
            raise

    async def _run(self, packet: str) -> list[Rows]:
        cursor = self._connection.cursor()
        await cursor.execute(packet)
        results: list[Rows] = [await cursor.fetchall()]
        while await cursor.nextset():
            results.append(await cursor.fetchall())
        return results

    @property
    def is_open(self) -> bool:
        """False once it was closed from this side."""
        return bool(self._connection.connected)

    def drop(self) -> None:
        """Close at once."""
        self._connection.close()

    async def aclose(self) -> None:
        """Say goodbye, if that does not take long, and close."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CONNECT_TIMEOUT_S / 4):
                await self._connection.ensure_closed()
        self.drop()


async def _connect(address: MySQLAddress) -> Connection:
    """Connect; if that is cancelled, it is, whatever the driver makes of it.

    The driver connects with `asyncio.wait_for`, which before Python 3.12 loses a cancellation
    that comes in the same turn of the loop as the connection. Whoever closes a store would then
    wait for a task that has never heard of it.
    """
    task = asyncio.current_task()
    connection: Connection | None = None
    try:
        connection = await connect(
            # asyncmy checks the certificate by this name, and certificates have no last dot.
            host=address.host if address.tls is None else address.host.removesuffix("."),
            port=address.port,
            unix_socket=address.unix_socket or None,
            # As bytes: of text the driver takes a password to be Latin-1, and no other client does.
            user=_bytes(address.username),
            password=_bytes(address.password),
            database=address.database,
            ssl=address.tls,
            connect_timeout=CONNECT_TIMEOUT_S,
            charset="utf8mb4",
            autocommit=None,
            local_infile=False,
            program_name="sluice",
        )
    finally:
        if task is not None and task.cancelling():
            if connection is not None:
                connection.close()
            raise asyncio.CancelledError
    return connection


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
