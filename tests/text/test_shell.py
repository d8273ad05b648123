"""Shell commands: what they are about; errors: what makes two the same."""

import time

import pytest

from fleet.text import shell
from tests.pace import is_within, within

ERROR = "Exit code 1\nE   AssertionError: expected 3, got 4\n1 failed in 0.12s"


# Commands.

FAMILIES = {
    "pytest tests/x.py -k foo": "pytest",
    "python -m pytest -q": "pytest",
    "python3.11 -m pytest": "pytest",
    "PYTHONPATH=. .venv/bin/python -m pytest -q 2>&1 | tail -5": "pytest",
    "cd x && FOO=1 sudo -E timeout -k 5 60 npx jest --watch": "jest",
    "uv run pytest": "pytest",
    "uv run --with x pytest": "pytest",
    "poetry run pytest": "pytest",
    "time nice -n 10 make -j 4 test": "make test",
    "make -C sub": "make",
    "npm run build": "npm build",
    "npm t": "npm test",
    "npm --prefix web run test:unit": "npm test:unit",
    "cargo +nightly test --all": "cargo test",
    "(cd x; go test ./...)": "go test",
    "./gradlew test": "gradle test",
    "bash -c 'cd a && pytest -q'": "pytest",
    "bash ./run.sh a": "run.sh",
    "./run.sh": "run.sh",
    "python scripts/a.py --x": "python a.py",
    "python -c 'print(1)'": "python",
    "cat > f <<'EOT'\nmake && cargo test\nEOT\npytest f": "pytest",
    "cat <<EOT > f && pytest f\nmake\nEOT": "pytest",
    "pip install x && pytest": "pytest",
    "git -C x status": "git status",
    "if pytest; then echo ok; fi": "pytest",
    "echo 'a && make'": "echo",
    "docker compose up -d": "docker compose",
    "mise run lint": "mise lint",
    "# Let's push now\ngit push --force": "git push",
    "cd x\n# that's \"it\nnpm ci": "npm ci",
    "bash -c '# now\nmake test'": "make test",
    "cd x && \\\ngit \\\n  push --force": "git push",
    "curl http://x/#a 'b # c' \"d # e\" f#g $# && make": "make",
    "": "",
    "'": "",
    "&& | ;": "",
}


@pytest.mark.parametrize("command", FAMILIES)
def test_families(command):
    assert shell.Command(command).family == FAMILIES[command]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pytest", True),
        ("cd a && make", True),
        ("npm run test:unit", True),
        ("yarn run build", True),
        ("npx tsc --noEmit", True),
        ("cmake --build out -j4", True),
        ("cmake -S . -B out", False),
        ("python manage.py test", True),
        ("python3 manage.py runserver", False),
        ("docker build .", True),
        ("docker ps", False),
        ("git commit -m 'make tests'", False),
        ("cat Makefile", False),
        ("# don't\nmake test", True),
        ("ls # then make test", False),
        ("grep -rn pytest .", False),
        ("", False),
    ],
)
def test_builds(command, expected):
    assert shell.Command(command).is_build() == expected


def test_builds_are_what_the_settings_say():
    assert shell.Command("./ci/run.sh all").is_build(["ci/run.sh"])
    assert shell.Command("just ci").is_build(["just ci"])
    assert not shell.Command("just fmt").is_build(["just ci"])
    assert not shell.Command("pytest").is_build(["just ci", "", "  "])


def test_no_command_is_too_odd_or_too_long():
    for command in (
        "'" * 70_000,
        "\\" * 70_000,
        "a" * 70_000,
        "&&" * 70_000,
        "<<" * 70_000,
        "bash -c " * 9_000,
        " #" * 35_000,
        "\\\n" * 35_000,
        "'\"" * 30_001,
        "\0",
        "sudo",
    ):
        with within(0.2, command[:20]):
            read = shell.Command(command)
            _ = (read.family, read.is_build(), read.is_read_only)


@pytest.mark.parametrize(
    "command", ["ls > out", "sed -i s/a/b/ f", "find . -delete", "git commit -m x", "tee f", "ls $(make)"]
)
def test_what_may_change_something_does_not_only_look(command):
    assert not shell.Command(command).is_read_only


