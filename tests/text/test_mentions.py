"""The steps that a lesson names: found where they are meant, and nowhere else."""

import pytest

from fleet.recall import triggers
from fleet.text.mentions import TRIGGERS_MAX, guardable, trigger
from tests.pace import within


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Always pull before git push", "Bash:git push*"),
        ("Use `git commit --amend` only on what was not pushed", "Bash:git commit*"),
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
        ("Escape the slashes in a sed expression", "Bash:sed *"),
        ("Quote every jq filter", "Bash:jq *"),
        ("Never edit what is in folder `db/migrations`", "Edit:db/migrations/*"),
        ("What is in the db/migrations directory was run already", "Edit:db/migrations/*"),
        ("The `src/gen/` folder is made by a script", "Edit:src/gen/*"),
        ("Run ./scripts/deploy.sh with the VPN up", "Bash:deploy.sh *"),
        ("Before a release run `tools/notes.py`", "Bash:notes.py *"),
        ("`python tools/pack.py out` needs the fonts", "Bash:pack.py out*"),
        ("`./start.sh dev` opens a port", "Bash:start.sh dev*"),
        ("Edit ./scripts/deploy.sh in the template", "Edit:scripts/deploy.sh"),
        ("The list stands in scripts/deploy.sh", "Edit:scripts/deploy.sh"),
        ("Run `alembic upgrade head` with the VPN up", "Bash:alembic upgrade*"),
        ("Run `mkdocs` from the root", "Bash:mkdocs *"),
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
        "Ask for the directory structure/tree, and run it in the `web/` directory",
        "A date expression, a python script and a find command",
        "Changes in client/server or in `feature/login` go there",
        "Never run migrations by hand, run them over the bastion",
        "Use `const`, never `let`, and prefer `map` over `reduce`",
        "Run `SELECT 1`, run `main()`, run `ls` and run `/status` in the chat",
        "We prefer tabs over spaces; loop over awk output",
        "",
    ],
)
def test_what_might_be_anything_is_no_step(text):
    assert trigger("", text) == ""


@pytest.mark.parametrize(
    ("text", "right", "found"),
    [
        ("Use pnpm in this repository, never npm", "pnpm install", "Bash:npm, Bash:npm *"),
        ("Use docker compose, not docker-compose", "", "Bash:docker-compose, Bash:docker-compose *"),
        ("Use `npm ci`, not `npm install`", "", "Bash:npm install*"),
        ("Use npm ci instead of npm install", "npm ci", "Bash:npm install*"),
        ("Instead of `npm install` use `pnpm install`", "", "Bash:npm install*"),
        ("Run make test rather than pytest", "", "Bash:pytest*"),
        ("Don't use `pip install`; use `uv pip install`", "", "Bash:pip install*"),
        ("Do not run git push before make test", "", "Bash:git push*"),
        ("Never `npm` or `yarn` here, pnpm only", "", "Bash:npm, Bash:npm *, Bash:yarn, Bash:yarn *"),
        ("Don't use docker run here, docker compose is the way", "docker compose up", "Bash:docker run*"),
        ("Instead of npm run build use make build", "", "Bash:npm run*"),
        ("Never git push --force", "", "Bash:git push* --force, Bash:git push* --force *"),
        (
            "Use `git push --force-with-lease`, never `git push --force`",
            "",
            "Bash:git push* --force, Bash:git push* --force *",
        ),
        ("Edit src/api.yaml, never src/gen/api.ts", "", "Edit:src/gen/api.ts"),
        ("Install with the lock file", "npm ci, not npm install", "Bash:npm install*"),
        ("`npm test` fails with: no module x — `npm install` provided it", "", "Bash:npm test*"),
        ("If `make test` fails, `make migrate` was forgotten", "", "Bash:make test*"),
        ("`go build` fails unless `go build -tags x`", "", "Bash:go build*"),
        ("Never run `psql` against prod", "", "Bash:psql *"),
        ("Run `pg_dump --no-owner` and not `pg_dump`", "", "Bash:pg_dump *"),
        ("Prefer uv sync over pip install", "", "Bash:pip install*"),
        ("`chmod 777` is forbidden", "", "Bash:chmod 777*"),
        ("Never `cat .env`", "", "Bash:cat .env*"),
        ("Never run ./scripts/reset.sh here", "", "Bash:reset.sh *"),
        ("Never run `tools/reset.sh --hard`", "", "Bash:reset.sh* --hard, Bash:reset.sh* --hard *"),
        ("Run scripts/gen.sh, never edit `scripts/gen.sh`", "", "Edit:scripts/gen.sh"),
        ("Use npm ci, never plain npm", "", "Bash:npm, Bash:npm *"),
        # What is no order, or names no step right there, leaves things as they are.
        ("CI does not run `make test`, so run it yourself", "", "Bash:make test*"),
        ("pytest does not collect tests in `src/x.py`", "", "Edit:src/x.py, Bash:pytest*"),
        ("Run `make lint`, not just `make test`", "", "Bash:make lint*, Bash:make test*"),
        ("Never push without running make test", "", "Bash:make test*"),
        ("Never make assumptions about git push", "", "Bash:git push*"),
    ],
)
def test_the_step_that_went_wrong_is_the_trigger_and_the_right_way_only_where_none_is_named(text, right, found):
    assert trigger("", text, right) == found
    assert triggers.parse(found)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Build with vite here, never webpack", "vite build"),
        ("Format with ruff, never black", "ruff format"),
        ("Use bun, not node", "bun run"),
        ("Never force-push; open a pull request", "gh pr create"),
        ("Run scripts with tsx", "tsx x.ts, not ts-node"),
    ],
)
def test_where_words_warn_of_what_is_no_known_step_the_right_way_is_no_trigger(text, right):
    assert trigger("", text, right) == ""


