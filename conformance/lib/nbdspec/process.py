# SPDX-License-Identifier: BSD-3-Clause
"""A server process: started, watched, stopped; its log and its end are evidence."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from .errors import KitError
from .watch import Deadline, Directory, ended, wait_for

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)

#: How often a server that tells nothing by a file is asked whether it listens yet.
_ASK_AGAIN = 0.02
#: Under sanitizers and on a busy machine a start takes its time.
START_LIMIT = 30.0
STOP_LIMIT = 10.0


def scratch() -> Path:
    """A new directory with a short path: a socket's may have 107 bytes."""
    base = os.environ.get("NBDSPEC_TMPDIR", "/tmp")
    try:
        made = Path(tempfile.mkdtemp(prefix="nbds.", dir=base))
    except OSError as error:
        raise KitError(f"{base}: {error.strerror} (NBDSPEC_TMPDIR names it)") from None
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def ends_by(number: int) -> tuple[int, ...]:
    """The statuses with which a program may end when it gets a signal.

    The last is what shells, and virtual machines, make of it.
    """
    return 0, -number, 128 + number


class CannotStart(KitError):
    """The server ended, or does not listen."""


class Process:
    """One running server."""

    def __init__(
        self,
        argv: list[str],
        directory: Path,
        *,
        env: dict[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        daemon: Path | None = None,
    ) -> None:
        """``daemon``: the program leaves a daemon behind, which writes its pid there.

        Its exit status can be had because orphans come to this process: from before
        the program starts, for it may be over by the time that Popen returns.
        """
        if daemon is not None:
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.argv = argv
        self.directory = directory
        self.log_path = directory / "log"
        with self.log_path.open("ab") as log:
            try:
                self._popen = subprocess.Popen(
                    argv,
                    stdin=stdin,
                    stdout=log if stdout is None else stdout,
                    stderr=log,
                    env=_environment(env),
                    pass_fds=pass_fds,
                    cwd=directory,
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                raise CannotStart(f"{argv[0]}: {error.strerror}") from None
        self.pid = self._popen.pid
        self.stdin = self._popen.stdin
        self.stdout = self._popen.stdout
        self._pidfd = os.pidfd_open(self.pid)
        self._stopped = False
        self._adopted = False
        self._status: int | None = None
        if daemon is not None:
            self._adopt(daemon)

    def _adopt(self, pid_file: Path) -> None:
        """Goes on with the daemon that the started program leaves behind."""

        def has_pid() -> bool:
            return pid_file.exists() and pid_file.read_text().strip().isdigit()

        if not ended(self._pidfd, START_LIMIT):
            raise CannotStart(f"{self.name} does not go into the background")
        if self._popen.wait() != 0:
            raise CannotStart(self.end_in_words())
        self._adopted, self._status = True, None
        deadline = Deadline(START_LIMIT)
        with Directory(pid_file.parent) as changes:
            while not has_pid():
                if not wait_for([changes.fd], deadline.left):
                    raise CannotStart(f"{self.name}: no pid file")
        self.pid = int(pid_file.read_text())
        os.close(self._pidfd)
        self._pidfd = os.pidfd_open(self.pid)

    # Readiness

    def wait_until(self, ready, what: str, watched: Path | None = None) -> None:
        """Waits until ready() returns true: asks at each change in the directory."""
        deadline = Deadline(START_LIMIT)
        with Directory(watched or self.directory) as changes:
            while not ready():
                if self.status is not None:
                    raise CannotStart(self.end_in_words())
                if deadline.passed:
                    raise CannotStart(f"{self.name}: no {what} in {START_LIMIT:g} s")
                wait = min(deadline.left, _ASK_AGAIN)
                if changes.fd in wait_for([changes.fd, self._pidfd], wait):
                    os.read(changes.fd, 65536)

    @property
    def name(self) -> str:
        return Path(self.argv[0]).name

    # Evidence

    @property
    def status(self) -> int | None:
        """None while it runs, else its exit status (minus the signal's number)."""
        if not self._adopted:
            return self._popen.poll()
        if self._status is None:
            flags = os.WEXITED | os.WNOHANG
            found = os.waitid(os.P_PID, self.pid, flags)
            if found is not None:
                killed = found.si_code != os.CLD_EXITED
                self._status = -found.si_status if killed else found.si_status
        return self._status

    def log(self) -> str:
        return self.log_path.read_text("utf-8", "replace")

    def log_size(self) -> int:
        return self.log_path.stat().st_size

    def log_since(self, place: int) -> str:
        """What was logged behind a place that log_size named."""
        with self.log_path.open("rb") as file:
            file.seek(place)
            return file.read().decode("utf-8", "replace")

    def log_tail(self, lines: int = 12) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def ends_within(self, seconds: float) -> bool:
        return ended(self._pidfd, seconds)

    def end_in_words(self) -> str:
        status = self.status
        if status is None:
            words = f"{self.name} is running"
        elif status < 0:
            words = f"{self.name} was killed by {signal.Signals(-status).name}"
        else:
            words = f"{self.name} ended with status {status}"
        tail = self.log_tail()
        return words + (f"; its log ends:\n{tail}" if tail else "; its log is empty")

    def descriptors(self) -> int | None:
        """How many file descriptors it has open; None when that cannot be seen."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/fd"))
        except OSError:
            return None

    def resident(self) -> int | None:
        """Bytes of resident memory."""
        try:
            fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        except OSError:
            return None
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else None

    def threads(self) -> int | None:
        try:
            return len(os.listdir(f"/proc/{self.pid}/task"))
        except OSError:
            return None

    # The end

    def send(self, number: int) -> None:
        if self.status is None:
            os.kill(self.pid, number)

    def wait(self, seconds: float = STOP_LIMIT) -> int | None:
        """Its exit status; None when it has not ended in time."""
        if not ended(self._pidfd, seconds):
            return None
        return self.status

    def stop(self, number: int = signal.SIGTERM) -> str | None:
        """Ends it; returns what was wrong with how it ended, in words."""
        if self._stopped:
            return None
        self._stopped = True
        trouble = None
        if self.status is not None:
            trouble = self.end_in_words()
        else:
            self.send(number)
            if self.wait() is None:
                name = signal.Signals(number).name
                trouble = f"{self.name} was still there {STOP_LIMIT:g} s after {name}"
                self.send(signal.SIGKILL)
                self.wait()
            elif self.status not in ends_by(number):
                trouble = self.end_in_words()
        os.close(self._pidfd)
        return trouble

    def kill(self) -> None:
        if not self._stopped:
            self._stopped = True
            self.send(signal.SIGKILL)
            self.wait()
            os.close(self._pidfd)

    def forget(self) -> None:
        """Removes its directory."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _environment(more: dict[str, str] | None) -> dict[str, str]:
    env = dict(os.environ)
    for name in ("PYTHONUNBUFFERED", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"):
        env.pop(name, None)
    env.update(more or {})
    return env
