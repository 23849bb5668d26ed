"""What the documentation says is checked: its links, commands and configurations."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from gateway.config.checking.load import load

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in ROOT.glob(pattern)
)
NAMES: Final = [str(path.relative_to(ROOT)) for path in PAGES]

_FENCE: Final = re.compile(r"^(```+)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_VARIABLE: Final = re.compile(r"(?<!\$)\$\{(\w+)\}")


class Block(NamedTuple):
    """A fenced block: where it begins, its language and its text."""

    line: int
    language: str
    text: str


def _blocks(page: Path, *languages: str) -> Iterator[Block]:
    source = page.read_text()
    for match in _FENCE.finditer(source):
        if match[2] in languages:
            yield Block(source.count("\n", 0, match.start()) + 1, match[2], match[3])


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def _anchors(page: Path) -> set[str]:
    """The fragments that readers of Markdown make of a page's headings."""
    headings = (heading.strip().lower() for heading in _HEADING.findall(_prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@cache
def _targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def _is_sluice_command(name: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", name, "--help"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and words of each command in the page's shell blocks and in its inline code."""
    for block in _blocks(page, "sh"):
        for number, text in enumerate(block.text.splitlines(), block.line + 1):
            yield number, shlex.split(text, comments=True)
    for code in re.findall(r"`((?:make|sluice) [^`]+)`", _prose(page)):
        yield 0, shlex.split(code)


def _complaint(words: list[str]) -> str | None:
    """What is wrong with a command, or None."""
    match words:
        case ["make", *rest]:
            targets = {word for word in rest if "=" not in word and not word.startswith("-")}
            unknown = targets - _targets()
            return f"no such target: {sorted(unknown)}" if unknown else None
        case ["sluice", name, *_]:
            return None if _is_sluice_command(name) else f"no such command: sluice {name}"
        case [path, *_] if path.startswith("examples/"):
            return None if (ROOT / path).is_file() else f"no such file: {path}"
        case _:
            return None


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    """A relative link names a file or folder that exists, and a heading that is in it."""
    page = ROOT / name
    dead = []
    for link in _LINK.findall(_prose(page)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in _anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name: str) -> None:
    """Every `make` target, `sluice` command and example script that is named is there."""
    complaints = [
        f"line {line}: {complaint}"
        for line, words in _commands(ROOT / name)
        if (complaint := _complaint(words))
    ]
    assert complaints == []


@pytest.mark.parametrize("name", NAMES)
def test_whole_configurations_pass_the_checker(name: str, tmp_path: Path) -> None:
    """A YAML block is YAML; one with routes or listeners is a gateway, and has no problem."""
    for block in _blocks(ROOT / name, "yaml"):
        content = yaml.safe_load(block.text)
        if isinstance(content, dict) and {"routes", "listeners"} & content.keys():
            path = tmp_path / f"line-{block.line}.yaml"
            path.write_text(block.text)
            environ = dict.fromkeys(_VARIABLE.findall(block.text), "http://127.0.0.1:9000")
            load(path, environ)


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_whole(name: str) -> None:
    """A table begins with its head, and all its rows have as many cells: readers see it as one."""
    prose = re.sub("`[^`\n]*`", "", _prose(ROOT / name))
    for table in re.findall(r"(?:^\|.*\|\n)+", prose, re.MULTILINE):
        rows = table.splitlines()
        assert re.fullmatch(r"\|( *:?-+:? *\|)+", rows[1]), rows[0]
        assert {row.count("|") for row in rows} == {rows[0].count("|")}, rows[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_gateway_is_installed_from_its_folder(name: str) -> None:
    """No page installs it by its name, which an index would answer with nothing or another's."""
    assert not re.search(r"pip install [^\n]*sluice", (ROOT / name).read_text())


def _named_tests(text: str) -> Iterator[tuple[Path, str]]:
    """Files of tests that a page names, each with a function of it or none."""
    file = ""
    for named, function in re.findall(r"`([\w/]+\.py)?(?:::(\w+))?`", text):
        file = named or file
        if named or function:
            yield ROOT / "tests" / file, function


@pytest.mark.parametrize(("page", "least"), [("faults.md", 50), ("wishes.md", 80)])
def test_tests_that_are_named_are_there(page: str, least: int) -> None:
    """The tests that the pages on faults and wishes name exist."""
    named = list(_named_tests((ROOT / "docs" / page).read_text()))
    assert len(named) > least
    missing = [
        f"{path}::{function}"
        for path, function in named
        if not path.is_file() or (function and f"def {function}(" not in path.read_text())
    ]
    assert missing == []


def test_every_wish_has_its_test_or_is_missing() -> None:
    """All forty of them, in order, and those that follow."""
    _, forty, others = re.split(
        r"^\| --- .*$", (ROOT / "docs" / "wishes.md").read_text(), flags=re.MULTILINE
    )
    rows = re.findall(r"^\|(.*)\|$", forty, re.MULTILINE)
    numbers = [row.split("|")[0].strip() for row in rows if row.split("|")[0].strip().isdigit()]
    assert numbers == list(map(str, range(1, 41)))
    for row in re.findall(r"^\|(.*)\|$", forty + others, re.MULTILINE):
        *_, thread, said, tests = (cell.strip() for cell in row.split("|"))
        if thread not in {"in", "asked for in"}:
            assert re.search(r"`[\w.-]+/[\w.-]+#\d+`", thread), row
            assert "::" in tests or said == "Missing.", row


def test_a_wrong_command_is_seen() -> None:
    """The check of commands distinguishes existing targets and commands from invented ones."""
    assert _complaint(["make", "test", "ARGS=-x"]) is None
    assert _complaint(["sluice", "check", "sluice.yaml"]) is None
    assert _complaint(["make", "tset"]) is not None
    assert _complaint(["sluice", "chekc", "sluice.yaml"]) is not None
    assert _complaint(["examples/none/run.sh"]) is not None
