# SPDX-License-Identifier: BSD-3-Clause
"""A small NBD server with mistakes to order, for the kit's own tests.

    fake_server.py SOCKET [MISTAKE]

Without a mistake it is a correct baseline server of 1 MiB. As a program that the kit has
no name for it also shows what --cmd needs of a stranger.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time

SIZE = 1 << 20
MISTAKE = sys.argv[2] if len(sys.argv) > 2 else ""
disk = bytearray(SIZE)
kept = []


def receive(conn, count):
    data = b""
    while len(data) < count:
        part = conn.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def option_reply(conn, number, kind, data=b""):
    head = struct.pack(">QIII", 0x3E889045565A9, number, kind, len(data))
    if MISTAKE == "half-answer" and number == 7:
        conn.sendall(head[:10])
        conn.close()
    elif MISTAKE == "garbage" and number == 7:
        conn.sendall(os.urandom(64))
    else:
        conn.sendall(head + data)


def info(conn, number, data):
    (length,) = struct.unpack(">I", data[:4])
    if data[4 : 4 + length]:
        option_reply(conn, number, 0x80000006)
        return False
    flags = 1 | (2 if MISTAKE == "readonly" else 0)
    option_reply(conn, number, 3, struct.pack(">HQH", 0, SIZE, flags))
    option_reply(conn, number, 1)
    return number == 7


def haggle(conn):
    """True when transmission is to begin."""
    conn.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
    receive(conn, 4)
    while True:
        _, number, length = struct.unpack(">QII", receive(conn, 16))
        data = receive(conn, length) if MISTAKE != "option-data-unread" else b""
        if number == 2:
            option_reply(conn, number, 1)
            return False
        if number == 3:
            option_reply(conn, number, 2, bytes(4))
            option_reply(conn, number, 1)
        elif number in (6, 7):
            if info(conn, number, data):
                return True
        else:
            option_reply(conn, number, 0x80000001)


def transmit(conn):
    while True:
        head = struct.unpack(">IHHQQI", receive(conn, 28))
        _, flags, command, cookie, offset, length = head
        payload = receive(conn, length) if command == 1 else b""
        if command == 2:
            return
        if command == 0 and MISTAKE == "crash":
            os.abort()
        if not length and MISTAKE == "nothing-closes":
            return
        if command == 0 and MISTAKE == "hang":
            continue
        if MISTAKE == "slow":
            time.sleep(0.05)
        error, data = perform(command, flags, offset, length, payload)
        answer = struct.pack(">IIQ", 0x67446698, error, cookie) + data
        if MISTAKE == "half-reply" and command == 0:
            conn.sendall(answer[:10])
            continue
        conn.sendall(answer * 2 if MISTAKE == "two-answers" else answer)


def perform(command, flags, offset, length, payload):
    if command > 1:
        return 22, b""
    if flags and MISTAKE != "flags-ignored":
        return 22, b""
    if offset + length > SIZE:
        return {0: 22, 1: 5 if MISTAKE == "eio" else 28}[command], b""
    if command == 1:
        disk[offset : offset + length] = payload
        return 0, b""
    if MISTAKE == "wrong-data":
        return 0, b"\xee" * length
    return 0, bytes(disk[offset : offset + length])


def serve(conn):
    try:
        if MISTAKE == "closes-at-once":
            return
        if MISTAKE == "leak":
            kept.append(os.open("/dev/null", os.O_RDONLY))
        if haggle(conn):
            transmit(conn)
    except (EOFError, OSError):
        pass
    finally:
        conn.close()


def main():
    if MISTAKE == "does-not-start":
        sys.exit("fake_server.py: this is why it does not start")
    if MISTAKE.startswith("ends-with-"):
        status = int(MISTAKE.rpartition("-")[2])
        signal.signal(signal.SIGTERM, lambda *_: os._exit(status))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(64)
    while True:
        conn = listener.accept()[0]
        threading.Thread(target=serve, args=(conn,), daemon=True).start()


main()
