"""The other end of `bench.limiter.worker`: a process, held to a CPU, that is given orders."""

from __future__ import annotations

import os
import select
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.errors import BenchError
from bench.limiter.contestants import Library
from bench.limiter.job import READY, Job, Order, Sample
from bench.machine import pinned
from bench.programs import PYTHON_PATH, REPOSITORY

START_SECONDS = 60.0
GRACE_SECONDS = 300.0
"""Beyond the seconds of an order; one that goes by passes has none, and fills a store."""
STOP_SECONDS = 5.0


@dataclass(slots=True)
class Process:
    """One library in a process of its own, used as a context manager.

    Attributes:
        library: which.
        job: what it measures.
        cpu: the CPU that it is held to.
        errors: the file that its complaints go to.
    """

    library: Library
    job: Job
    cpu: int
    errors: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        argv = [self.library.python(), "-m", "bench.limiter.worker", self.job.as_text()]
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                pinned(self.cpu, argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            )
        try:
            self._expect_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def obey(self, order: Order) -> Sample:
        """Let it measure.

        Raises:
            BenchError: it failed, or did not answer in time; what it said last is told.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then it has no answer either
            self._process.stdin.write(order.as_text().encode() + b"\n")
            self._process.stdin.flush()
        return Sample.from_text(self._line(order.seconds + GRACE_SECONDS))

    def _expect_ready(self) -> None:
        said = self._line(START_SECONDS)
        if said != READY:
            raise BenchError(f"{self.library.name} said {said!r} instead of {READY!r}")

    def _line(self, seconds: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        # It answers a line with a line, so nothing is left in the buffer to be overlooked here.
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if readable else b""
        if not line:
            what = "ended" if readable else f"said nothing for {seconds:.0f} s"
            raise BenchError(f"{self.library.name} {what}: {self._last_words()}")
        return line.decode().strip()

    def _last_words(self) -> str:
        text = self.errors.read_text(encoding="utf-8", errors="replace")
        return " / ".join(text.strip().splitlines()[-3:]) or "without a word"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        # Threads that a library has left behind may keep it from ending.
        process.kill()
        process.wait()
        process.stdout.close()
