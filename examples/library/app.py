"""An aiohttp application that limits its requests, and its own calls of something slow."""

from __future__ import annotations

import asyncio
import os

from aiohttp import web

from gateway import Limiter, LimitExceeded, Policy
from gateway.integrations.aiohttp import setup

limiter = Limiter(
    Policy("site", "4/m per header:X-User"),
    Policy("reports", "1 at once per all"),
)


@limiter.limit("reports")
async def make_report() -> str:
    """Something that must not be done twice at a time."""
    await asyncio.sleep(0.5)
    return "the report\n"


async def report(_: web.Request) -> web.Response:
    """Refuses by itself, with the fields that say when to come back."""
    try:
        return web.Response(text=await make_report())
    except LimitExceeded:
        return web.Response(status=503, text="a report is being made already\n")


app = web.Application()
app.router.add_get("/report", report)
setup(app, limiter, "site")

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), print=None)
