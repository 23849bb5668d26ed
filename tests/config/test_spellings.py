"""Equivalent spellings run alike; near-equivalent ones run alike or are a problem, never else."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from gateway.base.errors import ConfigError
from gateway.config.checking.check import Source, check, check_text
from gateway.config.models.gateway import GatewayConfig, LimitLine, Target
from gateway.config.models.service import StoreConfig
from gateway.config.reading.nodes import plain
from gateway.config.reading.source import read
from gateway.config.values.redaction import Secrets
from gateway.config.values.store_url import parse_store_url
from gateway.routing.client_address import ClientAddress

HERE: Final = Path(__file__).parent
ROUTES: Final = 'routes: {/**: {upstream: "http://127.0.0.1:9000"}}\n'


def config_of(text: str, environ: Mapping[str, str] | None = None) -> GatewayConfig:
    """The configuration of a text."""
    return check([Source("f.yaml", text.encode())], environ or {}, str).config


def runs(value: object) -> Any:
    """What of a configuration makes a difference to what runs, comparable."""
    for kind, read_out in _KINDS.items():
        if isinstance(value, kind):
            return read_out(value)
    return value


def _gateway(config: GatewayConfig) -> dict[str, Any]:
    """Upstreams stand at their routes: what they are called is how they were written."""
    result = {
        name: runs(getattr(config, name))
        for name in type(config).model_fields
        if name not in {"upstreams", "routes"}
    }
    result["routes"] = [
        (
            runs(route)
            | {"name": "", "upstream": route.upstream and runs(config.upstreams[route.upstream])}
        )
        for route in config.routes
    ]
    result["upstreams"] = len(config.upstreams)
    return result


_KINDS: Final[dict[type, Callable[[Any], Any]]] = {
    LimitLine: lambda line: (line.limit, line.per),
    Target: lambda one: (one.scheme, one.host.lower(), one.port, one.socket, one.weight),
    StoreConfig: lambda store: (parse_store_url(store.url), store.deadline, store.share),
    GatewayConfig: _gateway,
    BaseModel: lambda model: {
        name: runs(getattr(model, name)) for name in type(model).model_fields
    },
    Mapping: lambda data: {str(name): runs(one) for name, one in data.items()},
    list: lambda data: [runs(one) for one in data],
    tuple: lambda data: [runs(one) for one in data],
}


def as_json(data: Any) -> str:
    """Data as it would be written; what is text with a `${` in it stays so."""
    return json.dumps(data).replace("${", "$${")


def outcome(text: str) -> Any:
    """What runs, or None if it is a problem."""
    try:
        return runs(config_of(text))
    except ConfigError:
        return None


# Networks.


@st.composite
def networks(draw: st.DrawFn) -> tuple[ipaddress.IPv4Network, str]:
    """A network of IPv4 and one of its spellings."""
    prefix = draw(st.integers(0, 32))
    address = ipaddress.IPv4Address(draw(st.integers(0, 2**32 - 1)))
    network = ipaddress.IPv4Network((address, prefix), strict=False)
    first = network.network_address
    mapped = ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + first.packed)
    spelling = draw(
        st.sampled_from(
            [
                str(network),
                network.with_netmask,
                f"::ffff:{first}/{prefix + 96}",
                f"::FFFF:{first}/{prefix + 96}",
                f"{mapped.exploded}/{prefix + 96}",
                f"0:0:0:0:0:ffff:{first}/{prefix + 96}",
                f"  {network} ",
                *([str(first), f"::ffff:{first}"] if prefix == 32 else []),
            ]
        )
    )
    return network, spelling


@given(networks(), st.integers(0, 2**32 - 1), st.booleans())
def test_networks_trust_the_same_peers_in_every_spelling(
    pair: tuple[ipaddress.IPv4Network, str], number: int, is_inside: bool
) -> None:
    """As IPv4, by netmask or IPv4-mapped; and peers may be written as either."""
    network, spelling = pair
    peer = ipaddress.IPv4Address(number)
    if is_inside:
        peer = network.network_address + number % network.num_addresses
    for text in (
        f"trusted_proxies: {json.dumps(spelling)}\n{ROUTES}",
        f'listen: {{address: ":80", proxy_protocol: [{json.dumps(spelling)}]}}\n{ROUTES}',
    ):
        config = config_of(text)
        given_networks = config.trusted_proxies or config.listen[0].proxy_protocol
        assert isinstance(given_networks, tuple)
        clients = ClientAddress(given_networks)
        for written in (str(peer), f"::ffff:{peer}", f"::FFFF:{peer}"):
            assert clients.is_trusted(written) == (peer in network)


@pytest.mark.parametrize(
    "spelling",
    [
        *("010.0.0.0/8", "10.0.0.1/8", "10.0.0/8", "10/8", "0xa.0.0.0/8", "167772160/8"),
        *("10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0 /8", "10.0.0.0/8/8", "10.0.0.0\\\\8"),
        *("::ffff:10.0.0.1/104", "::ffff:010.0.0.0/104", "[::1]/128", "fe80::%eth0/64"),
        *("10.0.0.0/8, 11.0.0.0/8", "10.*", "*", "localhost", "$NET", "10.0.0.0-10.0.0.9"),
    ],
)
def test_what_is_nearly_a_network_is_a_problem(spelling: str) -> None:
    """Octal digits, missing numbers, bits outside, names, interfaces and ranges."""
    assert outcome(f"trusted_proxies: '{spelling}'\n{ROUTES}") is None


# Hosts and ports.

_V6: Final = ipaddress.IPv6Address("2001:db8::a:1")
HOSTS: Final = {
    "web.internal": ("web.internal", "WEB.internal", "Web.Internal"),
    "10.0.0.1": ("10.0.0.1", "[::ffff:10.0.0.1]", "[::ffff:a00:1]", "[0:0:0:0:0:FFFF:a00:1]"),
    "2001:db8::a:1": (f"[{_V6}]", f"[{_V6.exploded}]", f"[{str(_V6).upper()}]"),
}
PORTS: Final = ("80", "080", "00080")


@st.composite
def urls(draw: st.DrawFn, host: str) -> str:
    """A spelling of http://HOST:80."""
    scheme = draw(st.sampled_from(["http", "HTTP", "Http"]))
    port = draw(st.sampled_from(["", ":", *(f":{port}" for port in PORTS)]))
    url = f"{scheme}://{draw(st.sampled_from(HOSTS[host]))}{port}"
    return draw(st.sampled_from(["", " "])) + url + draw(st.sampled_from(["", "/", " "]))


