# SPDX-License-Identifier: BSD-3-Clause
"""Reads through TLS, against a process that does nothing but encrypt."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nbdspec.bench.model import (
    ROOT,
    BenchError,
    Column,
    Options,
    Ratio,
    Results,
    Row,
    Sample,
)
from nbdspec.bench.server import Server, ServerSpec, program

DISK = 1 << 20
X509, PSK = "X.509", "pre-shared keys"
LOOP = "gnutls_record_send"

#: What is agreed on with nbdspecd, so that the loop encrypts the same way.
CIPHER = {X509: "AES-256-GCM", PSK: "AES-128-GCM"}


class Scenario:
    title = "tls: reads of 256 KiB, depth 8, through TLS"
    question = (
        "How many bytes a second does one client read through TLS 1.3 over a Unix "
        "socket, with a certificate and with a pre-shared key? The client is a C "
        "program that only receives. Beside it, with the same cipher, the same "
        "program receives from a process that only calls gnutls_record_send."
    )
    columns = (
        Column("nbdspecd", "nbdspecd"),
        Column("nbdkit", "nbdkit"),
        Column(LOOP, "limit"),
    )
    ratios = (Ratio("nbdspecd", LOOP), Ratio("nbdspecd", "nbdkit"))

    def __init__(self) -> None:
        self.pki = Path()

    def rows(self, options: Options) -> list[Row]:
        self.pki = options.directory / "pki"
        made = subprocess.run(
            [ROOT / "ci" / "make-pki", self.pki], capture_output=True, text=True
        )
        if made.returncode != 0:
            raise BenchError(f"ci/make-pki: {made.stderr.strip()}")
        return [Row(kind, "MiB/s", {"kind": kind}) for kind in (X509, PSK)]

    def server(self, row: Row, column: Column) -> ServerSpec:
        if column.host == "limit":
            return ServerSpec("limit")  # which idles: the loop has a process of its own
        if row.params["kind"] == X509:
            credentials = ("--tls-certificates", str(self.pki))
        else:
            credentials = ("--tls-psk", str(self.pki / "keys.psk"))
        # on, not require: the disk is filled in the clear
        options = ("--tls=on", *credentials)
        return ServerSpec(column.host, ("memory", "1M"), options, prefill=DISK)

    def sample(
        self, row: Row, column: Column, server: Server, options: Options
    ) -> Sample:
        kind, seconds = row.params["kind"], str(options.seconds)
        if column.host == "limit":
            words = ["loop", seconds, CIPHER[kind], str(self.pki)]
        elif kind == X509:
            words = ["nbd", seconds, "x509", str(self.pki), str(server.socket)]
        else:
            keys = str(self.pki / "keys.psk")
            words = ["nbd", seconds, "psk", keys, str(server.socket)]
        before = server.usage()
        r = subprocess.run(
            [program("tls_reads"), *words], capture_output=True, text=True
        )
        used = server.usage().since(before)
        if r.returncode != 0:
            raise BenchError(r.stderr.strip())
        return Sample(
            value=float(r.stdout),
            real=options.seconds,
            server_cpu=used.cpu if column.host != "limit" else None,
        )

    def notes(self, results: Results) -> list[str]:
        return []
