"""Health checks: what targets are asked, what they may answer, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.proxy.wire import OK, Peer, Running, ScriptedUpstream, get, running
from tests.servers import Certificate, until

QUICK: Final = {"every": "20ms", "timeout": "500ms", "healthy_after": 2, "unhealthy_after": 2}
LEFT_OUT: Final = "upstream u: "
NO_CONTENT: Final = b"HTTP/1.1 204 No Content\r\n\r\n"


class Patient:
    """A target whose checks are answered as it is told; everything else is answered well.

    Attributes:
        answer: to a check; empty closes the connection, None says nothing.
        begun: called as each check comes.
        checks: heads of all checks.
    """

    def __init__(self, answer: bytes | None = OK) -> None:
        self.answer = answer
        self.begun: Callable[[], object] = lambda: None
        self.checks: list[bytes] = []
        self.server = ScriptedUpstream(self._script)

    async def _script(self, peer: Peer) -> None:
        while head := await peer.head():
            if not head.startswith(b"GET /well"):
                await peer.send(OK)
                continue
            self.begun()
            self.checks.append(head)
            if self.answer is None:
                await peer.at_end()
                return
            if not self.answer:
                peer.close()
                return
            await peer.send(self.answer)


@asynccontextmanager
async def checked(
    folder: Path, patient: Patient, complaint: str = LEFT_OUT, health: object = None, **u: Any
) -> AsyncIterator[Running]:
    """A gateway that checks one target."""
    asked = {"path": "/well", **QUICK} if health is None else health
    async with (
        patient.server as server,
        running(folder, server, complaint, u={"health": asked, **u}) as run,
    ):
        yield run


def is_healthy(run: Running) -> bool:
    """What the gateway says of its only target."""
    (target,) = run.gateway.metrics.upstream("u").targets.values()
    return target.is_healthy


def checks(run: Running) -> int:
    """How often the only target was checked."""
    (target,) = run.gateway.metrics.upstream("u").targets.values()
    return target.checks


async def test_a_check_says_what_is_configured(tmp_path: Path) -> None:
    """Path, host and fields; over a separate connection, which is closed afterwards."""
    patient = Patient()
    health = {**QUICK, "path": "/well?deep=1", "host": "app.internal", "headers": {"X-Key": "a b"}}
    async with checked(tmp_path, patient, health=health):
        await until(lambda: len(patient.checks) >= 3)
        first, *rest = patient.checks[0].removesuffix(b"\r\n\r\n").split(b"\r\n")
        assert first == b"GET /well?deep=1 HTTP/1.1"
        assert {*rest} == {
            b"Host: app.internal",
            b"User-Agent: sluice-health",
            b"Accept: */*",
            b"X-Key: a b",
            b"Connection: close",
        }
        assert len(patient.server.peers) == len(patient.checks)


async def test_a_check_names_the_target_by_default(tmp_path: Path) -> None:
    """As the `Host` of a client that asks it itself."""
    patient = Patient()
    async with checked(tmp_path, patient):
        await until(lambda: bool(patient.checks))
        authority = patient.server.url.removeprefix("http://").encode()
        assert b"\r\nHost: %b\r\n" % authority in patient.checks[0]


@pytest.mark.parametrize(
    ("status", "answer", "is_well"),
    [
        (["2xx"], NO_CONTENT, True),
        (["2xx", 301], b"HTTP/1.1 302 Found\r\n\r\n", False),
        ([], OK, True),
        ([], b"HTTP/1.1 399 Fine\r\n\r\n", True),
        ([], b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK, True),
        ([], b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        ([204], OK, False),
        ([200, 204], NO_CONTENT, True),
        ([503], b"HTTP/1.1 503 Service Unavailable\r\n\r\n", True),
        ([], b"SSH-2.0-OpenSSH_9.2\r\n\r\n", False),
        ([], b"", False),
    ],
)
async def test_what_a_target_may_answer(
    tmp_path: Path, status: list[int | str], answer: bytes, is_well: bool
) -> None:
    """One of the statuses, and HTTP; the first check is believed at once."""
    patient = Patient(answer)
    health = {"path": "/well", "every": "1h", "status": status}
    async with checked(tmp_path, patient, health=health) as run:
        (target,) = run.gateway.metrics.upstream("u").targets.values()
        await until(lambda: target.checks == 1)
        assert target.is_healthy == is_well
        assert target.checks_failed == (not is_well)


async def test_a_target_that_does_not_answer_in_time(tmp_path: Path) -> None:
    """The check is given up, with its connection."""
    patient = Patient(None)
    health = {"path": "/well", "every": "1h", "timeout": "50ms"}
    async with checked(tmp_path, patient, health=health) as run:
        await until(lambda: not is_healthy(run))
        assert len(patient.checks) == 1


async def test_it_takes_some_checks_in_a_row(tmp_path: Path) -> None:
    """To be left out, and to be used again."""
    patient = Patient()
    health = {"path": "/well", "every": "20ms", "healthy_after": 3, "unhealthy_after": 4}
    # As each check begins: how many failed and passed before, and what was made of them.
    seen: list[tuple[int, int, bool]] = []
    async with checked(tmp_path, patient, health=health) as run:
        (target,) = run.gateway.metrics.upstream("u").targets.values()

        def look() -> None:
            failed = target.checks_failed
            seen.append((failed, target.checks - failed, target.is_healthy))

        patient.begun = look
        await until(lambda: len(patient.checks) >= 2)
        patient.answer = b""
        await until(lambda: not target.is_healthy)
        patient.answer = OK
        await until(lambda: seen[-1][0] >= 4 and seen[-1][2])
    before = next(passed for failed, passed, _ in seen if failed == 4)
    assert [is_used for *_, is_used in seen] == [
        failed < 4 or passed >= before + 3 for failed, passed, _ in seen
    ]


async def test_with_nobody_left_requests_are_sent_nevertheless(tmp_path: Path) -> None:
    """Unless configured otherwise: the checks may be at fault."""
    patient = Patient(b"")
    async with checked(tmp_path, patient) as run:
        await until(lambda: not is_healthy(run))
        assert (await run.ask(get())).status == 200


async def test_with_nobody_left_requests_may_be_refused(tmp_path: Path) -> None:
    """503 at once, with the time of the next check; and the gateway is as ready as it was."""
    patient = Patient(b"")
    health = {"path": "/well", "every": "1500ms", "healthy_after": 1}
    async with checked(tmp_path, patient, health=health, if_none_healthy="reject") as run:
        await until(lambda: not is_healthy(run))
        answer = await run.ask(get())
        assert (answer.status, answer.get(b"Retry-After")) == (503, b"2")
        assert json.loads(answer.body)["error"] == "no_target"
        assert run.gateway.readiness.is_ready
        patient.answer = OK
        await until(lambda: is_healthy(run))
        assert (await run.ask(get())).status == 200


async def test_without_a_path_a_connection_is_enough(tmp_path: Path) -> None:
    """Nothing is sent; and a port without a listener is unhealthy."""
    patient = Patient(b"")
    async with checked(tmp_path, patient, health={**QUICK}) as run:
        (target,) = run.gateway.metrics.upstream("u").targets.values()
        await until(lambda: target.checks >= 3)
        assert target.is_healthy
        assert not patient.checks
        assert patient.server._server is not None
        patient.server._server.close()
        await until(lambda: not target.is_healthy)


async def test_a_target_of_tls_is_checked_over_tls(tmp_path: Path) -> None:
    """An untrusted certificate is no connection; a trusted one is."""
    certificate = Certificate.make(tmp_path / "tls")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.file, certificate.key)
    asked = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        writer.write(OK)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    health = {**QUICK, "path": "/"}
    async with server:
        async with running(tmp_path, url, LEFT_OUT, u={"health": health}) as run:
            await until(lambda: not is_healthy(run))
            assert not asked.is_set()
        u = {"health": health, "tls": {"ca": str(certificate.file)}}
        async with running(tmp_path, url, u=u) as run:
            await asyncio.wait_for(asked.wait(), 5)
            await until(lambda: checks(run) >= 2)
            assert is_healthy(run)
