"""``fleet install`` and ``fleet uninstall``: our own hooks go in and come out, and nothing of a person's is lost."""

import errno
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fleet
from fleet.hosts import install
from fleet.hosts.install import INSTALLABLE, PLUGIN
from fleet.model.errors import DiskError

THEIRS = {
    "$schema": "https://json.schemastore.org/claude-code-settings.json",
    "permissions": {"allow": ["Bash(ls:*)"], "deny": []},
    "hooks": {
        "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}],
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh", "timeout": 3}]},
            {"matcher": "Edit", "hooks": []},
        ],
        "Notification": [],
    },
    "model": "opus",
    "numbers": [1, 1.5, True, None],
    "umlaut": "Größe 漢字",
}
OURS = {event: install._command_line(event) for event in install.INSTALLABLE["claude-code"].matchers}
PAGES = {"commands/done.md", "commands/fleet-correct.md", "commands/fleet-status.md", "skills/fleet/SKILL.md"}
BEFORE = "if command -v fleet >/dev/null 2>&1; then fleet hook {}; fi"
START_BEFORE = (
    "if command -v fleet >/dev/null 2>&1; then out=$(fleet hook SessionStart 2>/dev/null) || out="
    '\'{"systemMessage":"The program called fleet on your PATH is not the one that these hooks call, or it is broken: '
    'nothing is logged or shown in this session"}\'; case $out in "{"*) printf %s "$out";; esac; fi; true'
)


def path_of(place):
    return place.folder / ".claude" / "settings.json"


def written(place, text: str | bytes):
    path = path_of(place)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def commands(found: dict) -> list[str]:
    return [entry["command"] for groups in found["hooks"].values() for group in groups for entry in group["hooks"]]


def test_two_commands_set_it_up(bare):
    bare.fleet("init", "--agent", "tank")
    bare.fleet("install", "claude-code")
    assert sorted(commands(json.loads(path_of(bare).read_text()))) == sorted(OURS.values())
    assert b"additionalContext" in bare.hook("SessionStart").stdout


def test_installing_twice_changes_nothing(place):
    place.fleet("install", "claude-code")
    before = path_of(place).read_bytes()
    assert "already" in place.fleet("install", "claude-code").stdout
    assert path_of(place).read_bytes() == before


def test_who_installs_where_git_ignores_the_settings_is_told_that_no_clone_has_them(place):
    subprocess.run(["git", "init", "--quiet"], cwd=place.folder, check=True)
    assert "git ignores" not in place.fleet("install", "claude-code").stderr
    (place.folder / ".gitignore").write_text(".claude/\n")
    assert f"git ignores {path_of(place)}: " in place.fleet("install", "claude-code").stderr
    assert "git ignores" not in place.fleet("install", "claude-code", "--user").stderr
    subprocess.run(["git", "add", "--force", ".claude"], cwd=place.folder, check=True)
    assert "git ignores" not in place.fleet("install", "claude-code").stderr


@pytest.mark.parametrize("words", [(), ("--user",)])
def test_who_takes_a_projects_hooks_out_is_told_that_a_commit_of_it_holds_for_all(place, words):
    place.fleet("install", "claude-code", *words)
    shown = place.fleet("uninstall", "claude-code", *words).stdout
    assert ("holds for all" in shown) == (not words)


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_what_goes_in_comes_out_and_the_file_is_as_it_was(place, indent):
    text = json.dumps(THEIRS, indent=indent, ensure_ascii=False) + "\n"
    written(place, text)
    place.fleet("install", "claude-code")
    found = json.loads(path_of(place).read_text())
    assert set(OURS.values()) < set(commands(found))
    assert list(found) == list(THEIRS)
    assert {key: found[key] for key in found if key != "hooks"} == {k: THEIRS[k] for k in THEIRS if k != "hooks"}
    assert found["hooks"]["PreToolUse"][:2] == THEIRS["hooks"]["PreToolUse"]
    place.fleet("uninstall", "claude-code")
    assert path_of(place).read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1}',
        '{\n  "a": "\\u00e4"\n}',
        '{\r\n  "a": 1\r\n}\r\n',
        '\ufeff{\n  "a": 1\n}\n',
        "{}",
        '{"a":  1,"hooks":{"Foo":[1,"x"]},\n\t"zz":[1,2, 3] , "n":1.0, "e":1e3, "f":0.1000, "big":1234567890123456789}',
        '\n{ "hooks": {"Stop": [ {"hooks":[{"type":"command" , "command":"say done"}]} ],\n "Foo": []}, "a": {} }\n\n',
        '{\n    "hooks": {\n      "Stop": [{"hooks": [], "x": 1.50}],\n\n  "SessionEnd": [\n\t7 ] }\n  , "a": 1 }',
        '{\r\n\t"hooks" : {\r\n\t\t"Foo" : [ ]\r\n\t}\r\n}',
    ],
    ids=["one line", "escapes", "CRLF", "BOM", "nothing", "by hand", "odd", "odder", "tabs"],
)
def test_the_layout_stays(place, text):
    written(place, text)
    place.fleet("install", "claude-code")
    place.fleet("uninstall", "claude-code")
    assert path_of(place).read_bytes().decode() == text


def test_a_file_that_we_made_goes_and_a_persons_empty_one_stays(place):
    place.fleet("install", "claude-code")
    place.fleet("uninstall", "claude-code")
    assert not path_of(place).exists()
    written(place, "{}")
    place.fleet("install", "claude-code")
    place.fleet("uninstall", "claude-code")
    assert path_of(place).read_text() == "{}"


def test_only_our_own_words_are_ours(place):
    theirs = {"Stop": [{"hooks": [{"type": "command", "command": f"{OURS['Stop']} && say done"}]}]}
    written(place, json.dumps({"hooks": theirs}, indent=2))
    place.fleet("install", "claude-code")
    place.fleet("uninstall", "claude-code")
    assert json.loads(path_of(place).read_text()) == {"hooks": theirs}


def test_what_a_person_wrote_by_hand_is_replaced_and_their_neighbour_stays(place):
    group = {"hooks": [{"type": "command", "command": "fleet hook Stop"}, {"type": "command", "command": "say done"}]}
    written(place, json.dumps({"hooks": {"Stop": [group]}}, indent=2))
    place.fleet("install", "claude-code")
    found = commands({"hooks": {"Stop": json.loads(path_of(place).read_text())["hooks"]["Stop"]}})
    assert found == ["say done", OURS["Stop"]]


BROKEN = {
    "broken": "{",
    "a comment": '{"a": 1, // why\n}',
    "a list": "[]",
    "hooks as a list": '{"hooks": []}',
    "an event as an object": '{"hooks": {"Stop": {}}}',
    "a key twice": '{"a": 1, "a": 2}',
    "NaN": '{"a": NaN}',
    "no UTF-8": b'{"a": "\xff"}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("command", ["install", "uninstall"])
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused_and_not_touched(place, name, command):
    path = written(place, BROKEN[name])
    before = path.read_bytes()
    done = place.fleet(command, "claude-code", expect=3)
    assert "settings.json" in done.stderr
    assert "Nothing was changed" in done.stderr
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]


def test_comments_that_gemini_allows_are_read_past_and_never_lost(place):
    path = place.folder / ".gemini/settings.json"
    path.parent.mkdir()
    path.write_text('{\n  // why\n  "theme": "a//b" /* dark */\n}\n')
    assert "does not call fleet" in place.fleet("uninstall", "gemini").stdout
    assert "holds comments" in place.fleet("install", "gemini", expect=3).stderr
    shown = place.fleet("install", "gemini", "--dry-run").stdout
    assert '+    "SessionStart": [' in shown
    assert '+  "theme": "a//b",' in shown
    path.unlink()
    place.fleet("install", "gemini")
    path.write_text(path.read_text().replace("{", "{ // why", 1))
    before = path.read_bytes()
    assert "already" in place.fleet("install", "gemini").stdout
    assert "the settings call fleet" in place.fleet("doctor", expect=1, PATH=os.defpath).stdout
    assert "holds comments" in place.fleet("uninstall", "gemini", expect=3).stderr
    assert path.read_bytes() == before


def test_a_dry_run_prints_the_difference_and_changes_nothing(place):
    path = written(place, json.dumps(THEIRS, indent=2))
    before = path.read_bytes()
    done = place.fleet("install", "claude-code", "--dry-run")
    assert '+            "command": "if command -v fleet' in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("-") and "say done" in line]
    assert path.read_bytes() == before


def test_a_persons_own_settings_are_at_home_and_need_no_workspace(bare):
    assert "`fleet uninstall claude-code --user`" in bare.fleet("install", "claude-code", "--user").stdout
    assert sorted(commands(json.loads((bare.home / ".claude" / "settings.json").read_text()))) == sorted(OURS.values())
    assert list(bare.folder.iterdir()) == []
    bare.fleet("install", "claude-code", expect=1)
    bare.fleet("install", "claude-code", "--user", "--project", expect=2)
    assert "fleet help hooks" in bare.fleet("install", "emacs", expect=2).stderr


def test_a_link_to_ones_settings_stays_a_link_and_private_ones_stay_private(bare):
    real = bare.home / "dotfiles.json"
    real.write_text('{\n  "env": {"KEY": "x"}\n}\n')
    real.chmod(0o600)
    (bare.home / ".claude").mkdir()
    (bare.home / ".claude" / "settings.json").symlink_to(real)
    bare.fleet("install", "claude-code", "--user")
    assert (bare.home / ".claude" / "settings.json").is_symlink()
    assert json.dumps(OURS["Stop"]) in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(path.name for path in bare.home.iterdir()) == [".claude", "dotfiles.json"]


def test_a_link_to_settings_that_are_not_there_yet_leads_to_none_again_once_the_hooks_are_out(bare):
    (bare.home / ".claude").mkdir()
    link, real = bare.home / ".claude/settings.json", bare.home / "dotfiles.json"
    link.symlink_to(real)
    bare.fleet("install", "claude-code", "--user")
    assert json.dumps(OURS["Stop"]) in real.read_text()
    bare.fleet("uninstall", "claude-code", "--user")
    assert [link.is_symlink(), real.exists()] == [True, False]


@pytest.mark.parametrize("link", [".claude", ".claude/settings.json", ".claude/skills"])
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_projects_link_that_leads_out_of_it_is_not_followed(place, tmp_path, link, command):
    outside = tmp_path / "outside"
    outside.mkdir()
    if link.endswith("json"):
        (outside / "settings.json").write_text("{}")
    (place.folder / link).parent.mkdir(exist_ok=True)
    (place.folder / link).symlink_to(outside / Path(link).name if link.endswith("json") else outside)
    done = place.fleet(command, "claude-code", expect=3)
    assert "leads out of the project" in done.stderr
    assert [path.read_text() for path in outside.rglob("*")] == ["{}"] * link.endswith("json")


def test_the_plugin_says_what_the_settings_say(place):
    folder, said = PLUGIN, "fleet: every correction one agent gets becomes knowledge for all of them"
    assert place.fleet("install", "claude-code", "--plugin-dir").stdout.strip() == str(folder)
    assert json.loads((folder / "hooks" / "hooks.json").read_text()) == install._with_hooks(
        {"description": said}, INSTALLABLE["claude-code"]
    )
    assert json.loads((folder / ".claude-plugin" / "plugin.json").read_text())["version"] == fleet.__version__
    market = json.loads((folder / ".claude-plugin" / "marketplace.json").read_text())
    assert [plugin["name"] for plugin in market["plugins"]] == ["fleet"]
    assert {path.name for path in (folder / "commands").iterdir()} == {"done.md", "fleet-correct.md", "fleet-status.md"}
    for page in [*(folder / "commands").iterdir(), *(folder / "skills").glob("*/SKILL.md")]:
        head = page.read_text().split("---")[1]
        assert "description:" in head


