"""Files of git's that somebody else wrote, in a clone, a pull or an archive: none of the programs they name is run."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleet.model.names import pattern_id
from tests.cli.conftest import Shell

NOWHERE = "1" * 40
MIRROR = """\
# This repository is fleet's own: a copy of the clan's branch, made anew when it is gone. Do not edit: fleet does not
# run git on a repository with another configuration, since that could name programs to run.
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
"""
COMMANDS = (
    ("start",),
    ("status",),
    ("patterns",),
    ("journal", "--title", "work"),
    ("handover",),
    ("doctor",),
    ("init", "--agent", "bob"),
    ("sync",),
)


class Clone(Shell):
    """A repository that somebody else made, with git's files in it, and a folder in which programs leave a mark."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made, self.clone = folder / "made", folder / "clone"
        (folder / "ran").mkdir()
        self.git("init", "--quiet", "--bare", str(self.remote))
        self.git("init", "--quiet", str(self.made))
        (self.made / "fleet.toml").write_text('[share]\nbranch = "fleet"\n')

    def program(self, name: str, then: str = "false") -> str:
        """Return a command line that leaves a mark where it runs."""
        return f"touch {self.folder}/ran/{name}; {then}"

    def put(self, **files: str) -> None:
        for path, text in files.items():
            (self.made / path).parent.mkdir(parents=True, exist_ok=True)
            (self.made / path).write_text(text)

    def commit(self) -> None:
        (self.made / ".gitignore").unlink(missing_ok=True)
        self.git("-C", str(self.made), "add", "--all", "--force")
        self.git("-C", str(self.made), "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "-m", "x")

    def hook(self) -> None:
        payload = {"hook_event_name": "SessionStart", "session_id": "n1", "cwd": str(self.clone), "source": "startup"}
        self.run("clone", "hook", "SessionStart", text=json.dumps(payload))

    def ran(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "ran").iterdir())


