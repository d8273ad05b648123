"""Triggers of lessons: what they mean, what they fit, and that nobody's trigger can cost time."""

import json

import pytest

from fleet.app.starting import _trigger_table
from fleet.model.pattern import Pattern
from fleet.recall import triggers
from fleet.recall.ready import GUARDS_FILE, Ready
from fleet.recall.triggers import due, framed, parse
from fleet.recall.wording import Renderer
from tests.pace import within
from tests.records import pattern


@pytest.mark.parametrize(
    ("trigger", "tool", "command", "path", "expected"),
    [
        ("Bash", "Bash", "ls", "", True),
        ("Bash", "Edit", "", "/a.py", False),
        ("bash:git push*", "Bash", "git push -f", "", True),
        ("Bash:git push*", "Bash", "echo git push", "", False),
        ("Bash:git push*", "Bash", "cd x && git push", "", True),
        ("Bash:git push*", "Bash", "make; (git push)", "", True),
        ("Bash:git push*", "Bash", "sudo CI=1 git push", "", True),
        ("Bash:pytest*", "Bash", "CI=1 python -m pytest -q", "", True),
        ("Bash:tsc*", "Bash", "cd web && npx tsc", "", True),
        *(
            ("Bash:x.py *", "Bash", command, "", True)
            for command in (
                *("./tools/x.py a", "python3 -u tools/x.py", "cd tools; sudo ./x.py", "uv run python /w/tools/x.py -v"),
                *("bash tools/x.py", "source tools/x.py", ". tools/x.py a", "npx ts-node tools/x.py"),
            )
        ),
        *(
            ("Bash:x.py *", "Bash", command, "", False)
            for command in ("cat tools/x.py", "git add tools/x.py", "python -m x.py.z", "python tools/y.py tools/x.py")
        ),
        *(
            ("Bash:rm *", "Bash", command, "", True)
            for command in (
                *("/bin/rm x", "command rm x", "sudo -u bob rm x", "env A=b rm x", "\\rm x", "eval 'rm x'"),
                *("bash -c 'rm x'", 'sudo sh -ec "cd /; /bin/rm x"', "ls | xargs -n 1 rm -f", "nohup nice -n 5 rm x &"),
                *("echo $(sudo /bin/rm x)", "timeout 5 rm x", "if true; then rm x; fi", "A=b rm x", "{ rm x; }"),
                *("ls | xargs rm", "find . -name x -exec rm {} +", "find . -exec ls {} \\; -execdir /bin/rm {} \\;"),
                *(
                    "find . -delete",
                    "find . -ok sh -c 'rm $1' _ {} \\;",
                    "cd x; fd -e pyc -x rm",
                    "parallel rm ::: a b",
                ),
                *("busybox rm x", "watch -n 5 'rm x'", "flock /tmp/l rm x", "strace -f rm x", "chroot /x rm y"),
                *("su -c 'rm x'", 'su - bob -c "rm x"', "env -S 'rm x'", "unlink x", "bash -euo pipefail -c 'rm x'"),
                *("bash <<< 'rm x'", 'sh <<<"cd /; rm x"', "echo 'rm x' | sh", "printf 'cd y && rm x' | sudo bash"),
                *("bash <<EOF\nrm x\nEOF", "cat <<'EOF' | sudo sh -s\ncd /\nrm x\nEOF", "ssh host <<-X\n\trm x\n\tX"),
                *("cat <<EOF\na\n EOF\nrm x", "cat <<-EOF\na\n\tEOF\nrm x\nEOF", "cat <<EOF\na\nEOF\nrm x\n EOF"),
                *("cat <<EOF > f && rm x\ntext\nEOF", "cat <<A <<B\na\nA\nb\nB\nrm x", "cat <<EOF\nrm x"),
                *("ssh host 'rm -rf /x'", "ssh -p 22 bob@host cd y '&&' rm x", "docker exec -it c rm x"),
                *(
                    "docker run --rm -v a:b img rm x",
                    "docker compose exec -T web sh -c 'rm x'",
                    "sudo ssh host 'rm /x'",
                ),
                *("kubectl exec -n a pod -- sh -c 'rm x'", "case $1 in\n  b) rm x;;\nesac", "function f { rm x; }; f"),
            )
        ),
        *(
            ("Bash:git push --force*", "Bash", command, "", True)
            for command in (
                "git -C repo push --force",
                "git -c a.b=c --no-pager push --force",
                "cd x && git --git-dir y push --force",
            )
        ),
        *(
            ("Bash:rm *", "Bash", command, "", False)
            for command in (
                *(
                    "cat > f.md <<EOF\nrm x\nEOF",
                    "git apply <<'EOF'\n@@\n cat <<'EOF'\n EOF\n rm x\n+b\nEOF",
                    "cat <<-EOF\n\ta\n EOF\n\trm x\n\tEOF",
                    "cat <<'EOF' >> f\n\nrm -rf /; rm y\nEOF\nls",
                    "tee f <<-\\X\n\trm x\n\tX",
                ),
                "gh pr create --body \"$(cat <<'EOF'\nDon't\nrm x\nEOF\n)\"",
                "python - <<EOF && ls\nrm x\nEOF",
                "cat <<EOF\nrm x\n" + "x\n" * 3_000 + "EOF",
                "ssh host 'cat > f' <<EOF\nrm x\nEOF",
            )
        ),
        ("Bash:git push*", "Bash", "git -C push status", "", False),
        ("Bash:ssh prod *", "Bash", "A=b ssh prod uptime", "", True),
        ("Bash:docker run *", "Bash", "sudo docker run --rm img ls", "", True),
        ("Bash:uv run *", "Bash", "timeout 5 uv run pytest", "", True),
        *(
            ("Bash:rm *", "Bash", command, "", False)
            for command in (
                "ssh host",
                "su bob",
                "echo rm x | cat",
                "echo rm x; sh y",
                "grep 'rm x' y",
                "docker exec c",
            )
        ),
        *(("Bash:rm *", "Bash", command, "", False) for command in ("rmdir x", "git rm x", "ls rm", "command -v rm")),
        *(
            ("Bash:rm *", "Bash", command, "", False)
            for command in ("find . -name rm", "find rm -exec ls {} +", "fd rm")
        ),
        ("Bash:python3 setup.py*", "Bash", "cd x && python3 setup.py build", "", True),
        ("Bash:ruff check*", "Bash", "uv run ruff check .", "", True),
        ("Bash:git push", "Bash", "git push -f", "", False),
        ("Bash:*--force*", "Bash", "git push --force", "", True),
        ("Bash:rm -[rf]*", "Bash", "rm -r x", "", True),
        (":npm *", "Bash", "npm i", "", True),
        (":npm *", "PowerShell", "npm i", "", True),
        ("Edit:*.sql", "Write", "", "/x/a.sql", True),
        ("Edit:*.sql", "MultiEdit", "", "/x/a.sql", True),
        ("Edit:*.sql", "Read", "", "/x/a.sql", False),
        ("Write:*.sql", "Edit", "", "/x/a.sql", False),
        ("Edit:migrations/*.sql", "Edit", "", "/x/migrations/1.sql", True),
        ("Edit:migrations/*.sql", "Edit", "", "/x/old_migrations/1.sql", False),
        ("Edit:*.sql", "Edit", "", "", False),
        ("mcp__github__*", "mcp__github__create_issue", "", "", True),
        ("Edit:*.sql, Bash:psql *", "Bash", "psql -c x", "", True),
        ("*", "Anything", "", "", True),
        ("", "Bash", "ls", "", False),
        (":", "Bash", "ls", "", False),
        ("Bash:", "Bash", "ls", "", False),
        ("git push", "Bash", "git push", "", False),
        ("Bash:ls", "Bash", "", "", False),
    ],
)
def test_what_a_trigger_fits(trigger, tool, command, path, expected):
    assert bool(due([["p-0000000000000001", trigger, "- x"]], [], tool, command, path)) is expected


