# SPDX-License-Identifier: BSD-3-Clause
"""Another plugin under SERIALIZE_ALL_REQUESTS, to compare thread models.

    SERIAL_PLUGIN=pyplugins/memory.py nbdkit python serial.py size=1G

An environment variable, because callbacks must exist before config is called.
"""

import importlib.util
import os

import nbdkit

_path = os.path.realpath(os.environ["SERIAL_PLUGIN"])
_spec = importlib.util.spec_from_file_location("plugin", _path)
assert _spec is not None and _spec.loader is not None
_plugin = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_plugin)
globals().update({k: v for k, v in vars(_plugin).items() if not k.startswith("_")})


def thread_model() -> int:
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS
