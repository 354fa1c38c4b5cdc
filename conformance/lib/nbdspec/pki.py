# SPDX-License-Identifier: BSD-3-Clause
"""Certificates for servers and clients of a run, made when first needed."""

from __future__ import annotations

import atexit
import functools
import shutil
import ssl
import subprocess
from pathlib import Path

from . import HOME
from .process import scratch
from .targets.base import CannotDo

_MAKER = HOME.parent / "ci" / "make-pki"


@functools.cache
def directory() -> Path:
    """Where they are, in the manner of nbdkit and libnbd."""
    if not _MAKER.exists() or shutil.which("certtool") is None:
        raise CannotDo("there is no certtool (gnutls-bin) to make certificates with")
    made = scratch()
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    subprocess.run([str(_MAKER), str(made)], check=True)
    return made


def client_context() -> ssl.SSLContext:
    """What a client knows that trusts the run's authority."""
    context = ssl.create_default_context(cafile=str(directory() / "ca-cert.pem"))
    # The certificate is for localhost; over a Unix socket there is no name.
    context.check_hostname = False
    return context