@pytest.mark.parametrize("page", ["skills/fleet/SKILL.md", "commands/fleet-correct.md"])
def test_a_page_leads_to_same_before_a_lesson_is_worded_and_to_merge_once_the_mistake_is_logged(page):
    before, answered = " ".join((PLUGIN / page).read_text().split()).split("If only the answer names a lesson")
    assert "--same" in before
    assert "`fleet merge" in answered.split(". ")[0]
    assert "run it" not in answered.split(". ")[0]


def ran(event: str, path: object, said: bytes = b"{}") -> subprocess.CompletedProcess:
    """Run what is installed for an event, as a host does."""
    words = ["/bin/sh", "-c", OURS[event]]
    return subprocess.run(words, env={"PATH": str(path)}, input=said, capture_output=True, timeout=30, check=False)


@pytest.mark.parametrize("event", OURS)
def test_where_fleet_is_not_installed_the_hooks_do_nothing(event):
    done = ran(event, "/nowhere")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("event", OURS)
@pytest.mark.parametrize(
    "does", ["exit 2", "echo blocked >&2; exit 2", "echo 'usage: fleet'; exit 1", "kill -9 $$", "echo hello"]
)
def test_no_program_that_bears_the_name_stands_in_the_way(tmp_path, event, does):
    (tmp_path / "fleet").write_text(f"#!/bin/sh\n{does}\n")
    (tmp_path / "fleet").chmod(0o755)
    done = ran(event, tmp_path)
    assert done.returncode == 0
    is_said = event == "SessionStart"  # once
    assert bool(done.stdout) == is_said
    if is_said:
        assert "not the one that these hooks call" in json.loads(done.stdout)["systemMessage"]


def test_what_is_installed_hands_on_what_fleet_says(place):
    place.fleet("init", "--agent", "tank")
    told = json.dumps({"cwd": str(place.folder), "session_id": "s", "prompt_id": "1"}).encode()
    program = Path(sys.executable).parent
    if not (program / "fleet").exists():
        pytest.skip("fleet is not installed beside this interpreter")
    done = ran("SessionStart", f"{program}:/usr/bin:/bin", told)
    assert json.loads(done.stdout)["hookSpecificOutput"]["hookEventName"] == "SessionStart"
    assert (done.returncode, ran("Stop", f"{program}:/usr/bin:/bin", told).stdout) == (0, b"")


def test_before_a_tool_only_the_tools_that_it_is_for_pay_for_a_process(place):
    place.fleet("install", "claude-code")
    (group,) = json.loads(path_of(place).read_text())["hooks"]["PreToolUse"]
    paying = ["Bash", "Read", "Edit", "MultiEdit", "Write", "NotebookEdit", "mcp__github__create_issue"]
    others = ["BashOutput", "TodoWrite", "ReadMcpResourceTool", "Task", "Skill"]
    assert [each for each in paying + others if re.search(group["matcher"], each)] == paying


def test_installing_again_brings_an_earlier_versions_settings_up_to_date(place):
    ours = {event: [{"hooks": [{"type": "command", "command": BEFORE.format(event)}]}] for event in OURS}
    theirs = {"type": "command", "command": "say done"}
    ours["Stop"][0]["hooks"].append(theirs)
    ours["SessionStart"][0]["hooks"].append({"type": "command", "command": START_BEFORE, "timeout": 30})
    written(place, json.dumps({"hooks": ours, "model": "opus"}, indent=2))
    place.fleet("install", "claude-code")
    found = json.loads(path_of(place).read_text())
    assert sorted(commands(found)) == sorted([*OURS.values(), "say done"])
    place.fleet("uninstall", "claude-code")
    assert json.loads(path_of(place).read_text()) == {"hooks": {"Stop": [{"hooks": [theirs]}]}, "model": "opus"}


