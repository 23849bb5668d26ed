"""Files and folders, and secrets beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base.errors import ConfigError
from gateway.config.checking.load import load

ROUTES = "routes:\n  /a: {upstream: http://a:1}\n"


def _problems(path: Path, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return [str(problem).replace(str(path.parent), "") for problem in caught.value.problems]


def test_a_file_is_loaded(tmp_path: Path) -> None:
    """With the environment that is given, and no other."""
    file = tmp_path / "g.yaml"
    file.write_text("domain: ${NAME}\n" + ROUTES)

    assert load(file, {"NAME": "shop"}).config.domain == "shop"


def test_a_folder_is_joined_in_order_of_names(tmp_path: Path) -> None:
    """Routes, policies and upstreams of all files, and no hidden or other ones."""
    (tmp_path / "10-base.yaml").write_text("domain: shop\nupstreams: {u: http://a:1}\n")
    (tmp_path / "20-b.yml").write_text("routes:\n  /b: {upstream: u, policies: [p]}\n")
    (tmp_path / "15-a.yaml").write_text("routes:\n  /a: {upstream: u}\npolicies: {p: 1/s}\n")
    (tmp_path / ".hidden.yaml").write_text("nonsense")
    (tmp_path / "README.md").write_text("nonsense")

    config = load(tmp_path, {}).config

    assert [route.name for route in config.routes] == ["/a", "/b"]
    assert config.domain == "shop"


def test_the_same_name_in_two_files_is_a_problem_that_names_both(tmp_path: Path) -> None:
    """There is no file that silently wins."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "a.yaml").write_text("domain: x\npolicies: {p: 1/s}\nlisten: [':1']\n" + ROUTES)
    (folder / "b.yaml").write_text("domain: y\npolicies: {p: 2/s}\nlisten: [':2']\n" + ROUTES)

    assert _problems(folder) == [
        "/conf/b.yaml:1:1: domain: domain is already in "
        f"{folder}/a.yaml:1 (write each name in one file only)".replace(str(tmp_path), ""),
        (
            "/conf/b.yaml:2:12: policies.p: policies.p is already in /conf/a.yaml:2 "
            "(write each name in one file only)"
        ),
        (
            "/conf/b.yaml:3:1: listen: listen is already a list in /conf/a.yaml:3 "
            "(write a list in one file)"
        ),
        (
            "/conf/b.yaml:5:3: routes./a: routes./a is already in /conf/a.yaml:5 "
            "(write each name in one file only)"
        ),
    ]


def test_problems_of_all_files_are_shown_together(tmp_path: Path) -> None:
    """In the order of files and places; a broken file does not hide the problems of others."""
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "a.yaml").write_text("routes:\n  /a: {upstream: u, polices: [p]}\n")
    (folder / "b.yaml").write_text("upstreams:\n\tu: http://a:1\n")
    (folder / "c.yaml").write_text("listen: 80\n")

    assert _problems(folder) == [
        "/conf/a.yaml:2:21: routes./a.polices: unknown key 'polices' (did you mean policies?)",
        "/conf/b.yaml:2:1: a tab where YAML needs spaces (indent by two spaces)",
        (
            "/conf/c.yaml:1:9: listen: 80 is a port without a host "
            "(for example 127.0.0.1:80, or :80 for all interfaces)"
        ),
    ]


def test_what_is_not_there_is_a_problem(tmp_path: Path) -> None:
    """A missing file, and a folder without configurations."""
    folder = tmp_path / "conf"
    folder.mkdir()

    assert _problems(tmp_path / "no.yaml") == [
        "/no.yaml: cannot be read: No such file or directory"
    ]
    assert _problems(folder) == [
        "/conf: the folder has no configuration (its files must end in .yaml or .yml)"
    ]


def test_secrets_are_read_from_files_beside_the_configuration(tmp_path: Path) -> None:
    """By absolute path or relative to the configuration, without the newline at the end."""
    (tmp_path / "secret").write_text("pa/ss\n")
    file = tmp_path / "g.yaml"
    for path in ("secret", str(tmp_path / "secret")):
        file.write_text(f"store: redis://:${{file:{path}}}@redis\n{ROUTES}")

        assert load(file, {}).config.store.url == "redis://:pa%2Fss@redis"


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    """Not even when it is what is wrong."""
    (tmp_path / "secret").write_text("hunter2")
    file = tmp_path / "g.yaml"
    file.write_text('ipv6_prefix: ${file:secret}\nlog: {level: "${file:secret}"}\n' + ROUTES)

    problems = _problems(file)

    assert problems == [
        "/g.yaml:1:14: ipv6_prefix: the content of the file is not valid here",
        "/g.yaml:2:15: log.level: the content of the file is not valid here",
    ]


def test_what_is_wrong_with_a_page_of_a_file_is_said(tmp_path: Path) -> None:
    """It is sent to clients, and so no secret."""
    (tmp_path / "page.json").write_text('{"title": }')
    file = tmp_path / "g.yaml"
    file.write_text('error_pages: {404: {problem: "${file:page.json}"}}\n' + ROUTES)

    (problem,) = _problems(file)

    place = "/g.yaml:1:31: error_pages.404.problem"
    assert problem.startswith(f"{place}: this is not JSON: Expecting value: line 1 column 11")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"\xff", "is not text (use UTF-8 text)"), (b"x" * 70_000, "(larger than 64 KiB)")],
)
def test_secrets_that_cannot_be_used_are_a_problem(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    """Secrets are short text."""
    (tmp_path / "secret").write_bytes(content)
    file = tmp_path / "g.yaml"
    file.write_text("domain: ${file:secret}\n" + ROUTES)

    (problem,) = _problems(file)

    assert problem.endswith(reason)
