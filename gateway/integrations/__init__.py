"""Frameworks for HTTP under the library's limiter, with the answers that the gateway gives.

`guard` is what the middlewares have in common, and knows no framework; `aiohttp` and `asgi`
(Starlette, FastAPI and others) are one small adapter each, and import what they adapt to.
"""
