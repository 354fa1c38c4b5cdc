# SPDX-License-Identifier: BSD-3-Clause
"""A daemon, and clients of it."""

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


@pytest.fixture(scope="session")
def plain_daemon() -> Iterator[Daemon]:
    """One that nothing special is asked of, for all tests that need no other."""
    path = Path(tempfile.mkdtemp(prefix="io."))
    daemon = Daemon(path)
    yield daemon
    daemon.stop()
    shutil.rmtree(path)


@pytest.fixture
def client(
    plain_daemon: Daemon, directory: Path, connect: Callable[[Daemon], Client]
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
