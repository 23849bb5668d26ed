"""`sluice explain`: what becomes of one request, and why."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway.command.arguments import StoreOnce
from gateway.command.printing import EXIT_FAILED, EXIT_OK, print_problems

if TYPE_CHECKING:
    from gateway.config.models.gateway import GatewayConfig, PolicyConfig
    from gateway.limiter.plan import Rule
    from gateway.wiring.inquiry import CountedLimit, Findings, Inquiry

DEFAULT_PEER: Final = "127.0.0.1"
DEFAULT_HOST: Final = "localhost"
MAX_ROUTES: Final = 20
"""If there are more routes, those for other paths are not listed."""
EXAMPLE: Final = "for example: sluice explain -c sluice.yaml GET /v1/pay -H 'X-API-Key: a'"

_is_method: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
"""RFC 9110, section 5.6.2."""
_is_field: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*").fullmatch


def add_explain(commands: Any) -> None:
    """Add the command to those of the command line, as argparse keeps them."""
    parser = commands.add_parser(
        "explain",
        help="say what becomes of a request, and why; nothing is sent and nothing is spent",
        epilog=f"F{EXAMPLE[1:]}",
    )
    text = "a YAML file, or a folder of YAML files"
    parser.add_argument(
        "-c", "--config", action=StoreOnce, type=Path, metavar="FILE", help=text, required=True
    )
    text = "the method (default: GET), and the path, or a URL"
    parser.add_argument("request", nargs="+", metavar="REQUEST", help=text)
    text = "a header field, as in 'X-API-Key: a'; any number of them"
    parser.add_argument("-H", "--header", action="append", default=[], metavar="FIELD", help=text)
    text = "the body, for limits that count by a field of it; the default method is then POST"
    parser.add_argument("-d", "--data", default="", metavar="BODY", help=text)
    text = f"the address that the request comes from (default: {DEFAULT_PEER})"
    parser.add_argument(
        "--from", dest="peer", type=_peer, default=DEFAULT_PEER, metavar="ADDRESS", help=text
    )
    parser.set_defaults(command=explain_request, misuse=parser.error)


def _peer(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        message = f"{text!r} is not an IP address, such as 192.0.2.1"
        raise argparse.ArgumentTypeError(message) from None


def explain_request(options: argparse.Namespace) -> int:
    """Print what becomes of a request.

    Returns:
        0, whatever becomes of it; 1 if the store did not respond.
    """
    import asyncio

    inquiry = _inquiry(options)
    from gateway.config.checking.load import load
    from gateway.wiring.inquiry import inquire
    from gateway.wiring.inspection import inspection

    loaded = load(options.config, os.environ, inspect=inspection(is_start=False))
    print_problems(loaded.warnings, "warning")
    findings = asyncio.run(inquire(loaded.config, inquiry))
    print(loaded.secrets.hide("\n".join(_sentences(loaded.config, findings))))
    return EXIT_FAILED if findings.store_error else EXIT_OK


def _inquiry(options: argparse.Namespace) -> Inquiry:
    """Read the command line; end the process where it is not a request."""
    from gateway.wiring.inquiry import Inquiry

    words: list[str] = options.request
    if len(words) > 2:
        options.misuse(f"{words[2]!r} is one word too many\n  hint: {EXAMPLE}")
    body = options.data.encode("utf-8", "surrogateescape")
    method, target = words if len(words) == 2 else ("POST" if body else "GET", words[0])
    if not _is_method(method):
        options.misuse(f"{method!r} is not a method\n  hint: {EXAMPLE}")
    scheme, host = "http", DEFAULT_HOST
    if "://" in target:
        url = urlsplit(target)
        if url.scheme not in {"http", "https"} or not url.netloc:
            options.misuse(f"{target!r} is not a URL of http or https\n  hint: {EXAMPLE}")
        scheme, host = url.scheme, url.netloc
        target = target.partition("://")[2][len(host) :].partition("#")[0]
        target = target if target.startswith("/") else f"/{target}"
    elif not target.startswith("/") and target != "*":
        options.misuse(f"{target!r} is not a path: it does not begin with /\n  hint: {EXAMPLE}")
    if " " in target or not target.isprintable():
        options.misuse(f"{target!r} has characters that must be escaped, such as %20")
    fields: list[str] = [line.strip() for line in options.header]
    for line in fields:
        if not _is_field(line):
            options.misuse(f"{line!r} is not a header field\n  hint: write 'NAME: VALUE'")
    if not any(line.lower().startswith("host:") for line in fields):
        fields.insert(0, f"Host: {host}")
    if body and not any(line.lower().startswith("content-length:") for line in fields):
        fields.append(f"Content-Length: {len(body)}")
    lines = [f"{method} {target} HTTP/1.1", *fields, "", ""]
    head = "\r\n".join(lines).encode("utf-8", "surrogateescape")
    return Inquiry(head, options.peer, scheme, body)


# What was found, in sentences.


def _sentences(config: GatewayConfig, found: Findings) -> Iterator[str]:
    from gateway.config.models.policies import with_candidates

    if found.redirect:
        yield f"The listener redirects the request to {found.redirect}."
        return
    if found.route is None:
        yield from _refused(found)
        return
    how = "as a trusted proxy says" if found.is_reported else "the address of the connection"
    yield f"Client: {found.client} ({how})."
    yield f"Route: {found.route.name}."
    yield from _others(found)
    if found.token:
        yield f"Token: {found.token}."
    if found.refused is not None:
        yield from _refused(found)
        return
    for name, is_exception in found.exempt:
        why = "it is one of its exceptions" if is_exception else "it counts only others"
        yield f"Policy {name} does not count this request: {why}."
    if found.route.plan is None:
        yield "Limits: none."
    elif found.exempt and not found.limits:
        pass
    elif not found.limits:
        yield "Limits: none of them counts this request, since it lacks what they count by."
    else:
        yield "Limits:"
        policies = with_candidates(config.policies)
        for limit in found.limits:
            yield from _of_limit(policies[limit.rule.policy.name], limit)
        yield from _of_store(config, found)
    yield _verdict(found)


def _refused(found: Findings) -> Iterator[str]:
    assert found.refused is not None
    status, title = found.refused
    yield f"The request is answered with {status}: {title}."
    if found.route is None:
        yield from _others(found)


def _others(found: Findings) -> Iterator[str]:
    """Say why other routes are not taken; of thousands, only those for the path of the request."""
    is_short = len(found.others) <= MAX_ROUTES
    for other in found.others:
        if not other.condition and found.route is not None:
            yield f"  {other.name} matches too, but {found.route.name} {other.why}."
        elif is_short or other.condition != "path":
            yield f"  Not {other.name}: it {other.why}."
    elsewhere = sum(other.condition == "path" for other in found.others)
    if elsewhere and not is_short:
        yield f"  Not {elsewhere:,} others: they are for other paths."


def _of_limit(policy: PolicyConfig, limit: CountedLimit) -> Iterator[str]:
    from gateway.config.explaining.limits import explain_limit
    from gateway.config.values.words import join, number
    from gateway.wiring.policies import titles_of

    name, title = limit.rule.policy.name, limit.rule.title
    tier = limit.rule.limit.scope.removeprefix(f"{name}~").partition("/")[0]
    lines = policy.tiers.get(tier) or policy.limits
    line = lines[titles_of(name, lines).index(title)]
    if lines is not policy.limits:
        yield f"  Tier of policy {name}: {tier}."
    yield f"  Policy {name}: {line.text}: {explain_limit(line)}."
    settled = "" if policy.cost.settle is None else ", settled by the response"
    if policy.count_when:
        settled = f", given back unless the response is {join(policy.count_when, 'or')}"
    yield f"    Key: {limit.key}. Cost: {number(limit.cost)}{settled}."
    if not limit.is_enforced:
        yield "    Not enforced: it is only tried out."
    if limit.decision is not None:
        yield f"    {_state(limit)}"


def _state(limit: CountedLimit) -> str:
    from gateway.config.values.units import format_duration
    from gateway.config.values.words import number

    decision, policy = limit.decision, limit.rule.policy
    assert decision is not None
    left = f"{number(decision.remaining)} of {number(decision.limit)} left"
    if decision.reset_us > 0 and limit.rule.limit.algorithm != "concurrency":
        rounded_us = max(decision.reset_us // 1000 * 1000, 1000)
        left += f", all of it in {format_duration(rounded_us)}"
    if decision.remaining > 0:
        return f"Passes: {left}."
    if _has_queue(limit.rule):
        longest = format_duration(limit.rule.limit.max_wait_us)
        return f"Over the limit: {left}. Waits for its turn, or is refused if that takes {longest}."
    return f"Over the limit: {left}. Refused with {policy.status}."


def _has_queue(rule: Rule) -> bool:
    return bool(rule.policy.queue_max and rule.limit.max_wait_us)


def _of_store(config: GatewayConfig, found: Findings) -> Iterator[str]:
    from gateway.config.values.store_url import capabilities_of

    url = config.store.redacted_url
    if found.store_error:
        yield f"The store {url} did not respond: {found.store_error}."
    elif found.limits[0].decision is None:
        can = capabilities_of(config.store.url)
        where = f"{url} does not say" if can.is_shared else "only the running gateway knows"
        yield f"What is left of these limits is not shown: {where}."
    elif any(limit.rule.policy.terms is not None for limit in found.limits):
        yield "Gateways may hold tokens of leased policies, and have admissions yet to report."


def _verdict(found: Findings) -> str:
    route = found.route
    assert route is not None
    if route.upstream is None:
        goes = "answered by the gateway"
    else:
        goes = f"forwarded to {route.upstream.name} as {found.sent_target}"
    enforced = [one for one in found.limits if one.is_enforced]
    over = [one for one in enforced if one.decision is not None and not one.decision.remaining]
    refusing = [one for one in over if not _has_queue(one.rule)]
    if refusing:
        rule = refusing[0].rule
        return f"Verdict: refused with {rule.policy.status} by policy {rule.policy.name}."
    if over:
        return f"Verdict: waits for its turn, then {goes}."
    if enforced and enforced[0].decision is None:
        return f"Verdict: if its limits admit it, {goes}."
    return f"Verdict: {goes}."
