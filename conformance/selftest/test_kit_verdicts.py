# SPDX-License-Identifier: BSD-3-Clause
"""The kit's verdicts on a small server that makes the mistake it is told to make."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from kit import CASES, Kit

from nbdspec import nbd
from nbdspec.clock import Clock
from nbdspec.conn import Chop, Conn
from nbdspec.transcript import Transcript
from nbdspec.verdict import Hang
from nbdspec.wire import Wire

#: What a server that hangs may take: as little as a busy machine allows.
IMPATIENT = {"NBDSPEC_TIME_FACTOR": "0.2"}


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    made = Kit(tmp_path)
    made.write(CASES)
    return made


def test_pass(kit: Kit) -> None:
    run = kit.server()
    assert run.status == 0, run.out + run.err
    assert set(run.verdicts.values()) == {"PASS"}
    assert run.result["totals"]["PASS"] == 4
    assert "selftest" in run.out and "4 PASS" in run.out
    assert not list((kit.directory / "replay").glob("*.jsonl"))


def test_fail_says_what_had_to_come(kit: Kit) -> None:
    run = kit.server("option-data-unread")
    assert run.status == 1
    assert run.verdicts["self.option"] == "FAIL"
    assert run.verdicts["self.read"] != "PASS"
    message = run.message("self.option")
    assert "sent: " in message and "came: " in message
    assert "the stream to be in step" in message


def test_fail_cites_the_ledger(kit: Kit) -> None:
    run = kit.server("wrong-data", "--case", "self.read")
    assert run.status == 1
    assert "other data" in run.message("self.read")
    assert "TX-READ-05: Server MUST" in run.message("self.read")
    assert list((kit.directory / "replay").glob("self.read*.jsonl"))


def test_warn_for_a_should(kit: Kit) -> None:
    run = kit.server("flags-ignored")
    assert run.verdicts["self.flags"] == "WARN"
    assert run.status == 0
    assert kit.server("flags-ignored", "--fail-on", "should").status == 1


def test_warn_for_an_alternative(kit: Kit) -> None:
    run = kit.server("eio", "--case", "self.beyond")
    assert run.verdicts == {"self.beyond": "WARN"}
    assert "EIO came where ENOSPC" in run.message("self.beyond")


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("crash", "was killed by SIGABRT"),
        ("garbage", "HS-14"),
        ("closes-at-once", "end of stream"),
        ("half-answer", "10 of 20 bytes"),
        ("leak", "descriptors are open in the server"),
    ],
)
def test_trouble(kit: Kit, mistake: str, words: str) -> None:
    """Whatever a server does, the case that suffers fails, and the run goes on."""
    run = kit.server(mistake, **IMPATIENT)
    assert run.status == 1, run.out + run.err
    assert len(run.verdicts) == 4
    messages = "\n".join(case["message"] for case in run.result["cases"])
    assert words in messages
    assert "Traceback" not in run.out + run.err


def test_two_answers(kit: Kit) -> None:
    run = kit.server("two-answers", "--case", "self.flags", **IMPATIENT)
    assert run.verdicts == {"self.flags": "FAIL"}
    assert "waits for none" in run.message("self.flags")


def test_hang(kit: Kit) -> None:
    run = kit.server("hang", "--case", "self.read", **IMPATIENT)
    assert run.verdicts == {"self.read": "FAIL"}
    assert "nothing within" in run.message("self.read")


def test_hang_where_a_should_is_asked_for(kit: Kit) -> None:
    """It fails, for a client would wait for ever; load may be the cause, though."""
    kit.write("""
        @case("self.should", req=["TX-READ-05"], level=SHOULD)
        def test_should(wire):
            \"\"\"Something that a server should do.\"\"\"
            wire.transmit()
            wire.read(512, 0)
        """)
    run = kit.server("hang", **IMPATIENT)
    assert run.verdicts == {"self.should": "FAIL"}
    assert "a case of any level" in run.message("self.should")
    assert "NBDSPEC_TIME_FACTOR" in run.message("self.should")


class Silent:
    """A socket from which nothing comes; a time limit is over at once."""

    family = socket.AF_UNIX

    def settimeout(self, seconds: float) -> None:
        self.seconds = seconds

    def gettimeout(self) -> float:
        return self.seconds

    def sendall(self, data: bytes) -> None:
        return

    def recv(self, count: int) -> bytes:
        raise TimeoutError


@pytest.mark.parametrize(
    ("command", "length", "limit"),
    [
        (nbd.READ, 512, "5.0"),
        (nbd.READ, 32 << 20, "13.0"),
        (nbd.READ, (1 << 32) - 1, "21.0"),
        (nbd.BLOCK_STATUS, 513 << 20, "21.0"),
        (nbd.TRIM, 1 << 20, "5.0"),
    ],
)
def test_limit_grows_with_the_reply(
    monkeypatch: pytest.MonkeyPatch, command: int, length: int, limit: str
) -> None:
    monkeypatch.setenv("NBDSPEC_TIME_FACTOR", "1")
    conn = Conn(Silent(), Transcript(), Clock(), Chop())  # type: ignore[arg-type]
    wire = Wire(conn, [])
    cookie = wire.request(command, 0, length)
    with pytest.raises(Hang, match=f"nothing within {limit} s"):
        wire.wait(cookie)


def test_slow_is_no_mistake(kit: Kit) -> None:
    run = kit.server("slow")
    assert set(run.verdicts.values()) == {"PASS"}


def test_not_applicable(kit: Kit) -> None:
    kit.write("""
        @case("self.trim", req=["TX-TRIM-07"], needs="trim")
        def test_trim(wire):
            \"\"\"TRIM.\"\"\"
            raise AssertionError("never run")

        @case("self.tls", req=["TLS-11"], mode=Mode(tls="x509"))
        def test_tls(wire):
            \"\"\"TLS.\"\"\"
            raise AssertionError("never run")

        @case("self.said", req=["TLS-11"])
        def test_said(wire):
            \"\"\"A reason of its own.\"\"\"
            raise NotApplicable("the reason of the case")
        """)
    run = kit.server()
    assert run.status == 0
    assert set(run.verdicts.values()) == {"N/A"}
    assert run.message("self.trim") == "the server does not offer TRIM"
    assert "has no place for" in run.message("self.tls")
    assert run.message("self.said") == "the reason of the case"


def test_info(kit: Kit) -> None:
    kit.write("""
        @case("self.may", req=["TX-READ-05"])
        def test_may(wire):
            \"\"\"Something that the text leaves open.\"\"\"
            wire.finding(MAY, "what was seen")
        """)
    run = kit.server()
    assert (run.status, run.verdicts) == (0, {"self.may": "INFO"})
    assert run.message("self.may") == "what was seen"
    assert kit.server("", "--fail-on", "any").status == 1


def test_server_that_does_not_start(kit: Kit) -> None:
    run = kit.server("does-not-start")
    assert run.status == 2
    assert "this is why it does not start" in run.err
    assert run.err.count("this is why") == 1, "told more than once"


def test_broken_case(kit: Kit) -> None:
    kit.write("""
        @case("self.broken", req=["TX-READ-05"])
        def test_broken(wire):
            \"\"\"A case with a mistake.\"\"\"
            undefined_name
        """)
    run = kit.server()
    assert run.status == 2
    assert "NameError" in run.err and "self.broken" in run.out


def test_both_clients_one_id(kit: Kit) -> None:
    pytest.importorskip("nbd")
    kit.write("""
        @case("self.both", req=["TX-READ-05"])
        def test_both(client):
            \"\"\"Either client reads.\"\"\"
            assert client.pread(512, 0) == bytes(512)
        """)
    run = kit.server("", "--record", "all")
    (case,) = run.result["cases"]
    assert [v["variant"] for v in case["variants"]] == ["wire", "libnbd"]
    text = Path(case["variants"][1]["replay"]).read_text()
    assert "option GO" in text and "READ 512 at 0x0" in text


def test_hang_through_libnbd(kit: Kit) -> None:
    pytest.importorskip("nbd")
    kit.write("""
        @case("self.both", req=["TX-READ-05"], clients=("libnbd",))
        def test_both(client):
            \"\"\"Either client reads.\"\"\"
            client.pread(512, 0)
        """)
    run = kit.server("hang", **IMPATIENT)
    assert run.verdicts == {"self.both": "FAIL"}
    assert "an answer to h.pread" in run.message("self.both")


def test_half_a_reply_through_libnbd(kit: Kit) -> None:
    """What has come keeps nobody waiting for what has not."""
    kit.write("""
        @case("self.stalls", req=["TX-READ-05"], clients=("libnbd",))
        def test_stalls(client):
            \"\"\"A READ is answered.\"\"\"
            client.pread(512, 0)
        """)
    run = kit.server("half-reply", **IMPATIENT)
    assert run.verdicts["self.stalls"] == "FAIL"
    assert "expected: an answer to h.pread(512, 0, 0)" in run.message("self.stalls")


@pytest.mark.parametrize(("status", "verdict"), [(143, None), (142, "FAIL")])
def test_end_by_a_signal(kit: Kit, status: int, verdict: str | None) -> None:
    """128 and the signal's number is how shells and virtual machines tell of it."""
    run = kit.server(f"ends-with-{status}", "--case", "self.read")
    assert run.verdicts["self.read"] == "PASS"
    assert run.verdicts.get("server.ends-in-order") == verdict
    explained = kit.run("explain", "server.ends-in-order")
    assert explained.status == 0 and "SIGTERM" in explained.out
