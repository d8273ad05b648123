"""Help: groups, examples that hold, topics, the page of a manual, what a shell completes; and ``fleet config``."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer.main

from fleet.cli import commands
from fleet.hosts.install import INSTALLABLE
from fleet.store import config

ROOT = Path(__file__).resolve().parents[2]
GROUP = typer.main.get_command(commands.app)
LESSON = "Quote every variable in a shell script"


# --- help -----------------------------------------------------------------------------------------------------------


def listed(shown: str) -> list[str]:
    """Return the commands that a help screen lists, in its groups."""
    below = shown.partition("Every day:")[2].partition("\n\n`fleet`")[0]
    return re.findall(r"(?m)^  ([a-z-]+)  +\S", below)


def test_the_first_screen_has_twelve_commands_at_most_and_the_second_has_all_in_groups(stage):
    first, every = stage.run(".", "--help").stdout, stage.run(".", "help", "all").stdout
    assert listed(first) == list(filter(set(listed(first)).__contains__, commands.MODULES))
    assert set(listed(first)) == set(commands.FIRST)
    assert len(listed(first)) <= 12
    assert listed(every) == list(commands.MODULES)
    assert [group for group in commands.GROUPS if f"\n{group.capitalize()}:\n" in every] == list(commands.GROUPS)
    assert stage.run(".", "help").stdout == first
    one = stage.run(".", "help", "memory").stdout.partition("Memory:")[2]
    assert re.findall(r"(?m)^  ([a-z-]+)  +\S", one) == list(commands.GROUPS["memory"])
    assert len(first.splitlines()) <= 60


def examples() -> list[str]:
    rows = (ROOT / "fleet/cli/data/examples.txt").read_text("utf-8").splitlines()
    return [row for row in rows if not row.startswith("#")]


def test_each_command_has_an_example_and_its_help_shows_it(stage):
    assert {row.split()[1] for row in examples()} == set(commands.MODULES)
    for name in ("correct", "live", "config"):
        shown = stage.run(".", name, "--help").stdout
        wanted = [row for row in examples() if row.split()[1] == name]
        assert all(f"  {row}\n" in shown for row in wanted)
        assert shown == stage.run(".", "help", name).stdout


def test_each_example_is_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in ("clan.tar.gz", "tasks/lessons.md"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    for row in examples():
        _, name, *words = shlex.split(re.split(" [<>] ", row)[0])
        command = GROUP.get_command(None, name)
        context = command.make_context(name, words)  # raises for what it does not know
        if words and hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, words)
            command.make_context(name, words)


def test_a_topic_is_a_page_of_the_documentation(stage):
    pages = sorted(each.stem for each in (ROOT / "docs").glob("*.md") if each.stem != "README")
    assert ", ".join(pages) in stage.run(".", "help", "all").stdout
    assert stage.run(".", "help", "concepts").stdout == (ROOT / "docs/concepts.md").read_text("utf-8")
    both = stage.run(".", "help", "inbox").stdout
    assert both.startswith("Usage: fleet inbox")
    assert "fleet help inbox.md" in both
    assert stage.run(".", "help", "inbox.md").stdout.startswith("# ")
    assert "  fleet live serve --port" in stage.run(".", "help", "live", "serve").stdout
    wrong = stage.run(".", "help", "concept", expect=2).stderr
    assert "Did you mean concepts" in wrong


def test_a_word_is_known_in_any_case_as_a_heading_has_it(stage):
    for said in (["Every", "day"], ["Share"], ["Correct"], ["Security"]):
        assert stage.run(".", "help", *said).stdout == stage.run(".", "help", *map(str.lower, said)).stdout


def test_an_unknown_word_leads_to_what_is_spelt_alike_or_to_the_pages_that_speak_of_it_or_to_the_list(stage):
    for word, page in (("webhook", "security"), ("fleet.toml", "configuration")):
        assert f"`fleet help {page}.md`" in stage.run("w", "help", word, expect=2).stderr
    for word in ("password", "conflict", "lesson", "tag"):
        assert "These pages speak of it: `fleet help " in stage.run("w", "help", word, expect=2).stderr
    assert "Did you mean undo?" in stage.run("w", "help", "undoo", expect=2).stderr
    assert "`fleet help all`" in stage.run("w", "help", "zzzz", expect=2).stderr


def test_the_index_of_the_documentation_names_every_page_and_leads_nowhere_else():
    text = (ROOT / "docs/README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)\)", text))
    assert {each for each in linked if "://" not in each and not (ROOT / "docs" / each).exists()} == set()
    pages = {each.relative_to(ROOT / "docs").as_posix() for each in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    assert pages <= linked


def test_the_manual_is_what_the_commands_say():
    made = subprocess.run([sys.executable, "demo/manual.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "docs/fleet.1").read_text("utf-8"), "make manual writes it anew"
    assert all(f".SS {name}\n" in made.stdout.replace("\\-", "-") for name in commands.MODULES)


# --- completion -----------------------------------------------------------------------------------------------------


def completed(stage, *words: str) -> list[str]:
    """Return what bash is offered for the last of some words."""
    asked = {"COMP_WORDS": " ".join(["fleet", *words]), "COMP_CWORD": str(len(words))}
    done = stage.run("w", _FLEET_COMPLETE="complete_bash", **asked)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_ids_types_and_the_like_are_completed(w):
    lesson = w.correct("w", LESSON)
    retired = w.correct("w", "Pin the version of every action")
    w.run("w", "retire", retired)
    w.run("w", "discover", "--problem", "p", "--solution", "s")
    assert completed(w, "edit", "p-") == [lesson]
    assert completed(w, "edit", lesson[:9]) == [lesson]
    assert completed(w, "restore", retired[:9]) == completed(w, "restore", "") == [retired]
    for words in (["promote"], ["guard"], ["feedback"], ["correct", "--same"], ["merge", lesson]):
        assert completed(w, *words, "") == [lesson], "no discovery"
    w.run("w", "init", "--agent", "tank")
    w.run("w", "edit", lesson, "--set", "category=shell", "--set", "tags=ci,lint")
    for command in ("patterns", "gossip", "search", "promote", "correct"):
        assert completed(w, command, "--agent", "") == ["tank", "velma"]
    assert completed(w, "--agent", "ta") == ["tank"]
    w.correct("w", "Quote every path in a shell")
    assert completed(w, "mutate", "")[:2] == ["M1", "M2"]
    assert completed(w, "patterns", "--category", "") == completed(w, "correct", "--category", "") == ["shell"]
    for command in ("patterns", "gossip", "correct", "discover"):
        assert completed(w, command, "--tag", "") == ["ci", "lint"]
    assert completed(w, "init", "--install", "c") == ["claude-code", "codex"]
    assert [each[:2] for each in completed(w, "show", "d-")] == ["d-"]
    assert completed(w, "gossip", "--type", "g") == ["gotcha"]
    assert completed(w, "install", "") == [*INSTALLABLE]
    assert completed(w, "config", "set", "recall.at") == ["recall.at_prompts"]
    assert completed(w, "help", "conce") == ["concepts"]
    assert completed(w, "inbox", "r") == ["reject"]
    assert completed(w, "discover", "--type", "w") == ["workaround"]
    assert completed(w, "undo", "discover-")[0].startswith("discover-")
    assert completed(w, "prom") == ["promote"]


ZSH_EVALUATES = """
_arguments() { local words="${1#*: :((}"; eval "offered=( ${words%))} )"; printf '%s\\n' "${offered[@]}"; }
eval "$OFFERS"
"""
"""What zsh's own `_arguments` does with what a completion script gives it; double quotes are the same in bash."""