@pytest.fixture
def hostile(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


# --- fleet's own repository -----------------------------------------------------------------------------------------


def elsewhere(hostile: Clone) -> dict[str, str]:
    """Return the files of a configuration beside ``.fleet/git``, which a ``commondir`` there leads to."""
    fetch = f"\turl = .\n\tpromisor = true\n\tuploadpack = {json.dumps(hostile.program('uploadpack'))}\n"
    config = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tpartialClone = e\n"
    common = {"HEAD": "ref: refs/heads/main\n", "objects/.keep": "", "refs/fleet/fetched": f"{NOWHERE}\n"}
    common["config"] = f'{config}[remote "e"]\n{fetch}[remote "fleet-clan"]\n{fetch}'
    return {f".fleet/common/{path}": text for path, text in common.items()} | {".fleet/git/commondir": "../common\n"}


def test_a_copy_of_a_branch_that_comes_with_a_clone_runs_nothing(hostile: Clone):
    refs = {f".fleet/git/refs/fleet/{name}": f"{NOWHERE}\n" for name in ("fetched", "seen")}
    own = {".fleet/git/config": MIRROR, ".fleet/git/HEAD": "ref: refs/heads/main\n", ".fleet/git/objects/.keep": ""}
    hostile.put(**elsewhere(hostile), **refs, **own)
    hostile.commit()
    hostile.git("clone", "--quiet", str(hostile.made), str(hostile.clone))
    hostile.hook()
    for words in COMMANDS:
        hostile.run("clone", *words, expect=None)
    assert hostile.ran() == []


def test_a_file_that_a_pull_puts_into_the_copy_of_a_branch_runs_nothing(hostile: Clone):
    hostile.commit()
    hostile.git("clone", "--quiet", str(hostile.made), str(hostile.clone))
    hostile.run("clone", "init", "--agent", "bob", "--remote", str(hostile.remote))
    hostile.correct("clone", "Look twice at what a pull brings")
    hostile.run("clone", "sync")
    (hostile.clone / ".gitignore").unlink()
    hostile.put(**elsewhere(hostile))
    hostile.commit()
    hostile.git("-C", str(hostile.clone), "pull", "--quiet")
    hostile.hook()
    refused = hostile.run("clone", "sync", expect=None).stderr
    assert hostile.ran() == []
    assert "commondir leads elsewhere; move it away, it is made anew" in " ".join(refused.split())
    (hostile.clone / ".fleet/git").rename(hostile.clone / ".fleet/aside")
    hostile.run("clone", "sync")
    assert "Look twice" in hostile.run("clone", "patterns").stdout


def test_a_copy_of_a_branch_reads_no_objects_of_another_repository(hostile: Clone):
    hostile.git("clone", "--quiet", str(hostile.made), str(hostile.clone))
    (hostile.clone / "fleet.toml").write_text("")
    hostile.run("clone", "init", "--agent", "bob", "--remote", str(hostile.remote))
    hostile.run("clone", "sync")
    (hostile.clone / ".fleet/git/objects/info").mkdir(exist_ok=True)
    (hostile.clone / ".fleet/git/objects/info/alternates").write_text(f"{hostile.made}/.git/objects\n")
    assert "alternates leads elsewhere" in " ".join(hostile.run("clone", "sync", expect=None).stderr.split())


# --- a person's repository ------------------------------------------------------------------------------------------


def filters(hostile: Clone) -> None:
    hostile.put(**{".gitattributes": "* filter=x diff=x\n"})
    hostile.commit()
    config = str(hostile.made / ".git/config")
    for name in ("filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.command", "diff.external"):
        hostile.git("config", "--file", config, name, hostile.program(name, "cat"))
    hostile.put(**{"fleet.toml": '[share]\nbranch = "other"\n', "f.sql": "changed\n"})


def signatures(hostile: Clone) -> None:
    """Make a last commit that says it is signed, and a HEAD that has left its branch: its reflog is read."""
    made = str(hostile.made)
    hostile.commit()
    bare = hostile.git("-C", made, "cat-file", "commit", "HEAD")
    head, _, rest = bare.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    hostile.put(**{".git/signed": f"{head}\n{signature}\n\n{rest}"})
    oid = hostile.git("-C", made, "hash-object", "-w", "-t", "commit", f"{made}/.git/signed").strip()
    hostile.git("-C", made, "checkout", "--quiet", oid)
    hostile.git("-C", made, "config", "log.showSignature", "true")
    program = hostile.folder / "gpg.sh"
    program.write_text(f"#!/bin/sh\n{hostile.program('gpg')}\n")
    program.chmod(0o755)
    hostile.git("-C", made, "config", "gpg.program", str(program))


def missing(hostile: Clone) -> None:
    """Make a partial clone that lacks the tree of its last commit."""
    hostile.put(**{"sub/f.txt": "x"})
    hostile.commit()
    made = str(hostile.made)
    tree = hostile.git("-C", made, "rev-parse", "HEAD:sub").strip()
    (hostile.made / ".git/objects" / tree[:2] / tree[2:]).unlink()
    (hostile.made / ".git/index").unlink()
    settings = {"core.repositoryFormatVersion": "1", "extensions.partialClone": "e", "remote.e.url": "."}
    settings |= {"remote.e.promisor": "true", "remote.e.uploadpack": hostile.program("uploadpack")}
    for name, value in settings.items():
        hostile.git("config", "--file", f"{made}/.git/config", name, value)


def submodules(hostile: Clone) -> None:
    inner = str(hostile.made / "inner")
    hostile.put(**{"inner/f.txt": "x\n", "inner/.gitattributes": "* filter=x\n"})
    hostile.git("init", "--quiet", inner)
    hostile.git("-C", inner, "add", "--all")
    hostile.git("-C", inner, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--quiet", "-m", "x")
    hostile.commit()
    hostile.git("-C", inner, "config", "filter.x.clean", hostile.program("clean", "cat"))
    hostile.git("-C", inner, "config", "core.fsmonitor", hostile.program("fsmonitor"))
    hostile.put(**{"inner/f.txt": "y\n"})


@pytest.mark.parametrize("make", [filters, signatures, missing, submodules])
def test_an_archive_with_a_git_of_its_own_runs_nothing(hostile: Clone, make):
    lesson = {"add": "2026-11-30T17:00:00.000Z-0000", "n": {"seen": 3}}
    lesson["first"] = {"text": "Never edit f.txt by hand", "trigger": "Edit:*f.txt"}
    line = {"id": pattern_id("Never edit f.txt by hand"), "w": {"mal.0badc0de": lesson}}
    hostile.put(**{"clan-learnings/patterns.d/mal.0badc0de.jsonl": json.dumps(line, separators=(",", ":")) + "\n"})
    hostile.put(**{"clan-learnings/.fleet-format": "2\n", "f.txt": "x\n"})
    make(hostile)
    shutil.copytree(hostile.made, hostile.clone, symlinks=True)
    shutil.rmtree(hostile.folder / "ran")
    (hostile.folder / "ran").mkdir()
    hostile.hook()
    for words in COMMANDS:
        hostile.run("clone", *words, expect=None)
    assert hostile.ran() == []


def test_a_workspace_in_a_folder_that_looks_like_a_repository_runs_nothing(hostile: Clone):
    """A project can track that: git takes the files of a bare repository for files like others."""
    inner = hostile.made / "inner"
    hostile.git("init", "--quiet", "--bare", str(inner))
    for name in ("objects/.keep", "refs/.keep"):
        (inner / name).write_text("")
    (inner / "HEAD").write_text("ref: refs/heads/of-the-inner\n")
    (inner / "fleet.toml").write_text('[share]\nbranch = "fleet"\n')
    hostile.commit()
    hostile.git("clone", "--quiet", str(hostile.made), str(hostile.clone))
    told = json.loads(hostile.run("clone/inner", "journal", "--title", "work", "--json", "--agent", "bob").stdout)
    assert told["branch"] == "main"


# --- a server -------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """A server on loopback that notes what it is asked for, and sends everybody on to an address, if it has one."""

    def __init__(self, address: str = "") -> None:
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                self.send_response(302 if address else 404)
                if address:
                    self.send_header("Location", address + self.path)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def test_a_remote_that_names_another_address_leads_there_by_a_yes_alone(hostile: Clone):
    other = _Server()
    first = _Server(other.address)
    try:
        hostile.run("w", "init", "--agent", "bob", "--remote", f"{first.address}/clan.git", expect=None)
        told = hostile.run("w", "sync", expect=None).stderr
    finally:
        for server in (first, other):
            server.shutdown()
            server.server_close()
    assert first.asked
    assert other.asked == []
    assert "The server names another address" in " ".join(told.split())