def files(place) -> dict[str, bytes]:
    folder = place.folder / ".claude"
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_the_skill_and_the_slash_commands_come_with_the_hooks_and_go_with_them(place):
    assert "wrote" in place.fleet("install", "claude-code").stdout
    assert set(files(place)) == {"settings.json", *PAGES}
    assert files(place)["skills/fleet/SKILL.md"].startswith(b"---\n")
    (place.folder / ".claude/commands/mine.md").write_text("mine")
    place.fleet("uninstall", "claude-code")
    assert files(place) == {"commands/mine.md": b"mine"}
    assert sorted(each.name for each in (place.folder / ".claude").iterdir()) == ["commands"]


def test_a_page_of_a_persons_is_never_written_over_nor_taken_out(place):
    folder = place.folder / ".claude/commands"
    folder.mkdir(parents=True)
    (folder / "fleet-status.md").write_text("my own")
    said = place.fleet("install", "claude-code").stderr
    assert "fleet-status.md is not as fleet wrote it" in said
    (folder / "fleet-correct.md").write_bytes((folder / "fleet-correct.md").read_bytes() + b"and my own words\n")
    before = {name: data for name, data in files(place).items() if name.startswith("commands/fleet-")}
    place.fleet("install", "claude-code")
    place.fleet("uninstall", "claude-code")
    assert files(place) == before


def test_a_page_of_another_version_is_brought_up_to_date(place):
    place.fleet("install", "claude-code")
    wanted = files(place)
    (place.folder / ".claude/skills/fleet/SKILL.md").write_bytes(install._sealed(b"what an earlier version said\n"))
    place.fleet("install", "claude-code")
    assert files(place) == wanted


@pytest.mark.parametrize("words", [("install", "claude-code"), ("init", "--install", "claude-code")], ids=" ".join)
def test_installing_into_settings_that_turn_every_hook_off_says_so(place, words):
    written(place, '{"disableAllHooks": true}')
    assert "`disableAllHooks` in the project's settings turns every hook off" in place.fleet(*words).stderr
    assert "the next session calls them" not in place.fleet().stdout
    written(place, "{}")
    assert "disableAllHooks" not in place.fleet(*words).stderr
    assert "the next session calls them" in place.fleet().stdout


def test_a_persons_broken_settings_stop_nothing_in_a_project(bare):
    (bare.home / ".claude").mkdir()
    (bare.home / ".claude/settings.json").write_text("{ // mine")
    bare.fleet("init", "--agent", "tank")
    bare.fleet("install", "claude-code")
    assert "installed: the next session calls them" in bare.fleet().stdout
    assert "settings.json is not valid JSON" in bare.fleet("doctor", expect=1).stdout


def test_a_page_that_git_checked_out_with_other_line_ends_is_fleets_all_the_same(place):
    place.fleet("install", "claude-code")
    for name in PAGES:
        page = place.folder / ".claude" / name
        page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    before = files(place)
    assert "as fleet wrote it" not in place.fleet("install", "claude-code").stderr
    assert files(place) == before, "git would write them anew"
    assert "as fleet wrote it" not in place.fleet("uninstall", "claude-code").stderr
    assert not PAGES & files(place).keys()


def test_a_dry_run_writes_no_page(place):
    assert "+You were corrected" in place.fleet("install", "claude-code", "--dry-run").stdout
    assert not (place.folder / ".claude").exists()