@pytest.mark.parametrize(
    "command",
    [
        "git remote add origin /srv/x.git",
        "git remote set-url origin /srv/x.git",
        "git -C sub remote remove origin",
        "git remote -v update",
        "git config user.email a@b.c",
        "git config --global user.email a@b.c",
        "git config --unset user.email",
        "git branch topic",
        "git branch -D topic",
        "git branch -r -d origin/topic",
        "git branch -m list show",
        "git remote add show x",
        "git",
        "git -C x",
    ],
)
def test_a_git_command_that_lists_things_may_change_them_too(command):
    assert not shell.Command(command).is_read_only


@pytest.mark.parametrize(
    "command",
    [
        "git remote",
        "git remote -v",
        "git -C sub remote show origin",
        "git remote get-url origin",
        "git config --list",
        "git config --global -l",
        "git config --get user.email",
        "git branch",
        "git branch -a -vv",
        "git branch --show-current",
        "git branch --list 'a*' | wc -l",
        "git --no-pager log -3 && git -c core.quotePath=off status",
    ],
)
def test_a_git_command_with_nothing_to_change_only_looks(command):
    assert shell.Command(command).is_read_only


def test_a_comment_hides_no_command_and_is_none():
    assert shell.Command("git status # that's it\ngit push").lines == ["git status", "git push"]
    assert not shell.Command("git status # that's it\ngit push").is_read_only
    assert shell.Command("make test # | tail").outcome("", is_error=False)
    assert shell.Command("fleet show p-1 # why").plain_words == []  # some shells read it as words


@pytest.mark.parametrize(
    ("command", "trigger"),
    [
        ("cd x && git push -f origin main", "Bash:git push *"),
        ("git add a && git commit -m b", "Bash:git add *"),
        ("python -m pytest -q tests 2>&1 | tail -3", "Bash:pytest *"),
        ("CI=1 npm run test -- --watch", "Bash:npm run test *"),
        ("sudo docker compose up", "Bash:docker compose up *"),
        ("gh pr create --draft", "Bash:gh pr create *"),
        ("gh pr -R private/place view", "Bash:gh pr *"),
        ("make check", "Bash:make check *"),
        ("# Don't force\ngit push", "Bash:git push *"),
        ("git status", ""),
        ("git -C private/place push", ""),
        ("ruff private/place", ""),
        ("./private-script.sh now", ""),
        ("python private.py", ""),
        ("rm -rf private", ""),
        ("", ""),
    ],
)
def test_the_trigger_of_what_a_command_taught_is_its_program_and_word_and_nothing_private(command, trigger):
    assert shell.Command(command).trigger == trigger


# Errors.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Error at 0x7ffe01 in /a/b.c:12", "Error at 0xdeadbeef in /c/d.c:7"),
        ("2026-01-01T10:00:00Z error: refused", "2026-02-03 11:12:13.5 error: refused"),
        ("error: took 1.5s", "error: took 300 ms"),
        ("error ‘x’ “y”", "error 'x' \"y\""),
        ("error in commit 3f9c1a2b", "error in commit 77aa0c1"),
        ("\x1b[31merror\x1b[0m: no", "error:   no"),
        ("error 550e8400-e29b-41d4-a716-446655440000", "error 123e4567-e89b-12d3-a456-426614174000"),
        ("fine\nok\nerror: x", "error: x\nall done\n-----"),
        ("error: x\nexit code 1", "error: x"),
        (
            "src/a/b.ts(3,4): error TS2304: Cannot find name 'q'.",
            "lib/c.ts(30,14): error TS2304: Cannot find name 'q'.",
        ),
    ],
)
def test_what_is_the_same_error(one, other):
    assert shell.Failure(one).fingerprint == shell.Failure(other).fingerprint != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("No module named 'a'", "No module named 'b'"),
        ("error: x", "error: y"),
        ("KeyError: 'region'", "KeyError: 'tenant'"),
        ("FAILED tests/a.py::test_one", "FAILED tests/a.py::test_two"),
        ("make: *** No rule to make target 'a'.", "make: *** No rule to make target 'b'."),
    ],
)
def test_what_is_another_error(one, other):
    assert shell.Failure(one).fingerprint != shell.Failure(other).fingerprint