def test_a_shell_runs_nothing_of_what_it_is_offered(w):
    lessons = {w.correct("w", "Quote every path", "--category", "shell")}
    for expansion in ("$(touch ran)", r"\$(touch ran)", r"\`touch ran`", r"\\$(touch ran)", '"$(touch ran)'):
        text = f"Don't [/b] write {expansion} in a recipe"
        lessons.add(w.correct("w", text, "--category", f"make{expansion}", "--tag", f"ci{expansion}"))
    for words, wanted in (("show p-", lessons), ("patterns --category ", {"shell"}), ("patterns --tag ", set())):
        asked = w.run("w", _FLEET_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=f"fleet {words}")
        env = {"OFFERS": asked.stdout, "PATH": os.environ["PATH"]}
        zsh = ["bash", "-c", f"_files() {{ :; }}{ZSH_EVALUATES}"]
        done = subprocess.run(zsh, cwd=w.folder, env=env, capture_output=True, text=True, check=True)
        assert (done.stderr, asked.stderr) == ("", "")
        assert {each.partition(":")[0] for each in done.stdout.splitlines()} == wanted
        assert {*completed(w, *words.split(" "))} - {""} == wanted, "bash puts the word on the line as it is"
        assert asked.stdout.count("Don’t (/b) write") == max(len(wanted) - 1, 0)
    assert not (w.folder / "ran").exists()


def test_where_nothing_can_be_read_nothing_is_offered_and_nothing_is_said(stage):
    (stage.folder / "w").mkdir()
    assert completed(stage, "edit", "p-") == [""]
    assert list((stage.folder / "w").iterdir()) == []


# --- filters --------------------------------------------------------------------------------------------------------


def test_gossip_is_narrowed_by_type_tag_agent_and_day(w):
    w.run("w", "init", "--agent", "tank")
    w.run("w", "discover", "--problem", "one", "--solution", "s", "--type", "gotcha", "--tag", "ci")
    w.run("w", "discover", "--problem", "two", "--solution", "s", "--type", "tip", "--agent", "tank")

    def told(*words: str) -> list[str]:
        found = json.loads(w.run("w", "gossip", "--json", *words).stdout)["discoveries"]
        return [each["problem"] for each in found]

    assert told() == ["two", "one"]
    assert told("--type", "gotcha") == told("--tag", "CI") == told("--agent", "velma") == ["one"]
    assert told("--since", "2020-01-01", "-n", "1") == told("--since", "3h", "-n", "1") == ["two"]
    assert told("--since", (datetime.now(UTC) + timedelta(days=2)).strftime("%Y-%m-%d")) == []
    assert "no discovery is like that" in w.run("w", "gossip", "--tag", "none").stdout
    assert "in the years 2000 to 2100" in w.run("w", "gossip", "--since", "1999-01-01", expect=2).stderr
    assert "takes a day" in w.run("w", "gossip", "--since", "yesterweek", expect=2).stderr
    assert "takes a day" in w.run("w", "gossip", "--tag", "nowhere", "--since", "yesterweek", expect=2).stderr
    assert "gotcha" in w.run("w", "gossip", "--type", "rumour", expect=2).stderr


def test_a_search_is_narrowed_by_agent_and_day(w):
    w.run("w", "init", "--agent", "tank")
    first = w.correct("w", LESSON)
    second = w.correct("w", "Quote every path in a shell script", "--agent", "tank")

    def told(*words: str) -> set[str]:
        done = w.run("w", "search", "quote", "--kind", "pattern", "--json", *words, expect=None)
        return {each["id"] for each in json.loads(done.stdout)["results"]}

    assert told() == {first, second}
    assert told("--agent", "tank") == {second}
    assert told("--since", "2020-01-01") == told("--since", "1d") == told("--since", "2w") == {first, second}
    for filter_ in ("--tag", "--type", "--category"):  # an option of the lists, and no word
        assert "`fleet patterns`" in w.run("w", "search", "quote", filter_, "ci", expect=2).stderr
        assert w.run("w", "search", "--", "quote", filter_).stdout
    assert w.run("w", "search", "quote", "--no-verify").stdout, "any other is a word"
    assert told("--since", (datetime.now(UTC) + timedelta(days=2)).strftime("%Y-%m-%d")) == set()


