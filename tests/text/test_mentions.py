"""The steps that a lesson names: found where they are meant, and nowhere else."""

import time

import pytest

from fleet.recall import triggers
from fleet.text.mentions import TRIGGERS_MAX, trigger


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Always pull before git push", "Bash:git push*"),
        ("Use `git commit --amend` only on what was not pushed", "Bash:git commit*"),
        ("Use `npm ci`, not `npm install`", "Bash:npm ci*, Bash:npm install*"),
        ("Run `npm run build` first", "Bash:npm run build*"),
        ("`cd web && make test` needs a server", "Bash:make test*"),
        ("`./gradlew test` needs Java 21", "Bash:./gradlew test*"),
        ("`sed -i ''` on macOS takes a suffix", "Bash:sed*-i*"),
        ("`CI=1 pytest -q` hides warnings", "Bash:pytest*"),
        ("In pytest, freeze the clock", "Bash:pytest*"),
        ("`gofmt -l .` only lists", "Bash:gofmt -l*"),
        ("Never edit `src/gen/api.ts` by hand", "Edit:src/gen/api.ts"),
        ("See src/app/x.py:12:3", "Edit:src/app/x.py"),
        ("Every `**/*.test.ts` needs a teardown", "Edit:*.test.ts"),
        ("A Makefile takes tabs", "Edit:Makefile"),
        ("Ask mcp__github__create_issue once", "mcp__github__create_issue"),
        ("推送前先 `git pull`", "Bash:git pull*"),
    ],
)
def test_a_step_that_is_named_is_found(text, found):
    assert trigger("", text) == found
    assert triggers.parse(found)


@pytest.mark.parametrize(
    "text",
    [
        "Use awk over sed for user-provided input substitution",
        "Check the CLI version before using --json",
        "Go test everything, make sure that it passes, and just run on",
        "Node.js and Next.js are not the same, e.g. here",
        "`response.json()` is a coroutine, `process.env` is not, and `foo bar` is nothing",
        "`git`, `ls`, `cat file`, `x` and `` are no steps",
        "version 1.2.3 of 10.0.0.1 is out...",
        "touch a.py, b.py, c.py, d.py and e.py",
        "../../etc/passwd.md",
        "",
    ],
)
def test_what_might_be_anything_is_no_step(text):
    assert trigger("", text) == ""


def test_a_trigger_that_was_given_is_the_trigger_whatever_the_words_name():
    assert trigger("Bash:make*", "Pull before `git push`") == "Bash:make*"


def test_the_right_way_names_steps_too_and_each_counts_once():
    assert trigger("", "Pull before git push", "`git pull` then `git push`") == "Bash:git push*, Bash:git pull*"


@pytest.mark.parametrize(
    "text", ["`" * 20_000, "a/" * 20_000, "`a.b" * 9_000, "git " * 20_000, "*." * 9_000, "@-" * 20_000 + ".py"]
)
def test_no_text_takes_long_and_what_is_found_is_a_trigger(text):
    began = time.process_time()
    found = trigger("", text, text)
    assert time.process_time() - began < 0.2
    assert len(triggers.parse(found)) <= TRIGGERS_MAX
