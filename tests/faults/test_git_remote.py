"""What goes wrong with git, done for real: races, lost replies, rewound and hostile remotes."""

import os
import random
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleet.model.errors import UsageError
from fleet.share.git import Address, GitRemote, Repository, check_branch
from fleet.share.remote import Moved, RemoteRefused, RemoteUnavailable
from fleet.store import git as store_git
from fleet.store import process
from fleet.store.tree import GitTree
from tests.pulling import PullingRemote, Whole

ONE = "patterns.d/popashot.7f3a91c2.jsonl"
TWO = "patterns.d/tank.c0ffee42.jsonl"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any git configuration, and a fleet that no git has called."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "SSH_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/.config"))
    (tmp_path / "home").mkdir()


class Server:
    """A bare repository, and what a hostile or broken one may hold."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        subprocess.run(["git", "init", "-q", "--bare", folder], check=True)

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        command = ["git", f"--git-dir={self.path}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, input=stdin).stdout.decode().strip()

    def blob(self, data: bytes) -> str:
        return self.git("hash-object", "-w", "--stdin", stdin=data)

    def tree(self, *entries: tuple[str, str, str]) -> str:
        """Write a tree of (mode, id, name), however wrong, as git itself would refuse to."""
        # A tree sorts as if a folder's name ended in a slash.
        ordered = sorted(entries, key=lambda entry: entry[2] + "/" * (entry[0] == "40000"))
        raw = b"".join(mode.encode() + b" " + name.encode() + b"\0" + bytes.fromhex(sha) for mode, sha, name in ordered)
        return self.git("hash-object", "-t", "tree", "-w", "--stdin", "--literally", stdin=raw)

    def commit(self, tree: str, *parents: str) -> str:
        who = "x <x@localhost> 1700000000 +0000"
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        raw = "\n".join([*lines, "", "x", ""]).encode()
        commit = self.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw)
        self.git("update-ref", "refs/heads/fleet", commit)
        return commit

    def hook(self, name: str, script: str) -> None:
        path = self.path / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "server.git")


def machine(server: Server | str, name: str = "one", timeout_s: float = 60) -> PullingRemote:
    url = server if isinstance(server, str) else str(server.path)
    home = Path(os.environ["HOME"]).parent
    return PullingRemote(GitTree(home / name / "git"), url, "fleet", timeout_s=timeout_s)


def pushed(remote: PullingRemote, files: dict[str, bytes], on: str = "") -> str:
    mark = remote.push(files, on)
    assert isinstance(mark, str), mark
    return mark


def processes(*words: str) -> list[str]:
    """The command lines that have one of these words in them, dead ones apart."""
    found = subprocess.run(["ps", "-axww", "-o", "stat=,command="], check=True, capture_output=True, text=True).stdout
    return [line for line in found.splitlines() if any(word in line for word in words) and not line.startswith("Z")]


def assert_all_gone(*words: str) -> None:
    """What was killed may take a moment to disappear."""
    wait_until(lambda: not processes(*words))
    assert not processes(*words)


def wait_until(is_so: object, wait_s: float = 5) -> None:
    until = time.monotonic() + wait_s
    while not is_so() and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.02)


# --- fault 27: down, slow, asks for a password ----------------------------------------------------------------------


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(16)
        yield hole.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "git"])
def test_a_remote_that_never_answers_costs_the_time_out_and_leaves_no_process(
    black_hole: int, scheme: str, tmp_path: Path
):
    remote = machine(f"{scheme}://127.0.0.1:{black_hole}/clan.git", timeout_s=1)
    begun = time.monotonic()
    with pytest.raises(RemoteUnavailable, match="no answer in 1 s; nothing is lost"):
        remote.pull("")
    assert time.monotonic() - begun < 20
    assert_all_gone(str(tmp_path), f":{black_hole}/")
    with pytest.raises(RemoteUnavailable, match="no answer"):
        remote.push({ONE: b"1\n"}, "")
    assert_all_gone(str(tmp_path), f":{black_hole}/")


def test_a_closed_port_is_unavailable_at_once(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(RemoteUnavailable, match="nothing is lost"):
        machine(f"http://127.0.0.1:{port}/clan.git", timeout_s=10).pull("")


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_child_that_ignores_the_request_to_end_is_killed_with_its_own(tmp_path: Path, is_tied: bool):
    grandchild = f"trap '' TERM; sleep 600; : # {tmp_path}"
    child = f"trap '' TERM; sh -c {shlex.quote(grandchild)} & wait"
    begun = time.monotonic()
    with pytest.raises(store_git.GitFailed):
        store_git._run(
            ["sh", "-c", child], folder=tmp_path, env=os.environ, until=time.monotonic() + 0.3, is_tied=is_tied
        )
    assert time.monotonic() - begun < 20
    assert_all_gone(str(tmp_path))


@pytest.mark.parametrize("is_tied", [False, True])
def test_the_exit_code_and_both_outputs_come_back(tmp_path: Path, is_tied: bool):
    done = store_git._run(
        ["sh", "-c", 'echo "$1"; cat; echo err >&2; exit 7', "x", "a b"],
        folder=tmp_path,
        env=os.environ,
        until=time.monotonic() + 10,
        is_tied=is_tied,
    )
    assert done == store_git.Done(7, b"a b\n", "err\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_as_the_shell_adds_nothing_to_the_errors_of_a_command(tmp_path: Path):
    words = ["bash", "--posix", process._TIED, "sh", "-c", "echo err >&2; exit 7"]
    for _ in range(20):  # in every third run bash is quick enough to report it
        with subprocess.Popen(
            words, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as shell:
            assert shell.wait(20) == 7
            assert shell.stderr is not None
            assert shell.stderr.read() == b"err\n"


def test_what_stays_behind_in_a_session_of_its_own_holds_nobody_up(tmp_path: Path):
    lingering = "import os, time; os.fork() or (os.setsid(), os.close(1), time.sleep(20))"
    begun = time.monotonic()
    done = store_git._run([sys.executable, "-c", lingering], folder=tmp_path, env=os.environ, until=begun + 15)
    assert done.code == 0
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("scheme", ["http", "git"])
def test_no_git_outlives_a_killed_fleet(black_hole: int, scheme: str, tmp_path: Path):
    script = (
        "import sys; from pathlib import Path; from fleet.share.git import GitRemote; "
        "from fleet.store.tree import GitTree; "
        "GitRemote(GitTree(Path(sys.argv[1]) / 'one/git'), sys.argv[2], 'fleet').fetch('')"
    )
    url = f"{scheme}://127.0.0.1:{black_hole}/clan.git"
    fleet = subprocess.Popen([sys.executable, "-c", script, str(tmp_path), url], cwd=ROOT, start_new_session=True)
    git = f"--git-dir={tmp_path}"
    wait_until(lambda: processes(f"{git}/one/git fetch"))
    assert processes(f"{git}/one/git fetch")
    fleet.kill()
    fleet.wait()
    assert_all_gone(git, f":{black_hole}/")


def test_a_git_that_starts_while_its_fleet_is_killed_ends_too(tmp_path: Path):
    command = ("/bin/sh", process._TIED, "sleep", "600.001")
    shells = []
    for number in range(100):
        shell = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, start_new_session=True)
        time.sleep(number % 40 / 10_000)  # the shell needs some two milliseconds to start the command
        shell.stdin.close()
        shells.append(shell)
    wait_until(lambda: all(shell.poll() is not None for shell in shells), 20)
    assert all(shell.poll() is not None for shell in shells)
    assert_all_gone("sleep 600.001")


@contextmanager
def web(status: int, headers: dict[str, str], body: bytes = b"") -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=site.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site.server_port
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


def test_a_remote_that_asks_for_a_password_is_unavailable_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = tmp_path / "asked"
    prompt = tmp_path / "prompt"
    prompt.write_text(f"#!/bin/sh\ntouch {asked}\necho secret\n")
    prompt.chmod(0o755)
    monkeypatch.setenv("GIT_ASKPASS", str(prompt))
    monkeypatch.setenv("SSH_ASKPASS", str(prompt))
    (tmp_path / "home/.gitconfig").write_text(f"[core]\n\taskPass = {prompt}\n")
    with web(401, {"WWW-Authenticate": 'Basic realm="clan"'}) as port:
        begun = time.monotonic()
        with pytest.raises(
            RemoteUnavailable, match=r"(could not read Username|unable to get password).*nothing is lost"
        ):
            machine(f"http://127.0.0.1:{port}/clan.git", timeout_s=20).pull("")
        assert time.monotonic() - begun < 10
    assert not asked.exists()


def test_a_credential_helper_of_the_users_is_used(tmp_path: Path):
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\n[ $1 = get ] && touch $(dirname $0)/used && echo username=u && echo password=p\n")
    helper.chmod(0o755)
    (tmp_path / "home/.gitconfig").write_text(f"[credential]\n\thelper = {helper}\n")
    with (
        web(401, {"WWW-Authenticate": 'Basic realm="clan"'}) as port,
        pytest.raises(RemoteUnavailable, match="Authentication failed"),
    ):
        machine(f"http://127.0.0.1:{port}/clan.git", timeout_s=20).pull("")
    assert (tmp_path / "used").exists()


def test_the_credentials_of_an_address_are_never_shown(tmp_path: Path):
    with web(401, {"WWW-Authenticate": 'Basic realm="clan"'}) as port:
        remote = machine(f"http://carol:hunter2%21x@127.0.0.1:{port}/clan.git", timeout_s=20)
        with pytest.raises(RemoteUnavailable) as why:
            remote.pull("")
    for shown in (str(why.value), remote.name):
        assert "hunter2" not in shown
        assert "carol" not in shown


def test_a_missing_repository_a_missing_git_and_a_busy_copy_are_all_unavailable(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(RemoteUnavailable, match="does not appear to be a git repository"):
        machine(str(tmp_path / "nowhere")).pull("")
    remote = machine(server, timeout_s=0.3)
    with machine(server)._copy.locked(), pytest.raises(RemoteUnavailable, match="another fleet process"):
        remote.pull("")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RemoteUnavailable, match="is git installed"):
        machine(server, "two").pull("")
    with pytest.raises(RemoteUnavailable, match="is git installed"):
        machine(server).pull("")  # a copy is there already


# --- fault 26: the far side refuses, or is a shallow clone ----------------------------------------------------------


def test_a_hooks_refusal_is_told_in_its_own_screened_words(server: Server):
    password = "hunter2hunter2"
    words = rf"\033[31mno\033[0m lines on a Friday \302\233 see https://bot:{password}@ci.example/"
    server.hook("pre-receive", f"printf '{words}\\n' >&2\nexit 1\n")
    with pytest.raises(RemoteRefused, match=r"pre-receive hook declined.*lines on a Friday") as why:
        machine(server).push({ONE: b"1\n"}, "")
    shown = str(why.value)
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert password not in shown
    assert "\\x1b[31mno" in shown
    assert "nothing is lost" in shown


def test_a_branch_that_can_never_be_made_is_refused_and_not_tried_for_ever(server: Server):
    mark = pushed(machine(server), {ONE: b"1\n"})
    server.git("update-ref", "-d", "refs/heads/fleet")
    server.git("update-ref", "refs/heads/fleet/x", mark)
    with pytest.raises(RemoteRefused, match="cannot create"):
        machine(server, "two").push({ONE: b"1\n"}, "")


def test_a_checked_out_branch_is_refused_by_its_owner(tmp_path: Path):
    project = tmp_path / "project"
    subprocess.run(["git", "init", "-q", "-b", "fleet", project], check=True)
    with pytest.raises(RemoteRefused, match="checked out"):
        machine(str(project)).push({ONE: b"1\n"}, "")


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_repository_of_the_other_hash_works(tmp_path: Path, is_empty: bool):
    far = tmp_path / "far.git"
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha256", far], check=True)
    one, two = machine(str(far)), machine(str(far), "two")
    if is_empty:
        # Git does not tell the hash of an empty repository to who fetches: the first push finds out.
        assert one.pull("") == (Whole(), "")
        assert isinstance(one.push({ONE: b"1\n"}, ""), Moved)
    else:
        assert isinstance(two.push({TWO: b"2\n"}, ""), Moved)
        pushed(two, {TWO: b"2\n"}, two.pull("")[1])
    mark = pushed(one, {ONE: b"1\n"}, one.pull("")[1])
    assert len(mark) == 64
    files, seen = machine(str(far), "three").pull("")
    assert (files, seen) == ({ONE: b"1\n"} | ({} if is_empty else {TWO: b"2\n"}), mark)
    assert one.pull(mark) == ({}, mark)
    assert not one.warnings


def test_a_remote_that_is_made_anew_with_the_other_hash_works(server: Server):
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    shutil.rmtree(server.path)
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha256", server.path], check=True)
    other = machine(server, "two")
    assert isinstance(other.push({TWO: b"2\n"}, ""), Moved)
    theirs = pushed(other, {TWO: b"2\n"}, other.pull("")[1])
    files, seen = machine(server).pull(mark)
    assert (files, seen) == ({TWO: b"2\n"}, theirs)
    assert isinstance(files, Whole)
    after = pushed(machine(server), {ONE: b"1\n"}, theirs)
    assert machine(server, "three").pull("") == ({ONE: b"1\n", TWO: b"2\n"}, after)


def test_an_endless_refusal_is_cut(server: Server):
    server.hook(
        "pre-receive",
        "head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 1000 >&2\necho >&2\necho the end >&2\nexit 1\n",
    )
    with pytest.raises(RemoteRefused, match="the end") as why:
        machine(server).push({ONE: b"1\n"}, "")
    assert len(str(why.value)) < 4000


def test_a_shallow_server_works(server: Server, tmp_path: Path):
    first = pushed(machine(server), {ONE: b"1\n"})
    second = pushed(machine(server), {TWO: b"2\n"}, first)
    shallow = tmp_path / "shallow.git"
    command = ["git", "clone", "-q", "--bare", "--depth=1", "--branch=fleet", f"file://{server.path}", shallow]
    subprocess.run(command, check=True)
    remote = machine(str(shallow), "two")
    assert remote.pull("") == ({ONE: b"1\n", TWO: b"2\n"}, second)
    third = pushed(remote, {ONE: b"3\n"}, second)
    assert machine(str(shallow), "three").pull("") == ({ONE: b"3\n", TWO: b"2\n"}, third)
    assert not remote.warnings


# --- faults 10 to 12: many at once, and what one machine's crash leaves ---------------------------------------------


def test_a_ref_that_somebody_holds_means_try_again(server: Server):
    mark = pushed(machine(server), {ONE: b"1\n"})
    lock = server.path / "refs/heads/fleet.lock"
    lock.touch()
    assert isinstance(machine(server).push({ONE: b"2\n"}, mark), Moved)
    lock.unlink()
    pushed(machine(server), {ONE: b"2\n"}, mark)


def test_a_ref_that_moves_during_the_push_means_try_again(server: Server):
    mark = pushed(machine(server), {ONE: b"1\n"})
    theirs = server.commit(server.git("rev-parse", f"{mark}^{{tree}}"), mark)
    server.git("update-ref", "refs/heads/fleet", mark)
    server.hook("update", f"git update-ref refs/heads/fleet {theirs}\n")
    moved = machine(server).push({ONE: b"2\n"}, mark)
    assert isinstance(moved, Moved)
    assert "failed to update ref" in moved.reason or "cannot lock ref" in moved.reason
    assert server.git("rev-parse", "refs/heads/fleet") == theirs


def test_a_branch_that_appears_during_its_creation_means_try_again(server: Server):
    theirs = pushed(machine(server), {TWO: b"2\n"})
    server.git("update-ref", "-d", "refs/heads/fleet")
    server.hook("update", f"git update-ref refs/heads/fleet {theirs}\n")
    assert isinstance(machine(server, "two").push({ONE: b"1\n"}, ""), Moved)
    assert server.git("rev-parse", "refs/heads/fleet") == theirs


def test_twelve_push_at_once_and_all_land(server: Server):
    rng = random.Random(7)
    pauses = [[rng.uniform(0, 0.05 * 2 ** min(attempt, 5)) for attempt in range(60)] for _ in range(12)]
    attempts = [0] * 12
    troubles: list[BaseException] = []

    def work(number: int) -> None:
        try:
            remote = machine(server, f"machine{number}")
            mark = ""
            for pause in pauses[number]:
                attempts[number] += 1
                mark = remote.pull(mark)[1]
                done = remote.push({f"patterns.d/a{number}.{number:08x}.jsonl": b"%d\n" % number}, mark)
                if isinstance(done, str):
                    return
                time.sleep(pause)
            raise AssertionError("never landed")
        except BaseException as why:
            troubles.append(why)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
    files, _ = machine(server, "reader").pull("")
    assert files == {f"patterns.d/a{number}.{number:08x}.jsonl": b"%d\n" % number for number in range(12)}
    assert max(attempts) <= 30
    assert server.git("rev-list", "--count", "refs/heads/fleet") == "12"


def test_two_of_one_machine_take_turns(server: Server):
    mark = pushed(machine(server), {ONE: b"1\n"})
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(machine(server).pull("")[1])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [mark] * 6


def test_locks_of_a_killed_git_are_no_hindrance(server: Server):
    remote = machine(server)
    first = pushed(remote, {ONE: b"1\n"})
    copy = remote._copy.folder
    for left in ("refs/fleet/seen.lock", "refs/fleet/next.lock", "packed-refs.lock", "shallow.lock"):
        (copy / left).parent.mkdir(parents=True, exist_ok=True)
        (copy / left).touch()
    other = machine(server, "two")
    second = pushed(other, {TWO: b"2\n"}, other.pull("")[1])
    assert remote.pull(first) == ({TWO: b"2\n"}, second)
    pushed(remote, {ONE: b"3\n"}, second)


@pytest.mark.parametrize("harm", ["empty objects", "no objects", "empty ref", "no HEAD", "gone", "garbage ref"])
def test_a_damaged_copy_is_made_anew(server: Server, harm: str):
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    copy = remote._copy.folder
    objects = [path for path in (copy / "objects").rglob("*") if path.is_file()]
    if harm == "empty objects":
        for path in objects:
            path.chmod(0o644)
            path.write_bytes(b"")
    elif harm == "no objects":
        for path in objects:
            path.unlink()
    elif harm in {"empty ref", "garbage ref"}:
        (copy / "refs/fleet/seen").write_text("" if harm == "empty ref" else "0" * 39 + "1\n")
    elif harm == "no HEAD":
        (copy / "HEAD").unlink()
    else:
        shutil.rmtree(copy)
    other = machine(server, "two")
    after = pushed(other, {TWO: b"2\n"}, other.pull("")[1])
    files, seen = remote.pull(mark)
    assert seen == after
    assert files == ({ONE: b"1\n", TWO: b"2\n"} if isinstance(files, Whole) else {TWO: b"2\n"})
    pushed(remote, {ONE: b"3\n"}, after)


def test_a_push_on_a_damaged_copy_heals_by_a_pull(server: Server):
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    for path in (remote._copy.folder / "objects").rglob("*"):
        if path.is_file():
            path.unlink()
    assert isinstance(remote.push({ONE: b"2\n"}, mark), Moved)
    files, mark = remote.pull(mark)
    assert files == ({ONE: b"1\n"} if isinstance(files, Whole) else {})
    pushed(remote, {ONE: b"2\n"}, mark)


def test_a_push_on_a_state_that_the_copy_does_not_have_means_pull_first(server: Server):
    mark = pushed(machine(server), {ONE: b"1\n"})
    other = machine(server, "two")
    assert isinstance(other.push({ONE: b"2\n"}, mark), Moved)
    assert isinstance(other.push({ONE: b"2\n"}, "m1"), Moved)
    assert not list(other._copy.folder.glob("fast_import_crash_*"))
    pushed(other, {ONE: b"2\n"}, other.pull(mark)[1])


def test_a_copy_with_another_configuration_is_not_used(server: Server, tmp_path: Path):
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    with (remote._copy.folder / "config").open("a") as config:
        config.write(
            f'[core]\n\tsshCommand = touch {tmp_path / "run"}\n[remote "fleet-clan"]\n\tuploadpack = touch x\n'
        )
    with pytest.raises(RemoteUnavailable, match="not as fleet made it"):
        remote.pull(mark)
    (remote._copy.folder / "config").unlink()
    with pytest.raises(RemoteUnavailable, match="not as fleet made it"):
        remote.pull(mark)
    theirs = tmp_path / "theirs"
    subprocess.run(["git", "init", "-q", "--bare", theirs], check=True)
    before = (theirs / "config").read_bytes()
    with pytest.raises(RemoteUnavailable, match="move it away"):
        GitRemote(GitTree(theirs), str(server.path), "fleet").fetch("")
    assert (theirs / "config").read_bytes() == before


def test_many_packs_are_put_together_and_nothing_is_lost(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_git, "_PACKS_MAX", 3)
    writer, reader = machine(server), machine(server, "two")
    mark = seen = ""
    for number in range(8):
        mark = pushed(writer, {ONE: b"%d\n" % number}, mark)
        assert reader.pull(seen) == ({ONE: b"%d\n" % number}, mark)
        seen = mark
    assert len(list((reader._copy.folder / "objects/pack").glob("*.pack"))) <= 4
    assert reader.pull("") == ({ONE: b"7\n"}, mark)
    assert not reader.warnings


# --- what surrounds fleet -------------------------------------------------------------------------------------------


def test_called_from_a_git_hook_it_touches_only_its_own_repository(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project = Server(tmp_path / "project.git")
    before = sorted(path for path in project.path.rglob("*"))
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, str(project.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(project.path / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(project.path / "objects"))
    monkeypatch.setenv("GIT_QUARANTINE_PATH", str(project.path / "objects"))
    monkeypatch.setenv("GIT_NAMESPACE", "x")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare'='false'")
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    assert remote.pull("") == ({ONE: b"1\n"}, mark)
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    assert sorted(path for path in project.path.rglob("*")) == before
    assert server.git("rev-parse", "refs/heads/fleet") == mark


def test_no_hook_of_the_users_runs_and_no_setting_turns_ours_around(server: Server, tmp_path: Path):
    hooks = tmp_path / "template/hooks"
    hooks.mkdir(parents=True)
    ran = tmp_path / "ran"
    for name in ("pre-push", "reference-transaction", "post-checkout", "pre-auto-gc"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        (hooks / name).chmod(0o755)
    (tmp_path / "home/.gitconfig").write_text(
        f"[init]\n\ttemplateDir = {tmp_path / 'template'}\n[core]\n\thooksPath = {hooks}\n"
        "[fetch]\n\tprune = true\n\trecurseSubmodules = true\n\tunpackLimit = 1\n[push]\n\tgpgSign = true\n"
        "\tfollowTags = true\n[transfer]\n\tfsckObjects = false\n[commit]\n\tgpgSign = true\n"
        "[diff]\n\trelative = true\n[user]\n\tuseConfigOnly = true\n[remote]\n\tpushDefault = nowhere\n"
    )
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    ran.unlink(missing_ok=True)  # on the far side it is the far side's own user who wants these hooks
    assert remote.pull("") == ({ONE: b"1\n"}, mark)
    assert machine(server, "two").pull("") == ({ONE: b"1\n"}, mark)
    assert not ran.exists()
    assert not (remote._copy.folder / "hooks").exists()
    assert "fleet <fleet@localhost>" in server.git("log", "-1", "--format=%an <%ae>", "refs/heads/fleet")


def test_the_commit_bears_the_message_on_one_line(server: Server, monkeypatch: pytest.MonkeyPatch):
    remote = GitRemote(GitTree(server.path.parent / "x/git"), str(server.path), "fleet")
    monkeypatch.setattr(time, "time", lambda: 1.7e9)
    mark = remote.push({ONE: b"1\n"}, "", message="one\ntwo\x1b é\nfrom refs/heads/x")
    assert isinstance(mark, str)
    assert server.git("log", "-1", "--format=%an|%at|%B", mark) == "fleet|1700000000|one two é from refs/heads/x"


def test_an_ssh_command_of_the_users_wins_and_ours_asks_for_nothing(monkeypatch: pytest.MonkeyPatch):
    assert "-o BatchMode=yes -o ConnectTimeout=15" in store_git._environment({}, 15)["GIT_SSH_COMMAND"]
    assert store_git._environment({"GIT_SSH_COMMAND": "ssh -i x"}, 15)["GIT_SSH_COMMAND"] == "ssh -i x"
    assert "GIT_SSH_COMMAND" not in store_git._environment({"GIT_SSH": "/x"}, 15)
    assert store_git._environment({"GIT_ALLOW_PROTOCOL": "ssh:ext"}, 15)["GIT_ALLOW_PROTOCOL"] == "ssh"


def test_an_ssh_command_in_the_users_configuration_wins_too(server: Server, tmp_path: Path):
    script = tmp_path / "my_ssh"
    script.write_text(f'#!/bin/sh\ntouch {tmp_path / "used"}\nfor last; do :; done\nexec sh -c "$last"\n')
    script.chmod(0o755)
    (tmp_path / "home/.gitconfig").write_text(f"[core]\n\tsshCommand = {script}\n[ssh]\n\tvariant = simple\n")
    mark = pushed(machine(f"ssh://far{server.path}"), {ONE: b"1\n"})
    assert (tmp_path / "used").exists()
    assert machine(server, "two").pull("")[1] == mark


def test_it_wins_too_where_the_users_configuration_turns_a_path_into_an_address(server: Server, tmp_path: Path):
    script = tmp_path / "my_ssh"
    script.write_text(f'#!/bin/sh\ntouch {tmp_path / "used"}\nfor last; do :; done\nexec sh -c "$last"\n')
    script.chmod(0o755)
    (tmp_path / "home/.gitconfig").write_text(
        f"[core]\n\tsshCommand = {script}\n[ssh]\n\tvariant = simple\n"
        f'[url "ssh://far{server.path}"]\n\tinsteadOf = /nowhere/clan.git\n'
    )
    remote = machine("/nowhere/clan.git")
    assert remote.pull("") == (Whole(), "")
    assert (tmp_path / "used").exists()
    pushed(remote, {ONE: b"1\n"})
    assert server.git("show", f"fleet:{ONE}") == "1"


# --- attacks 9 and 18: a hostile repository -------------------------------------------------------------------------


def test_what_is_no_plain_file_is_refused_and_told(server: Server):
    blob, link = server.blob(b"1\n"), server.blob(b"/etc/passwd")
    gitlink = "1" * 40
    shards = server.tree(
        ("100644", blob, "ok.00000001.jsonl"),
        ("120000", link, "popashot.7f3a91c2.jsonl"),
        ("100755", blob, "tank.c0ffee42.jsonl"),
    )
    root = server.tree(
        ("120000", link, "evil\x1b[31m"),
        ("160000", gitlink, "members.toml"),
        ("40000", shards, "patterns.d"),
        ("120000", link, "patterns.jsonl"),
        ("160000", gitlink, "sub"),
    )
    mark = server.commit(root)
    remote = machine(server)
    assert remote.pull("") == ({"patterns.d/ok.00000001.jsonl": b"1\n"}, mark)
    (warning,) = remote.warnings
    assert "6 files are held, not read and not dropped" in warning
    assert "\x1b" not in warning

    # Writing a path puts a plain file in the place of what was refused; what is not ours stays as it is.
    after = pushed(remote, {ONE: b"2\n", TWO: b"3\n", "patterns.jsonl": b"{}\n"}, mark)
    listing = server.git("ls-tree", "-r", after)
    assert "100644 blob" in next(line for line in listing.splitlines() if line.endswith(ONE))
    assert "100644 blob" in next(line for line in listing.splitlines() if line.endswith(TWO))
    assert f"160000 commit {gitlink}\tsub" in listing
    assert f"160000 commit {gitlink}\tmembers.toml" in listing
    assert remote.pull(mark)[0] == {ONE: b"2\n", TWO: b"3\n", "patterns.jsonl": b"{}\n"}


def test_a_plain_file_that_becomes_a_link_is_gone(server: Server):
    remote = machine(server)
    mark = pushed(remote, {"patterns.jsonl": b"{}\n"})
    server.commit(server.tree(("120000", server.blob(b"/etc/passwd"), "patterns.jsonl")), mark)
    files, _ = remote.pull(mark)
    assert files == {"patterns.jsonl": b""}
    assert "no plain file" in remote.warnings[0]


def test_removing_below_what_is_no_folder_is_harmless(server: Server):
    mark = server.commit(server.tree(("100644", server.blob(b"x"), "patterns.d")))
    remote = machine(server)
    remote.pull("")
    after = pushed(remote, {ONE: b"", "patterns.jsonl": b"{}\n"}, mark)
    assert remote.pull(mark) == ({"patterns.jsonl": b"{}\n"}, after)


@pytest.mark.parametrize("mode", ["120000", "160000", "100644"])
def test_a_folder_that_became_something_else_is_a_folder_again_after_a_push(server: Server, mode: str):
    sha = "1" * 40 if mode == "160000" else server.blob(b"/etc")
    mark = server.commit(server.tree((mode, sha, "patterns.d")))
    remote = machine(server)
    assert remote.pull("")[0] == {}
    pushed(remote, {ONE: b"1\n"}, mark)
    assert machine(server, "two").pull("")[0] == {ONE: b"1\n"}


def test_names_that_are_not_the_clans_are_not_read_and_stay(server: Server):
    blob = server.blob(b"x\n")
    deep = server.tree(("100644", blob, "tank.c0ffee42.jsonl"))
    names = (" .jsonl", "..jsonl", "A.c0ffee42.jsonl", "a.jsonl", "é.c0ffee42.jsonl", "x.c0ffee42.jsonl\n")
    shards = server.tree(*(("100644", blob, name) for name in names), ("40000", deep, "sub"))
    mark = server.commit(
        server.tree(
            ("100644", server.blob(b'[submodule "x"]\n\tpath = x\n\turl = y\n'), ".gitmodules"),
            ("100644", blob, "NOTES.md"),
            ("100755", blob, "build.sh"),
            ("40000", shards, "patterns.d"),
            ("40000", deep, "patterns.jsonl"),
        )
    )
    remote = machine(server)
    assert remote.pull("") == ({}, mark)
    [warning] = remote.warnings
    assert "6 files are held, not read and not dropped: patterns.d/" in warning
    after = pushed(remote, {ONE: b"1\n", "patterns.jsonl": b"{}\n"}, mark)
    kept = server.git("-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", "-z", after).split("\0")
    theirs = {".gitmodules", "NOTES.md", "build.sh", "patterns.d/sub/tank.c0ffee42.jsonl"}
    assert {*kept} - {""} == theirs | {f"patterns.d/{name}" for name in names} | {ONE, "patterns.jsonl"}
    assert machine(server, "two").pull("")[0] == {ONE: b"1\n", "patterns.jsonl": b"{}\n"}


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT", "a/b", ".git\u200c"])
def test_a_tree_that_could_lead_out_stops_nobody_and_is_put_right_by_the_next_push(server: Server, name: str):
    good = pushed(machine(server), {ONE: b"1\n"})
    kept = ("40000", server.git("rev-parse", f"{good}:patterns.d"), "patterns.d")
    bad = server.commit(server.tree(("100644", server.blob(b"x\n"), name), kept), good)
    first, second = machine(server), machine(server, "two")
    for remote, since, found in ((first, good, {}), (second, "", {ONE: b"1\n"})):
        assert remote.pull(since) == (found, bad)
        [told] = remote.warnings
        assert "git refuses" in told
        assert "it is by" in told
        assert remote.skipped == 1 or name == "a/b"
    after = pushed(first, {TWO: b"2\n"}, bad)
    also = ["a/b"] if name == "a/b" else []
    assert server.git("ls-tree", "-r", "--name-only", after).split() == [*also, ONE, TWO]
    assert second.pull(bad) == ({TWO: b"2\n"}, after)
    assert len(second.warnings) == 1
    third = machine(server, "three")
    assert third.pull("")[0] == {ONE: b"1\n", TWO: b"2\n"}
    [told] = third.warnings
    assert third._copy.committer(bad) in told, "who brought it, not who mended it"
    assert third._copy.committer(after) not in told
    assert ("mended since" in told, third.skipped) == (True, 0)


def test_who_brought_a_malformed_folder_is_named_and_not_who_mended_it(server: Server):
    good = pushed(machine(server), {ONE: b"1\n"})
    kept = ("40000", server.git("rev-parse", f"{good}:patterns.d"), "patterns.d")
    folder = server.tree(("100644", server.blob(b"x\n"), ".."))
    bad = server.commit(server.tree(kept, ("40000", folder, "sub")), good)
    first, second = machine(server), machine(server, "two")
    first.pull(good)
    pushed(first, {TWO: b"2\n"}, bad)
    second.pull("")
    [told] = second.warnings
    assert second._copy.committer(bad) in told
    assert ("mended since" in told, second.skipped) == (True, 0)


def test_a_link_in_the_place_of_gitmodules_stops_nobody(server: Server):
    server.commit(server.tree(("120000", server.blob(b"/etc/passwd"), ".gitmodules")))
    remote = machine(server)
    files, mark = remote.pull("")
    assert not files
    after = pushed(remote, {ONE: b"1\n"}, mark)
    assert server.git("ls-tree", "-r", "--name-only", after).split() == [ONE]


def test_a_branch_that_is_no_commit_is_unavailable(server: Server):
    (server.path / "refs/heads/fleet").write_text(server.blob(b"x") + "\n")
    with pytest.raises(RemoteUnavailable):
        machine(server).pull("")


def test_a_corrupt_object_on_the_far_side_harms_nothing_here(server: Server):
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    other = machine(server, "two")
    pushed(other, {TWO: b"2\n"}, other.pull("")[1])
    broken = server.path / "objects"
    blob = server.git("rev-parse", f"refs/heads/fleet:{TWO}")
    path = broken / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(b"rubbish")
    with pytest.raises(RemoteUnavailable):
        remote.pull(mark)
    assert not remote.warnings  # our own copy is whole, and is not thrown away
    assert remote._copy.git("cat-file", "-e", mark).code == 0


def test_a_file_above_the_limit_is_not_read_and_told(server: Server, monkeypatch: pytest.MonkeyPatch):
    remote = machine(server)
    mark = pushed(remote, {ONE: b"1\n"})
    pushed(machine(server), {ONE: b"x" * 1001, TWO: b"x" * 1000}, mark)
    monkeypatch.setattr("fleet.store.tree.BLOB_BYTES_MAX", 1000)
    assert remote.pull(mark)[0] == {TWO: b"x" * 1000}
    assert "not read" in remote.warnings.pop()


def test_many_files_below_the_limit_do_not_fill_the_memory_either(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fleet.store.tree.TREE_BYTES_MAX", 2000)
    shards = {f"patterns.d/a.{number:08x}.jsonl": bytes([number]) * 900 for number in range(4)}
    pushed(machine(server), shards)
    remote = machine(server, "two")
    assert remote.pull("")[0] == dict(list(shards.items())[:2])
    [warning] = remote.warnings
    assert "2 files are held, not read and not dropped" in warning


MEASURE = """
import resource, sys
from pathlib import Path
from fleet.store.tree import GitTree
from tests.pulling import PullingRemote
remote = PullingRemote(GitTree(Path(sys.argv[1])), sys.argv[2], "fleet", timeout_s=300)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
files, _ = remote.pull("")
mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(sorted(files), remote.warnings, mine // 1024, children // 1024, sep="\\n")
"""


# Less than half a gigabyte is the worse attack: by default git streams only what is larger than that.
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
@pytest.mark.parametrize("mib", [250, 400, 1024] if os.environ.get("FLEET_BIG") == "1" else [250])
def test_a_gigabyte_of_zeros_does_not_fill_the_memory(server: Server, tmp_path: Path, mib: int):
    git = f"git -c core.bigFileThreshold=1m --git-dir={shlex.quote(str(server.path))} hash-object -w --stdin"
    zeros = ["sh", "-c", f"head -c {mib * 2**20} /dev/zero | {git}"]
    huge = subprocess.run(zeros, check=True, capture_output=True, text=True).stdout.strip()
    server.commit(server.tree(("100644", huge, "patterns.jsonl"), ("100644", server.blob(b"x"), "patterns.md")))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "one/git"), str(server.path)]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    assert out[0] == "['patterns.md']"
    assert "patterns.jsonl: larger than 100 MiB" in out[1]
    assert int(out[2]) < 200, out
    assert int(out[3]) < 200, out


def test_of_a_tree_without_end_the_clans_own_files_are_read_and_the_next_push_puts_it_right(server: Server):
    """A few objects that name a thousand million files: each folder holds the next one ten times."""
    good = pushed(machine(server), {ONE: b"1\n"})
    folder = server.tree(*(("100644", server.blob(b"x"), f"f{number}") for number in range(10)))
    for _ in range(8):
        folder = server.tree(*(("40000", folder, f"d{number}") for number in range(10)))
    shards = server.tree(("100644", server.blob(b"1\n"), ONE.removeprefix("patterns.d/")), ("40000", folder, "sub"))
    bad = server.commit(server.tree(("40000", folder, "junk"), ("40000", shards, "patterns.d")), good)
    remote = machine(server, "two")
    assert remote.pull("") == ({ONE: b"1\n"}, bad)
    assert "too many files" in remote.warnings[0]
    after = pushed(remote, {TWO: b"2\n"}, bad)
    assert server.git("ls-tree", "-r", "--name-only", after).split() == [ONE, TWO]
    assert machine(server, "three").pull("")[0] == {ONE: b"1\n", TWO: b"2\n"}


def test_a_folder_of_the_clans_without_end_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch):
    pushed(machine(server), {f"patterns.d/a.{number:08x}.jsonl": b"x" for number in range(50)})
    monkeypatch.setattr(store_git, "OUT_BYTES_MAX", 1000)
    with pytest.raises(RemoteUnavailable, match="too large to list"):
        machine(server, "two").pull("")


# --- attack 13: what git says ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("fatal: x\n", "fatal: x"),
        ("remote: \x1b]0;owned\x07\x9bhi\n", "remote: \\x1b]0;owned\\x07\\x9bhi"),
        ("fatal: unable to access 'https://u:p4ss@h/x': no\n", "fatal: unable to access 'https://***@h/x': no"),
        ("fatal: https://ghp_token@h/\n", "fatal: https://***@h/"),
        ("fatal: the password is opensesame\n", "fatal: the password is ***"),
        ("hint: a\nTo /x\n\nremote:  \nerror: failed to push some refs to 'x'\nerror: b\n", "error: b"),
        ("", "git gave no reason"),
        (
            "\n".join(f"line {number}" for number in range(100)),
            " / ".join(f"line {number}" for number in range(94, 100)),
        ),
    ],
)
def test_what_git_says_is_screened(said: str, shown: str):
    assert store_git._shown_reason(said, ["opensesame"]) == shown


# --- attack 17: addresses and branches ------------------------------------------------------------------------------

GOOD = [
    "/srv/clan.git",
    "file:///srv/clan.git",
    "ssh://git@host:22/x.git",
    "git://host/x",
    "http://h/x",
    "https://u:p@h/x",
]
GOOD += ["git@host:team/clan.git", "host:clan", "[::1]:clan", "git@[::1]:clan", "https://[::1]:8080/x", "ssh://[::1]/x"]


@pytest.mark.parametrize("url", GOOD)
def test_a_proper_address_is_taken_as_it_is(url: str):
    assert Address.checked(url) == url


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert Address.checked("clan.git") == str(tmp_path / "clan.git")
    assert Address.checked("./a:b") == str(tmp_path / "a:b")
    assert Address.checked("~/clan.git") == str(tmp_path / "home/clan.git")
    assert Address.checked("~no such user/clan.git") == str(tmp_path / "~no such user/clan.git")


BAD = ["ext::sh -c 'touch run'", "EXT::sh", "Ext::x", "fd::17", "FD::17,18/x", "foo::bar", "transport-helper::x", "::x"]
BAD += ["--upload-pack=touch run", "-x", "", " ", "https://h/\nx", "a\x00b", "\x1b[31m", "ftp://h/x", "HTTPS://h/x"]
BAD += ["ssh://-oProxyCommand=touch/x", "ssh://u@-oProxyCommand=touch/x", "-oProxyCommand=x:y", "u@-oProxyCommand=x:y"]
BAD += ["host:-x", "https://", "https:///x", "ssh:///x", ":x", "host:", "git+ssh://h/x", "javascript://x", "x" * 5000]
BAD += ["\ud800"]


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_is_no_address_is_refused(url: str, tmp_path: Path):
    with pytest.raises(UsageError):
        GitRemote(GitTree(tmp_path / "git"), url, "fleet")
    assert not (tmp_path / "git").exists()


def test_a_helper_is_refused_by_git_too_when_the_users_abbreviations_lead_to_one(tmp_path: Path):
    (tmp_path / "home/.gitconfig").write_text(
        f'[url "ext::sh -c touch% {tmp_path}/run "]\n\tinsteadOf = https://h/\n[protocol "ext"]\n\tallow = always\n'
    )
    with pytest.raises(RemoteUnavailable, match="not allowed"):
        machine("https://h/x").pull("")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["fleet", "a/b", "team/fleet-2", "é", "x.y", "a@b", "main"])
def test_a_proper_branch_is_taken(name: str):
    assert check_branch(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "-x",
            "--force",
            "a..b",
            "a b",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "a\\b",
            ".a",
            "a/.b",
            "a.",
            "a.lock",
        ),
        *("a.lock/b", "/a", "a/", "a//b", "@", "a@{1}", "HEAD", "a\n", "a\x7f", "a\x9b", "x" * 300, "\ud800"),
    ],
)
def test_what_is_no_branch_is_refused(name: str):
    with pytest.raises(UsageError):
        check_branch(name)


def test_every_branch_that_we_take_git_takes_too():
    rng = random.Random(11)
    taken = []
    for _ in range(4000):
        name = "".join(
            rng.choice(["a", "b", ".", "/", "@", "{", "-", "lock", ".lock", "~", "é", "\t", ":", "*"]) for _ in range(4)
        )
        try:
            taken.append(check_branch(name))
        except UsageError:
            continue
    assert len(taken) > 200
    for name in taken[:200]:
        subprocess.run(["git", "check-ref-format", "--branch", name], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@h/x", "https://***@h/x"),
        ("https://token@h/x", "https://***@h/x"),
        ("https://u:p@ss@h/x", "https://***@h/x"),
        ("https://u:p/ss@h/x", "https://***@h/x"),
        ("https://t@h/x", "https://***@h/x"),
        ("https://h/x?token=1", "https://h/x?***"),
        ("https://h/@scope/x", "https://h/@scope/x"),
        ("https://h:8080/@scope/x", "https://h:8080/@scope/x"),
        ("ssh://git@h/x", "ssh://git@h/x"),
        ("ssh://git:p@h/x", "ssh://git:***@h/x"),
        ("git@h:x/y", "git@h:x/y"),
        ("u:p@h:x/y", "***@h:x/y"),
        ("/srv/clan.git", "/srv/clan.git"),
        ("/srv/a@b.git", "/srv/a@b.git"),
    ],
)
def test_an_address_is_shown_without_what_lets_one_in(url: str, shown: str):
    assert Address(url).redacted == shown


def test_each_form_of_a_password_is_known_as_secret():
    assert {"hunter2%21", "hunter2!", "carol"} <= {*Address("https://carol:hunter2%21@h/x").secrets}
    assert Address("ssh://someuser@h/x").secrets == ()
    assert Address("/srv/clan.git").secrets == ()


# --- the guess ------------------------------------------------------------------------------------------------------


def test_the_origin_of_the_surrounding_repository_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = tmp_path / "project"
    inner = project / "src/deep"
    inner.mkdir(parents=True)
    assert Repository(inner).origin() is None

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", project, *arguments], check=True, capture_output=True)

    git("init", "-q")
    assert Repository(inner).origin() is None
    for url, guess in [
        ("https://host/x.git", "https://host/x.git"),
        ("git@host:x.git", "git@host:x.git"),
        ("../clan.git", str(tmp_path / "clan.git")),
        ("ext::sh -c 'touch run'", None),
        ("gh:x", "https://github.example/x"),
    ]:
        git("config", "remote.origin.url", url)
        git("config", "url.https://github.example/.insteadOf", "gh:")
        assert Repository(inner).origin() == guess
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert Repository(inner).origin() == "https://github.example/x"
    assert Repository(tmp_path / "nowhere").origin() is None