# --- config ---------------------------------------------------------------------------------------------------------


def test_a_setting_is_read_set_and_taken_back_and_the_rest_of_the_file_stays(w):
    path = w.folder / "w/fleet.toml"
    path.write_text("# mine\n" + path.read_text() + "\n# the end\n")
    before = path.read_text()
    assert w.run("w", "config", "get", "recall.at_prompts").stdout == "3\n"
    w.run("w", "config", "set", "recall.at_prompts", "2")
    after = path.read_text()
    changed = [(a, b) for a, b in zip(before.splitlines(), after.splitlines(), strict=True) if a != b]
    assert changed == [
        (
            "# at_prompts = 3                 # lessons at a prompt that they are about, at most; 0: none",
            "at_prompts = 2  # lessons at a prompt that they are about, at most; 0: none",
        )
    ]
    assert w.run("w", "config", "get", "recall.at_prompts").stdout == "2\n"
    shown = json.loads(w.run("w", "config", "--json").stdout)["settings"]
    assert {each["name"] for each in shown if each["is_set"]} == {"recall.at_prompts", "share.branch"}
    assert "recall.at_prompts" in w.run("w", "config", "get", "recall").stdout
    assert w.run("w", "config", "get", "attempts.builds").stdout == "not set\n"
    w.run("w", "undo")
    assert path.read_text() == before


def test_a_wrong_key_or_value_is_refused_and_changes_nothing(w):
    path = w.folder / "w/fleet.toml"
    before = path.read_bytes()
    for words, told in (
        (("recal.at_promts", "1"), "Did you mean recall.at_prompts"),
        (("recall.at_prompts", "7"), "cannot be '7': it is a whole number from 0 to 3"),
        (("recall.at_prompts", "many"), "cannot be 'many'"),
        (("recall.at_prompts", "-1"), "cannot be '-1': it is a whole number from 0 to 3"),
        (("at_prompts", "1"), "Did you mean recall.at_prompts"),
        (("recall", "1"), "is a section"),
        (("share.fields", '["wrong","sauce"]'), "sauce"),
        (("promotion.mode", "sometimes"), 'cannot be \'sometimes\': it is one of "auto", "suggest", "off"'),
        (("share.author", "Velma"), "it is 'Name <address>'"),
        (("sleep.zone", "Mars/X"), "no time zone is called 'Mars/X'; one is called Europe/Berlin"),
        (("live.url", "http://x"), "'http://x' is no address that fleet sends to: wss://HOST"),
        (("live.url", "ws://fleet.example"), "wss://HOST, or ws:// on this machine"),
        (("semantic.url", "http://evil.example"), "https://HOST, or http:// on this machine"),
        (("reflect.url", "nonsense"), "https://HOST"),
        (("notify.webhook", "ftp://x"), "https://HOST"),
        (("share.branch", "a..b"), "share.branch cannot be that: 'a..b' is no name of a branch"),
        (("share.branch", ""), "is no name of a branch"),
        (("share.remote", "-x"), "share.remote cannot be that: '-x' starts with a dash"),
        (("live.token_env", "HOME"), "cannot be 'HOME': it is the name of a variable, FLEET_ and capitals"),
        (("live.room", "A B"), "it is a short name"),
        (("share.remote",), "`set KEY VALUE`"),
    ):
        shown = w.run("w", "config", "set", *words, expect=2).stderr
        assert told in shown
        assert "Nothing was changed" in shown
    assert path.read_bytes() == before


