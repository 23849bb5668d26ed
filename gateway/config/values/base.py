"""What all models of the configuration have in common."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict

M = TypeVar("M", bound=BaseModel)

# Names appear in header fields (as RFC 9651 strings), metrics, logs and store keys.
NAME: Final = re.compile(r"(?! )[\x20\x21\x23-\x5b\x5d-\x7e]{1,4096}(?<! )")
NAME_HINT: Final = "printable ASCII without quotes and backslashes"


class Model(BaseModel):
    """A part of the configuration: it does not change, and knows all of its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def untouched(model: type[M]) -> M:
    """The model with all of its defaults.

    Calling the model would do the same, and build a validator for it alone at import; the only
    one that is needed is that of the whole configuration.
    """
    return model.model_construct()


def overlay(own: M, default: M) -> M:
    """`own`, with the fields it leaves out taken from `default`."""
    said = {name: getattr(own, name) for name in own.model_fields_set}
    return default.model_copy(update=said)
