# SPDX-License-Identifier: BSD-3-Clause
"""ci/setup, with stand-ins for the programs that it asks and starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

DPKG = """#!/bin/sh
for word; do :; done
case " $INSTALLED " in *" $word "*|*" all "*) echo "install ok installed";; esac
"""
CACHE = """#!/bin/sh
[ -e "$STATE/updated" ] || exit 0
case " $UNKNOWN " in *" $2 "*) exit 0;; esac
printf '%s:\\n  Installed: (none)\\n  Candidate: 1.0\\n' "$2"
"""
GET = """#!/bin/sh
echo "$@" >>"$STATE/calls"
case " $* " in *" update "*) touch "$STATE/updated"; exit 0;; esac
[ ! -e "$STATE/fail-once" ] || { rm "$STATE/fail-once"; exit 1; }
"""
SUDO = """#!/bin/sh
echo sudo >>"$STATE/calls"
exec "$@"
"""


class Machine:
    """A directory of programs that stand for a machine's."""

    def __init__(self, directory: Path) -> None:
        self.bin, self.state = directory / "bin", directory / "state"
        self.bin.mkdir()
        self.state.mkdir()
        for name, text in {
            "dpkg-query": DPKG,
            "apt-cache": CACHE,
            "apt-get": GET,
            "sudo": SUDO,
            "id": "#!/bin/sh\necho 0\n",
        }.items():
            self.program(name, text)
        for name in ("sh", "grep", "sort", "tr", "env", "touch", "rm"):
            (self.bin / name).symlink_to(f"/usr/bin/{name}")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def setup(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", str(ROOT / "ci" / "setup"), *words],
            capture_output=True,
            text=True,
            env={"PATH": str(self.bin), "STATE": str(self.state)} | settings,
            check=False,
        )

    def calls(self) -> list[str]:
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("group", ["run", "check", "bench", "report", "fuzz"])
def test_nothing_missing_nothing_done(machine: Machine, group: str) -> None:
    done = machine.setup(group, INSTALLED="all")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.calls() == []


def test_fresh_machine_fetches_lists_then_installs(machine: Machine) -> None:
    done = machine.setup("run", INSTALLED="make")
    assert done.returncode == 0
    assert "installing: gcc " in done.stdout
    update, install = machine.calls()
    assert update.endswith("update")
    assert install.split()[:4] == ["-y", "-q", "install", "--no-install-recommends"]
    assert "python3-libnbd" in install.split()
    assert "make" not in install.split(), "it is there already"


def test_known_lists_are_not_fetched_again(machine: Machine) -> None:
    (machine.state / "updated").touch()
    assert machine.setup("run").returncode == 0
    (install,) = machine.calls()
    assert " install " in install


def test_stale_lists_are_fetched_and_the_install_tried_again(machine: Machine) -> None:
    (machine.state / "updated").touch()
    (machine.state / "fail-once").touch()
    assert machine.setup("run").returncode == 0
    assert [" install " in call for call in machine.calls()] == [True, False, True]


def test_alternatives_of_releases(machine: Machine) -> None:
    (machine.state / "updated").touch()
    machine.setup("bench", UNKNOWN="nbdkit-plugin-python")
    assert "nbdkit-plugin-python3" in machine.calls()[0].split()
    assert "nbdkit-plugin-python" not in machine.calls()[0].split()


def test_a_package_that_apt_does_not_know_is_named(machine: Machine) -> None:
    done = machine.setup("bench", UNKNOWN="fio")
    assert done.returncode == 1
    assert done.stderr == "ci/setup: no package fio in apt's sources (/etc/apt)\n"


@pytest.mark.parametrize("lists", [False, True])
def test_dry_run_says_and_does_nothing(machine: Machine, lists: bool) -> None:
    if lists:
        (machine.state / "updated").touch()
    done = machine.setup("--dry-run", "run", INSTALLED="gcc")
    assert done.returncode == 0
    assert "python3-pytest" in done.stdout
    assert "gcc" not in done.stdout.split()
    assert ("apt-get update" in done.stdout) is not lists
    assert machine.calls() == []


def test_setup_no_says_what_is_missing(machine: Machine) -> None:
    done = machine.setup("run", SETUP="no")
    assert done.returncode == 0
    assert done.stdout.startswith("ci/setup: missing (not installed")
    assert machine.calls() == []


def test_clang_gets_the_libraries_of_its_version(machine: Machine) -> None:
    (machine.state / "updated").touch()
    machine.program("clang", "#!/bin/sh\necho 14.0.6\n")
    assert machine.setup("fuzz").returncode == 0
    _, second = machine.calls()
    assert second.split()[-1] == "libclang-rt-14-dev"


def test_users_go_through_sudo(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    (machine.state / "updated").touch()
    assert machine.setup("run").returncode == 0
    assert machine.calls()[0] == "sudo"


def test_users_without_sudo_are_told_the_command(machine: Machine) -> None:
    machine.program("id", "#!/bin/sh\necho 1000\n")
    (machine.state / "updated").touch()
    (machine.bin / "sudo").unlink()
    done = machine.setup("run")
    assert done.returncode == 1
    assert "run as root: env DEBIAN_FRONTEND=noninteractive apt-get" in done.stderr


@pytest.mark.parametrize(("settings", "status"), [({}, 1), ({"SETUP": "no"}, 0)])
def test_other_systems(
    machine: Machine, settings: dict[str, str], status: int
) -> None:
    (machine.bin / "apt-get").unlink()
    done = machine.setup("run", **settings)
    assert done.returncode == status
    assert "this is not Debian or Ubuntu" in done.stdout
    assert "python3-libnbd" in done.stdout


@pytest.mark.parametrize("words", [["everything"], []])
def test_bad_usage(machine: Machine, words: list[str]) -> None:
    done = machine.setup(*words)
    assert done.returncode == 1
    assert done.stderr.startswith("ci/setup: expected")
