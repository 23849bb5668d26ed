"""The base of all models of the configuration."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict

M = TypeVar("M", bound=BaseModel)

# Names appear in header fields (as RFC 9651 strings), metrics, logs and store keys.
NAME: Final = re.compile(r"(?! )[\x20\x21\x23-\x5b\x5d-\x7e]{1,4096}(?<! )")
NAME_HINT: Final = "use printable ASCII without quotes and backslashes"


class Model(BaseModel):
    """A part of the configuration: immutable, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def untouched(model: type[M]) -> M:
    """Return the model with all defaults.

    Calling the model does the same, but builds a validator for it at import; only the validator of
    the whole configuration is needed.
    """
    return model.model_construct()


def overlay(own: M, default: M) -> M:
    """Return `own`, with missing fields taken from `default`."""
    said = {name: getattr(own, name) for name in own.model_fields_set}
    return default.model_copy(update=said)
