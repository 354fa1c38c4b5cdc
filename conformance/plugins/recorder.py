# SPDX-License-Identifier: BSD-3-Clause
"""A plugin that becomes, at run time, the plugin that a case asks for.

A case sends the source of the callbacks that it wants over a Unix socket
(NBDSPEC_CONTROL); hosts look callbacks up by name at each call, so one server serves
many cases.  What a case does not define and a plugin must have is there by default.
What cannot change at run time comes by the environment: NBDSPEC_API and
NBDSPEC_MODEL.
"""

import json
import os
import socket
import threading
import traceback

import nbdkit
import recording
# What the sources of cases use.
from recording import (
    address,
    describe,
    gate,
    hold,
    judge,
    note,
    pattern,
    raised,
)

API_VERSION = int(os.environ.get("NBDSPEC_API", "2"))
SIZE = 64 << 20

_handles = threading.Condition()
_opened = 0


class Handle:
    """What open returns by default."""


def _defaults():
    """The callbacks that a case need not write."""

    def open(readonly):
        return Handle()

    def get_size(h):
        return SIZE

    def close(h):
        pass

    def pread(h, *args):
        if API_VERSION == 1:
            return bytes(args[0])
        args[0][:] = bytes(len(args[0]))

    return {"open": open, "get_size": get_size, "close": close, "pread": pread}


def _counted(name, function):
    """open and close are counted, so that the end of a connection can be seen."""

    def call(*args):
        global _opened
        try:
            result = function(*args)
        except BaseException:
            if name == "close":
                _count(-1)
            raise
        _count(1 if name == "open" else -1)
        return result

    return call


def _count(step):
    global _opened
    with _handles:
        _opened += step
        _handles.notify_all()


def _load(source, record):
    """Forgets the last case's plugin, and takes the next one's."""
    recording.forget_gates()
    _forget()
    scope = globals()
    exec(compile(source, "<case>", "exec"), scope)
    for name, function in _defaults().items():
        scope.setdefault(name, function)
    if record:
        recording.record(scope)
    for name in ("open", "close"):
        if callable(scope[name]):
            scope[name] = _counted(name, scope[name])


def _forget():
    scope = globals()
    for name in set(scope) - _kept:
        del scope[name]
    scope.update(_values)


def _settle(limit):
    """Waits until every handle was closed; how many were not."""
    with _handles:
        _handles.wait_for(lambda: _opened == 0, limit)
        return _opened


def _wait(name, key, count, limit):
    """Waits until a gate's number is reached; its numbers."""
    found = gate(name)
    with found.changed:
        found.changed.wait_for(lambda: getattr(found, key) >= count, limit)
    return found.numbers()


def _left(name, inside, limit):
    """Waits until no more than so many are inside a gate."""
    found = gate(name)
    with found.changed:
        found.changed.wait_for(lambda: found.inside <= inside, limit)
    return found.numbers()


_ORDERS = {
    "load": _load,
    "settle": _settle,
    "wait": _wait,
    "left": _left,
    "numbers": lambda name: gate(name).numbers(),
    "release": lambda name, count: gate(name).release(count),
    "open": lambda name: gate(name).open_up(),
    "eval": lambda source: eval(source, globals()),
    "exec": lambda source: exec(source, globals()),
}


def _obey(line):
    order, *args = json.loads(line)
    try:
        return {"result": _ORDERS[order](*args)}
    except Exception:  # whatever the case's text does is told to the case
        return {"error": traceback.format_exc()}


def _serve(client):
    with client, client.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            stream.write(json.dumps(_obey(line)) + "\n")
            stream.flush()


def _listen(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    while True:
        client = server.accept()[0]
        threading.Thread(target=_serve, args=(client,), daemon=True).start()


def after_fork():
    path = os.environ["NBDSPEC_CONTROL"]
    threading.Thread(target=_listen, args=(path,), daemon=True).start()


if os.environ.get("NBDSPEC_MODEL"):

    def thread_model():
        return int(os.environ["NBDSPEC_MODEL"])


_kept = set(globals()) | {"_kept", "_values"}
_values = {name: globals()[name] for name in _kept - {"_values", "_kept", "_opened"}}
globals().update(_defaults())