@pytest.mark.parametrize(
    "summary",
    [
        "Found 1 error.\n[*] 1 fixable with the `--fix` option.",
        "Found 0 warnings and 1 error.\nFinished in 5ms on 1 file with 93 rules",
        "Checked 1 file in 2ms. No fixes applied.\nFound 1 error.\n  × Some errors were emitted while running checks.",
        "error: Recipe `test` failed on line 2 with exit code 1",
        'error: script "test" exited with code 1',
        'task: Failed to run task "test": exit status 1',
        " ELIFECYCLE  Command failed with exit code 1.",
        "npm error Lifecycle script `lint` failed with error:\nnpm error code 1\nnpm error location /x",
        "npm error Test failed.  See above for more details.",
        " ERROR  run failed: command  exited (1)",
        "make[1]: *** [a.mk:3: x] Error 2\nmake: Target 'all' not remade because of errors.",
        "ninja: build stopped: subcommand failed.",
        "FAILURE: Build failed with an exception.\nExecution failed for task ':test'.\n> There were failing tests. See",
        "BUILD FAILED in 3s",
        "Build FAILED.\n    0 Warning(s)\n    1 Error(s)",
        "  py: FAIL code 1 (0.1=setup[0.02]+cmd[0.08] seconds)\n  evaluation failed :( (0.15 seconds)",
        "nox > Command pytest -q failed with exit code 1\nnox > Session test failed.",
        "ERROR: Build did NOT complete successfully",
        "FAILED | 0 passed | 1 failed (3ms)\n\nerror: Test failed",
        "FAILURES!\nTests: 3, Assertions: 3, Failures: 1.",
        "3 examples, 1 failure",
        "==== 1 failed, 2 passed in 0.1s ====",
        "0% tests passed, 1 tests failed out of 1\nErrors while running CTest",
        "ruff.................Failed\n- hook id: ruff\n- exit code: 1",
        "Error: (none)",
    ],
)
def test_a_line_that_only_says_that_something_failed_is_no_error(summary):
    """Else all failures of a tool are one to fleet where no other line has a word such as `error`."""
    one, other = (shell.Failure(f"`{name}` imported but unused\n{summary}") for name in ("os", "sys"))
    assert one.fingerprint != other.fingerprint
    assert shell.Failure(f"error: x\n{summary}").fingerprint == "error: x"


def test_the_line_shown_says_what_went_wrong():
    assert shell.Failure(ERROR).line == "E   AssertionError: expected 3, got 4"
    assert shell.Failure("Exit code 1").line == ""
    assert shell.Failure("one\ntwo\n").line == "two"
    assert shell.Failure("--- FAIL: TestA (0.0s)\nFAIL\nexit status 1\nFAIL\n").line == "--- FAIL: TestA (0.0s)"
    assert shell.Failure("a.go:3:1: unused: x\n[lint] ERROR task failed").line == "a.go:3:1: unused: x"


