"""Compiles the hot modules of `gateway/` by mypyc, into a copy of the package.

    python scripts/compiled.py            print the folder of a compiled package, made if need be
    python scripts/compiled.py --require  the same, but fail where it cannot be compiled

Put the folder into PYTHONPATH to run what is in it. Where the package cannot be compiled, or
SLUICE_PURE is set, nothing is printed, and one line on stderr says why: the gateway then runs as it
stands. The build hook of the wheel (`compiled_wheel.py`) uses the functions below.

The sources lie beside the compiled modules, and tracebacks name their files and lines. The folder's
name is a hash of all that makes a difference: another source is another folder, and nothing is
compiled into the source tree. `[tool.sluice.compiled]` in pyproject.toml lists the modules.

SLUICE_OPT_LEVEL is the compiler's level of optimisation: 3, or 0 to compile faster.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "sluice"
"""The compiled modules are one library, `sluice__mypyc`, so that they call each other directly."""
UNUSED_S = 7 * 24 * 3600
"""Folders that nothing has asked for in this time are removed."""

MYPY = """\
[mypy]
plugins = pydantic.mypy
follow_imports = silent
ignore_missing_imports = True
explicit_package_bases = True
"""
"""`make lint` checks types strictly; here they only say what to compile to."""


class CompileError(Exception):
    """The package cannot be compiled; the message says why."""


def obstacle() -> str:
    """Return why nothing can be compiled here, apart from missing packages; empty if it can."""
    if os.environ.get("SLUICE_PURE", "0") not in {"", "0"}:
        return "SLUICE_PURE is set"
    if platform.python_implementation() != "CPython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this is not CPython with its lock"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "the headers of this Python are not installed (Debian: python3-dev)"
    return ""


def modules(root: Path) -> list[str]:
    """Return the paths of the modules to compile, from the folder of pyproject.toml."""
    table = settings(root)
    package = root / "gateway"
    found = {path for pattern in table["include"] for path in package.glob(pattern)}
    for pattern in table["exclude"]:
        left = {path for path in found if path.relative_to(package).match(pattern)}
        if not left:
            raise CompileError(f"pyproject.toml: nothing is excluded by {pattern}")
        found -= left
    return sorted(str(path.relative_to(root)) for path in found)


def settings(root: Path) -> dict[str, list[str]]:
    """Return `[tool.sluice.compiled]` of pyproject.toml."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, list[str]] = tomllib.loads(text)["tool"]["sluice"]["compiled"]
    return table


def compile_package(root: Path, folder: Path) -> None:
    """Make `folder`, with a copy of the package in which the listed modules are compiled.

    Raises:
        CompileError: it failed; the folder may hold anything.
    """
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "gateway", folder / "gateway", ignore=ignored)
    # A process of its own: mypy ends the process where it finds a mistake, and takes paths from
    # its working directory, which tracebacks then name.
    done = subprocess.run(
        [sys.executable, "-P", __file__, "--compile", *modules(root)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stdout + done.stderr
        lines = [line for line in said.splitlines() if "error" in line.lower()]
        reason = (lines or said.splitlines() or [f"status {done.returncode}"])[0]
        raise CompileError(f"compiling failed: {reason}")


def _compile(paths: list[str]) -> None:
    """Compile modules of the package in the working directory, in place."""
    from distutils.ccompiler import new_compiler
    from distutils.sysconfig import customize_compiler

    import setuptools  # noqa: F401 - it comes with distutils, which Python 3.12 dropped
    from mypyc.build import mypycify

    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch, "mypy.ini")
        config.write_text(MYPY, encoding="utf-8")
        extensions = mypycify(
            [f"--config-file={config}", f"--cache-dir={os.devnull}", *paths],
            opt_level=opt_level(),
            debug_level="0",
            multi_file=True,
            target_dir=scratch,
            group_name=LIBRARY,
        )
        compiler = new_compiler()
        customize_compiler(compiler)
        headers = [sysconfig.get_path("include"), sysconfig.get_path("platinclude")]
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for extension in extensions:
                # What is a warning depends on the compiler, so none of them is an error.
                flags = [flag for flag in extension.extra_compile_args if flag != "-Werror"]
                made = [
                    pool.submit(
                        compiler.compile,
                        [source],
                        output_dir=scratch,
                        include_dirs=headers + extension.include_dirs,
                        extra_postargs=flags,
                    )
                    for source in extension.sources
                ]
                objects = [path for future in made for path in future.result()]
                target = extension.name.replace(".", "/") + suffix
                compiler.link_shared_object(objects, target, extra_postargs=["-s"])


def opt_level() -> str:
    """Return the compiler's level of optimisation."""
    return os.environ.get("SLUICE_OPT_LEVEL", "3")


def install_tools(root: Path) -> None:
    """Install what compiles into this environment, at the versions of the lock.

    Raises:
        CompileError: it cannot be installed.
    """
    lock = root / "requirements" / "compile.txt"
    wanted = dict(re.findall(r"^([\w-]+)==([\w.]+) \\$", lock.read_text("utf-8"), re.MULTILINE))
    if all(_version(name) == wanted[name] for name in ("mypy", "setuptools")):
        return
    _say("installing mypy, to compile the gateway (SLUICE_PURE=1 runs it as it stands)")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]
    done = subprocess.run(
        [*pip, "install", "--require-hashes", "-r", str(lock)], stdout=sys.stderr, check=False
    )
    if done.returncode:
        raise CompileError("mypy cannot be installed")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def key(root: Path) -> str:
    """Return a hash of all that the compiled package depends on."""
    parts = [
        *(sys.version, platform.machine(), str(sysconfig.get_config_var("EXT_SUFFIX"))),
        *(_version("mypy"), _version("setuptools"), opt_level(), " ".join(modules(root))),
        *(os.environ.get(name, "") for name in ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS")),
        Path(__file__).read_text(encoding="utf-8"),
        (root / "requirements" / "runtime.txt").read_text(encoding="utf-8"),
    ]
    digest = hashlib.sha256("\0".join(parts).encode())
    for path in sorted((root / "gateway").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            digest.update(f"\0{path.relative_to(root)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def find_or_compile(root: Path) -> Path:
    """Return the folder with the compiled package of this source tree.

    Raises:
        CompileError: it cannot be compiled.
    """
    if reason := obstacle():
        raise CompileError(reason)
    install_tools(root)
    builds = root / "build" / "compiled"
    builds.mkdir(parents=True, exist_ok=True)
    # Two commands that start together compile once.
    with (builds / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = builds / key(root)
        if not folder.is_dir():
            _say(f"compiling {len(modules(root))} modules, which takes one or two minutes")
            with tempfile.TemporaryDirectory(dir=builds) as scratch:
                compile_package(root, Path(scratch, "new"))
                Path(scratch, "new").rename(folder)
        os.utime(folder)
        _remove_unused(builds)
    return folder


def _remove_unused(builds: Path) -> None:
    for folder in builds.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > UNUSED_S:
            shutil.rmtree(folder)


def _say(text: str) -> None:
    print(f"sluice: {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--require", action="store_true", help="fail where it cannot be compiled")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of pyproject.toml")
    parser.add_argument("--compile", nargs="+", metavar="MODULE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        _compile(options.compile)
        return 0
    try:
        print(find_or_compile(options.root.resolve()))
    except CompileError as error:
        if options.require:
            _say(str(error))
            return 1
        _say(f"running in pure Python: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
