# SPDX-License-Identifier: BSD-3-Clause
"""A daemon, and clients of it.

IMAGEIO=URL,SOCKET,CONTROL names a real one, to see whether the stand-in is like it:

    IMAGEIO=http://127.0.0.1:54322,/run/local,/run/control pytest \
        regress/imageio/tests/test_images.py regress/imageio/tests/test_tickets.py
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "regress"))
sys.path.insert(0, str(ROOT / "conformance" / "lib"))

from imageio.process import Daemon  # noqa: E402
from plain_client import SIZE, Client  # noqa: E402


@pytest.fixture
def directory() -> Iterator[Path]:
    """Short, for the sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="io."))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(directory: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts a daemon with an image of SIZE bytes; options as of imageiod."""
    running: list[Daemon] = []

    def starter(*options: str, size: int = SIZE) -> Daemon:
        image = directory / "image.raw"
        daemon = Daemon(directory, "--image", str(image), "--size", str(size), *options)
        running.append(daemon)
        return daemon

    yield starter
    for daemon in running:
        daemon.stop()


@pytest.fixture
def connect() -> Iterator[Callable[[Daemon], Client]]:
    clients: list[Client] = []

    def connector(daemon: Daemon) -> Client:
        clients.append(Client(daemon))
        return clients[-1]

    yield connector
    for client in clients:
        client.close()


class Real:
    """As much of Daemon as the tests of plain_daemon use."""

    def __init__(self, words: str) -> None:
        self.url, self.unix_socket, self.control = words.split(",")


@pytest.fixture(scope="session")
def plain_daemon() -> Iterator[Daemon | Real]:
    """One that nothing special is asked of, for all tests that need no other."""
    if real := os.environ.get("IMAGEIO"):
        yield Real(real)
        return
    path = Path(tempfile.mkdtemp(prefix="io."))
    daemon = Daemon(path)
    yield daemon
    daemon.stop()
    shutil.rmtree(path)


@pytest.fixture
def client(
    plain_daemon: Daemon | Real, directory: Path, connect: Callable[..., Client]
) -> Client:
    """Its ticket, "image", is of a new file for each test."""
    image = directory / "image.raw"
    image.touch()
    os.truncate(image, SIZE)
    client = connect(plain_daemon)
    url = image.as_uri()
    answer = client.ticket("image", url=url, ops=["read", "write"], sparse=True)
    assert answer.status == 200
    return client


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: not for make check")
