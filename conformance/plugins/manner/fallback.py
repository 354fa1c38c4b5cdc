# SPDX-License-Identifier: BSD-3-Clause
"""Runs its own tests without a server: a stand-in where nbdkit is not there."""

try:
    import nbdkit
except ImportError:

    class nbdkit:  # type: ignore[no-redef]
        THREAD_MODEL_SERIALIZE_REQUESTS = 2

        @staticmethod
        def debug(message):
            print(message)


API_VERSION = 2
_data = bytearray(1 << 20)


def thread_model():
    return nbdkit.THREAD_MODEL_SERIALIZE_REQUESTS


def open(readonly: bool):
    return object()


def get_size(h) -> int:
    return len(_data)


def pread(h, buf, offset: int, flags: int) -> None:
    buf[:] = memoryview(_data)[offset : offset + len(buf)]


def pwrite(h, buf, offset: int, flags: int) -> None:
    memoryview(_data)[offset : offset + len(buf)] = buf


if __name__ == "__main__":
    view = memoryview(bytearray(4))
    pread(open(True), view, 0, 0)
    assert bytes(view) == bytes(4)