@given(st.sampled_from(sorted(HOSTS)), st.data())
def test_targets_are_one_upstream_in_every_spelling(host: str, data: st.DataObject) -> None:
    """Two routes to one server share its connections, health and breaker, however it is written."""
    one, two = data.draw(urls(host)), data.draw(urls(host))
    text = f"routes: {{/a: {{upstream: {json.dumps(one)}}}, /b: {{upstream: {json.dumps(two)}}}}}"

    config = config_of(text)

    assert len(config.upstreams) == 1
    assert runs(next(iter(config.upstreams.values())).targets) == [("http", host, 80, "", 1)]


@given(st.sampled_from(sorted(HOSTS)), st.data())
def test_stores_are_one_in_every_spelling(host: str, data: st.DataObject) -> None:
    """Counts cannot move to where they are, however that place is written."""
    one, two = (
        f"redis://{data.draw(st.sampled_from(HOSTS[host]))}"
        f"{data.draw(st.sampled_from(['', ':6379', ':06379']))}"
        f"{data.draw(st.sampled_from(['', '/', '/0', '/00']))}"
        for _ in range(2)
    )

    with pytest.raises(ConfigError, match="counts would move to the store they are in"):
        check_text(f"store: {{url: '{one}', migrate: {{to: '{two}'}}}}\n{ROUTES}")


@given(st.sampled_from(sorted(HOSTS)), st.data())
def test_listeners_are_one_in_every_spelling(host: str, data: st.DataObject) -> None:
    """An address that is taken is taken in every spelling."""
    one, two = (
        f"{data.draw(st.sampled_from(HOSTS[host]))}:{data.draw(st.sampled_from(PORTS))}"
        for _ in range(2)
    )

    with pytest.raises(ConfigError, match="is already in use"):
        check_text(f"listen: ['{one}', '{two}']\n{ROUTES}")


