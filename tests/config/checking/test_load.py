"""Files and folders, and secrets beside them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from io import BufferedReader
from pathlib import Path

import pytest

from gateway.base.errors import ConfigError
from gateway.base.regular import open_regular
from gateway.config.checking import load as load_module
from gateway.config.checking.load import ConfigFiles, load, load_admin
from tests.configmap import ConfigMapVolume

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


class TestDigest:
    """What tells that there is something else to load."""

    def test_it_is_that_of_what_was_loaded(self, tmp_path: Path) -> None:
        """Until a file says something else; the same content again is no change."""
        file = tmp_path / "g.yaml"
        file.write_text(ROUTES)
        files = ConfigFiles(file, {})
        files.load()
        assert files.digest() == files.loaded
        file.write_text(ROUTES + "# new\n")
        assert files.digest() != files.loaded
        file.write_text(ROUTES)
        assert files.digest() == files.loaded

    @pytest.mark.parametrize("text", ["routes: [", "routes:\n  /a: {upstream: '${NONE}'}\n", ""])
    def test_what_cannot_be_used_has_one_as_well(self, tmp_path: Path, text: str) -> None:
        """So it is reported once."""
        file = tmp_path / "g.yaml"
        file.write_text(text)
        files = ConfigFiles(file, {})
        with pytest.raises(ConfigError):
            files.load()
        assert files.digest() == files.loaded != b""

    def test_what_cannot_be_read_has_none(self, tmp_path: Path) -> None:
        """A file that is not there, and a folder without files."""
        for path in (tmp_path / "none.yaml", tmp_path):
            files = ConfigFiles(path, {})
            with pytest.raises(ConfigError):
                files.load()
            assert files.digest() == files.loaded == b""

    def test_names_and_borders_of_files_count(self, tmp_path: Path) -> None:
        """Not only the text of all files together."""
        digests = set[bytes]()
        for names in (("a.yaml", "b.yaml"), ("a.yaml", "c.yaml")):
            for texts in ((ROUTES, "# x\n"), (ROUTES + "# ", "x\n")):
                folder = tmp_path / str(len(digests))
                folder.mkdir()
                for name, text in zip(names, texts, strict=True):
                    (folder / name).write_text(text)
                moved = folder.rename(tmp_path / "now")
                digests.add(ConfigFiles(moved, {}).digest())
                moved.rename(folder)
        assert len(digests) == 4

    def test_no_pipe_is_waited_for(self, tmp_path: Path) -> None:
        """Neither in the place of a secret, nor among the files of a folder."""
        folder = tmp_path / "now"
        folder.mkdir()
        file, secret = folder / "g.yaml", folder / "secret"
        file.write_text("domain: '${file:secret}'\n" + ROUTES)
        secret.write_text("one")
        files = ConfigFiles(folder, {})
        before = files.digest()
        secret.unlink()
        os.mkfifo(secret)
        assert files.digest() != before
        secret.unlink()
        secret.write_text("one")
        assert files.digest() == before
        os.mkfifo(folder / "more.yaml")
        assert files.digest() == b""
        with pytest.raises(ConfigError, match="cannot be read: it is not a regular file"):
            files.load()

    def test_secret_files_count(self, tmp_path: Path) -> None:
        """Those that the text refers to, whether they are there or not."""
        file, secret = tmp_path / "g.yaml", tmp_path / "secret"
        file.write_text("domain: '${file:secret}'\n# $${file:other}\n" + ROUTES)
        files = ConfigFiles(file, {})
        seen = [files.digest()]
        secret.write_text("one")
        seen.append(files.digest())
        secret.write_text("two")
        seen.append(files.digest())
        (tmp_path / "other").write_text("x")
        assert files.digest() == seen[-1]
        assert len(set(seen)) == 3

    def test_a_pipe_is_read_once(self, tmp_path: Path) -> None:
        """A look at it would take what a reload is to read, or wait for ever."""
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with ThreadPoolExecutor() as pool:
            written = pool.submit(pipe.write_text, ROUTES)
            files = ConfigFiles(pipe, {})
            files.load()
            written.result()
        assert files.digest() == files.loaded != b""


def test_files_of_a_folder_are_read_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is replaced while it is read gives the old files or the new ones."""
    folder = tmp_path / "conf"
    volume = ConfigMapVolume(folder, {"a.yaml": "domain: one\n", "b.yaml": ROUTES})
    updates = iter([{"a.yaml": "domain: two\n", "b.yaml": ROUTES.replace("/a", "/b")}])

    def replace_after(path: Path) -> BufferedReader:
        opened = open_regular(path)
        if path.name == "a.yaml":
            for update in updates:
                volume.update(update)
        return opened

    monkeypatch.setattr(load_module, "open_regular", replace_after)
    config = load(folder, {}).config
    assert (config.domain, config.routes[0].name) == ("two", "/b")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (ROUTES, "127.0.0.1:9901"),
        ("admin: off\n" + ROUTES, "None"),
        ("admin: 127.0.0.1:1\n" + ROUTES, "127.0.0.1:1"),
        ("admin: { listen: '127.0.0.1:${PORT}' }\n", "127.0.0.1:5"),
        # Mistakes elsewhere.
        (
            "admin: 127.0.0.1:1\nlimts: 1\nroutes: { /a: { limit: 1/, upstream: '${NONE}' } }\n",
            "127.0.0.1:1",
        ),
        ("admin: 127.0.0.1:1\ndomain: '${file:/does/not/exist}'\n", "127.0.0.1:1"),
    ],
)
def test_the_admin_listener_is_found_in_what_cannot_be_used(
    tmp_path: Path, text: str, address: str
) -> None:
    """A running gateway is asked even if its file is wrong, or refers to what only it can read."""
    file = tmp_path / "g.yaml"
    file.write_text(text)
    found = load_admin(file, {"PORT": "5"})
    assert str(found and found.listen) == address


BAD_ADMINS = (
    "admin: 9901\n" + ROUTES,
    "admin: '${NONE}'\n" + ROUTES,
    "admin: { listen: '${NONE}' }\n" + ROUTES,
    "[",
    "",
)


@pytest.mark.parametrize("text", BAD_ADMINS)
def test_an_admin_listener_that_cannot_be_found(tmp_path: Path, text: str) -> None:
    """It is a problem like any other, with its place."""
    file = tmp_path / "g.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_admin(file, {})
    assert str(caught.value.problems[0]).startswith(str(file))
