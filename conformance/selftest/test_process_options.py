# SPDX-License-Identifier: BSD-3-Clause
"""What the options do, and command lines as other programs write them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from server_process import (
    ABORT,
    ACK,
    GUARD,
    LIST,
    NBDSPECD,
    PLUGIN,
    Client,
    Server,
    connected,
    needs_python,
    read_line,
    size_of,
    wait_for_file,
    wait_gone,
)

def output(*args: str, **kwargs) -> str:
    r = subprocess.run(
        [NBDSPECD, *args], capture_output=True, text=True, timeout=GUARD, **kwargs
    )
    assert (r.returncode, r.stderr) == (0, "")
    return r.stdout


# -- what is printed


def test_version() -> None:
    assert output("--version").startswith("nbdspecd ")
    assert output("-V") == output("--version")
    assert output("--version", "null").splitlines()[1].startswith("null ")


def test_help_is_for_stdout() -> None:
    text = output("--help")
    assert text.startswith("Usage: nbdspecd ")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text in output("--help", "memory")


def test_option_lists_agree_with_help() -> None:
    text = output("--help")
    longs = output("--long-options").split()
    assert len(longs) == len(set(longs)) > 50
    for name in longs:
        assert name in text
    for letter in output("--short-options").split():
        assert f"  {letter}, --" in text


def test_dump_config() -> None:
    lines = output("--dump-config").splitlines()
    values = dict(line.split("=", 1) for line in lines)
    assert lines == sorted(lines)
    assert values["run_default_socket"] == "Unix"
    assert values["exit_with_parent"] == "yes"
    assert values["name"] == "nbdspecd"
    major, minor = values["version"].split(".")[:2]
    assert (values["version_major"], values["version_minor"]) == (major, minor)


def test_dump_plugin_does_not_serve(place: Path) -> None:
    text = output("--dump-plugin", "memory", "1M", cwd=place)
    values = dict(line.split("=", 1) for line in text.splitlines())
    assert values["name"] == "memory"
    assert values["thread_model"] == "parallel"


@needs_python
def test_dump_plugin_without_a_script() -> None:
    lines = output("--dump-plugin", "python").splitlines()
    assert "thread_model=serialize_all_requests" in lines
    assert "nbdkit_python_maximum_api_version=2" in lines


@needs_python
def test_dump_plugin_of_a_script(place: Path) -> None:
    (place / "plugin.py").write_text(
        PLUGIN
        + "import nbdkit\n"
        + "def thread_model(): return nbdkit.THREAD_MODEL_SERIALIZE_REQUESTS\n"
        + "def config(k, v): pass\n"
        + "def config_complete(): raise RuntimeError\n"
        + "def dump_plugin(): print('mine=1')\n"
    )
    text = output("python", "plugin.py", "a=b", "--dump-plugin", cwd=place)
    values = dict(line.split("=", 1) for line in text.splitlines())
    assert values["thread_model"] == "serialize_requests"
    assert values["max_thread_model"] == "parallel"
    assert values["mine"] == "1"


def test_print_uri_comes_before_readiness(place: Path) -> None:
    with Server(place, "--print-uri", "-e", "a b", "null", "1M") as s:
        uri = f"nbd+unix:///a%20b?socket={s.socket}"
        assert s.log() == f"{uri}\n'{uri}'\nnbdinfo '{uri}'\n"


@pytest.mark.parametrize("option", ["--print-url", "--show-uri", "--show-url"])
def test_print_uri_of_a_daemon(option: str, place: Path) -> None:
    args = ("-i", "127.0.0.1", "-p", "0", "-P", "pid", option, "null", "1M")
    text = output(*args, cwd=place)
    try:
        port = int(text.split("\n")[0].rsplit(":", 1)[1])
        assert size_of(("127.0.0.1", port)) == 1 << 20
    finally:
        pid = int((place / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        wait_gone(pid)


# -- how command lines are written


@pytest.mark.parametrize(
    "line",
    [
        "--read memory 1M",
        "memory 1M --read",
        "memory --re 1M",
        "-vr memory 1M",
        "--threads 4 --no-fork --new-style --readonly memory size=1M",
    ],
)
def test_abbreviations_and_order(line: str, place: Path) -> None:
    line = line.replace("--re ", "--readonly ")
    with Server(place, *line.split()) as s, Client(s.socket) as c:
        c.greet(1)
        c.option(1)  # EXPORT_NAME: size, flags, zeroes
        reply = c.recv(134)
        assert int.from_bytes(reply[:8], "big") == 1 << 20
        assert reply[9] & 2  # read-only


def test_words_after_two_dashes_are_no_options(place: Path) -> None:
    with Server(place, "memory", "--", "1M") as s:
        assert size_of(s.socket) == 1 << 20


def test_plugin_by_the_path_of_nbdkits(place: Path) -> None:
    path = "/usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-memory-plugin.so"
    with Server(place, path, "1M") as s:
        assert size_of(s.socket) == 1 << 20


@needs_python
@pytest.mark.parametrize("line", ["{} python", "/usr/bin/env -S {} -v python"])
def test_shebang(line: str, place: Path) -> None:
    if " " in NBDSPECD:
        pytest.skip("the kernel splits the line at blanks")
    script = place / "plugin.py"
    script.write_text("#!" + line.format(NBDSPECD) + "\n" + PLUGIN)
    script.chmod(0o755)
    command = 'nbdinfo --size "$uri"'
    text = subprocess.check_output(
        [script, "--run", command], text=True, stderr=subprocess.DEVNULL, timeout=GUARD
    )
    assert text == "1048576\n"


def test_called_nbdkit(place: Path) -> None:
    (place / "nbdkit").symlink_to(NBDSPECD)
    program = str(place / "nbdkit")

    def text(*args: str) -> str:
        return subprocess.check_output([program, *args], text=True, timeout=GUARD)

    assert text("--version").startswith("nbdkit 1.")
    values = dict(line.split("=", 1) for line in text("--dump-config").splitlines())
    assert values["name"] == "nbdkit"
    assert values["version"].startswith("1.") and values["version_major"] == "1"
    r = subprocess.run([program], capture_output=True, text=True, timeout=GUARD)
    assert r.returncode == 1 and r.stderr.startswith("nbdkit: error: ")


@needs_python
def test_libnbd_starts_it_as_nbdkit(place: Path) -> None:
    (place / "nbdkit").symlink_to(NBDSPECD)
    (place / "plugin.py").write_text(
        "import sys\n"
        "print('this would be in the way', flush=True)\n"
        "sys.stderr.write('stdin: %r\\n' % sys.stdin.read())\n"
        "def config(k, v): print(k, v, flush=True)\n"
        "def get_ready(): print('ready', flush=True)\n" + PLUGIN
    )
    code = (
        "import nbd, sys\n"
        "h = nbd.NBD()\n"
        "h.connect_command(['nbdkit', '-s', '--exit-with-parent', 'python',"
        " 'plugin.py', 'key=value'])\n"
        "print(h.get_size(), h.pread(4, 0) == b'pppp')\n"
        "h.shutdown()\n"
    )
    r = subprocess.run(
        ["/usr/bin/python3", "-c", code],
        cwd=place,
        env={
            **os.environ,
            "PATH": f"{place}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
        },
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (r.returncode, r.stdout) == (0, "1048576 True\n"), r.stderr
    assert "this would be in the way" in r.stderr
    assert "key value" in r.stderr and "ready" in r.stderr
    assert "stdin: ''" in r.stderr


def single(*args: str, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([NBDSPECD, "-s", *args], stdin=stdin, stdout=stdout)


def test_single_over_pipes(place: Path) -> None:
    in_r, in_w = os.pipe()
    out_r, out_w = os.pipe()
    p = single("memory", "1M", stdin=in_r, stdout=out_w)
    os.close(in_r)
    os.close(out_w)
    try:
        assert os.read(out_r, 18)[:8] == b"NBDMAGIC"
        data = (3).to_bytes(4, "big")
        data += b"IHAVEOPT" + (ABORT).to_bytes(4, "big") + bytes(4)
        os.write(in_w, data)
        reply = b""
        while len(reply) < 20:
            reply += os.read(out_r, 20 - len(reply))
        assert int.from_bytes(reply[12:16], "big") == ACK
        assert os.read(out_r, 1) == b""
        assert p.wait(GUARD) == 0
    finally:
        p.kill()
        p.wait()
        os.close(in_w)
        os.close(out_r)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_single_is_ended_by_a_signal(kind: str) -> None:
    if kind == "pipe":
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        p = single("memory", "1M", stdin=theirs_in, stdout=theirs_out)
        keep = [ours_in]
        os.close(theirs_in)
        os.close(theirs_out)
    else:
        ours, theirs = socket.socketpair()
        p = single("memory", "1M", stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        ours_out = os.dup(ours.fileno())
        keep = [ours.detach()]
    try:
        assert os.read(ours_out, 18)[:8] == b"NBDMAGIC"
        p.send_signal(signal.SIGTERM)
        assert os.read(ours_out, 1) == b""
        assert p.wait(GUARD) == 0
    finally:
        p.kill()
        p.wait()
        for fd in (ours_out, *keep):
            os.close(fd)


LABEL = "system_u:object_r:svirt_socket_t:s0"
STAND_IN = """
#include <stdio.h>
#include <stdlib.h>
int setsockcreatecon_raw (const char *label)
{
    FILE *f = fopen (getenv ("LABELS"), "a");
    fprintf (f, "%s\\n", label ? label : "(none)");
    return fclose (f);
}
"""


@needs_python
def test_command_line_of_virt_v2v(place: Path) -> None:
    """As virt-v2v wrote it in 2021; the label goes to a stand-in."""
    (place / "stand-in.c").write_text(STAND_IN)
    library = place / "stand-in.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, place / "stand-in.c"], check=True
    )
    (place / "plugin.py").write_text(PLUGIN + "def config(k, v): pass\n")
    preload = f"{preloaded_runtime()} {library}".strip()
    p = subprocess.Popen(
        [NBDSPECD, "--exit-with-parent", "--foreground", "--newstyle",
         "--pidfile", place / "pid", "--unix", place / "sock", "--threads", "8",
         "-D", "nbdkit.backend.datapath=0", "--exportname", "/",
         "--selinux-label", LABEL, "--verbose",
         "python", f"script={place / 'plugin.py'}", f"params={place / 'x.json'}"],
        env={**os.environ, "LD_PRELOAD": preload, "LABELS": str(place / "labels")},
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    wait_for_file(place / "pid")
    with Client(str(place / "sock")) as c:
        c.greet()
        c.go(b"/")
        c.read(0, 512)
    p.send_signal(signal.SIGTERM)
    _, log = p.communicate(timeout=GUARD)
    assert p.returncode == 0
    assert (place / "labels").read_text().split() == [LABEL, "(none)"]
    assert "pread" not in log


def preloaded_runtime() -> str:
    """A sanitizer's runtime wants to be the first library."""
    lines = subprocess.check_output(["ldd", NBDSPECD], text=True).splitlines()
    return " ".join(line.split()[2] for line in lines if "libasan" in line)


