"""How tokens are verified, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.tokens import JwtConfig
from gateway.config.values.units import format_duration
from gateway.config.values.words import join, key_word


def explain_tokens(jwt: JwtConfig | None) -> Iterator[str]:
    """Describe which tokens are accepted; nothing if none are verified."""
    if jwt is None:
        return
    keys = "a secret"
    if jwt.is_url:
        refresh = format_duration(jwt.refresh)
        keys = f"the keys at {jwt.keys}, which are fetched every {refresh}"
    elif jwt.keys is not None:
        keys = f"the keys in {jwt.keys}"
    where = "the field Authorization" if jwt.word == "header:authorization" else key_word(jwt.word)
    yield f"Tokens (JWT) in {where} are verified with {keys}, by {join(jwt.algorithms, 'or')}."
    rules = [
        *([f"are issued by {jwt.issuer}"] if jwt.issuer is not None else []),
        *([f"are for {join(jwt.audience, 'or')}"] if jwt.audience else []),
        "have not expired",
    ]
    yield f"They are accepted if they {join(rules)}; any other token counts as none."
