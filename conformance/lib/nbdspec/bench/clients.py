# SPDX-License-Identifier: BSD-3-Clause
"""The clients that make the load, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import nbd

from .model import BenchError, Sample
from .server import Server, Usage


@dataclass(frozen=True)
class Cost:
    real: float
    user: float
    system: float


def run(argv: list[str], quiet: bool = True) -> Cost:
    """Runs a program to its end; what `time` would print."""
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output if quiet else None,
                stderr=output,
            )
        except FileNotFoundError:
            raise BenchError(f"{argv[0]}: not installed (see ci/setup bench)") from None
        _, status, usage = os.wait4(process.pid, 0)
        real = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            text = output.read().decode(errors="replace").strip().split("\n")[-1]
            raise BenchError(f"{' '.join(argv)}: status {process.returncode}: {text}")
    return Cost(real, usage.ru_utime, usage.ru_stime)


def sample_of(cost: Cost, used: Usage, **figures: Any) -> Sample:
    """What a run told: value, requests and others, with what both sides used."""
    return Sample(
        real=cost.real,
        client_user=cost.user,
        client_system=cost.system,
        server_cpu=used.cpu,
        server_user=used.user,
        server_system=used.system,
        server_faults=used.faults,
        **figures,
    )


def fio_command(uri: str, **settings: Any) -> list[str]:
    # the engine first: --uri is one of its own options
    settings = {"ioengine": "nbd", "uri": uri, "size": "1g"} | settings
    words = [f"--{key}={value}" for key, value in settings.items()]
    return ["fio", "--name=bench", *words, "--group_reporting", "--output-format=json"]


def fio_job(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """fio's JSON: the job, and the direction that it used."""
    # warnings may come before the JSON, on the same stream
    job = json.loads(text[text.index("{") :])["jobs"][0]
    return job, max(job["read"], job["write"], key=lambda side: side["total_ios"])


def fio(server: Server, seconds: float, uri: str = "", **settings: Any) -> Sample:
    """A run of fio, for some time or (0) some requests. Value: requests a second."""
    if seconds:
        settings |= {"time_based": 1, "runtime": f"{round(seconds * 1000)}ms"}
    with tempfile.NamedTemporaryFile("r", dir=server.directory) as out:
        before = server.usage()
        run(fio_command(uri or server.uri, output=out.name, **settings))
        used = server.usage().since(before)
        job, side = fio_job(out.read())
    if side["total_ios"] == 0:
        raise BenchError("fio: no request was answered")
    busy = job["job_runtime"] / 1000 / 100  # of all jobs together; percent
    cost = Cost(side["runtime"] / 1000, job["usr_cpu"] * busy, job["sys_cpu"] * busy)
    return sample_of(
        cost,
        used,
        value=side["iops"],
        requests=side["total_ios"],
        extra={
            "mib_per_s": side["bw_bytes"] / 2**20,
            "latency_mean_us": side["clat_ns"]["mean"] / 1000,
            "latency_p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1000,
        },
    )


def fill(server: Server, size: int) -> None:
    """Writes the disk once, so that no later request touches fresh memory."""
    step = 8 << 20
    block = bytes(range(256)) * (step // 256)
    handle = nbd.NBD()
    handle.connect_unix(str(server.socket))
    for offset in range(0, size, step):
        handle.pwrite(block[: min(step, size - offset)], offset)
    handle.shutdown()