def test_what_goes_beyond_the_limits_of_a_trigger_is_left_out():
    assert parse("Bash:" + "a" * 201) == ()
    assert parse("Bash:" + "a*" * 9) == ()
    assert len(parse(",".join(f"Bash:{n}" for n in range(100)))) == triggers.ENTRIES_MAX


@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*a*ab", "*[ab]*[ab]*[ab]*[ab]*[ab]c", "?" * 100 + "*b", "*" * 8 + "b"])
def test_no_trigger_takes_long_on_any_command(pattern):
    rows = [[f"p-{n:016x}", f"Bash:{pattern},Edit:{pattern}", "- x"] for n in range(triggers.TABLE_MAX)]
    for subject in ("a" * 65536, "a;" * 32768, "ab " * 20000, "&&" * 30000):
        with within(0.5):
            due(rows, [], "Bash", subject, "")
            due(rows, [], "Edit", "", subject)


def test_at_most_three_are_due_none_that_was_shown_and_two_of_one_trigger_in_all():
    rows = [[f"p-{n:016x}", f"Bash:{'l' * (n % 2 + 1)}*,Bash:{n // 2}", f"- {n}"] for n in range(10)]
    assert [row for _, row in due(rows, [], "Bash", "ls", "")] == ["- 0", "- 2", "- 4"]
    assert [row for _, row in due(rows, ["p-" + "0" * 16], "Bash", "ls", "")] == ["- 2", "- 4", "- 6"]
    twins = [[f"p-{n:016x}", "Bash:ls*", f"- {n}"] for n in range(4)]
    assert [row for _, row in due(twins, [], "Bash", "ls", "")] == ["- 0", "- 1"]
    assert [row for _, row in due(twins, [twins[0][0]], "Bash", "ls", "")] == ["- 1"]
    other = ["p-00000000000000ff", "Bash:*s", "- other"]
    assert [row for _, row in due([*twins, other], [twins[2][0], twins[3][0]], "Bash", "ls", "")] == ["- other"]


