"""Middlewares for HTTP frameworks, with the responses of the gateway.

`guard` is the part that the middlewares share, independent of frameworks; `aiohttp` and `asgi`
(Starlette, FastAPI and others) are small adapters, each of which imports its framework.
"""