@pytest.mark.parametrize("wrong", ["npm install", "Ran `npm install`", "I used npm install --save and it made a lock"])
def test_the_command_of_what_went_wrong_is_the_trigger(wrong):
    assert trigger("", "Use pnpm here", "pnpm install", wrong).startswith("Bash:npm install*")


@pytest.mark.parametrize(
    ("text", "right", "found"),
    [
        ("Run `make lint` first", "", ""),
        ("Never push without running make test", "", ""),
        ("Use pnpm here", "pnpm install", ""),
        ("Pull before git push", "git pull, then git push", ""),
        ("Pull before git push", "git pull first", "Bash:git push*"),
        ("Use pnpm here, never npm", "pnpm install", "Bash:npm, Bash:npm *"),
        ("Use npm ci, never plain npm", "", ""),
        ("Run `pg_dump --no-owner` and not `pg_dump`", "", ""),
        ("Run ./scripts/deploy.sh with the VPN up", "", ""),
        ("Run `./deploy.sh --dry-run` first, never `./deploy.sh`", "", ""),
        ("Run `make clean`, never ./scripts/clean.sh", "", "Bash:clean.sh *"),
        ("Prefer uv sync over pip install", "", "Bash:pip install*"),
        ("`make test` fails with: no table — it passed after `make migrate`", "", "Bash:make test*"),
    ],
)
def test_a_guard_never_stops_what_the_right_way_says(text, right, found):
    assert guardable("", text, right) == found


def test_a_trigger_that_was_given_is_the_trigger_whatever_the_words_name():
    assert trigger("Bash:make*", "Pull before `git push`") == "Bash:make*"


def test_the_right_way_names_steps_too_and_each_counts_once():
    assert trigger("", "Pull before git push", "`git pull` then `git push`") == "Bash:git push*, Bash:git pull*"


@pytest.mark.parametrize(
    "text",
    [
        *("never use npm or " * 9_000, "not `npm` " * 9_000, "instead of " * 9_000, "use npm never " * 9_000),
        *("`" * 20_000, "a/" * 20_000, "`a.b" * 9_000, "git " * 20_000, "*." * 9_000, "@-" * 20_000 + ".py"),
    ],
)
def test_no_text_takes_long_and_what_is_found_is_a_trigger(text):
    with within(0.5):
        found = trigger("", text, text, text)
        guardable("", text, text, text)
    assert len(triggers.parse(found)) <= TRIGGERS_MAX
