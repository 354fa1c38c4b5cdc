# SPDX-License-Identifier: BSD-3-Clause
"""Puts a server far away: all that passes is delayed, both ways.

    far_away.py SECONDS SOCKET -- SERVER ...    (the server's own socket is SOCKET.near)

Bytes that come together leave together, SECONDS later.
"""

import asyncio
import contextlib
import subprocess
import sys

DELAY = float(sys.argv[1])
PATH = sys.argv[2]


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What one end sends, to the other; then its end, or None for a reset."""
    queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    async def deliver() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()
        if data is None:
            writer.transport.abort()
        elif writer.can_write_eof():
            writer.write_eof()

    sending = asyncio.create_task(deliver())
    data: bytes | None = b"-"
    while data:
        try:
            data = await reader.read(65536)
        except OSError:
            data = None
        await queue.put((loop.time() + DELAY, data))
    with contextlib.suppress(OSError):
        await sending  # who does not listen any more has gone


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    near_reader, near_writer = await asyncio.open_unix_connection(PATH + ".near")
    await asyncio.gather(carry(reader, near_writer), carry(near_reader, writer))
    for end in (writer, near_writer):
        end.close()


async def main() -> None:
    words = [word.replace(PATH, PATH + ".near") for word in sys.argv[4:]]
    server = subprocess.Popen(words)
    try:
        while True:
            try:
                (await asyncio.open_unix_connection(PATH + ".near"))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.02)
        listener = await asyncio.start_unix_server(serve, PATH)
        await listener.serve_forever()
    finally:
        server.terminate()
        server.wait()


if sys.argv[3] != "--":
    sys.exit("far_away.py: expected SECONDS SOCKET -- SERVER ...")
loop = asyncio.new_event_loop()
task = loop.create_task(main())
loop.add_signal_handler(15, task.cancel)
try:
    loop.run_until_complete(task)
except asyncio.CancelledError:
    pass