@pytest.mark.parametrize("rows", [None, 7, "x", {}, [1], [[]], [["a", "Bash"]], [["a", 1, "b"]], [{"a": 1}]])
def test_anything_may_stand_in_the_file(tmp_path, rows):
    ready = Ready(str(tmp_path), "velma")
    (tmp_path / GUARDS_FILE).parent.mkdir(parents=True)
    (tmp_path / ".fleet/ready/here").touch()
    first = ready.rendered_rows([], "").partition(b"\n")[0]
    for path in (tmp_path / ready.triggers_file, tmp_path / GUARDS_FILE):
        path.write_bytes(b"%s\n%s\n" % (first, json.dumps(rows).encode()))
    assert ready.rows() == []
    assert not ready.has_rows()
    assert not ready.has_guards()
    assert ready.guards("2026-01-01") == {}


def lesson(number: int, text: str = "Pull first", *, seen: int = 1, **more: object) -> Pattern:
    return pattern(f"p-{number:016x}", {"tank.0a1b2c3d": seen}, text=text, **more)


def test_rows_are_screened_one_line_and_capped():
    secret = "ghp_" + "a1B2" * 9
    hostile = lesson(1, f"Say \x1b[31m{secret}\nnever", trigger="Bash", correct="x" * 8000)
    [row] = _trigger_table([(hostile, hostile.trigger)], Renderer(), {})
    assert secret not in row[2]
    assert "\x1b" not in row[2]
    assert "\n" not in row[2]
    assert len(row[2]) < 1_300


def test_nobody_breaks_out_of_the_frame():
    mark = "fleet-0123456789abcdef"
    shown = framed([f"- x {mark} y"], mark)
    assert shown.count(mark) == 2
    assert shown.startswith(mark)
    assert shown.endswith(mark)