@pytest.mark.parametrize("letter", ["a", "/", "0", " ", "'", "-", "a/", "1:", "e-", ".", "=", "a.", "error "])
def test_64_kib_of_one_letter_are_read_at_once(letter):
    assert shell.Failure("warm").fingerprint
    text = letter * (65_536 // len(letter))
    best = min(_timed(text) for _ in range(3))
    assert is_within(best, 0.05)


def _timed(text):
    began = time.process_time()
    assert isinstance(shell.Failure(text).fingerprint, str)
    return time.process_time() - began


# Exit codes that something masks.


@pytest.mark.parametrize(
    "command",
    [
        "make test | tail -20", "make test 2>&1 | tee log | grep FAIL", "pytest; echo done", "pytest || true",
        "pytest\necho $?", "cd x && make test | head", "! make test", "if make test; then echo y; fi", "make test &",
        "bash -c 'make test | tail -3'", "cargo build 2>&1 |& tail", "npm test || echo failed",
        "make && pytest | tail -1",
        "for f in a b; do pytest $f; echo $f; done", "timeout 60 npx jest --ci | cat",
    ],
)  # fmt: skip
def test_what_masks_an_exit_code(command):
    assert shell._is_masked(command, 0)


@pytest.mark.parametrize(
    "command",
    [
        "make test", "cd x && make test", "echo 'a | b; c' && pytest", "make test && echo done", "make test > log 2>&1",
        "make test && ls | head", "set -o pipefail; make test | tail",
        "set -eo pipefail\nmake test | tail\necho ok",
        "pytest; exit $?", "make test || exit 1", "pytest -k 'a or b'", "", "|", "bash -c 'make test'", "make test;",
        "pip install x 2>&1", "git add . && git commit -m 'a; b | c'",
    ],
)  # fmt: skip
def test_what_masks_none(command):
    assert not shell._is_masked(command, 0)


@pytest.mark.parametrize(
    ("printed", "is_ok"),
    [
        ("== 2 failed, 10 passed in 3.1s ==", False), ("== 12 passed in 3.1s ==", True), ("...\nEXIT: 1", False),
        ("error: in a fixture\n== 12 passed in 3.1s ==\nexit code 0", True), ("FAIL\tx/y\t0.1s", False),
        ("ok  \tx/y\t0.1s\nok  \tx/z\t0.2s", True), ("ok  \tx/y\t0.1s\nFAIL\tx/z [build failed]", False),
        ("a.go:3:5: undefined: x", False), ("src/a.ts(3,1): error TS2304: no x", False), ("0 issues.", True),
        ("test result: ok. 3 passed; 0 failed", True), ("test result: FAILED. 3 passed; 1 failed", False),
        ("make: *** [test] Error 2", False), ("Traceback (most recent call last):\nKeyError: 'x'", False),
        ("npm ERR! code ELIFECYCLE", False), ("BUILD SUCCESSFUL in 3s", True), ("All checks passed!", True),
        ("Found 3 errors.", False), ("Success: no issues found in 3 files", True), ("", None), ("see the log", None),
        ("3 tests, 0 failures", True), ("collecting errors handling module", None),
        ("bash: pytest: command not found", False), ("✖ 1 problem (0 errors, 1 warning)", True),
        ("✖ 3 problems (0 errors, 3 warnings)\n  0 errors and 2 warnings potentially fixable", True),
        ("✖ 3 problems (1 error, 2 warnings)\n  0 errors and 1 warning potentially fixable", False),
        ("✖ 1 problem (0 errors, 1 warning)\n\nESLint found too many warnings (maximum: 0).", False),
    ],
)  # fmt: skip
def test_how_a_masked_build_ended_is_what_it_printed(printed, is_ok):
    assert shell.Command("make test | tail").outcome(printed, is_error=False) is is_ok
    assert shell.Command("make test | grep x").outcome(printed, is_error=True) is is_ok


def test_an_exit_code_that_nothing_masks_counts_whatever_was_printed():
    assert shell.Command("make test").outcome("12 passed", is_error=True) is False
    assert shell.Command("make test").outcome("2 failed", is_error=False) is True


def test_of_another_masked_command_an_error_is_one_and_a_success_unknown():
    assert shell.Command("curl x | jq .").outcome("error", is_error=False) is None
    assert shell.Command("curl x | jq .").outcome("", is_error=True) is False


@pytest.mark.parametrize(
    "printed",
    [
        "error: cherry-pick is already in progress",
        "build\tpending\t0\nlint\tfail\t12s",
        "queued job 12\nError: Unknown flag",
    ],
)
def test_an_error_is_a_failure_whatever_is_pending_beside_it(printed):
    assert shell.Command("gh pr checks 12").outcome(printed, is_error=True) is False


@pytest.mark.parametrize("printed", ["build\tpending\t0\thttps://x", "Status: IN_PROGRESS", "pod is not ready"])
def test_a_command_that_asked_too_early_has_not_failed_but_a_build_has(printed):
    assert shell.Command("gh pr checks 12").outcome(printed, is_error=True) is None
    assert shell.Command("make test").outcome(printed, is_error=True) is False


@pytest.mark.parametrize("letter", ["1", "a", ":", " ", "(", "F", "1:"])
def test_any_output_is_judged_at_once(letter):
    with within(0.3):
        shell.Command("make test | tail").outcome(letter * 65_536, is_error=False)
        shell.Command("make test | tail").outcome(f"{letter * 250}\n" * 300, is_error=False)


@pytest.mark.parametrize(
    ("command", "looks"),
    [
        ("git config --global --get user.name", True),
        ("git branch -a --list x", True),
        ("git branch -r --contains abc", True),
        ("git config --global user.name x", False),
        ("git branch -a x", False),
        ("git push", False),
        ("git", False),
    ],
)
def test_options_before_what_git_lists_change_nothing(command, looks):
    assert shell.Command(command).is_read_only is looks
