"""ratio's service: callers ask by owner and resource whether they may proceed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Final

import grpc

from gateway.config.models.frontends import FrontendConfig
from gateway.config.values.store_url import parse_store_url
from gateway.limiter.decider import Outcome
from gateway.routing.keys import named
from gateway.systems.asking import CallerQuestions, caller_keys, can_answer, passes
from gateway.systems.base import FrontendContext
from gateway.systems.grpc.calls import Context
from gateway.systems.grpc.frontend import GrpcFrontend
from gateway.systems.grpc.server import Bounds, GrpcServer, Service, bounds_of, serving_of
from gateway.systems.ratio.config import RatioConfig
from gateway.systems.ratio.messages import (
    MESSAGES,
    METHOD,
    OK,
    OVER_LIMIT,
    SERVICE,
    RatioQuestion,
    read_question,
    write_code,
)
from gateway.systems.ratio.rules import compile_rules

REMEMBERED: Final = 4_096
REMEMBERED_SIZE: Final = 256
"""The most questions whose rules and identities are cached, and the most characters of each."""

_OK: Final = "ok"
_OVER_LIMIT: Final = "over_limit"
_ANSWERS: Final = {_OK: write_code(OK), _OVER_LIMIT: write_code(OVER_LIMIT)}
"""Answers by their names in metrics."""
_WORDS: Final[Mapping[str, Callable[[Caller], str]]] = {
    "owner": attrgetter("owner"),
    "resource": attrgetter("resource"),
}
"""The keys that limits may have."""


class Caller:
    """A question and its rule, with the values computed from them.

    Attributes:
        owner, resource: as in the question.
        identity: of both together.
        name: ratio's own key, which is not unique.
        asking: the policies that apply; None for none.
        answer: the answer if there are none.
    """

    __slots__ = ("answer", "asking", "identity", "name", "owner", "resource")

    def __init__(
        self, question: RatioQuestion, asking: CallerQuestions | None, answer: str
    ) -> None:
        self.owner = question.owner
        self.resource = question.resource
        self.identity = named((("owner", self.owner), ("resource", self.resource)))
        self.name = f"{self.owner}-{self.resource}"
        self.asking = asking
        self.answer = answer


class RatioFrontend(GrpcFrontend):
    """Serves `/RateLimitService/RateLimit`.

    Args:
        name: of the listener.
        listener: its configuration.
        context: the gateway's parts that it uses.
    """

    def __init__(self, name: str, listener: FrontendConfig, context: FrontendContext) -> None:
        assert listener.ratio is not None, "the kind of a listener is what it says"
        config = listener.ratio
        self._metrics = metrics = context.metrics.frontend(name)
        metrics.hides_connections = True
        self._use(_finder(config, context), can_answer(context, listener.policies))
        self._answers = metrics.answers
        bounds = _bounds(listener, config, context)
        server = GrpcServer(
            [Service(SERVICE, {METHOD: self._answer}, MESSAGES.files)],
            bounds,
            self._note_malformed,
            self._can_answer,
            context.sharing,
        )
        super().__init__(serving_of(name, listener, context), server, bounds)

    def _use(self, find: Callable[[RatioQuestion], Caller], is_able: Callable[[], bool]) -> None:
        self._find = find
        self._remembered = lru_cache(REMEMBERED)(find)
        self._is_able = is_able

    def _can_answer(self) -> bool:
        return self._is_able()

    def reconfigured(
        self, name: str, listener: FrontendConfig, context: FrontendContext
    ) -> Callable[[], object] | None:
        """Prepare to serve as another configuration says; see `Frontend`."""
        config = listener.ratio
        if config is None or context.metrics.frontend(name) is not self._metrics:
            return None
        if not self._stays(serving_of(name, listener, context), _bounds(listener, config, context)):
            return None
        is_able = can_answer(context, listener.policies)
        return partial(self._use, _finder(config, context), is_able)

    def _note_malformed(self) -> None:
        self._metrics.malformed["message"] += 1

    async def _answer(self, data: bytes, context: Context) -> bytes:
        question = read_question(data)
        is_short = len(question.owner) + len(question.resource) <= REMEMBERED_SIZE
        caller = (self._remembered if is_short else self._find)(question)
        answer = caller.answer
        if caller.asking is not None:
            outcome = caller.asking.decide(caller)
            if not isinstance(outcome, Outcome):
                outcome = await outcome
            if passes(outcome):
                answer = _OK
            elif outcome.closed_by is None:
                answer = _OVER_LIMIT
            else:
                self._answers[METHOD, "error"] += 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the store does not answer")
        self._answers[METHOD, answer] += 1
        return _ANSWERS[answer]


def _bounds(listener: FrontendConfig, config: RatioConfig, context: FrontendContext) -> Bounds:
    return bounds_of(listener, context)._replace(handshake_us=config.connection_timeout)


def _finder(config: RatioConfig, context: FrontendContext) -> Callable[[RatioQuestion], Caller]:
    """Return a function that returns the caller of a question, by the first rule that matches."""
    find = compile_rules([rule.pattern for rule in config.rules])
    shared = parse_store_url(context.config.store.url).options.get("ratio", "")

    def held_to(names: Sequence[str]) -> CallerQuestions | None:
        whole = "name" if shared in names else "identity"
        return (
            CallerQuestions(caller_keys(attrgetter(whole), _WORDS), names, context)
            if names
            else None
        )

    matched = [(held_to(rule.policies), _OK) for rule in config.rules]
    usual = _OK if config.policies or config.unmatched == "allow" else _OVER_LIMIT
    # At the end, for index -1.
    matched.append((held_to(config.policies), usual))

    def caller_of(question: RatioQuestion) -> Caller:
        return Caller(question, *matched[find(*question)])

    return caller_of


def make(name: str, listener: FrontendConfig, context: FrontendContext) -> RatioFrontend:
    """Make the front end of a listener; see `gateway.systems.base.MakeFrontend`."""
    return RatioFrontend(name, listener, context)
