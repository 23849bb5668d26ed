"""How long routing takes: matching among 10, 1,000 and 10,000 routes, reading paths and keys.

Run as `python -m bench.micro.routing`. Each figure is the best of several rounds, in
nanoseconds per call.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from functools import partial
from ipaddress import ip_network
from typing import Final, NamedTuple

from multidict import CIMultiDict

from gateway.routing.client_address import ClientAddress
from gateway.routing.host import normal_host
from gateway.routing.keys import compile_key
from gateway.routing.path import canonical_path
from gateway.routing.table import Pattern, RouteTable

ROUNDS: Final = 20
NO_HEADERS: Final[CIMultiDict[str]] = CIMultiDict()


class Request(NamedTuple):
    """The parts of a request that keys are made from."""

    client: str = "203.0.113.7"
    is_from_proxy: bool = False
    client_key: str = "203.0.113.7"
    host: str = "api.example.com"
    method: str = "GET"
    path: str = "/v1/pay"
    query: str = "page=2&api_key=4f0c2a9e&sort=name"
    client_certificate: None = None
    headers: CIMultiDict[str] = CIMultiDict(
        {"X-Api-Key": "4f0c2a9e71b84d3a", "Cookie": "a=1; sid=9e71"}
    )


def nanoseconds(call: Callable[[], object]) -> float:
    """Best time of one call; a round takes some 10 ms, however long a call takes."""
    timer = timeit.Timer(call)
    calls = max(1, int(0.01 / (timer.timeit(10) / 10)))
    return min(timer.repeat(ROUNDS, calls)) / calls * 1e9


def show(title: str, call: Callable[[], object]) -> None:
    print(f"{title:<52}{nanoseconds(call):>8.0f} ns")


def show_table(count: int) -> None:
    """Time a table in which a third of the routes is of each kind."""
    kinds = ("/exact/{}/pay", "/prefix/{}/**", "/parameter/{}/{{id}}/orders")
    patterns = [Pattern(None, kinds[n % 3].format(n)) for n in range(count)]
    simple = RouteTable([(p, p.path) for p in patterns if "{" not in p.path])
    table = RouteTable([(pattern, pattern.path) for pattern in patterns])
    middle = count // 6 * 3
    exact, prefix = f"/exact/{middle}/pay", f"/prefix/{middle + 1}/a/b"
    parameter = f"/parameter/{middle + 2}/42/orders"
    for title, path, in_table in (
        ("exact", exact, simple),
        ("prefix", prefix, simple),
        ("exact, table with parameters", exact, table),
        ("prefix, table with parameters", prefix, table),
        ("parameter", parameter, table),
        ("nothing fits", "/none/of/these", table),
    ):
        found = in_table.match("", path, "GET", NO_HEADERS)
        if (found is None) != (title == "nothing fits"):
            raise SystemExit(f"{path} led to {found}")
        show(
            f"match, {count:,} routes, {title}",
            partial(in_table.match, "", path, "GET", NO_HEADERS),
        )


def show_reading() -> None:
    """Time what is read from a request before and after matching."""
    for title, path in (
        ("plain", "/v1/users/12345678/orders"),
        ("with dot segments", "/v1/users/../orders"),
        ("with escapes", "/v1/%7Euser/caf%C3%A9"),
        ("8 KiB of hostile escapes", "/" + "%2F;//" * 1300),
    ):
        show(f"canonical path, {title}", partial(canonical_path, path))
    show("normal host", partial(normal_host, "api.example.com:8080"))
    clients = ClientAddress([ip_network("10.0.0.0/8")])
    show("client, direct", partial(clients.resolve, "203.0.113.7", ()))
    show("client, behind one proxy", partial(clients.resolve, "10.0.0.1", ("203.0.113.7",)))
    show("bucket of an IPv6 address", partial(clients.bucket, "2001:db8::1"))


def show_keys() -> None:
    """Time the key functions."""
    request = Request()
    for per in ("ip", "route", "header:x-api-key", "header:x-api-key+route", "query:api_key"):
        key = compile_key(per.split("+"), if_missing="ip", route="/v1/pay")
        show(f"key, per {per}", partial(key, request))


if __name__ == "__main__":
    for routes in (10, 1_000, 10_000):
        show_table(routes)
    show_reading()
    show_keys()