def test_the_doctor_tells_client_hooks_last_call_and_context(place, tmp_path):
    client = tmp_path / "bin"
    client.mkdir()
    for name, said in (("claude", "2.1.329 (Claude Code)"), ("fleet", "x")):
        (client / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (client / name).chmod(0o755)
    path = f"{client}{os.pathsep}{os.environ['PATH']}"
    place.fleet("init", "--agent", "tank")

    def told() -> dict[str, dict]:
        done = place.fleet("doctor", "--json", PATH=path)
        return {each["check"]: each for each in json.loads(done.stdout)["findings"]}

    before = told()
    assert "2.1.329" in before["client"]["what"]
    assert before["hooks"]["level"] == "note"
    assert "no hook has fired" in before["fired"]["what"]
    place.fleet("install", "claude-code")
    place.hook("SessionStart")
    after = told()
    assert after["hooks"] | {"level": "ok"} == after["hooks"]
    assert "SessionStart" in after["fired"]["what"]
    assert "tank starts a session with" in after["context"]["what"]
    place.fleet("install", "claude-code", "--user", PATH=path)
    assert "twice" in told()["hooks"]["means"]


def test_the_doctor_warns_of_hooks_in_part_and_of_broken_settings(place):
    place.fleet("init", "--agent", "tank")
    written(place, json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": OURS["Stop"]}]}]}}))
    done = place.fleet("doctor", expect=1)
    assert "not for PostToolUse" in done.stdout
    written(place, "{")
    told = place.fleet("doctor", expect=1).stdout
    assert "not valid JSON" in told
    assert "Nothing was changed" not in told


def test_the_doctor_knows_the_plugin():
    assert install._has_plugin({"enabledPlugins": {"fleet@fleet-local": True}})
    assert not install._has_plugin({"enabledPlugins": {"fleet@fleet-local": False, "other@fleet": True}})
    assert not install._has_plugin({"enabledPlugins": []})


def test_a_client_that_hangs_does_not_hold_the_doctor(place, tmp_path, monkeypatch):
    from fleet.app import doctor

    (tmp_path / "claude").write_text("#!/bin/sh\nexec sleep 30\n")
    (tmp_path / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(doctor, "_CLIENT_S", 0.2)
    assert "does not tell its version" in doctor._clients().what


SHAPES = [
    b"",
    b"\n",
    b"{}",
    b"{}\n",
    b"{ }",
    b"{\n}\n",
    b"  {}  \n\n",
    b"\xef\xbb\xbf{}",
    b"{\r\n}\r\n",
    b'{"hooks": {}}',
    b'{\r\n  "hooks": {}\r\n}\r\n',
    b'{\r\n  "a": 1,\r\n  "hooks": {\r\n  }\r\n}\r\n',
    b'{\n\t"hooks": {},\n\t"b": [1,\n2]\n}',
    b'{"hooks": {"Stop": []}}',
    b'{"hooks": {"Stop": [], "X": []}, "z": 1}',
    b'{"hooks":{"Stop":[{"hooks":[]}]}}',
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_of_any_shape_is_after_uninstalling_what_it_was_before(place, shape: bytes):
    path = written(place, shape)
    path.chmod(0o600)
    for _ in range(2):
        place.fleet("install", "claude-code")
    assert set(
        install._installed(json.loads(path.read_bytes().decode("utf-8-sig")), INSTALLABLE["claude-code"])
    ) == set(OURS)
    place.fleet("uninstall", "claude-code")
    assert path.read_bytes() == shape
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("shape", [b"", b'{"a":1}', b'{\r\n  "hooks": {}\r\n}\r\n', b'{"hooks": {"Stop": []}}'])
def test_what_a_person_added_meanwhile_stays_and_so_does_what_was_empty(place, shape: bytes):
    path = written(place, shape)
    place.fleet("install", "claude-code")
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "model": "opus"}, indent=2))
    place.fleet("uninstall", "claude-code")
    assert json.loads(path.read_text()) == json.loads(shape or b"{}") | {"model": "opus"}
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("words", [("install",), ("install", "--dry-run"), ("uninstall",), ("doctor",)])
def test_what_is_no_file_is_refused_at_once(place, words):
    """A pipe in the place of the settings would never end, and nobody writes into it."""
    path = path_of(place)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    words = words if words == ("doctor",) else (words[0], "claude-code", *words[1:])
    done = place.fleet(*words, expect=1 if words == ("doctor",) else 3)
    assert "is no plain file" in done.stderr + done.stdout
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("is_theirs", [False, True])
def test_a_full_disk_is_told_with_the_name_of_the_file_and_leaves_what_was_there(is_theirs, tmp_path, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(install.os, "fsync", full)
    if is_theirs:
        (tmp_path / ".claude").mkdir()
    with pytest.raises(DiskError, match="no space left") as told:
        install.SettingsFile.of(tmp_path).install()
    assert str(tmp_path / ".claude/settings.json") in str(told.value)
    assert [each.name for each in tmp_path.rglob("*")] == [".claude"] * is_theirs
