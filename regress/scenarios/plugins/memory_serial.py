# SPDX-License-Identifier: BSD-3-Clause
"""pyplugins/memory.py under SERIALIZE_ALL_REQUESTS, to compare thread models."""

import importlib.util
import os

import nbdkit

_path = os.path.join(os.path.dirname(__file__), "../../../pyplugins/memory.py")
_spec = importlib.util.spec_from_file_location("memory", os.path.abspath(_path))
assert _spec is not None and _spec.loader is not None
memory = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(memory)
globals().update(
    {name: value for name, value in vars(memory).items() if name[0] != "_"}
)


def thread_model() -> int:
    return nbdkit.THREAD_MODEL_SERIALIZE_ALL_REQUESTS
