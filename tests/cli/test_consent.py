"""A yes to a remote outlives the database that can be made anew, and belongs to one machine and one remote."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

LESSON = "Quote every shell variable"


def agreed(stage, *put: str) -> list[str]:
    """Return what was agreed to in tank's workspace, after putting other words in its place."""
    with closing(sqlite3.connect(stage.folder / "tank/.fleet/local.db", isolation_level=None)) as connection:
        for words in put:
            connection.execute("UPDATE consent SET value = ? WHERE kind = 'remote'", (words,))
        return [row[0] for row in connection.execute("SELECT value FROM consent WHERE kind = 'remote'")]


@pytest.mark.parametrize("damage", ["gone", "random bytes", "empty"])
def test_a_lost_database_does_not_end_the_sharing(stage, damage: str):
    stage.join("tank")
    stage.run("tank", "sync")
    [database] = (stage.folder / "tank/.fleet").glob("state-*.db")
    if damage == "gone":
        database.unlink()
    else:
        database.write_bytes(bytes(range(256)) * 16 if damage == "random bytes" else b"")
    stage.correct("tank", LESSON)
    assert "synced" in stage.run("tank", "sync").stdout
    assert LESSON in stage.git("show", "fleet:patterns.md", where="clan.git")


def test_a_yes_is_for_one_remote_and_one_machine(stage):
    stage.join("tank")
    [given] = agreed(stage)
    machine, url = given.split()
    assert url == str(stage.remote)
    for other in (f"{machine} {url}-too", f"0123456789abcdef {url}", "", f"{machine}\n{url}"):
        agreed(stage, other)
        assert "nobody has agreed" in stage.run("tank", "sync", expect=2).stderr
    stage.run("tank", "sync", "--yes")
    stage.run("tank", "sync")


def test_a_yes_ends_none_that_another_machine_gave_in_the_same_folder(stage):
    """As where a folder is used in a container and outside of it, in turns."""
    stage.join("tank")
    [given] = agreed(stage)
    other = f"0123456789abcdef {stage.remote}"
    agreed(stage, other)  # from now on the yes is another machine's
    stage.run("tank", "sync", "--yes")
    assert sorted(agreed(stage)) == sorted([given, other])
    stage.git("init", "--quiet", "--bare", "new.git")
    stage.run("tank", "init", "--remote", str(stage.folder / "new.git"))
    assert sorted(agreed(stage)) == sorted([given.replace("clan.git", "new.git"), other])


def test_a_lost_yes_is_asked_for_again(stage):
    stage.join("tank")
    (stage.folder / "tank/.fleet/local.db").unlink()
    assert "nobody has agreed" in stage.run("tank", "sync", expect=2).stderr
    assert stage.git("for-each-ref", where="clan.git") == ""


def test_who_left_stays_away_though_the_database_is_lost(stage):
    stage.join("tank")
    stage.correct("tank", "Pin the image by its digest")
    stage.run("tank", "sync")
    stage.run("tank", "leave", "--yes")
    for path in (stage.folder / "tank/.fleet").glob("state-*"):
        path.unlink()
    stage.git("init", "--quiet", where="tank")
    stage.git("remote", "add", "origin", str(stage.remote), where="tank")
    before = stage.git("rev-parse", "fleet", where="clan.git")
    stage.correct("tank", LESSON)
    assert "nothing was sent" in stage.run("tank", "sync").stdout
    assert stage.git("rev-parse", "fleet", where="clan.git") == before
    stage.run("tank", "init", "--remote", str(stage.remote))
    assert "synced" in stage.run("tank", "sync").stdout


def test_another_branch_is_another_question(stage):
    stage.join("tank")
    toml = stage.folder / "tank/fleet.toml"
    toml.write_text(toml.read_text().replace('branch = "fleet"', 'branch = "main"'))
    assert 'branch = "main"' in toml.read_text()
    assert "branch main" in stage.run("tank", "sync", expect=2).stderr
    assert stage.git("for-each-ref", where="clan.git") == ""


