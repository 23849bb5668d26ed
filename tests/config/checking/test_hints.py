"""A hundred mistakes that people make, and the remedy that each is answered with.

Each was judged by a person: the hint is what somebody needs who meant the obvious.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import pytest

from gateway.base.errors import LimitSyntaxError
from gateway.limits.notation import parse_limit
from tests.config.said import said_of
from tests.processes import ROOT

UPSTREAM: Final = "upstream: http://127.0.0.1:9000"
A_ROUTE: Final = f"routes:\n  /a:\n    {UPSTREAM}\n"
THE_REST: Final = f"routes: {{/**: {{{UPSTREAM}}}}}\n"
QUOTED: Final = {"UP": '"http://127.0.0.1:9000"', "L": '"127.0.0.1:80"'}
"""Variables from a file whose quotes are no part of the shell's."""

LIMITS: Final = [
    ("10/1m30s", "'m30s' is not a unit of time", "write 10/90s"),
    ("10/s per ip,route", "'ip,route' is not a key", "write 10/s per ip+route"),
    ("10/s per ip and header:X", "'and' is not expected here", "write 10/s per ip+header:X"),
    ("10/s,burst 20", "'s,burst' is not a unit of time", "write 10/s burst 20"),
    (
        "10/s queue 5",
        "'queue' is not expected here",
        "waiting is configured beside limit: queue: {max: 100, max_wait: 2s}",
    ),
    ("10/day UTC", "'UTC' is not expected here", "write 10/day in UTC"),
    (
        "10/s per user",
        "'user' is not a key",
        "for example header:X-User or cookie:session, whichever identifies the user",
    ),
    (
        "0/s",
        "a limit of zero",
        "use 1 or more; to refuse all requests, give the route respond: {status: 403}",
    ),
    ("10/s burst20", "'burst20' is not expected here", "write burst 20"),
    ("10rps", "'rps' is not needed after the number", "write 10/s"),
    ("10r/s", "'r' is not needed after the number", "write 10/s"),
    (
        "rate=10r/s burst=20 nodelay",
        "a limit begins with a number, not 'rate=10r'",
        "write 10/s burst 20",
    ),
    ("10/s burst=20", "'burst=20' is not expected here", "write burst 20"),
    ("10/s burst 20 nodelay", "'nodelay' is not expected here", "write 10/s burst 20"),
    ("10/s/ip", "'/' is not expected here", "write 10/s per ip"),
    ("10/s by ip", "'by' is not expected here", "write per ip"),
    ("10/s for ip", "'for' is not expected here", "write per ip"),
    ("10/s per ip per route", "'per' is not expected here", "write 10/s per ip+route"),
    ("10/s per ip & route", "'&' is not expected here", "write 10/s per ip+route"),
    ("10/s per ip|route", "'ip|route' is not a key", "write 10/s per ip+route"),
    ("10/s per ip/route", "'/' is not expected here", "write 10/s per ip+route"),
    ("10/s per X-API-Key", "'X-API-Key' is not a key", "did you mean 'header:X-API-Key'?"),
    ("10/s per header X-API-Key", "'header' is not a key", "write 10/s per header:X-API-Key"),
    ("10/s per header: X-API-Key", "'header:' needs a name", "write 10/s per header:X-API-Key"),
    ("10/s per apikey", "'apikey' is not a key", "for example header:X-API-Key or query:api_key"),
    ("10/s per api_key", "'api_key' is not a key", "for example header:X-API-Key or query:api_key"),
    (
        "10/s per path",
        "'path' is not a key",
        (
            "for example route, which counts all paths of a route together, or path:id for "
            "/users/{id}"
        ),
    ),
    (
        "10/s per url",
        "'url' is not a key",
        (
            "for example route, which counts all paths of a route together, or path:id for "
            "/users/{id}"
        ),
    ),
    ("10/s per session", "'session' is not a key", "for example cookie:session"),
    ("10/s per token", "'token' is not a key", "for example header:Authorization"),
    ("10/s per json", "'json' is not a key", "for example json:user"),
    (
        "10/s per body:user",
        "'body:' is not a key",
        "for example json:user or form:user, a field of the body",
    ),
    ("10/s per jwt", "'jwt' is not a key", "for example jwt:sub"),
    ("10/s per claim:sub", "'claim:' is not a key", "for example jwt:sub"),
    ("10/s per geoip", "'geoip' is not a key", "did you mean 'country'?"),
    (
        "10/s per $geoip_country_code",
        "'$geoip_country_code' is not a key",
        "did you mean 'country'?",
    ),
    ("10/s per as_number", "'as_number' is not a key", "did you mean 'asn'?"),
    ("10/s per query", "'query' is not a key", "for example query:api_key"),
    ("10 per second", "'per' where '/' was expected", "write 10/s"),
    ("10/60", "the unit of time is missing", "write 10/60s, or use m, h or d"),
    ("1.5/s", "1.5 is not a whole number", "for 1.5 per s, write 3/2s"),
    ("10/h burst", "a number is missing", "for example 20"),
    (
        "unlimited",
        "a limit begins with a number, not 'unlimited'",
        "to have no limit, remove the key",
    ),
    ("none", "a limit begins with a number, not 'none'", "to have no limit, remove the key"),
    ("off", "a limit begins with a number, not 'off'", "to have no limit, remove the key"),
    ("-1/s", "-1 is negative", "a limit is at least 1"),
    ("1e3/s", "1e3 is not a whole number", "write 1000/s"),
    ("1k/s", "1k has a suffix", "write 1000"),
    ("10/w", "'w' is not a unit of time", "write 10/week in UTC, in another time zone, or 10/7d"),
    (
        "10/month",
        "'month' is not a unit of time",
        "write 10/month in UTC, in another time zone, or 10/30d",
    ),
    ("10/day in Berlin", "'Berlin' is not a known time zone", "did you mean Europe/Berlin?"),
    ("10/day in utc", "'utc' is not a known time zone", "did you mean UTC?"),
    (
        "10/day in +02:00",
        "'+02:00' is not a known time zone",
        "a zone is a name such as UTC or Europe/Berlin",
    ),
    (
        "10/s delay 5",
        "'delay' is not expected here",
        "waiting is configured beside limit: queue: {max: 100, max_wait: 2s}",
    ),
    (
        "10/s max_wait 2s",
        "'max_wait' is not expected here",
        "waiting is configured beside limit: queue: {max: 100, max_wait: 2s}",
    ),
    (
        "10/s wait 2s",
        "'wait' is not expected here",
        "waiting is configured beside limit: queue: {max: 100, max_wait: 2s}",
    ),
    ("10/s burst 0", "a burst of zero", "at least 1"),
    ("5 concurrent per ip", "'concurrent' where '/' was expected", "write 5 at once"),
    (
        "10/s; 100/m",
        "'s;' is not a unit of time",
        "use a list for several limits: limits: [10/s, 100/m]",
    ),
    (
        "10/s, 100/m",
        "'s,' is not a unit of time",
        "use a list for several limits: limits: [10/s, 100/m]",
    ),
    (
        "10/s and 100/m",
        "'and' is not expected here",
        "use a list for several limits: limits: [10/s, 100/m]",
    ),
    (
        "10/s + 100/m",
        "'+' is not expected here",
        "use a list for several limits: limits: [10/s, 100/m]",
    ),
    (
        "10MB/s",
        "a limit counts requests, not bytes",
        "bandwidth cannot be limited; 10/s counts requests",
    ),
    (
        "1MiB/s",
        "a limit counts requests, not bytes",
        "bandwidth cannot be limited; 10/s counts requests",
    ),
    ("10/10", "the unit of time is missing", "write 10/10s, or use m, h or d"),
    ("10/hourly", "'hourly' is not a unit of time", "write 10/h"),
    ("10 req/min", "'req' is not needed after the number", "write 10/m"),
    ("10 requests per minute", "'requests' is not needed after the number", "write 10/m"),
]
ROUTES: Final = [
    (
        "/users/:id",
        ":id is literal text in a path",
        "did you mean {id}? It stands for any one segment",
    ),
    (
        "~ ^/v[0-9]+/.*$",
        "'~ ^/v[0-9]+/.*$' looks like a regular expression, which routes do not support",
        "{name} stands for one segment, and /** for everything below",
    ),
    (
        "/v[0-9]+/.*",
        "'/v[0-9]+/.*' looks like a regular expression, which routes do not support",
        "{name} stands for one segment, and /** for everything below",
    ),
    (
        "/users/(\\d+)",
        "'/users/(\\\\d+)' looks like a regular expression, which routes do not support",
        "{name} stands for one segment, and /** for everything below",
    ),
    (
        "FETCH /x",
        "'FETCH' is not a method",
        "if clients use it, add server: { methods: FETCH }",
    ),
    (
        "münchen.example/**",
        "'münchen.example' is not a host name",
        "write xn--mnchen-3ya.example",
    ),
    (
        "/users/{id}/orders/:oid",
        ":oid is literal text in a path",
        "did you mean {oid}? It stands for any one segment",
    ),
    ("/*", "'*' is not a segment", "use {name} for one segment, or ** for everything below"),
    ("/a/*/b", "'*' is not a segment", "use {name} for one segment"),
    ("/a*", "'a*' is not a segment", "{name} must be a whole segment, and ** the last one"),
    ("*", "'*' has no path", "for all paths, write /**"),
    ("**", "'**' has no path", "for all paths, write /**"),
    ("a", "'a' has no path", "did you mean /a? For a whole host write a/**"),
    (
        "http://a.example/x",
        "'http://a.example/x' is a URL",
        "write only host and path, for example a.example/x",
    ),
    (
        "https://a.example/**",
        "'https://a.example/**' is a URL",
        "write only host and path, for example a.example/**",
    ),
    ("/a?x=1", "'/a?x=1' has a query or fragment", "routes match the path only"),
    ("/a b", "'/a b' has a space or control character", "write a space as %20"),
    ("ANY /x", "'ANY' is not a method", "for all methods, remove it"),
    ("* /x", "'*' is not a method", "for all methods, remove it: /x"),
    ("get /x", "methods are written in capitals, not 'get'", "write GET"),
    ("GET|POST /x", "'GET|POST' is not a method", "write GET,POST /x"),
    ("GET POST /x", "join several methods with commas", "write GET,POST /x"),
    ("/x GET", "'GET' is a method, and must come first", "write GET /x"),
    (
        "a.example:8080/**",
        "'a.example:8080' has a port",
        "remove it: routes ignore the port of a request's Host",
    ),
    ("/users/<id>", "'<id>' is not a parameter", "write {id}"),
    ("/users/<int:id>", "'<int:id>' is not a parameter", "write {id}"),
    (
        "/users/$id",
        "$id is literal text in a path",
        "did you mean {id}? It stands for any one segment",
    ),
    ("/users/{id:[0-9]+}", "'{id:[0-9]+}' is not a parameter", "write {id}"),
]
FILES: Final = [
    (A_ROUTE + "    limit: 10\n", "10 has no unit of time", "for example 10/s, 10/m or 10/d"),
    (A_ROUTE + "    limit: 10/s per 'ip'\n", "\"'ip'\" is not a key", "write 10/s per ip"),
    (
        "routes:\n  /**:{ upstream: http://127.0.0.1:9000 }\n",
        "found 'http://127.0.0.1:9000 }', a mapping was expected",
        "write a space before the brace: /**: {upstream: http://127.0.0.1:9000}",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    on_limit: { status: 403 }\n",
        "the number 403 is not valid here",
        "use 429, or 503: over a limit, retrying later helps",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    status: 403\n",
        "unknown key 'status'",
        "for refusals: on_limit: {status: 503}; for a fixed one: respond: {status: 403}",
    ),
    (
        A_ROUTE + "    websocket: yes\n",
        "'yes' is not valid here",
        "write true",
    ),
    (
        "clients:\n  - a\n" + THE_REST,
        "unknown key 'clients'",
        "the key to count by is part of the limit: limit: 10/s per header:X-API-Key",
    ),
    (
        'listen = "127.0.0.1:8080"\n[routes."/**"]\nupstream = "http://127.0.0.1:9000"\n',
        (
            'found \'listen = "127.0.0.1:8080" [routes."/**"] upstream = "http...\', a mapping was '
            "expected"
        ),
        "this looks like TOML or INI; a configuration is YAML, for example listen: 127.0.0.1:8080",
    ),
    (
        "routes:\n  /a:\n    upstream: '\"http://127.0.0.1:9000\"'\n",
        "the quotes are part of the text",
        "write http://127.0.0.1:9000; without quotes in a file of variables, too",
    ),
    (
        "routes:\n  /**:\n    upstream: ${UP}\n",
        "the quotes are part of the text",
        "write http://127.0.0.1:9000; without quotes in a file of variables, too",
    ),
    (
        "listen: ${L}\n" + THE_REST,
        "the quotes are part of the text",
        "write 127.0.0.1:80; without quotes in a file of variables, too",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    queue: { max: 5, max_wait: 1h30m }\n",
        "'1h30m' has two units",
        "use one number and one unit, for example 90s",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    queue: { max: 5, max_wait: 2 }\n",
        "2 has no unit of time",
        "for example 2s or 2ms",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    queue: 5\n",
        "found the number 5, a mapping was expected",
        "for example queue: {max: 5, max_wait: 2s}",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    queue: true\n",
        "found true, a mapping was expected",
        "for example queue: {max: 100, max_wait: 2s}",
    ),
    (
        A_ROUTE + "    queue: { max: 5, max_wait: 2s }\n",
        "queue requires a limit, and this route has none of its own",
        "add a limit here, or write queue in the policy",
    ),
    (
        "include: other.yaml\n" + THE_REST,
        "unknown key 'include'",
        "put the files into one folder: sluice run FOLDER",
    ),
    (
        "rate_limits:\n  - a\n" + THE_REST,
        "unknown key 'rate_limits'",
        "it is called limit here, and belongs in a route",
    ),
    (
        "routes:\n  /a:\n    upstream: 127.0.0.1:9000\n",
        "there is no upstream '127.0.0.1:9000'",
        "did you mean http://127.0.0.1:9000?",
    ),
    (
        "routes:\n  /a:\n    upstream: http://127.0.0.1:9000/api\n",
        "'http://127.0.0.1:9000/api' has a path",
        "write scheme, host and port; a route's add_prefix adds a path before that of requests",
    ),
    (
        "routes:\n  /a:\n    upstream: ws://127.0.0.1:9000\n",
        "'ws' is not needed",
        "write http://; upgrades pass through it",
    ),
    (
        "routes:\n  /a:\n    upstream: grpc://127.0.0.1:9000\n",
        "'grpc' is not a scheme of an upstream",
        "use http:// or https://, and http2: true beside the targets",
    ),
    (
        "routes:\n  /a:\n    upstream: h2c://127.0.0.1:9000\n",
        "'h2c' is not a scheme of an upstream",
        "use http:// or https://, and http2: true beside the targets",
    ),
    (
        "listen: 8080\n" + THE_REST,
        "8080 is a port without a host",
        "for example 127.0.0.1:8080, or :8080 for all interfaces",
    ),
    (
        "listen: localhost\n" + THE_REST,
        "'localhost' has no port",
        "for example localhost:8080",
    ),
    (
        "listen: http://127.0.0.1:80\n" + THE_REST,
        "'http://127.0.0.1:80' is a URL",
        "an address is host:port, without a scheme",
    ),
    (
        "listen: *:80\n" + THE_REST,
        "text that begins with * must be quoted",
        'quote it: "*:80"',
    ),
    (
        "store: redis\n" + THE_REST,
        "'redis' is not the URL of a store",
        "for example redis://127.0.0.1:6379/0",
    ),
    (
        "store: localhost:6379\n" + THE_REST,
        "'localhost:6379' is not the URL of a store",
        "for example memory:// or redis://127.0.0.1:6379/0",
    ),
    (
        "store: { type: redis, host: localhost }\n" + THE_REST,
        "unknown key 'type'",
        "it is part of the URL: url: redis://host:6379/0",
    ),
    (
        "store: postgres://h/d\n" + THE_REST,
        "'postgres' is not a kind of store",
        (
            "memory://, redis://, redis+sentinel://, redis+cluster://, unix://, mysql://, "
            "throttr+v5://, ratio:// or smockron://"
        ),
    ),
    (
        "admin: true\n" + THE_REST,
        "found true, a mapping was expected",
        "for example admin: 127.0.0.1:9901",
    ),
    (
        "http2: true\n" + THE_REST,
        "unknown key 'http2'",
        "it belongs under listen: {address: ..., http2: ...}",
    ),
    (
        A_ROUTE + "    cors: true\n",
        "true is not an origin",
        "for example https://app.example.com, https://*.example.com, or * for any",
    ),
    (
        A_ROUTE + "    cors: { allow_origins: [https://app.test] }\n",
        "unknown key 'allow_origins'",
        "it is called origins here",
    ),
    (
        A_ROUTE + "    auth: basic\n",
        "unknown key 'auth'",
        "authentication: not supported",
    ),
    (
        A_ROUTE + "    whitelist: 10.0.0.0/8\n",
        "unknown key 'whitelist'",
        "it is called allow here",
    ),
    (
        A_ROUTE + "    blacklist: 10.0.0.0/8\n",
        "unknown key 'blacklist'",
        "it is called deny here",
    ),
    (
        A_ROUTE + "    cache: 5m\n",
        "unknown key 'cache'",
        "caching: not supported",
    ),
    (
        A_ROUTE + "    gzip: on\n",
        "unknown key 'gzip'",
        "compression: not supported",
    ),
    (
        A_ROUTE + "    plugins: [a]\n",
        "unknown key 'plugins'",
        "plug-ins: not supported",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    algorithm: gcra\n",
        "'gcra' is not valid here",
        "use token_bucket, which decides as GCRA does",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    algorithm: leaky_bucket\n",
        "'leaky_bucket' is not valid here",
        "use token_bucket, with queue for requests that a leaky bucket would delay",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    algorithm: sliding_window\n",
        "'sliding_window' is not valid here",
        "use sliding_window_counter, or the exact sliding_window_log",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    on_store_error: allow\n",
        "'allow' is not valid here",
        "use open",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    on_store_error: fail_open\n",
        "'fail_open' is not valid here",
        "use open",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    key: ip\n",
        "unknown key 'key'",
        "it is part of the limit, for example limit: 10/s per header:X-API-Key",
    ),
    (
        A_ROUTE + "    limit: 10/s\n    burst: 20\n",
        "unknown key 'burst'",
        "it is part of the limit, for example limit: 10/s burst 20",
    ),
    (
        A_ROUTE + "    policies: [nope]\n",
        "there is no policy 'nope'",
        "for example policies: {nope: 10/s burst 20}",
    ),
    (
        A_ROUTE + "    policy: x\n",
        "unknown key 'policy'",
        "write policies: [NAME]",
    ),
]