def test_a_secret_in_a_wrong_value_is_screened_before_it_is_cut(w):
    secret = "gh" + "p_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5"
    (w.folder / "w/fleet.toml").write_text(f'[promotion]\nmode = "{"x" * 30} {secret}"\n')
    done = w.run("w", "doctor", expect=None)
    assert "cannot be" in done.stdout + done.stderr
    assert secret[:8] not in done.stdout + done.stderr


def test_addresses_and_zones_that_can_be_are_set_and_unset(w):
    for name, value in (
        ("sleep.zone", "Europe/Berlin"),
        ("live.url", "wss://fleet.example.org"),
        ("semantic.url", "http://127.0.0.1:8080/v1"),
        ("notify.webhook", "https://hooks.example.org/x"),
    ):
        for each in (value, ""):
            w.run("w", "config", "set", name, each)
            assert w.run("w", "config", "get", name).stdout.strip() == each


def test_a_file_that_cannot_be_read_may_name_a_remote_so_a_sync_does_not_say_that_none_is_named(w):
    (w.folder / "w/fleet.toml").write_text('[share]\nremote = "')
    told = w.run("w", "sync", expect=3).stdout
    assert "fleet.toml cannot be used as it is, and may name a remote. All is kept here" in told
    w.git("-C", str(w.folder / "w"), "init", "--quiet")
    w.git("-C", str(w.folder / "w"), "remote", "add", "origin", str(w.remote))
    assert "may name a remote" in w.run("w", "sync", "--yes", expect=3).stdout, "no other place is offered instead"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("[share]\nremote = 5\n", "[share] remote cannot be 5: it is a text; until it is mended, nothing is shared"),
        ("[share]\nbranch = ['x']\n", "[share] branch cannot be ['x']: it is a text; until it is mended, nothing is"),
        ("share = 'x'\n", "there is no section [share]"),
    ],
)
def test_what_names_the_clan_and_cannot_be_used_is_named_and_nothing_is_sent(w, row, told):
    w.join("w")
    (w.folder / "w/fleet.toml").write_text(row)
    w.correct("w", "Quote every variable in a shell script")
    done = w.run("w", "sync", expect=3)
    assert told in done.stderr
    assert "nothing was sent: fleet.toml cannot be used as it is, and may name a remote" in done.stdout
    assert w.git("for-each-ref", where="clan.git") == ""


def test_a_switch_that_is_neither_true_nor_false_sends_no_session_to_a_model(w):
    (w.folder / "w/fleet.toml").write_text("[reflect]\noff = 'yes'\n[semantic]\noff = 'yes'\n")
    for name in ("reflect", "semantic"):
        done = w.run("w", "config", "get", f"{name}.off")
        assert done.stdout.strip() == "true"
        assert f"[{name}] off cannot be 'yes': it is true or false; until it is mended, true holds" in done.stderr


def test_an_empty_settings_file_moves_nothing(w):
    w.run("w", "config", "set", "files.home", "fleet-agents")
    w.correct("w", "Quote every variable in a shell script")
    (w.folder / "w/fleet.toml").write_text("")
    w.run("w", "status")
    assert (w.folder / "w/fleet-agents/velma/corrections.md").exists()
    assert not (w.folder / "w/agents").exists() or not list((w.folder / "w/agents").rglob("corrections.md"))


def test_a_sync_that_failed_is_told_until_one_is_answered(w):
    w.run("w", "init", "--remote", str(w.folder / "nowhere.git"), "--yes", expect=5)
    w.run("w", "sync", expect=5)
    assert any(each.startswith("the last sync failed: ") for each in json.loads(w.run("w", "--json").stdout)["silent"])
    assert json.loads(w.run("w", "status", "--json").stdout)["sync_failed"]
    w.git("init", "--quiet", "--bare", str(w.folder / "nowhere.git"))
    w.run("w", "sync")
    assert json.loads(w.run("w", "--json").stdout)["silent"] == []
    assert json.loads(w.run("w", "status", "--json").stdout)["sync_failed"] == ""


