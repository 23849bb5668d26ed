"""Three gateways want more processors than there are: their store is not blamed for it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Final

import aiohttp

from bench.chaos.subject import Case, Finding, Subject
from bench.load import Flood, flood

GATEWAYS: Final = 3
CLIENTS: Final = 20
RATE: Final = 100
LONGEST_S: Final = 10.0
ALONE: Final = 0.01
EXCESS: Final = 0.05

_ERRORS: Final = re.compile(r"^sluice_store_errors_total\{[^}]*\} (\S+)$", re.MULTILINE)


async def busy(case: Case) -> list[Finding]:
    """Flood all gateways at once, with the default deadline, and count what each decided alone."""
    if case.is_memory:
        return []
    subjects = [Subject(case, f"gateway{number}") for number in range(GATEWAYS)]
    for subject in subjects:
        subject.write(
            "domain: busy\nlog: { output: /dev/null }\nroutes:\n"
            f"  /**: {{ respond: {{ status: 200 }}, limit: {RATE}/s per header:x-client }}\n",
            deadline="20ms",
        )
        await subject.start()
    seconds = min(case.seconds, LONGEST_S)
    began = time.monotonic()
    floods: list[Flood] = await asyncio.gather(
        *(asyncio.to_thread(flood, subject.url + "/", seconds, CLIENTS) for subject in subjects)
    )
    took = time.monotonic() - began
    alone = sum([await _store_errors(subject) for subject in subjects])
    for subject in subjects:
        await subject.stop()
    asked = sum(each.requests for each in floods)
    passed = asked - sum(each.not_ok for each in floods)
    most = round(CLIENTS * RATE * (took + 1) * (1 + EXCESS))
    few = round(asked * ALONE)
    return [
        Finding(f"decided alone, of {asked}", str(alone), f"{few} at most", alone <= few),
        Finding("passed", str(passed), f"{most} at most", passed <= most),
    ]


async def _store_errors(subject: Subject) -> int:
    """How many decisions of a gateway its store has not made."""
    url = f"http://127.0.0.1:{subject.admin}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return sum(int(float(count)) for count in _ERRORS.findall(await answer.text()))