def test_a_yes_that_came_with_the_repository_is_none(stage):
    """A clone may bring a `.fleet` along: what another machine agreed to counts for nothing here."""
    stage.join("tank")
    with closing(sqlite3.connect(stage.folder / "tank/.fleet/local.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM consent")
        for kind in ("remote", "semantic", "live", "reflect", "webhook"):
            for value in (str(stage.remote), f"0123456789abcdef {stage.remote}", f" {stage.remote}"):
                connection.execute("INSERT INTO consent VALUES (?, ?, '')", (kind, value))
    assert "nobody has agreed" in stage.run("tank", "sync", expect=2).stderr


def test_a_yes_to_an_embedding_endpoint_names_it(stage):
    stage.join("tank")
    toml, url = stage.folder / "tank/fleet.toml", "https://embed.example.org/v1"
    toml.write_text(toml.read_text().replace("[semantic]\n", f'[semantic]\nurl = "{url}"\n'))
    assert f"lessons are embedded by {url}" in stage.run("tank", "init", "--yes").stdout
    assert "lessons are embedded" not in stage.run("tank", "init", "--yes").stdout


@pytest.mark.parametrize("login", ["tank:hunter2hunter2@", "hunter2hunter2@"])
def test_a_login_in_an_address_stays_on_this_machine(stage, login: str):
    url = f"https://{login}127.0.0.1:9/clan.git?token=hunter2hunter2"
    told = stage.run("tank", "init", "--agent", "tank", "--remote", url)
    files = [path for path in (stage.folder / "tank").rglob("*") if path.is_file() and ".fleet" not in path.parts]
    assert 'remote = "https://127.0.0.1:9/clan.git"' in (stage.folder / "tank/fleet.toml").read_text()
    assert not [path for path in files if b"hunter2" in path.read_bytes()]
    assert "hunter2" not in told.stdout + told.stderr
    failed = stage.run("tank", "sync", expect=5)  # nobody listens there; that it got so far is the yes
    assert "hunter2" not in failed.stdout + failed.stderr
    assert "git ls-remote" not in failed.stderr, "a masked address cannot be asked for"
    assert "`fleet sync` tries it again" in failed.stderr
    stage.run("tank", "leave", "--yes")
    assert b"hunter2" not in b"".join(path.read_bytes() for path in (stage.folder / "tank/.fleet").glob("local.db*"))


@pytest.mark.parametrize("way", ["init", "config"])
def test_a_login_that_is_kept_is_used(stage, tmp_path, way):
    """The file names a bare address; what git is handed has the login that was typed."""
    url = "https://tank:hunter2hunter2@127.0.0.1:9/clan.git"
    stage.run("tank", "init", "--agent", "tank", *(("--remote", url) if way == "init" else ()))
    if way == "config":
        told = stage.run("tank", "config", "set", "share.remote", url)
        assert "hunter2" not in told.stdout + told.stderr + (stage.folder / "tank/fleet.toml").read_text()
        assert "127.0.0.1:9/clan.git" in stage.run("tank", "sync", expect=2).stderr, "it is no yes to that remote"
        stage.run("tank", "sync", "--yes", expect=5)  # as `init` does: nobody listens there
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "git").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {tmp_path}/calls\nexit 128\n')
    (bin_ / "git").chmod(0o755)
    stage.run("tank", "sync", expect=None, PATH=f"{bin_}:/usr/bin:/bin")
    assert url in (tmp_path / "calls").read_text()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:hunter2@h.example/v1?k=hunter2", "'https://***@h.example/v1?***'"),
        ("http://h.example/v1?k=hunter2", "'http://h.example/v1?***'"),
        ("h.example/v1", "'h.example/v1'"),
    ],
)
def test_a_refused_address_is_named_with_its_scheme_and_without_what_may_be_secret(stage, url, shown):
    stage.run("tank", "init", "--agent", "tank")
    done = stage.run("tank", "config", "set", "notify.webhook", url, expect=2)
    assert f"{shown} is no address that fleet sends to" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def pushed(stage, branch: str, **theirs: str) -> str:
    """Push files of a project to the bare repository; return the commit."""
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    stage.git("clone", "--quiet", str(stage.remote), "project")
    for name, text in theirs.items():
        (stage.folder / "project" / name).write_text(text)
    stage.git("checkout", "--quiet", "-b", branch, where="project")
    stage.git("add", "-A", where="project")
    stage.git("-c", "user.name=m", "-c", "user.email=m@localhost", "commit", "--quiet", "-m", "x", where="project")
    stage.git("push", "--quiet", "origin", branch, where="project")
    return stage.git("rev-parse", branch, where="clan.git")


