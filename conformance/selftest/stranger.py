# SPDX-License-Identifier: BSD-3-Clause
"""A server that the kit has no name for, in as few lines as it takes."""

import socket
import socketserver
import struct
import sys

DISK = bytearray(1 << 20)


class Session(socketserver.StreamRequestHandler):
    def reply(self, option, kind, data=b""):
        head = struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data))
        self.request.sendall(head + data)

    def handle(self):
        self.request.sendall(b"NBDMAGICIHAVEOPT\0\3")
        self.rfile.read(4)
        while len(head := self.rfile.read(16)) == 16:
            _, option, length = struct.unpack(">QII", head)
            data = self.rfile.read(length)
            if option in (6, 7):
                export = struct.pack(">HQH", 0, len(DISK), 1)
                self.reply(option, 3, export)
            known = option in (2, 6, 7) or (option == 3 and not data)
            self.reply(option, 1 if known else 0x80000001)
            if option == 2:
                return
            if option == 7:
                break
        while len(head := self.rfile.read(28)) == 28:
            _, flags, kind, cookie, at, count = struct.unpack(">IHHQQI", head)
            data = self.rfile.read(count) if kind == 1 else b""
            if kind == 2:
                return
            bad = kind > 1 or flags or at + count > len(DISK)
            error = (28 if kind == 1 else 22) if bad else 0
            if kind == 1 and not bad:
                DISK[at : at + count] = data
            out = DISK[at : at + count] if kind == 0 and not bad else b""
            self.request.sendall(struct.pack(">IIQ", 0x67446698, error, cookie) + out)


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = socket.SOMAXCONN


Server(sys.argv[1], Session).serve_forever()
