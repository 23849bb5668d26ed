"""Where the keys of tokens come from: a file, or the issuer's JSON Web Key Set.

Both are looked at from time to time, in the background, and requests are never kept waiting. If a
look fails, the last known keys stay in use, whatever their age.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import aiohttp

from gateway.base.errors import StartError
from gateway.base.tasks import Background
from gateway.base.threads import in_thread
from gateway.tokens.verifier import TokenKeys

log = logging.getLogger(__name__)

FETCH_S: Final = 5.0
"""How long fetching keys may take."""
MAX_BYTES: Final = 256 * 1024
"""The largest set of keys; those of large issuers have 10 KiB."""
REFETCH_S: Final = 30.0
"""How long after one look an unknown key may cause the next: clients can make up key IDs."""
RETRY_S: Final = 1.0
"""The pause after a look that failed; it doubles up to the interval."""
FIRST_S: Final = 2.0
"""How long a start waits for the first keys."""


class FetchError(Exception):
    """What an issuer sent is not usable."""


class TokenSource(Protocol):
    """A `KeySource` with a life."""

    keys: TokenKeys

    def want_newer(self) -> None:
        """See `KeySource`."""

    async def start(self) -> None:
        """Get the first keys. Raises `StartError` if there will be none."""

    def look_now(self) -> None:
        """Look immediately, in the background: an operator has asked for it."""

    async def aclose(self) -> None:
        """Look no more."""


class FixedKeys:
    """Keys that are in the configuration itself."""

    def __init__(self, keys: TokenKeys) -> None:
        self.keys = keys

    def want_newer(self) -> None:
        """There are none."""

    async def start(self) -> None:
        """Return immediately."""

    def look_now(self) -> None:
        """There is nothing to look at."""

    async def aclose(self) -> None:
        """Return immediately."""


class WatchedKeys:
    """Keys that may change.

    Args:
        name: of the file or the URL, for messages.
        read: returns what there is now.
        parse: returns the keys in it; blocks. Raises `ValueError` if there are none.
        none: what the keys are until there are some.
        interval_s: how often to look.
        refetch_s: how long after one look an unknown key may cause the next.
        is_needed: whether there must be keys to start with.

    Attributes:
        keys: the present ones.
        looks: how often it has looked.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[bytes]],
        parse: Callable[[bytes], TokenKeys],
        none: TokenKeys,
        *,
        interval_s: float,
        refetch_s: float = REFETCH_S,
        is_needed: bool,
    ) -> None:
        self.keys = none
        self.looks = 0
        self._name = name
        self._read = read
        self._parse = parse
        self._interval_s = interval_s
        self._refetch_s = refetch_s
        self._is_needed = is_needed
        self._content = b""
        self._failures = 0
        self._is_due = False
        self._is_wanted = False
        self._can_want = False
        self._told = asyncio.Event()
        self._has_looked = asyncio.Event()
        self._background = Background(self._run)

    def __repr__(self) -> str:
        return f"<WatchedKeys of {self._name}>"

    def want_newer(self) -> None:
        """Look for newer keys, once the last look is long enough ago."""
        self._is_wanted = True
        if self._can_want:
            self._told.set()

    async def start(self) -> None:
        """Wait for the first look, but not for long.

        Raises:
            StartError: there must be keys, and there are none.
        """
        if self._is_needed:
            try:
                await self._look()
            except (OSError, ValueError) as error:
                raise StartError("jwt.keys", f"{self._name}: {_why(error)}") from error
            self._has_looked.set()
        self._background.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._has_looked.wait()

    def look_now(self) -> None:
        """Look immediately, in the background."""
        self._is_due = True
        self._told.set()

    async def aclose(self) -> None:
        """Look no more."""
        await self._background.end()

    async def _run(self) -> None:
        if self._has_looked.is_set():
            await self._pause(self._interval_s)
        while True:
            await self._pause(await self._try())

    async def _try(self) -> float:
        """Look; return how long to wait until the next look."""
        self._is_wanted = False
        try:
            is_new = await self._look()
        except (aiohttp.ClientError, FetchError, OSError, ValueError) as error:
            if not self._failures:
                then = "the last known keys stay in use" if self._content else "none are known"
                log.warning("keys of tokens: %s: %s; %s", self._name, _why(error), then)
            pause_s: float = min(RETRY_S * 2**self._failures, self._interval_s)
            self._failures = min(self._failures + 1, 16)
        except Exception:
            # Whatever happened, the next look must take place.
            log.exception("keys of tokens: %s", self._name)
            pause_s = self._interval_s
        else:
            if is_new or self._failures:
                log.info("keys of tokens: %s: in use", self._name)
            self._failures = 0
            pause_s = self._interval_s
        self._has_looked.set()
        return pause_s

    async def _look(self) -> bool:
        """Use what there is now; return whether it is new."""
        self.looks += 1
        content = await self._read()
        if content == self._content:
            return False
        keys = await in_thread(lambda: self._parse(content))
        self.keys, self._content = keys, content
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait until the next look is due, or until there is an unknown key."""
        # For a while, only an operator can cause a look; after that, so can an unknown key.
        least = min(seconds, self._refetch_s)
        await self._wait(least)
        self._can_want = True
        if not self._is_wanted:
            await self._wait(seconds - least)
        self._is_due = self._can_want = False

    async def _wait(self, seconds: float) -> None:
        self._told.clear()
        if self._is_due:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()


async def fetch(url: str, seconds: float = FETCH_S) -> bytes:
    """Return what is at a URL.

    Redirects are not followed, and nothing is decompressed: keys are small.

    Raises:
        FetchError: the response is not a success, or is too large.
        aiohttp.ClientError: there is none.
        TimeoutError: it takes too long.
    """
    timeout = aiohttp.ClientTimeout(total=seconds)
    fields = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=fields, auto_decompress=False) as session,
        session.get(url, allow_redirects=False) as response,
    ):
        if response.status != 200:
            raise FetchError(f"it was answered with {response.status}")
        content = bytearray()
        async for chunk in response.content.iter_chunked(1 << 16):
            content += chunk
            if len(content) > MAX_BYTES:
                raise FetchError(f"it is larger than {MAX_BYTES // 1024} KiB")
        return bytes(content)


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no response in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