def judge(text: str, message: str, hint: str) -> None:
    """What is said of a configuration is this, and at its place."""
    problem = said_of(text, QUOTED)[0]
    assert (problem.message, problem.hint) == (message, hint)
    assert problem.line >= 1


@pytest.mark.parametrize(("limit", "message", "hint"), LIMITS)
def test_limits_in_other_words(limit: str, message: str, hint: str) -> None:
    """The hint is what to write, in one line if one is enough."""
    judge(
        f"routes:\n  /a:\n    {UPSTREAM}\n    limit: '{limit}'\n".replace("''", "'"), message, hint
    )


@pytest.mark.parametrize("limit", [limit for limit, _, hint in LIMITS if "write " in hint])
def test_a_limit_that_is_suggested_can_be_read(limit: str) -> None:
    """A whole line is; a part of one can stand where the trouble was."""
    with pytest.raises(LimitSyntaxError) as caught:
        parse_limit(limit)
    (suggested,) = re.findall(r"write ([^,]+)", caught.value.hint)
    if re.match(r"[0-9]+(/| at once)", suggested):
        parse_limit(suggested)
    else:
        begin = caught.value.column - 1
        parse_limit(f"{limit[:begin]}{suggested}{'/s' if suggested.isdigit() else ''}")


@pytest.mark.parametrize(("route", "message", "hint"), ROUTES)
def test_routes_in_other_words(route: str, message: str, hint: str) -> None:
    """The hint is the pattern that is meant; a pattern used as written gets a warning."""
    judge(f"routes:\n  '{route}':\n    {UPSTREAM}\n", message, hint)


@pytest.mark.parametrize(("text", "message", "hint"), FILES)
def test_keys_and_values_in_other_words(text: str, message: str, hint: str) -> None:
    """Those of other programs, of other formats, and of habit."""
    judge(text, message, hint)


def test_the_command_line_says_what_can_be_imported() -> None:
    """A user of nginx learns that there is no importer for it."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "import", "nginx"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "sluice: 'nginx' cannot be imported\n"
        "  hint: systems that can be imported: envoy-ratelimit\n"
    )
