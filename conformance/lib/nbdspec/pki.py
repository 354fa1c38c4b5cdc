# SPDX-License-Identifier: BSD-3-Clause
"""Certificates for servers and clients of a run, made when first needed."""

from __future__ import annotations

import functools
import shutil
import ssl
import subprocess
import warnings
from pathlib import Path

from . import HOME
from .process import scratch

_MAKER = HOME.parent / "ci" / "make-pki"


@functools.cache
def directory() -> Path:
    """Where they are, in the manner of nbdkit and libnbd."""
    from .targets.base import CannotDo  # which needs what is here

    if not _MAKER.exists() or shutil.which("certtool") is None:
        raise CannotDo("there is no certtool (gnutls-bin) to make certificates with")
    made = scratch()
    subprocess.run([str(_MAKER), str(made)], check=True)
    return made


def keys() -> Path:
    """Pre-shared keys of alice and bob."""
    return directory() / "keys.psk"


def client_context(
    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> ssl.SSLContext:
    """What a client knows that trusts the run's authority, and has a certificate."""
    path = directory()
    context = ssl.create_default_context(cafile=str(path / "ca-cert.pem"))
    # The certificate is for localhost; over a Unix socket there is no name.
    context.check_hostname = False
    # An end without close_notify is to be seen (TERM-02); Python passes over it.
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    with warnings.catch_warnings():
        # Old versions are named to see them refused.
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = oldest
        context.maximum_version = newest
    if newest in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(path / "client-cert.pem", path / "client-key.pem")
    return context
