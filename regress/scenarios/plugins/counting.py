# SPDX-License-Identifier: BSD-3-Clause
"""Another plugin, with its requests counted: how many are in it at a time.

    COUNTED_PLUGIN=pyplugins/upload.py COUNTED_RESULT=FILE nbdkit python counting.py ...

COUNTED_MODEL=SERIALIZE_ALL_REQUESTS gives it another thread model. When a client
leaves, FILE has the most requests at once and the mean, over the time from the
first request to the end of the last.
"""

import builtins
import importlib.util
import json
import os
import threading
import time
from typing import Any, Callable

import nbdkit

_path = os.path.realpath(os.environ["COUNTED_PLUGIN"])
_result = os.path.realpath(os.environ["COUNTED_RESULT"])
_model = os.environ.get("COUNTED_MODEL")
_spec = importlib.util.spec_from_file_location("plugin", _path)
assert _spec is not None and _spec.loader is not None
_plugin = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plugin)
globals().update({k: v for k, v in vars(_plugin).items() if not k.startswith("_")})


class _Count:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = self.requests = 0
        self.first = self.last = self.busy = 0.0  # busy: requests times seconds

    def change(self, by: int) -> None:
        with self.lock:
            now = time.monotonic()
            self.first = self.first or now
            self.busy += self.now * (now - (self.last or now))
            self.last = now
            self.now += by
            self.most = max(self.most, self.now)
            self.requests += by > 0

    def result(self) -> dict[str, float]:
        with self.lock:
            mean = self.busy / (self.last - self.first) if self.requests else 0.0
            return {"mean": mean, "most": self.most, "requests": self.requests}


_count = _Count()


def _counted(callback: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any) -> None:
        _count.change(1)
        try:
            callback(*args)
        finally:
            _count.change(-1)

    return call


for _name in ("pread", "pwrite", "zero", "trim", "flush"):
    if hasattr(_plugin, _name):
        globals()[_name] = _counted(getattr(_plugin, _name))

if _model:

    def thread_model() -> int:
        return int(getattr(nbdkit, f"THREAD_MODEL_{_model}"))


def close(h: Any) -> None:
    if hasattr(_plugin, "close"):
        _plugin.close(h)
    with builtins.open(_result + ".new", "w") as f:
        json.dump(_count.result(), f)
    os.replace(_result + ".new", _result)