# Quantities.

_TIMES: Final = {
    1: ("us",),
    1_000: ("ms", "millisecond", "milliseconds"),
    1_000_000: ("s", "sec", "second", "seconds"),
    60_000_000: ("m", "min", "minute", "minutes"),
    3_600_000_000: ("h", "hour", "hours"),
    86_400_000_000: ("d", "day", "days"),
}
_SIZES: Final = {
    1: ("", "B"),
    1_000: ("kB", "KB"),
    1_024: ("KiB",),
    1_000_000: ("MB",),
    1 << 20: ("MiB",),
}


def spelled(draw: st.DrawFn, amount: int, units: Mapping[int, tuple[str, ...]]) -> str:
    """An amount in some unit that it is a whole number of, or a half."""
    fitting = [size for size in units if (amount * 2) % size == 0]
    size = draw(st.sampled_from(fitting))
    unit = draw(st.sampled_from(units[size]))
    whole, rest = divmod(amount, size)
    number = (
        f"{whole}.5" if rest else draw(st.sampled_from([f"{whole}", f"{whole}.0", f"0{whole}"]))
    )
    blank = draw(st.sampled_from(["", " "]))
    return f"{number}{blank}{unit}"


@given(st.data(), st.sampled_from([1, 500, 3_600, 5_400, 86_400]), st.sampled_from([1, 1_000_000]))
def test_durations_are_one_in_every_spelling(data: st.DataObject, number: int, size: int) -> None:
    """Half an hour is 30m, 0.5h and 1800 seconds."""
    text = data.draw(st.composite(spelled)(number * size, _TIMES))

    config = config_of(f'server: {{header_timeout: "{text}"}}\n{ROUTES}')

    assert config.server.header_timeout == number * size


@given(
    st.data(), st.sampled_from([1, 512, 1_000, 1_024, 1_536, 64_000, 65_536, 1_000_000, 1 << 20])
)
def test_sizes_are_one_in_every_spelling(data: st.DataObject, size: int) -> None:
    """64 KiB is 65536 and 65536B."""
    text = data.draw(st.composite(spelled)(size, _SIZES))

    config = config_of(f'server: {{max_body: "{text}"}}\n{ROUTES}')

    assert config.server.max_body == size


@pytest.mark.parametrize(
    "near",
    [
        *("10", "10S", "10 M", "1m30s", "10,5s", "1e1s", "+10s", "-10s", "10s ago", "0x10s"),
        *("PT10S", "00:10", "10.s", ".5s", "1.5us", "0.0001ms", "s", "10ss", "1_000ms", "٣s"),
    ],
)
def test_what_is_nearly_a_duration_is_a_problem(near: str) -> None:
    """No unit, another unit, two units, and numbers of another notation."""
    assert outcome(f'server: {{header_timeout: "{near}"}}\n{ROUTES}') is None


@pytest.mark.parametrize(
    "near",
    [
        *("10k", "10K", "10m", "10mb", "10Mib", "10 MB/s", "1_000", "1,000", "1e3", "1e3B"),
        *("0x10", "+10", "-10", "1.5", "0.5B", "10MiBB", "ten", "٣"),
    ],
)
def test_what_is_nearly_a_size_is_a_problem(near: str) -> None:
    """Units of another spelling, parts of a byte, and numbers of another notation."""
    assert outcome(f'server: {{max_body: "{near}"}}\n{ROUTES}') is None


@given(st.integers(1, 200))
def test_whole_numbers_are_one_in_every_spelling(number: int) -> None:
    """In decimal, hexadecimal and octal digits, with a sign, in quotes and by a variable."""
    spellings = (f"{number}", f"{number:#x}", f"{number:#o}", f"+{number}", f'"{number}"', "${N}")
    for spelling in spellings:
        text = f"server:\n  max_headers: {spelling}\n{ROUTES}"
        assert config_of(text, {"N": str(number)}).server.max_headers == number
    for near in (f"0{number}", f"{number}.0", f"1_{number}", f"{number}e0", f"0b{number:b}"):
        result = outcome(f"server: {{max_headers: {near}}}\n{ROUTES}")
        # 08 and 09 are no octal digits to anybody.
        assert result is None or (near[0] == "0" and not set(near) <= set("01234567"))