def test_a_workspace_without_its_own_folder_says_who_logged_here_and_that_nobody_is_named(w):
    w.correct("w", "Quote every variable in a shell script")
    shutil.rmtree(w.folder / "w/.fleet")
    assert "nobody is named here" in w.run("w", "status").stdout
    checks = json.loads(w.run("w", "doctor", "--json", expect=1).stdout)["findings"]
    assert ["velma" in each["means"] for each in checks if each["check"] == "context"] == [True]


@pytest.mark.parametrize("how", ["undo", "purge"])
def test_a_discovery_that_was_taken_back_is_not_called_known(w, how):
    told = ("discover", "--problem", "the cache is stale", "--solution", "remove it")
    entry = json.loads(w.run("w", *told, "--json").stdout)["id"]
    w.run("w", *{"undo": ["undo", "discover"], "purge": ["purge", entry, "--yes"]}[how])
    # Purged before it was ever sent: its own line is gone, and only what takes it back stands.
    assert "was taken back, and the same words stay so. Nothing was logged" in w.run("w", *told, expect=3).stderr


def test_an_import_of_the_project_passes_over_what_fleet_wrote_itself(w):
    w.correct("w", "Quote every variable in a shell script")
    w.run("w", "sync")
    (w.folder / "w/lessons.md").write_text("- Always pin the version of every action.\n")
    done = json.loads(w.run("w", "import", ".", "--json").stdout)
    assert (done["patterns"], done["patterns_new"]) == (1, 1)


def test_init_in_a_workspace_says_that_it_is_one_and_advertises_nothing_again(w):
    told = w.run("w", "init").stdout
    assert "is a workspace already" in told
    assert "optional:" not in told
    told = w.run("w", "init", "--remote", "/nowhere/clan.git", "--yes", expect=5).stdout
    assert 'fleet.toml has share.remote = "/nowhere/clan.git" now' in told
    assert "/nowhere/clan.git" in w.run("w", "config", "get", "share.remote").stdout
    w.run("w", "undo")
    assert w.run("w", "config", "get", "share.remote").stdout == "\n"


def test_another_remote_can_be_taken_back_and_a_branch_of_code_is_not_taken_without_a_yes(w):
    w.git("init", "--quiet", "--bare", str(w.remote))
    w.run("w", "init", "--remote", str(w.remote))
    before = (w.folder / "w/fleet.toml").read_bytes()
    told = w.run("w", "init", "--remote", "/nowhere/clan.git", expect=5).stdout
    assert f'now, and had "{w.remote}"; `fleet undo` takes that back' in told
    w.run("w", "undo")
    assert (w.folder / "w/fleet.toml").read_bytes() == before
    w.git("-C", str(w.folder / "w"), "init", "--quiet", "--initial-branch=main")
    w.git("-C", str(w.folder / "w"), "remote", "add", "origin", str(w.remote))
    (w.folder / "w/main.py").write_text("")
    w.git("-C", str(w.folder / "w"), "add", "main.py")
    w.git("-C", str(w.folder / "w"), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "code")
    assert "files of the project's own" in w.run("w", "init", "--branch", "main", expect=2).stderr
    assert (w.folder / "w/fleet.toml").read_bytes() == before


