"""One large body through a proxy, down or up, by curl."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from bench.errors import BenchError
from bench.programs import program
from bench.stage import LARGE_BYTES

_TIMEOUT_SECONDS = 120


def download(url: str) -> float:
    """Fetch `LARGE_BYTES`; seconds from the first byte sent to the last received.

    Raises:
        BenchError: fewer or more bytes came, or the status was not 200.
    """
    told, _ = _curl([url])
    _expect(told, url, "size_download", LARGE_BYTES)
    return float(told["time_total"])


def upload(url: str, file: Path) -> float:
    """Send the file of `LARGE_BYTES`; seconds until the upstream's count has come back.

    Raises:
        BenchError: the upstream counted another number of bytes, or the status was not 200.
    """
    told, answer = _curl(["--upload-file", str(file), "--header", "Expect:", url], keep=True)
    _expect(told, url, "size_upload", LARGE_BYTES)
    if int(answer or b"0") != LARGE_BYTES:
        raise BenchError(f"{url}: the upstream received {answer!r} of {LARGE_BYTES} bytes")
    return float(told["time_total"])


def _curl(arguments: list[str], *, keep: bool = False) -> tuple[dict[str, float], bytes]:
    with tempfile.NamedTemporaryFile() as answer:
        output = answer.name if keep else "/dev/null"
        argv = [program("curl"), "--silent", "--show-error", "--output", output]
        argv += ["--write-out", "%{json}", *arguments]
        said = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
        if said.returncode != 0:
            raise BenchError(f"curl failed: {said.stderr.decode(errors='replace').strip()}")
        return json.loads(said.stdout), answer.read()


def _expect(told: dict[str, float], url: str, field: str, size: int) -> None:
    if told["response_code"] != 200 or told[field] != size:
        raise BenchError(f"{url}: status {told['response_code']}, {field} {told[field]}")
