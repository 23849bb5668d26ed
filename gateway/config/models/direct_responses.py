"""Responses of the gateway itself: redirects, fixed responses, and error pages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator, model_validator

from gateway.config.values.base import Model
from gateway.config.values.hosts import HostError, parse_host, unfilled_hint
from gateway.config.values.types import Off, Switch, describe, problem
from gateway.config.values.written import FilledText, literal
from gateway.http.editing.pages import VARIABLES as PAGE_VARIABLES
from gateway.http.editing.pages import Facts, fill_problem
from gateway.http.editing.template import Template, TemplateError, parse_template

REDIRECT_VARIABLES: Final = ("host", "path", "query", "scheme")

_TYPE: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[ -~]{1,200}")
_STATUS_KEY: Final = re.compile(r"[45](?:xx|[0-9][0-9])")
# Only the operator may decide where a redirect leads: `//evil.test` is another host (CVE-2021-21330
# of aiohttp), and so is anything appended directly to a host.
_ABSOLUTE: Final = re.compile(
    r"(?:https?|\{scheme\})://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]|\{host\})(?::[0-9]{1,5})?"
    r"(?=\{path\}|[/?]|\Z)"
)
_RELATIVE: Final = re.compile(r"\{path\}|/(?![/\\]|\{path\}|\{query\})")
# Visible ASCII without "#<>\^`| - compiling the complement, up to U+10FFFF, takes milliseconds.
_TAIL: Final = re.compile(r"[!$-;=?-\[\]_a-{}~]*")


_FOREIGN_NAMES: Final = {
    "host": "write {host}",
    "scheme": "write {scheme}",
    "request_uri": "write {path}; the query is kept",
    "uri": "write {path}",
    "is_args": "remove it: the query is kept",
    "args": "remove it: the query is kept",
    "query_string": "remove it: the query is kept",
}
"""Variables of nginx, and their names here."""
_FOREIGN: Final = re.compile(rf"\$(?:({'|'.join(_FOREIGN_NAMES)})\b|[0-9])")
_OFF_WORDS: Final = frozenset({"on", "off"})


class Location(NamedTuple):
    """The target of a redirect.

    Attributes:
        template: the target, with variables that include the route's parameters.
        indexes: for each of these parameters, the segment it stands for.
    """

    template: Template
    indexes: dict[str, int]


def parse_location(pattern: str, text: str) -> Location:
    """Read the target of a route's redirect.

    Raises:
        TemplateError: it is not a URL, or might lead to a host that a client chooses.
    """
    indexes = {
        segment[1:-1]: index
        for index, segment in enumerate(pattern[1:].split("/"))
        if segment.startswith("{")
    }
    template = parse_template(text, (*indexes, *REDIRECT_VARIABLES))
    foreign = _FOREIGN.search(text)
    if foreign:
        hint = _FOREIGN_NAMES.get(foreign[1], "a parameter of the route is written {name}")
        raise TemplateError(f"unknown variable {foreign[0]}", hint, foreign.start())
    start = _ABSOLUTE.match(text) or _RELATIVE.match(text)
    if start is None:
        hint = "for example https://{host}{path}, /new/place or {path}/"
        unfilled = "$" in text.partition("://")[2] and unfilled_hint(text)
        hint = unfilled or hint
        raise TemplateError(f"{text!r} does not clearly say where it leads", hint)
    _check_host(start.groupdict().get("host"))
    if not _TAIL.fullmatch(text):
        raise TemplateError(
            f"{text!r} is not a URL", "write it without spaces, fragments and quotes"
        )
    before = text.partition("{query}")[0]
    if "query" in template.names and "?" not in before:
        message = "{query} is outside the query"
        raise TemplateError(
            message, "put it after a question mark; or remove it, the query is kept"
        )
    return Location(template, indexes)


def _check_host(host: str | None) -> None:
    """Check that clients can be sent to a literal host.

    Raises:
        TemplateError: they cannot.
    """
    if host is None or host == "{host}":
        return
    try:
        parse_host(host)
    except HostError as error:
        raise TemplateError(error.message, error.hint) from None


class RedirectConfig(Model):
    """A redirect."""

    to: str = Field(
        description="A URL or a path, with {host}, {path}, {query}, {scheme} and the route's own "
        "parameters.",
        min_length=1,
    )
    status: Literal[301, 302, 303, 307, 308] = Field(
        308, description="The status code. 308 and 301 are permanent; 307 and 308 keep the method."
    )
    keep_query: Switch = Field(True, description="Whether the query is kept, unless `to` has one.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        if isinstance(data, str):
            return {"to": literal(data, _URL_BRACES).strip()}
        if isinstance(data, Mapping) and isinstance(data.get("to"), str):
            return {**data, "to": literal(data["to"], _URL_BRACES)}
        return data


_URL_BRACES: Final = {"{": "%7B", "}": "%7D"}
"""Escape braces in the value of a reference: they are not variables of the redirect."""


def _read_status(value: object) -> int:
    if isinstance(value, str) and re.fullmatch("[0-9]{3}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise problem(f"found {describe(value)}, a status was expected", "for example 200 or 404")
    if value not in HTTPStatus.__members__.values() or value < 200 or value == 304:
        raise problem(f"{value} is not the status of a response", "for example 200, 404 or 503")
    return value


AnswerStatus = Annotated[
    int,
    PlainValidator(_read_status),
    WithJsonSchema({"type": "integer", "minimum": 200, "maximum": 599, "not": {"const": 304}}),
]


def _refuse_switch(data: object, name: str) -> None:
    """Refuse words that were probably not meant to be a page."""
    # The content of a file is literal.
    if isinstance(data, FilledText) or not isinstance(data, str):
        return
    if data.strip().lower() in _OFF_WORDS:
        hint = f"remove it; to send this as text, write {{{name}: {data}}}"
        raise problem(f"{data!r} is not a switch here", hint)


class RespondConfig(Model):
    """A fixed response."""

    status: AnswerStatus = Field(200, description="The status code.")
    body: str | None = Field(
        None, description="The body; use ${file:page.html} for the content of a file."
    )
    type: str = Field("text/plain; charset=utf-8", description="The media type of the body.")

    @model_validator(mode="before")
    @classmethod
    def _from_value(cls, data: object) -> object:
        if isinstance(data, int) and not isinstance(data, bool):
            return {"status": data}
        _refuse_switch(data, "body")
        return {"body": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _check(self) -> RespondConfig:
        if not _TYPE.fullmatch(self.type):
            message = f"{self.type!r} is not a media type"
            raise problem(message, "for example text/html; charset=utf-8", under=("type",))
        if self.body and self.status in (204, 205):
            message = f"a response with status {self.status} has no body"
            raise problem(message, "use another status, or no body", under=("body",))
        return self


_BRACES: Final = re.compile(r"(?<![${])\{([a-z_]{2,40})\}(?!\})")
"""What is meant as a variable; a preceding dollar sign marks one of a script."""
_CODE: Final = re.compile(
    r"<script\b.*?</script|<style\b.*?</style|<!--.*?-->", re.IGNORECASE | re.DOTALL
)
"""Parts of a page that have braces of their own."""


class ErrorPage(Model):
    """The forms of an error, of which clients get the one they prefer."""

    html: str | None = Field(
        None,
        description="A page, with {status}, {reason}, {title}, {retry_after} (in seconds) and "
        "{advice} (when to return); use ${file:404.html} for a file.",
    )
    text: str | None = Field(None, description="Plain text, with the same variables.")
    problem: str | None = Field(
        None, description="A problem document (JSON, RFC 9457), with the same variables."
    )
    intercept: Switch = Field(
        False, description="Whether it also replaces such responses of the upstream."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        _refuse_switch(data, "html")
        return {"html": data} if isinstance(data, str) else data

    @field_validator("html", "text", "problem")
    @classmethod
    def _check_variables(cls, text: str | None) -> str | None:
        for name in _BRACES.findall(_CODE.sub("", text or "")):
            if name not in PAGE_VARIABLES:
                near = get_close_matches(name, PAGE_VARIABLES, 1, 0.6)
                known = ", ".join(f"{{{one}}}" for one in PAGE_VARIABLES)
                hint = f"known variables: {known}; for literal braces, write {{ {name} }}"
                hint = f"did you mean {{{near[0]}}}?" if near else hint
                raise problem(f"{{{name}}} is not a known variable", hint)
        return text

    @field_validator("problem")
    @classmethod
    def _check_problem(cls, text: str | None) -> str | None:
        if text is None:
            return None
        hint = 'for example \'{"title": "{reason}", "status": {status}}\''
        try:
            document = json.loads(fill_problem(text, Facts(404, "Not Found", "Not found")))
        except ValueError as error:
            raise problem(f"this is not JSON: {error}", hint) from None
        if not isinstance(document, dict):
            raise problem(f"found {describe(document)}, a JSON object was expected", hint)
        return text


def _read_page_status(value: object) -> str:
    """Return a status as text, whatever type YAML gives it."""
    text = str(value)
    is_known = text[1:] == "xx" or text in _KNOWN
    if not _STATUS_KEY.fullmatch(text) or not is_known:
        raise problem(f"{describe(value)} is not the status of an error", "use 404, 4xx or 5xx")
    return text


_KNOWN: Final = frozenset(str(int(status)) for status in HTTPStatus)

PageStatus = Annotated[str, PlainValidator(_read_page_status), WithJsonSchema({"type": "string"})]

ErrorPages = Annotated[dict[PageStatus, ErrorPage] | None, Off]