def test_label_where_there_is_no_selinux(place: Path) -> None:
    if Path("/sys/fs/selinux/enforce").exists():
        pytest.skip("SELinux is here")
    r = subprocess.run(
        [NBDSPECD, "--selinux-label", LABEL, "-U", "sock", "null", "1M"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert r.returncode == 1
    assert "selinux-label: setsockcreatecon_raw: Invalid argument" in r.stderr
    assert list(place.iterdir()) == []


# -- the rest


def test_stats_are_written(place: Path) -> None:
    with Server(place, "--stats", str(place / "stats"), "memory", "1M") as s:
        with connected(s) as c:
            c.read(0, 512)
        assert s.stop() == 0
    stats = json.loads((place / "stats").read_text())
    assert stats["callbacks"]["pread"] == 1


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_stats_replace_nothing_but_files(kind: str, place: Path) -> None:
    """A device, say: root's --stats=/dev/full must leave it one."""
    stats, reader = place / "stats", -1
    if kind == "link":
        stats.symlink_to(place / "file")
        (place / "file").touch()
    else:
        os.mkfifo(stats)
        reader = os.open(stats, os.O_RDONLY | os.O_NONBLOCK)
    before = stats.lstat()
    with Server(place, "--stats", str(stats), "memory", "1M") as s:
        assert s.stop() == 0
        assert s.log() == ""
    assert stats.lstat().st_ino == before.st_ino
    text = os.read(reader, 65536) if reader >= 0 else stats.read_bytes()
    assert json.loads(text)["bytes_in"] == 0
    if reader >= 0:
        os.close(reader)


CONTROL = """
def preconnect(readonly): pass
def list_exports(readonly, is_tls): return [""]
def default_export(readonly, is_tls): return ""
def close(h): pass
"""


@needs_python
@pytest.mark.parametrize(
    "more, counted",
    [
        ("", {"open": 1, "pread": 1}),
        (
            CONTROL,
            {
                "preconnect": 1,
                "list_exports": 1,
                "default_export": 1,
                "open": 1,
                "close": 1,
                "pread": 1,
            },
        ),
    ],
    ids=["undefined", "defined"],
)
def test_stats_count_what_the_script_defines(
    more: str, counted: dict[str, int], place: Path
) -> None:
    script = place / "plugin.py"
    script.write_text(PLUGIN + more)
    stats = place / "stats"
    with Server(place, "--stats", str(stats), "python", str(script)) as s:
        with Client(s.socket) as c:
            c.greet()
            c.option(LIST)
            while c.reply()[1] != ACK:
                pass
            c.go()
            assert c.read(0, 512) == b"p" * 512
        assert s.stop() == 0
    assert json.loads(stats.read_text())["callbacks"] == counted


def test_mask_handshake(place: Path) -> None:
    with Server(place, "--mask-handshake", "0x1", "null", "1M") as s:
        with Client(s.socket) as c:
            assert c.recv(18)[16:] == b"\0\1"


def test_readiness_can_go_down_a_pipe() -> None:
    """-P with something that is no file: written to, never removed."""
    r, w = os.pipe()
    with subprocess.Popen(
        [NBDSPECD, "-f", "-P", f"/proc/self/fd/{w}", "-U", "-", "null", "1M"],
        pass_fds=(w,),
    ) as p:
        os.close(w)
        assert int(read_line(r)) == p.pid
        p.terminate()
        assert p.wait(GUARD) == 0
    os.close(r)


def test_path_with_blanks(place: Path) -> None:
    """The program itself may lie in such a directory."""
    odd = place / "a b"
    odd.mkdir()
    (odd / "nbdspecd").symlink_to(NBDSPECD)
    r = subprocess.run(
        [odd / "nbdspecd", "--run", 'nbdinfo --size "$uri"', "null", "1M"],
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert r.stdout == "1048576\n"
