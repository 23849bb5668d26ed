"""The JSON Schema agrees with the loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from gateway.config.explaining.schema import json_schema
from gateway.config.reading.nodes import plain
from gateway.config.reading.source import read
from gateway.config.values.redaction import Secrets

ROOT: Final = Path(__file__).parents[3]
GOLDEN: Final = Path(__file__).parents[1] / "golden"
SCHEMA: Final = json_schema()
VALIDATOR: Final = Draft202012Validator(SCHEMA)

ONLY_THE_CHECK_SEES: Final = frozenset(
    {
        "admin-default-is-a-listener",
        "admin-is-a-listener",
        "at-once-too-many",
        "envoy-rls-debits",
        "costs-above-limits",
        "costs-elsewhere",
        "store-throttr-costs",
        "tiers-of-nobody",
        "envoy-rls-debits-unlimited",
        "envoy-rls-metadata",
        "envoy-rls-policies",
        "envoy-rls-ratio",
        "envoy-rls-replaces",
        "envoy-rls-twice",
        "eventual-interval",
        "eventual-interval-long",
        "eventual-options-of-leased",
        "eventual-with-queue",
        "geoip-empty",
        "geoip-missing",
        "geoip-none",
        "geoip-unused",
        "jwt-missing",
        "jwt-together-1",
        "jwt-together-2",
        "jwt-together-3",
        "jwt-together-4",
        "jwt-together-5",
        "jwt-together-6",
        "jwt-together-7",
        "jwt-together-8",
        "lease-too-short",
        "path-parameter-preflight",
        "path-parameter-unknown",
        "ratio-burst",
        "ratio-callers",
        "ratio-never",
        "ratio-nothing",
        "ratio-port-taken",
        "ratio-shared-cannot",
        "ratio-shared-nobody",
        "ratio-unmatched",
        "ratio-words-in-route",
        "secret-keys-misplaced",
        "throttr-store",
        "store-ratio-callers",
        "store-ratio-cannot",
        "store-ratio-migrate",
        "leased-at-once",
        "leased-count-refused",
        "leased-lifetime",
        "leased-lifetime-long",
        "leased-options-of-strict",
        "leased-paced-history",
        "limit-candidate-name",
        "list-per-path",
        "limit-key-twice",
        "limit-log-too-long",
        "limit-mode-of-a-listener",
        "limit-long-period",
        "limit-too-fast",
        "listeners-client-names",
        "listeners-collide",
        "listeners-connection-age",
        "listeners-tls",
        "listeners-unix-twice",
        "listeners-of-one-file",
        "migrate-to-itself",
        "migrate-to-itself-cluster",
        "migrate-to-itself-localhost",
        "migrate-to-itself-loopback-of-ipv6",
        "migrate-to-itself-memory",
        "migrate-to-throttr",
        "migrate-unknown-policy",
        "own-answers-forward-nothing",
        "paced-history-too-fast",
        "smockron-master-cannot",
        "store-smockron-cannot",
        "store-smockron-domain",
        "policy-unknown",
        "problem-pages",
        "proxy-protocol-of-nobody",
        "redirect-to-itself",
        "route-conditions-shadow",
        "route-conditions-unknown-list",
        "route-headers-2",
        "route-name-of-a-policy",
        "route-named-as-another",
        "route-names",
        "route-never-matches",
        "secret-unreadable",
        "secret-without-file",
        "store-shorthand-and-secret-in-messages",
        "store-throttr-cannot",
        "throttlex-fit",
        "throttlex-leased-table",
        "upstream-is-the-gateway",
        "upstream-is-the-gateway-by-socket",
        "upstream-is-the-gateway-by-ipv6",
        "upstream-unknown",
        "variable-malformed",
        "variable-not-set",
        "variable-of-wrong-type",
        "variables-of-pages",
        "watch",
        "watchdog",
        "workers-migrate-memory",
    }
)
"""What a schema cannot say: names that lead nowhere, values that collide, arithmetic."""


def _data(path: Path) -> Any:
    """What an editor sees in a file: variables are text, and are not replaced."""
    text = path.read_text().rpartition("\n-----\n")[0] or path.read_text()
    root, problems = read(
        path.name, text.replace("${", "$${").encode(), {}, lambda _: "", Secrets()
    )
    return None if root is None or problems else plain(root)


def _cases(*, good: bool) -> list[Path]:
    prefixes = ("ok-", "warn-")
    return [
        path
        for path in sorted(GOLDEN.glob("*.yaml"))
        if path.stem.startswith(prefixes) == good and not path.stem.startswith("yaml-")
    ]


def test_the_schema_is_one() -> None:
    """It is valid itself, and plain JSON."""
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize(
    "path",
    [*sorted((ROOT / "config").glob("*.yaml")), *_cases(good=True)],
    ids=lambda path: path.stem,
)
def test_what_the_loader_takes_the_schema_takes(path: Path) -> None:
    """Ready-made configurations and every good case, short forms and variables included."""
    assert [error.message for error in VALIDATOR.iter_errors(_data(path))] == []


@pytest.mark.parametrize("path", _cases(good=False), ids=lambda path: path.stem)
def test_what_the_loader_refuses_the_schema_refuses(path: Path) -> None:
    """Every bad case, but for what no schema can see."""
    data = _data(path)
    if data is None:
        pytest.fail("only files that are YAML belong here: name it yaml-...")

    assert VALIDATOR.is_valid(data) == (path.stem in ONLY_THE_CHECK_SEES)
