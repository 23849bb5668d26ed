"""Databases of the places that addresses belong to."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.places import FilePath
from gateway.config.values.types import problem
from gateway.limits.key_words import PLACE_KEYS


class GeoipConfig(Model):
    """Files in MaxMind's format (.mmdb)."""

    country: FilePath | None = Field(
        None,
        description="A database of countries, such as GeoLite2-Country.mmdb, for the key country. "
        "It is read again when it changes.",
    )
    asn: FilePath | None = Field(
        None,
        description="A database of autonomous systems, such as GeoLite2-ASN.mmdb, for the key asn. "
        "It is read again when it changes.",
    )

    @model_validator(mode="after")
    def _check_files(self) -> GeoipConfig:
        if not self.files:
            hint = "for example {country: /var/lib/GeoIP/GeoLite2-Country.mmdb}"
            raise problem("no database is named", hint, under=(KEY,))
        return self

    @property
    def files(self) -> dict[str, Path]:
        """Return the files by the key that they are for."""
        named = {word: getattr(self, word) for word in PLACE_KEYS}
        return {word: file for word, file in named.items() if file is not None}
