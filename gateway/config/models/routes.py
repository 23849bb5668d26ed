"""Routes: conditions on requests, policies, targets and changes."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from gateway.config.models.answers import UpstreamLimits
from gateway.config.models.changes import (
    FieldEdits,
    OwnMaxBody,
    PathChange,
    PathText,
    UpstreamHost,
    compile_rewrite,
)
from gateway.config.models.conditions import CertificateDetails, Cookies, make_sender
from gateway.config.models.cors import Cors
from gateway.config.models.direct_responses import (
    ErrorPages,
    Location,
    RedirectConfig,
    RespondConfig,
    parse_location,
)
from gateway.config.models.lists import Members
from gateway.config.models.retry import RetryConfig
from gateway.config.models.upstreams import UpstreamConfig
from gateway.config.values.base import NAME, NAME_HINT, Model, overlay, untouched
from gateway.config.values.findings import KEY
from gateway.config.values.places import ConditionName, FieldText
from gateway.config.values.types import (
    HostPattern,
    ListOf,
    Method,
    Off,
    PathPattern,
    Positive,
    Switch,
    problem,
    problems,
)
from gateway.config.values.written import FilledText, WrittenPart
from gateway.http.editing.template import TemplateError
from gateway.routing.pattern import Pattern

_FOR_UPSTREAMS: Final = (
    *("strip_prefix", "add_prefix", "rewrite", "request_headers", "upstream_host"),
    *("max_body", "retry", "websocket", "upstream_limits"),
)
"""Keys that a route may have only if its requests go to an upstream."""


class RouteConfig(Model):
    """Which requests go to which upstream, under which policies."""

    name: Annotated[
        str, Field(description="The name in metrics, logs and keys; default: the pattern.")
    ]
    path: PathPattern = Field(
        description="/v1/pay exactly, /v1/** and everything below, {name} for any one segment."
    )
    host: HostPattern | None = Field(
        None, description="A host, or *.example.com for all below it; default: any host."
    )
    methods: Annotated[tuple[Method, ...], ListOf] = Field((), description="Default: any method.")
    headers: dict[ConditionName, FieldText] = Field(
        {},
        description="Fields that a request must have, with their values; * in a value is any text.",
    )
    client: Annotated[Members, Field(min_length=1)] = Field(
        (), description="Networks and names of lists; one of them must have the client."
    )
    cookies: Cookies = Field(
        {}, description="Cookies that a request must have, with their values; * for any text."
    )
    client_cert: CertificateDetails = Field(
        {},
        description="What the client's certificate must say: subject, san or fingerprint, with * "
        "for any text.",
    )
    redirect: RedirectConfig | None = Field(
        None, description="Where clients are redirected: a URL, or a mapping with options."
    )
    respond: RespondConfig | None = Field(
        None, description="A fixed response: a text, a status, or a mapping with options."
    )
    upstream: str | None = Field(
        None,
        validate_default=True,
        description="The name or the URL of an upstream; not with redirect or respond.",
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of policies; a request must be admitted by all of them."
    )
    cost: Positive = Field(
        1, description="What each of its requests costs: how many requests it counts as."
    )
    allow: Members | None = Field(
        None,
        description="The only clients that may use it, as networks and names of lists; all others "
        "get 403.",
    )
    deny: Members = Field(
        (), description="Clients that may not use it, in addition to those of the whole file."
    )
    websocket: Switch = Field(True, description="Whether WebSockets are allowed.")
    retry: Annotated[RetryConfig | None, Off] = Field(
        None, description="Overrides keys of the upstream's retry; off for none."
    )
    max_body: OwnMaxBody | None = Field(
        None,
        description="The largest body of a request; default: as under server, off for any size.",
    )
    strip_prefix: PathText | None = Field(
        None, description="A prefix that is removed from the path for the upstream."
    )
    add_prefix: PathText | None = Field(
        None, description="A prefix that is added to the path for the upstream, after strip_prefix."
    )
    rewrite: PathText | None = Field(
        None,
        description="The path for the upstream: /v2/{id}/** with the route's parameters, and ** "
        "for what its ** matches.",
    )
    upstream_host: UpstreamHost = Field(
        "client",
        description="The Host for the upstream: client for the one that the client sent, target "
        "for the target's own, or a host.",
    )
    request_headers: FieldEdits = Field(
        untouched(FieldEdits), description="Changes to header fields of requests."
    )
    response_headers: FieldEdits = Field(
        untouched(FieldEdits), description="Changes to header fields of responses."
    )
    error_pages: ErrorPages = Field(
        None, description="Error pages by status; default: those of the whole file."
    )
    upstream_limits: UpstreamLimits = Field(
        "replace",
        description="What happens to RateLimit* and X-RateLimit-* of the upstream where the "
        "response has the gateway's own: replace removes them, keep sends them instead, merge "
        "tells both limits, or the more restrictive one. Default: as under defaults.",
    )
    cors: Cors = Field(
        None,
        description="Which pages of other sites may read the gateway's own responses: origins, or "
        "a mapping with options. Default: as under defaults; off for none.",
    )

    @field_validator("name")
    @classmethod
    def _check_route_name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise problem(f"{name!r} is not a valid name", NAME_HINT)
        return name

    @field_validator("upstream")
    @classmethod
    def _check_upstream(cls, upstream: str | None, info: ValidationInfo) -> str | None:
        own = [name for name in ("redirect", "respond") if info.data.get(name) is not None]
        is_certain = "redirect" in info.data and "respond" in info.data
        if upstream is None and not own and is_certain:
            raise PydanticKnownError("missing")
        if upstream is not None and own:
            message = f"{own[0]} is the response: no request reaches an upstream"
            raise problem(message, "remove one of the two", under=(KEY,))
        return upstream

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        lower: dict[str, str] = {}
        for name, value in headers.items():
            if name.lower() in lower:
                raise problem(
                    f"{name!r} is named twice", "name it once, in any case", under=(name, KEY)
                )
            stripped = value.strip()
            if isinstance(value, FilledText):
                stripped = FilledText.of(value.written, (WrittenPart(stripped, is_given=True),))
            lower[name.lower()] = stripped
        return lower

    @model_validator(mode="after")
    def _check_changes(self) -> RouteConfig:
        if self.upstream is not None:
            compile_rewrite(self.path, self.path_change)
            return self
        if self.redirect is not None and self.respond is not None:
            message = "a request is either redirected or answered"
            raise problem(message, "remove one of the two", under=("respond", KEY))
        wrong = [
            problem(
                f"{name} is for routes with an upstream, and this route has none",
                "remove it",
                under=(name, KEY),
            )
            for name in _FOR_UPSTREAMS
            if name in self.model_fields_set
        ]
        if self.redirect is not None:
            try:
                location = parse_location(self.path, self.redirect.to)
            except TemplateError as error:
                under = ("redirect", "to")
                wrong.append(problem(error.message, error.hint, under=under))
            else:
                if self._is_redirected_to_itself(self.redirect, location):
                    message = (
                        "this leads to the route itself: clients would be redirected in a loop"
                    )
                    wrong.append(problem(message, "use another path", under=("redirect", "to")))
        if wrong:
            raise problems(wrong)
        return self

    def _is_redirected_to_itself(self, redirect: RedirectConfig, location: Location) -> bool:
        """Return whether every client that follows the redirect certainly returns to this route."""
        if self.cookies:
            # The response may set them.
            return False
        path = location.template.text.partition("?")[0]
        # With these statuses, methods other than GET return as GET (RFC 9110, section 15.4).
        is_get = redirect.status in (301, 302, 303) and "GET" not in self.methods
        return not (self.methods and is_get) and path in ("{path}", self.path)

    @property
    def pattern(self) -> Pattern:
        """Return the conditions on requests, compiled.

        Raises:
            ValueError: they match no request.
        """
        sender = make_sender(self.client, self.cookies, self.client_cert)
        return Pattern(self.host, self.path, self.methods, tuple(self.headers.items()), sender)

    @property
    def path_change(self) -> PathChange:
        """Return the changes to paths, for `compile_rewrite`."""
        return PathChange(self.strip_prefix, self.add_prefix, self.rewrite)


def retry_of(route: RouteConfig, upstream: UpstreamConfig) -> RetryConfig | None:
    """Return the retries of a route: its own keys, and for the rest those of its upstream."""
    if route.retry is None:
        return None if "retry" in route.model_fields_set else upstream.retry
    return overlay(route.retry, upstream.retry or untouched(RetryConfig))