# Everything else: configurations that are known to be good, with one value in another spelling.


def _good() -> Iterator[tuple[str, Any]]:
    for path in sorted([*(HERE / "golden").glob("ok*.yaml"), *(HERE / "golden").glob("*.yaml")]):
        text = path.read_text().rpartition("\n-----\n")[0] + "\n"
        root, _ = read(path.name, text.encode(), {}, str, Secrets())
        if root is not None and outcome(text) is not None:
            yield text, plain(root)


GOOD: Final = list(_good())


def test_there_are_good_configurations() -> None:
    """They are found: without any the next tests would prove nothing."""
    assert len(GOOD) >= 30


@pytest.mark.parametrize(("text", "data"), GOOD, ids=range(len(GOOD)))
def test_json_is_the_same_configuration(text: str, data: Any) -> None:
    """YAML in blocks, with anchors or plain, equals JSON with braces and quotes."""
    assert outcome(as_json(data)) == outcome(text)


FREE: Final = frozenset(
    {
        *("name", "body", "html", "text", "problem", "type", "domain", "path", "output", "set"),
        *("add", "headers", "match", "metadata", "owner", "resource", "identifier", "client_names"),
        *("key_password", "policies", "shared", "replaces", "to", "redirect", "rewrite"),
        *("strip_prefix", "add_prefix", "respond", "error_pages", "cert", "key", "ca", "client_ca"),
        *("client_headers", "header_names", "host", "hash", "balance", "health", "bind", "address"),
        *("remove", "upstream_host", "methods", "values", "file", "keys", "issuer", "audience"),
        *("secret", "key_secret", "cookies", "client_cert", "cookie", "country", "asn"),
    }
)
"""Keys whose values are text of people: another spelling is another text."""


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _leaves(value, (*path, name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _leaves(value, (*path, index))
    elif not FREE & set(path):
        yield path, data


def _replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = _replaced(data[path[0]], path[1:], value)
    return copy


def _variants(value: Any) -> list[Any]:
    """Spellings that look like a value."""
    if isinstance(value, bool):
        return ["on" if value else "off", "yes" if value else "no", str(value), int(value), None]
    if isinstance(value, int | float):
        return [str(value), f" {value}", f"{value} ", f"0{value}", f"+{value}", float(value)]
    if not isinstance(value, str):
        return []
    variants = [
        *(value.upper(), value.lower(), value.title(), value.swapcase(), f" {value}", f"{value} "),
        *(
            f"'{value}'",
            f'"{value}"',
            value.replace(" ", "  "),
            value.replace(" ", ""),
            f"\t{value}",
        ),
    ]
    if "per " not in value and "unix:" not in value:
        variants += [f"{value}#", value.replace("-", "_"), value.replace("_", "-")]
    if "://" in value and "?" not in value and "/" not in value.partition("://")[2]:
        variants.append(f"{value}/")
    elif "://" not in value and "per " not in value and "unix:" not in value:
        # A name with a dot at its end is another name: it is not completed.
        variants.append(f"{value}.")
    return variants


def _is_named(data: Any, value: Any) -> bool:
    """Whether a value is the name of something in the same file: names are text of people."""
    if isinstance(data, dict):
        return value in data or any(_is_named(one, value) for one in data.values())
    return isinstance(data, list) and any(_is_named(one, value) for one in data)


@given(st.data())
def test_another_spelling_means_the_same_or_is_a_problem(data: st.DataObject) -> None:
    """Case, blanks, signs, zeros, quotes in quotes: one value of a good configuration at a time."""
    _, good = data.draw(st.sampled_from(GOOD))
    leaves = list(_leaves(good))
    assume(leaves)
    path, value = data.draw(st.sampled_from(leaves))
    variants = _variants(value)
    assume(variants and not _is_named(good, value))
    variant = data.draw(st.sampled_from(variants))

    before = outcome(as_json(good))
    after = outcome(as_json(_replaced(good, path, variant)))

    assert after is None or after == before, (path, value, variant)
