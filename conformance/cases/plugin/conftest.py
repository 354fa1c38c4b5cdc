# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures of the plugin section."""

from __future__ import annotations

from typing import Iterator

import pytest

from nbdspec.caserun import CaseRun
from nbdspec.hosts import HostPool, Hosts
from nbdspec.plugin import state_key


@pytest.fixture(scope="session")
def host_pool(request: pytest.FixtureRequest) -> Iterator[HostPool]:
    pool = HostPool(request.config.stash[state_key].pool.target)
    yield pool
    pool.close()


@pytest.fixture
def hosts(
    request: pytest.FixtureRequest, host_pool: HostPool, run: CaseRun
) -> Iterator[Hosts]:
    """Where a case gets hosts with the plugins that it is about."""
    made = Hosts(host_pool, run, request.config.stash[state_key].options)
    yield made
    made.finish()
