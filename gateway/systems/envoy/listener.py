"""Envoy's rate limit service, for Envoy and systems built on it: Istio, Contour, Emissary.

Errors are those of Envoy's own service, which its clients expect: a request without a domain or
without descriptors is answered `UNKNOWN`, and a domain that is not configured is not limited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NoReturn

import grpc

from gateway.config.models.frontends import FrontendConfig
from gateway.systems.asking import can_answer
from gateway.systems.base import FrontendContext
from gateway.systems.envoy.asking import EnvoyQuestions
from gateway.systems.envoy.config import MAX_ENTRIES, EnvoyRlsConfig
from gateway.systems.envoy.messages import (
    MESSAGES,
    METHOD,
    OK,
    SERVICE,
    EnvoyQuestion,
    read_question,
    write_reply,
)
from gateway.systems.envoy.plan import CallPlan, Planner
from gateway.systems.envoy.replies import Replies
from gateway.systems.envoy.rules import Domains, TooManyOverridesError, UnknownUnitError
from gateway.systems.grpc.calls import Context
from gateway.systems.grpc.frontend import GrpcFrontend
from gateway.systems.grpc.server import GrpcServer, Service, bounds_of, serving_of

MAX_DESCRIPTORS: Final = 128
"""Most descriptors in a request: Envoy sends one for each of a route's rate limits."""

HEALTH_NAME: Final = "ratelimit"
"""The name of Envoy's own service in health checks."""

KNOWN_MAX: Final = 4096
"""How many requests to cache the plan of."""
KNOWN_MAX_BYTES: Final = 256
"""Longer ones are planned each time, or callers could fill memory with them."""

SHOWN: Final = 100
"""Most characters of a domain in the log."""

log = logging.getLogger(__name__)

_UNKNOWN: Final = grpc.StatusCode.UNKNOWN
_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
_EXHAUSTED: Final = grpc.StatusCode.RESOURCE_EXHAUSTED


class EnvoyRls(GrpcFrontend):
    """A front end: `ShouldRateLimit` on one address.

    Args:
        name: of the listener.
        listener: its configuration.
        context: the parts of the gateway that it uses.
    """

    def __init__(self, name: str, listener: FrontendConfig, context: FrontendContext) -> None:
        config = listener.envoy_rls
        assert config is not None, "made for listeners of this kind"
        self._use(config, context, Planner(Domains(config, context)))
        self._metrics = metrics = context.metrics.frontend(name)
        metrics.hides_connections = True
        service = Service(
            SERVICE, {METHOD: self._should_rate_limit}, MESSAGES.files, (HEALTH_NAME,)
        )
        # If the store is unavailable, the gateway still answers, as `on_store_error` says.
        bounds = bounds_of(listener, context)
        server = GrpcServer(
            [service],
            bounds,
            malformed=self._malformed,
            is_able=self._can_answer,
            sharing=context.sharing,
        )
        super().__init__(serving_of(name, listener, context), server, bounds)

    def _use(self, config: EnvoyRlsConfig, context: FrontendContext, planner: Planner) -> None:
        self._domains = config.domains
        self._is_warned = False
        self._planner = planner
        self._asking = EnvoyQuestions(context.decider)
        self._replies = Replies(config)
        # Envoy mostly repeats its requests.
        self._plans: dict[bytes, CallPlan] = {}
        self._is_able = can_answer(context, ())

    def _can_answer(self) -> bool:
        return self._is_able()

    def reconfigured(
        self, name: str, listener: FrontendConfig, context: FrontendContext
    ) -> Callable[[], object] | None:
        """Prepare to serve as another configuration says; see `Frontend`."""
        config, serving = listener.envoy_rls, serving_of(name, listener, context)
        is_same = context.metrics.frontend(name) is self._metrics
        if config is None or not is_same or not self._stays(serving, bounds_of(listener, context)):
            return None
        return partial(self._use, config, context, Planner(Domains(config, context)))

    async def _should_rate_limit(self, data: bytes, context: Context) -> bytes:
        plan = self._plans.get(data)
        if plan is None:
            plan = await self._plan(data, context)
        decided = await self._asking.ask(plan)
        reply = self._replies.reply(decided)
        self._metrics.answers[_ANSWERS[reply.code == OK, decided.is_over]] += 1
        return write_reply(reply)

    async def _plan(self, data: bytes, context: Context) -> CallPlan:
        question = read_question(data)
        wrong = _wrong(question)
        if wrong is not None:
            await self._refuse(context, *wrong)
        if question.domain not in self._domains:
            self._not_known(question.domain)
        try:
            plan = self._planner.plan(question)
        except UnknownUnitError:
            await self._refuse(
                context, _INVALID, "the unit of a descriptor's own limit is not known"
            )
        except TooManyOverridesError:
            await self._refuse(context, _EXHAUSTED, "descriptors bring too many different limits")
        if len(data) <= KNOWN_MAX_BYTES:
            if len(self._plans) >= KNOWN_MAX:
                self._plans.clear()
            self._plans[data] = plan
        return plan

    def _not_known(self, domain: str) -> None:
        """Log once that a domain may be misspelt, here or in Envoy: nothing else reports it."""
        if not self._is_warned:
            self._is_warned = True
            log.warning(
                "%s: a caller asks about the domain %r, which has no rules here and is not "
                "limited; other unknown domains are not logged",
                self.address,
                domain[:SHOWN],
            )

    async def _refuse(self, context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
        self._metrics.answers[METHOD, "error"] += 1
        await context.abort(code, why)

    def _malformed(self) -> None:
        self._metrics.malformed["message"] += 1


_ANSWERS: Final = {
    (True, False): (METHOD, "ok"),
    (True, True): (METHOD, "shadow"),
    (False, True): (METHOD, "over_limit"),
}
"""Results, by whether the request passed and whether a limit alone would have refused it."""


def _wrong(question: EnvoyQuestion) -> tuple[grpc.StatusCode, str] | None:
    """Return why a request cannot be answered; None if it can."""
    if not question.domain:
        return _UNKNOWN, "rate limit domain must not be empty"
    if not question.descriptors:
        return _UNKNOWN, "rate limit descriptor list must not be empty"
    if len(question.descriptors) > MAX_DESCRIPTORS:
        return _INVALID, f"there are more than {MAX_DESCRIPTORS} descriptors"
    if any(len(one.entries) > MAX_ENTRIES for one in question.descriptors):
        return _INVALID, f"a descriptor has more than {MAX_ENTRIES} entries"
    return None


def make(name: str, listener: FrontendConfig, context: FrontendContext) -> EnvoyRls:
    """Create the front end of a listener; see `gateway.systems.base.MakeFrontend`."""
    return EnvoyRls(name, listener, context)