@pytest.mark.parametrize("branch", ["fleet", "main"])
def test_a_branch_with_files_of_somebody_else_at_paths_of_ours_is_left_alone(stage, branch: str):
    theirs = {
        ".gitattributes": "*.bin -diff\n",
        "patterns.md": "# Ours\n",
        "patterns.jsonl": '{"a":1}\n',
        "README.md": "x",
    }
    before = pushed(stage, branch, **theirs)
    told = stage.run("tank", "init", "--agent", "tank", "--remote", str(stage.remote), "--branch", branch).stderr
    stage.correct("tank", LESSON)
    for said in (told, stage.run("tank", "sync", expect=3).stderr):
        assert "the branch holds .gitattributes, patterns.jsonl, patterns.md, and no line of fleet's" in said
    assert stage.git("rev-parse", branch, where="clan.git") == before
    stage.run("tank", "init", "--branch", "lessons")
    assert "1 line out" in stage.run("tank", "sync", "--yes").stdout


def test_a_branch_with_other_files_of_somebody_else_is_written_beside_them(stage):
    pushed(stage, "fleet", **{"README.md": "x\n", "setup.py": "y\n"})
    stage.join("tank")
    stage.correct("tank", LESSON)
    assert "1 line out" in stage.run("tank", "sync").stdout
    assert stage.git("show", "fleet:README.md", where="clan.git") == "x\n"


class Closed(BaseHTTPRequestHandler):
    """Handler of a git host that wants a login, and takes none."""

    def do_GET(self) -> None:
        """Ask for a login."""
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def host() -> Iterator[str]:
    """Serve such a host; yield the address of a repository there."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/clan.git"
        server.shutdown()


def test_a_host_that_wants_a_login_is_told_as_that_with_the_two_ways_to_give_one(stage):
    with host() as url:
        stage.run("tank", "init", "--agent", "tank", "--remote", url, expect=5)
        for prompt in ({}, {"GIT_ASKPASS": "/bin/echo", "SSH_ASKPASS": "/bin/echo"}):
            failed = stage.run("tank", "sync", expect=5, **prompt).stderr
            assert "could not read Username" in failed
            assert "askpass" not in failed, "nothing is asked, and nothing is said of what would ask"
            assert "`git config --global`" in failed
            assert "`fleet init --remote` with USER:TOKEN@" in failed


def test_what_the_projects_own_git_sets_is_not_used_and_that_is_said_where_the_remote_is_not_reached(stage):
    ssh = stage.folder / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    (stage.folder / "tank").mkdir()
    stage.git("init", "--quiet", where="tank")
    stage.git("config", "core.sshCommand", str(ssh), where="tank")
    stage.run("tank", "init", "--agent", "tank", "--remote", f"ssh://127.0.0.1:1{stage.remote}", expect=None)
    assert "what a project's .git/config sets is not used" in stage.run("tank", "sync", expect=5).stderr
    assert "synced" in stage.run("tank", "sync", GIT_SSH_COMMAND=str(ssh)).stdout