def test_taking_another_remote_back_names_what_came_from_it_and_gives_the_yes_back_only_where_nothing_did(w):
    other = w.folder / "other"
    for remote in (w.remote, other):
        w.git("init", "--quiet", "--bare", str(remote))
    w.run("v", "init", "--agent", "tank", "--remote", str(other))
    id_ = w.correct("v", "Keep the ledger of the customer in the blue cluster")
    w.run("v", "sync")
    w.run("w", "init", "--remote", str(w.remote))
    w.run("w", "sync")
    w.run("w", "init", "--remote", "/nowhere/clan.git", expect=5)
    assert f"{w.remote} is agreed to again" in w.run("w", "undo").stdout
    w.run("w", "sync")
    told = w.run("w", "init", "--remote", str(other)).stdout
    assert f"what comes from {other} stays here, also after an undo" in told
    told = w.run("w", "undo").stdout
    assert f"left: what came from {other} stays here, and a sync sends it to {w.remote}" in told
    assert "nobody has agreed" in w.run("w", "sync", expect=2).stderr
    assert id_ in w.run("w", "sync", "--dry-run").stdout
    w.run("w", "config", "set", "share.remote", "/nowhere/clan.git")
    assert "left:" not in w.run("w", "undo").stdout, "nothing came from there"


def test_a_file_that_has_a_setting_in_a_form_of_its_own_is_left_alone(w):
    path = w.folder / "w/fleet.toml"
    for text in (
        "recall.at_prompts = 1\n",
        "recall = { at_prompts = 1 }\n",
        "[recall]\nat_prompts = [\n1,\n]\n",
        "[recall\n",
    ):
        path.write_text(text)
        assert "edit it. Nothing was changed" in w.run("w", "config", "set", "recall.at_prompts", "2", expect=2).stderr
        assert path.read_text() == text


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("", "share.fields", ["wrong", 'a"b']),
        ("[hook]\n[recall]\nat_prompts = 1 # 2\n[live]\n", "recall.at_prompts", 3),
        ("\ufeff[hook]\r\n# quiet = false # so\r\n", "hook.quiet", True),
        ("[share] # travels\n", "share.wait_s", 1.5),
        ("[keep]\nprivate = true", "triggers.strong", ["nein", "#"]),
        ("[attempts]\n", "attempts.names", {"M4": "Change the tool"}),
    ],
)
def test_any_file_keeps_all_else_that_it_says(text, name, value):
    section, _, key = name.partition(".")
    after = config.with_value(text, name, value)
    said, wanted = (tomllib.loads(each.removeprefix("\ufeff")) for each in (after, text))
    wanted.setdefault(section, {})[key] = value
    assert said == wanted
    for comment in ("# 2", "# so", "# travels"):
        assert (comment in text) == (comment in after)
    assert ("\r\n" in text) == ("\r\n" in after)


def test_a_workspace_whose_settings_file_is_gone_goes_on_and_says_so(w):
    lesson = w.correct("w", LESSON)
    (w.folder / "w/fleet.toml").unlink()
    for words in ((), ("status",)):
        assert "fleet.toml is not there" in w.run("w", *words).stderr
    w.run("w", "init")
    assert "is not there" not in w.run("w", "status").stderr
    assert LESSON in w.run("w", "show", lesson).stdout


def test_what_is_known_may_be_counted_again_without_its_words_and_a_retired_one_is_not_forgotten(w):
    lesson = w.correct("w", LESSON)
    done = w.run("w", "correct", "--wrong", "w", "--right", "r", "--same", lesson, "--json").stdout
    assert (json.loads(done)["id"], json.loads(done)["seen"]) == (lesson, 2)
    assert "Nothing was logged" in w.run("w", "correct", "--wrong", "w", "--right", "r", expect=2).stderr
    w.run("w", "retire", lesson)
    assert "all were retired" in w.run("w", "patterns").stdout


def test_no_sentence_about_a_command_is_cut_off(stage):
    shown = stage.run("elsewhere", "help", "all").stdout
    assert "..." not in shown.partition("Every day:")[2].replace("(d-...)", "").replace("(c-...)", "")


def test_a_host_whose_client_is_no_reflector_is_set_up_without_an_offer_to_ask_it(w, monkeypatch):
    assert "fleet reflect --use claude" in w.run("w", "install", "claude-code").stderr
    monkeypatch.setitem(INSTALLABLE, "codex", INSTALLABLE["codex"]._replace(client="foo"))
    assert "--use foo" not in w.run("w", "install", "codex").stderr
