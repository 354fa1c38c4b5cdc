# SPDX-License-Identifier: BSD-3-Clause
"""Files that users hand in: known failures, profiles, replays, results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit import CASES, Kit, Run

ENTRY = """
[[known]]
server = "cmd"
case = "{case}"
verdict = "FAIL"
text = "{text}"
reason = "it is a fake"
reference = "https://example.org/1"
{more}
"""


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    made = Kit(tmp_path)
    made.write(CASES)
    return made


def refused(run: Run, *words: str) -> None:
    """The file was: status 2, and one line that says so."""
    assert run.status == 2
    assert all(some in run.err for some in words), run.err
    assert len(run.err.strip().splitlines()) == 1


def entry(kit: Kit, case: str = "self.read", text: str = "other data", more: str = ""):
    path = kit.directory / "known.toml"
    path.write_text(ENTRY.format(case=case, text=text, more=more))


# Known failures


def test_known(kit: Kit) -> None:
    entry(kit)
    run = kit.server("wrong-data", "--known", "known.toml", "--case", "self.*")
    assert (run.status, run.verdicts["self.read"]) == (0, "KNOWN")
    assert "it is a fake (https://example.org/1)" in run.message("self.read")


def test_known_but_fails_another_way(kit: Kit) -> None:
    entry(kit, text="quite another reason")
    run = kit.server("wrong-data", "--known", "known.toml")
    assert (run.status, run.verdicts["self.read"]) == (1, "FAIL")


def test_stale(kit: Kit) -> None:
    entry(kit)
    run = kit.server("", "--known", "known.toml", "--fail-on", "must")
    assert (run.status, run.verdicts["self.read"]) == (1, "STALE")
    assert "remove the entry" in run.message("self.read")
    assert "known.toml: entry 1" in run.out


def test_may_pass(kit: Kit) -> None:
    entry(kit, more="may-pass = true")
    for mistake in ("", "wrong-data"):
        run = kit.server(mistake, "--known", "known.toml")
        assert (run.status, run.verdicts["self.read"]) == (0, "KNOWN")


def test_other_server_or_version(kit: Kit) -> None:
    path = kit.directory / "known.toml"
    path.write_text(ENTRY.format(case="self.read", text="x", more="").replace(
        '"cmd"', '"nbdkit"'))
    run = kit.server("wrong-data", "--known", "known.toml")
    assert run.verdicts["self.read"] == "FAIL"
    assert "no entry is for server cmd, version ?; 1 for others" in run.err
    entry(kit, more='versions = ">=99"')
    run = kit.server("wrong-data", "--known", "known.toml")
    assert run.verdicts["self.read"] == "FAIL"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("self.read", "self.raed"), "there is no such case"),
        (("reason", "raeson"), "key 'raeson' is unknown"),
        (('text = "other data"\n', ""), "key 'text' is missing"),
        (('"FAIL"', '"fail"'), "expected FAIL or WARN"),
        (('"FAIL"', "1"), "key 'verdict': expected a str"),
        (("[[known]]", "[[knwon]]"), "key 'knwon' is unknown"),
        (("[[known]]", "[[known]"), "line 2"),
        (("reference", 'versions = "new"\nreference'), "expected >=1.2,<2"),
        (("[[known]]", "known = [1]\n[[other]]"), "expected [[known]] tables"),
        (("it is", "\udcff"), "codec can't decode"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_known(kit: Kit, change: tuple[str, str], words: str) -> None:
    entry(kit)
    path = kit.directory / "known.toml"
    text = path.read_text().replace(*change)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(kit.server("", "--known", "known.toml"), "known.toml", words)


@pytest.mark.parametrize(
    ("versions", "version", "covered"),
    [
        ("", "?", True),
        (">=1.20,<1.40", "1.32.5", True),
        (">=1.20,<1.40", "1.40.1", False),
        (">=1.20", "1.9", False),
        ("==1.32", "1.32.5", True),
        (">1.32", "1.32.5", False),
        ("<=1.32", "1.32.5", True),
        (">=1", "?", False),
    ],
)
def test_versions(versions: str, version: str, covered: bool) -> None:
    from nbdspec.known import covers

    assert covers(versions, version) is covered


# Replay


def test_replay_goes_as_it_went(kit: Kit) -> None:
    run = kit.server("option-data-unread", "--case", "self.option")
    replay = Path(run.result["cases"][0]["replay"])
    first = json.loads(replay.read_text().splitlines()[0])
    assert first["nbdspec-replay"] == 1 and first["case"] == "self.option"
    again = kit.run("replay", str(replay), "--cmd", kit.fake("option-data-unread"))
    assert again.status == 1
    assert "not as they have to be" in again.out
    mended = kit.run("replay", str(replay), "--cmd", kit.fake())
    assert mended.status == 0, mended.out
    assert "option option 99 (100 bytes)" in mended.out
    assert "as it has to be" in mended.out


def test_replay_needs_neither_pytest_nor_libnbd(kit: Kit) -> None:
    run = kit.server("wrong-data", "--case", "self.read", "--record", "all")
    replay = run.result["cases"][0]["replay"]
    for name in ("pytest", "nbd"):
        (kit.directory / f"{name}.py").write_text("raise ImportError(__name__)")
    again = kit.run(
        "replay", replay, "--cmd", kit.fake(), PYTHONPATH=str(kit.directory)
    )
    assert again.status == 0, again.err
    assert "READ 512 at 0x0" in again.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ":1: Expecting value"),
        ("not json", ":1: "),
        ('{"nbdspec-replay": 2}', ":1: expected"),
        ('{"nbdspec-replay": 1}\n{"conn": 0, "dir": "sned"}', ":2: key dir"),
        ('{"nbdspec-replay": 1}\n{"conn": "a", "dir": "send"}', ":2: key conn"),
        (
            '{"nbdspec-replay": 1}\n{"conn": 0, "dir": "send", "hex": "xyz"}',
            ":2: key hex",
        ),
    ],
    ids=["empty", "no-json", "version", "dir", "conn", "hex"],
)
def test_bad_replay(kit: Kit, text: str, words: str) -> None:
    bad_replay(kit, text.encode(), words)


REPLAY = b'{"nbdspec-replay": 1}\n'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x7fELF\xff\xfe\0", ":1: 'utf-8' codec"),
        (REPLAY + b"\xff", ":2: 'utf-8' codec"),
        (b"[]", ":1: expected a JSON object, not []"),
        (b"1", ":1: expected a JSON object, not 1"),
        (REPLAY + b"null", ":2: expected a JSON object, not null"),
        (b"[" * 100000, ":1: "),
        (b'{"nbdspec-replay": 1, "mode": 1}', ":1: key mode"),
        (b'{"nbdspec-replay": 1, "mode": {"size": "big"}}', ":1: key mode: size"),
        (REPLAY + b'{"conn": 0, "dir": "recv", "length": -1}', ":2: key length"),
        (REPLAY + b'{"conn": 0, "dir": "recv", "hex": "x"}', ":2: key hex"),
        (REPLAY + b'{"conn": 0, "dir": "expect", "hex": "(("}', ":2: key hex"),
        (REPLAY + b'{"conn": 0, "dir": "expect", "or": [1]}', ":2: key hex or or"),
        (REPLAY + b'{"conn": 0, "dir": "send", "then": "00"}', ":2: key times"),
        (REPLAY + b'{"conn": [], "dir": "send"}', ":2: key conn"),
    ],
)
def test_replay_of_anything(kit: Kit, data: bytes, words: str) -> None:
    bad_replay(kit, data, words)


def bad_replay(kit: Kit, data: bytes, words: str) -> None:
    (kit.directory / "bad.jsonl").write_bytes(data)
    refused(kit.run("replay", "bad.jsonl", "--cmd", kit.fake()), f"bad.jsonl{words}")


def test_replay_that_is_missing(kit: Kit) -> None:
    run = kit.run("replay", "none.jsonl", "--cmd", kit.fake())
    assert (run.status, "none.jsonl: No such file" in run.err) == (2, True)
    run = kit.run("replay", ".", "--cmd", kit.fake())
    assert (run.status, ".: Is a directory" in run.err) == (2, True)


# Profile


def test_probe_and_profile(kit: Kit) -> None:
    probed = kit.run("probe", "--cmd", kit.fake())
    assert probed.status == 0
    assert "size = 1048576" in probed.out and "structured = false" in probed.out
    profile = kit.directory / "profile.toml"
    profile.write_text(probed.out)
    assert kit.server("", "--profile", "profile.toml").status == 0
    kit.write("""
        @case("self.trim", req=["TX-TRIM-07"], needs="trim")
        def test_trim(wire):
            \"\"\"TRIM, which the profile promises and the server does not have.\"\"\"
            wire.transmit()
            wire.command(nbd.TRIM, 0, 512)
        """)
    assert kit.server("", "--profile", "profile.toml").verdicts == {"self.trim": "N/A"}
    profile.write_text(probed.out.replace("flags = 0x0001 ", "flags = 0x0021 "))
    assert kit.server("", "--profile", "profile.toml").verdicts == {"self.trim": "FAIL"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size = 'big'", "key 'size': expected a value of type int"),
        ("szie = 1", "key 'szie' is unknown"),
        ("size 1", "line 1"),
        ("minimum = 0", "key 'minimum': expected 1 or more"),
        ("size = -1", "key 'size': expected 0 or more"),
        ("contexts = [1]", "key 'contexts': expected strings"),
        ("size = \udcff", "codec can't decode"),
    ],
)
def test_bad_profile(kit: Kit, text: str, words: str) -> None:
    data = text.encode("utf-8", "surrogateescape")
    (kit.directory / "profile.toml").write_bytes(data)
    refused(kit.server("", "--profile", "profile.toml"), "profile.toml", words)


# Results


def test_compare(kit: Kit) -> None:
    kit.server("")
    (kit.directory / "good.json").write_text((kit.directory / "out.json").read_text())
    kit.server("wrong-data")
    run = kit.run("compare", "good.json", "out.json")
    assert run.status == 1
    assert " PASS -> FAIL  self.read" in run.out and "1 got worse" in run.out
    run = kit.run("compare", "out.json", "good.json")
    assert run.status == 0
    assert " FAIL -> PASS  self.read" in run.out and "nothing got worse" in run.out


HEADED = b'{"nbdspec": "1", "target": "x", "cases": '


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[]", "no 'nbdspec'"),
        (b"\x7fELF\xff", "expected a result file in JSON"),
        (b"[" * 100000, "expected a result file in JSON"),
        (HEADED + b"1}", "key 'cases': expected a list"),
        (HEADED + b"[1]}", "case 1: expected an object"),
        (HEADED + b'[{"id": 1}]}', "case 1: key 'id'"),
        (HEADED + b'[{"id": "a", "verdict": "GOOD", "message": ""}]}', "key 'verdict'"),
        (HEADED + b'[], "totals": []}', "key 'totals'"),
    ],
)
def test_bad_result(kit: Kit, data: bytes, words: str) -> None:
    (kit.directory / "bad.json").write_bytes(data)
    refused(kit.run("compare", "bad.json", "bad.json"), "bad.json: ", words)


def test_missing_result(kit: Kit) -> None:
    run = kit.run("compare", "none.json", "none.json")
    assert run.status == 2
    assert run.err == "nbdspec: none.json: No such file or directory\n"


@pytest.mark.parametrize("text", ["def broken(:", "import no_such_module", "nothing"])
@pytest.mark.parametrize("command", [["explain", "self.read"], ["list"]])
def test_cases_that_cannot_be_loaded(kit: Kit, text: str, command: list[str]) -> None:
    (kit.cases / "test_broken.py").write_text(text)
    refused(kit.run(*command), "test_broken.py: ")


# What there is


def test_list_and_explain(kit: Kit) -> None:
    run = kit.run("list")
    assert run.status == 0
    assert [line.split()[0] for line in run.out.splitlines()] == [
        "self.beyond",
        "self.flags",
        "self.option",
        "self.read",
    ]
    assert kit.run("list", "--case", "no.*").status == 3
    run = kit.run("explain", "self.read", "TX-READ-05")
    assert run.status == 0
    assert "A READ brings zeroes." in run.out
    assert "case        self.read" in run.out
    run = kit.run("explain", "self.raed")
    assert run.status == 2
    assert "did you mean self.read" in run.err


def test_case_without_row_id_or_claim(kit: Kit) -> None:
    kit.write("""
        @case("Not An Id", req=["TX-READ-05"])
        def test_a(wire):
            \"\"\"A.\"\"\"
        """)
    run = kit.run("list")
    assert run.status == 2
    assert "case id 'Not An Id': expected words" in run.err
    kit.write("""
        @case("self.a", req=["TX-READ-05"], needs="trimm")
        def test_a(wire):
            \"\"\"A.\"\"\"
        """)
    assert "unknown need 'trimm'" in kit.run("list").err


@pytest.mark.parametrize("factor", ["fast", "0", "-1", "inf", ""])
def test_time_factor(kit: Kit, monkeypatch: pytest.MonkeyPatch, factor: str) -> None:
    monkeypatch.setenv("NBDSPEC_TIME_FACTOR", factor)
    run = kit.run("server", "--cmd", kit.fake())
    assert run.status == 2
    told = f"nbdspec: NBDSPEC_TIME_FACTOR={factor}: expected a number above 0\n"
    assert run.err == told


def test_replay_tells_of_a_server_that_ends_badly(kit: Kit) -> None:
    """All replies are as they were, and then it ends with a status of its own."""
    kit.server("", "--case", "self.read", "--record", "all")
    (replay,) = (kit.directory / "replay").glob("self.read*.jsonl")
    argv = ("replay", str(replay), "--cmd")
    assert kit.run(*argv, kit.fake()).status == 0
    again = kit.run(*argv, kit.fake("ends-with-142"))
    assert again.status == 1
    assert "server: " in again.out and "142" in again.out


def test_replay_tells_of_a_server_that_has_gone(kit: Kit) -> None:
    kit.server("", "--case", "self.read", "--record", "all")
    (replay,) = (kit.directory / "replay").glob("self.read*.jsonl")
    again = kit.run("replay", str(replay), "--cmd", kit.fake("crash"))
    assert again.status == 1 and "Traceback" not in again.err
    assert "SIGABRT" in again.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["probe", "--uri", "nbd://[::1/"], "URI nbd://[::1/: Invalid IPv6"),
        (["list", "--case", "no.such"], "no case was selected"),
        (["list", "--rows", "--case", "x"], "--case is about cases"),
        (["probe", "--cmd", "x {socket} {port}"], "not both"),
    ],
)
def test_one_line_says_what_is_wrong(kit: Kit, words: list[str], said: str) -> None:
    run = kit.run(*words)
    assert run.status in (2, 3)
    assert said in run.err and run.err.count("\n") == 1


def test_plus_in_a_socket_is_a_plus(kit: Kit) -> None:
    run = kit.run("probe", "--uri", "nbd+unix:///?socket=/no/a+b")
    assert run.status == 2 and "/no/a+b" in run.err


def test_replay_over_tls_is_shown(kit: Kit) -> None:
    path = kit.directory / "tls.jsonl"
    path.write_text(
        '{"nbdspec-replay": 1, "case": "self.tls", "target": "nbdspecd"}\n'
        '{"conn": 0, "dir": "send", "text": "STARTTLS"}\n'
        '{"conn": 0, "dir": "tls", "text": "TLS 1.3"}\n'
    )
    run = kit.run("replay", str(path))
    assert run.status == 2
    assert "0 send    STARTTLS" in run.out and "0 tls     TLS 1.3" in run.out
    assert "only shown, not sent again" in run.err and run.err.count("\n") == 1
