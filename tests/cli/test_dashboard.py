"""``fleet`` alone: what is new, what waits, whether the loop runs, and the next step; little where nothing is up."""

import fcntl
import json
import re
import time
import unicodedata

import pytest

from fleet.learn.signals import Flag, Signals
from fleet.reflect.inbox import Inbox, Item
from fleet.store.database import Local
from fleet.store.workspace import ONLINE, Workspace, World

LESSON = "Quote every variable in a shell script"
OTHER = "Pin the version of every action"


def look(stage, where: str = "w", **env: str) -> dict:
    return json.loads(stage.run(where, "--json", **env).stdout)


def fired(stage, ms: int | None = None) -> None:
    folder = stage.folder / "w/.fleet/fired"
    folder.mkdir(parents=True)
    (folder / "Stop").write_text(f"claude-code {time.time_ns() // 1_000_000 if ms is None else ms}\n")


def test_outside_a_workspace_it_says_what_fleet_is_and_how_to_begin(stage):
    shown = stage.run("empty").stdout
    assert "every correction one agent gets" in shown
    assert "fleet init --agent NAME" in shown
    assert list((stage.folder / "empty").iterdir()) == []
    assert "fleet init" in stage.run("empty", "--json", expect=1).stderr
    assert "no fleet workspace" in stage.run("empty", "--dir", "elsewhere", expect=1).stderr


def test_each_step_on_the_way_is_the_next_one(w):
    assert look(w)["next"]["command"] == "fleet install claude-code"
    w.run("w", "install", "claude-code")
    assert look(w)["hooks"] == {"event": "", "fired": "", "installed": True}
    assert "installed: the next session calls them" in w.run("w").stdout
    assert look(w)["next"]["command"].startswith("fleet correct")
    fired(w)
    assert look(w)["next"]["command"].startswith("fleet correct")
    w.correct("w", LESSON)
    assert look(w)["next"]["command"] == "fleet init --remote URL"
    w.git("init", "--quiet", "--bare", str(w.remote))
    w.run("w", "init", "--remote", str(w.remote), "--yes")
    w.run("w", "sync")
    assert look(w)["next"] == {"command": "", "why": ""}
    shown = w.run("w").stdout
    assert "nothing new, nothing pending; hooks fired just now (Stop)" in shown
    assert len(shown.splitlines()) == 2, "quiet when nothing is up"


def test_who_clones_and_has_agreed_to_nothing_yet_is_told_that_the_clans_lessons_are_not_here(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    (stage.folder / "w").mkdir()
    (stage.folder / "w/fleet.toml").write_bytes((stage.folder / "velma/fleet.toml").read_bytes())
    assert "`fleet init --agent NAME`, then `fleet sync` asks" in stage.run("w", "status").stdout
    stage.run("w", "init", "--agent", "tank")
    assert look(stage)["silent"] == ["never synced: what the clan knows is not here yet"]
    assert look(stage)["next"]["command"] == "fleet sync"
    assert "`fleet sync` asks the clan" in stage.run("w", "patterns").stdout
    fired(stage)
    stage.correct("w", OTHER)
    assert look(stage)["waits"]["sent_by"] == ""
    assert "1 line to go out: fleet sync\n" in stage.run("w").stdout
    assert "a person's `fleet sync` names it, and asks" in stage.run("w", "start").stdout
    assert "; `fleet sync` asks" in stage.run("w", "status").stdout
    stage.run("w", "sync", "--yes")
    assert look(stage)["silent"] == []
    assert LESSON in stage.run("w", "patterns").stdout


def test_what_came_is_new_until_a_person_has_looked(w):
    w.correct("w", LESSON)
    assert look(w)["new"]["lessons"] == [], "at the first look all is there, and nothing new"
    w.on_a_terminal()
    w.correct("w", OTHER)
    w.run("w", "discover", "--problem", "the cache is stale", "--solution", "remove it")
    for _ in range(2):  # neither JSON nor a pipe is a person
        found = look(w)
        assert [(each["text"], each["by"], each["is_first"]) for each in found["new"]["lessons"]] == [
            (OTHER, "velma", True)
        ]
        assert [each["text"] for each in found["new"]["discoveries"]] == ["the cache is stale"]
        assert OTHER in w.run("w").stdout
    shown = w.on_a_terminal()
    assert "1 lesson, 1 discovery since you looked" in shown
    assert OTHER not in w.on_a_terminal()
    w.correct("w", OTHER)
    assert not look(w)["new"]["lessons"][0]["is_first"]
    assert "1 lesson met or changed again" in w.run("w").stdout


def test_what_comes_after_the_join_is_new_at_the_first_look(stage):
    stage.join("velma")
    stage.correct("velma", LESSON)
    stage.run("velma", "sync")
    stage.join("tank", "w")
    assert look(stage)["new"]["lessons"] == [], "the join has shown how much the clan knows"
    stage.correct("velma", OTHER)
    stage.run("velma", "sync")
    stage.run("w", "sync")
    stage.run("w", "init", "--agent", "tank")
    assert [each["text"] for each in look(stage)["new"]["lessons"]] == [OTHER]


def test_of_many_new_lessons_all_are_counted(w):
    w.on_a_terminal()
    texts = (f"Never call service number {number} without a timeout" for number in range(120))
    (w.folder / "w/lessons.md").write_text("# Lessons\n\n" + "".join(f"- {each}\n" for each in texts))
    w.run("w", "import", "lessons.md")
    assert (look(w)["new"]["lessons_total"], len(look(w)["new"]["lessons"])) == (120, 100)
    shown = w.run("w").stdout
    assert "120 lessons new or changed, not yet seen on a terminal" in shown
    assert "and 116 more: fleet patterns" in shown


def test_what_entered_a_memory_since_is_named(w):
    first = w.correct("w", OTHER)
    w.run("w", "promote", first)
    w.on_a_terminal()
    w.run("w", "promote", w.correct("w", LESSON))
    assert [(each["agent"], each["text"]) for each in look(w)["promoted"]] == [("velma", LESSON)]
    assert re.search(rf"promoted +{LESSON} \(velma, p-", w.run("w").stdout)


def test_what_waits_for_a_person_is_counted_with_the_command_for_it(w):
    fired(w)
    workspace = Workspace(w.folder / "w")
    Inbox(workspace, "velma").put([Item(kind="plan", title="Tidy the notes")])
    workspace.close()
    log = w.folder / "w/agents/velma/corrections.md"
    log.write_text(
        "## 2026-11-20 14:30Z — a person objected\n**What I got wrong:** used sed\n**Correct approach:** awk\n"
        "**Source:** user prompt\n**Pattern:** TODO\n"
    )
    w.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", "Always use tabs in a Makefile")
    w.run("w", "correct", "--wrong", "w", "--right", "r", "--pattern", "Never use tabs in a Makefile")
    waits = look(w)["waits"]
    assert waits["decisions"]["kinds"] == {"plan": 1}
    assert waits["contradictions"] == 1
    shown = w.run("w").stdout
    assert "1 decision since" in shown
    assert "1 pair of lessons that contradict each other: fleet review" in shown
    assert look(w)["next"]["command"] == "fleet inbox"
    assert "1 pair of lessons that contradict each other: fleet review" in w.run("w", "status").stdout
    w.run("w", "inbox")  # which mirrors the pair: from here on it is one of its decisions
    for shown in (w.run("w").stdout, w.run("w", "status").stdout):
        assert "2 decisions since" in shown
        assert "contradict each other" not in shown, "nothing is counted twice"
    assert look(w)["waits"]["contradictions"] == 1
    never = next(each["id"] for each in w.patterns("w")["patterns"] if each["text"].startswith("Never"))
    w.run("w", "retire", never)
    assert look(w)["waits"]["decisions"]["kinds"] == {"plan": 1}, "a retired lesson contradicts none"
    assert "1 decision since" in w.run("w", "status").stdout
    w.run("w", "restore", never)
    assert look(w)["waits"]["decisions"]["kinds"] == {"contradiction": 1, "plan": 1}
    [pair] = json.loads(w.run("w", "review", "--json").stdout)["pairs"]
    w.run("w", "review", "--answer", f"{pair['pair']}=both")
    assert look(w)["waits"]["contradictions"] == 0, "what was decided waits no longer"


def test_a_correction_without_a_lesson_is_asked_for(w):
    fired(w)
    payload = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": str(w.folder / "w")}
    payload["prompt"] = "No, that's wrong. You should have used awk, not sed."
    w.run("w", "hook", "UserPromptSubmit", text=json.dumps(payload))
    assert look(w)["waits"]["to_state"] == 1
    assert look(w)["next"]["command"] == "fleet learn --waiting"
    assert "1 correction without a lesson: fleet learn --waiting" in w.run("w").stdout


def test_days_of_silence_are_told_and_whether_hooks_fire(w):
    assert look(w)["silent"] == [], "a workspace of today has been silent for no day"
    w.correct("w", LESSON)
    days_ago = (time.time_ns() // 1_000_000) - 9 * 86_400_000
    fired(w, days_ago)
    register = w.folder / "w/.fleet/replica.toml"
    minted = re.search(r'minted = "(\d{4})', register.read_text())
    assert minted
    register.write_text(register.read_text().replace(f'minted = "{minted[1]}', 'minted = "2025'))
    state = Local(w.folder / "w/.fleet/local.db")
    state.connection().execute(
        "INSERT INTO exposure (agent, pattern, session, first_ms, last_ms, number, replica, total, said) "
        "VALUES ('velma', 'p-3f9c1a2b7d4e5f60', 's', ?, ?, 1, '', 0, 0)",
        (days_ago, days_ago),
    )
    state.close()
    found = look(w)
    assert found["silent"] == ["nothing was shown for 9 days"]
    shown = w.run("w").stdout
    assert "nothing was shown for 9 days" in shown
    assert "fired 9 days ago (Stop)" in shown


def test_what_a_hook_logged_was_logged_though_it_has_no_lesson_yet(w):
    w.now_ms = time.time_ns() // 1_000_000 + 9 * 86_400_000
    assert [each for each in look(w)["silent"] if "logged" in each]
    workspace = Workspace(w.folder / "w", World(wall_ms=lambda: w.now_ms))
    Signals(workspace.files, "velma", workspace.wall).flag(
        Flag("human", "no, that is wrong, never use yarn"), session="s"
    )
    workspace.close()
    found = look(w)
    assert [each for each in found["silent"] if "logged" in each] == []
    assert found["last"]["logged"][:10] == time.strftime("%Y-%m-%d", time.gmtime(w.now_ms / 1000))


def test_a_clan_at_the_projects_origin_that_was_not_asked_for_days_is_told_and_one_that_was_left_is_not(stage):
    stage.run("w", "init", "--agent", "velma")
    stage.git("init", "--quiet", "--bare", str(stage.remote))
    stage.git("init", "--quiet", where="w")
    stage.git("remote", "add", "origin", str(stage.remote), where="w")
    stage.correct("w", LESSON)
    stage.run("w", "sync", "--yes")
    stage.now_ms = time.time_ns() // 1_000_000 + 9 * 86_400_000
    assert "synced" in look(stage)["silent"][0]
    stage.run("w", "leave", "--yes")
    assert "synced" not in look(stage)["silent"][0]


def test_who_is_online_is_what_the_sidecar_heard_a_moment_ago(w):
    heard = w.folder / "w/.fleet" / ONLINE
    who = [["tank", "tank.c0ffee42", "2026-11-22T10:00:00.000Z-0000", "the parser \x1b[2J"]]
    heard.write_text(json.dumps({"at_ms": time.time_ns() // 1_000_000, "online": who}))
    [found] = look(w)["online"]
    assert (found["agent"], "\x1b" in found["on"]) == ("tank", False)
    assert "tank, since 2026-11-22 10:00Z, on the parser" in w.run("w").stdout
    for said in (json.dumps({"at_ms": 1, "online": who}), "rubbish", '{"at_ms": "x"}', "[]", "[" * 100_000):
        heard.write_text(said)
        assert look(w)["online"] == []


def test_damaged_marks_are_passed_over(w):
    fired(w, 10**30)
    state = Local(w.folder / "w/.fleet/local.db")
    state.put(looked="9 rubbish")
    state.close()
    found = look(w)
    assert (found["hooks"]["fired"], found["looked"]) == ("", "")
    assert "velma" in w.run("w").stdout


def test_json_belongs_behind_a_command(w):
    assert "fleet patterns --json" in w.run("w", "--json", "patterns", expect=2).stderr
    assert "fleet sidecar --json" not in w.run("w", "--json", "sidecar", "status", expect=2).stderr


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=str)
def test_colours_are_for_a_terminal_that_wants_them_and_never_for_a_pipe(w, env):
    w.correct("w", LESSON + ", and " * 5 + "brace it where letters follow, or the shell reads another name")
    for words in ((), ("patterns",)):
        assert "\x1b" not in w.run("w", *words, TERM="xterm", **env).stdout
    above = w.on_a_terminal("patterns", columns=60, **env)
    assert ("\x1b[" in above) is (not env)
    plain = re.sub(r"\x1b\[\d*m", "", above)
    rows = plain.strip().splitlines()
    assert len(rows) > 1
    assert all(len(row) <= 60 for row in rows)
    assert all(row.startswith(" " * 26) for row in rows[1:]), "a long lesson goes on below itself"
    assert len(w.run("w", "patterns").stdout.splitlines()) == 1, "into a pipe a lesson is one line"


def test_a_start_outside_any_hosts_session_is_a_showing(w):
    assert look(w)["last"]["shown"] == ""
    w.run("w", "start")
    assert look(w)["last"]["shown"]


def test_wide_letters_count_two_columns_and_a_line_of_them_goes_on_below_itself(w):
    chinese = "永远不要从用户输入构建表达式，否则路径中的斜杠会破坏命令。" * 3 + "（用环境变量）"
    w.correct("w", chinese, "--category", "e\u0301" * 10)
    rows = w.on_a_terminal("patterns", columns=60, NO_COLOR="1").splitlines()
    assert chinese in "".join(row.strip() for row in rows)
    assert len(rows) > 5
    for command in (("patterns",), ("show", rows[0].split()[0]), ("start",)):
        for row in w.on_a_terminal(*command, columns=60, NO_COLOR="1").splitlines():
            assert sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in row) <= 60, row
            assert row.strip()[:1] not in tuple("，。）"), "no row begins with what closes"


def test_at_60_columns_messages_go_on_at_a_word_and_what_is_to_be_copied_stays_as_it_is(w):
    words = ("correct", "--wrong", "w", "--right", "r", "--pattern", LESSON + ", and brace it where letters follow it")
    for command in (words, ("start",), ("mutate", "--list")):
        rows = w.on_a_terminal(*command, columns=60).splitlines()
        assert all(len(row) <= 60 for row in rows), rows
    copied = [json.loads(row) for row in w.on_a_terminal("sync", "--dry-run", columns=60).splitlines()]
    assert len(copied) == 1


@pytest.mark.parametrize("columns", [44, 50, 58, 66])
def test_a_short_command_in_backquotes_is_not_broken(w, columns):
    rows = w.on_a_terminal("sync", columns=columns).splitlines()
    assert any("`fleet init --remote URL`" in row for row in rows)
    assert all(len(row) <= columns for row in rows)


def test_lines_that_wait_to_go_out_are_pending_and_the_next_step_sends_them_if_nothing_else_does(stage):
    stage.join("velma", "w")
    stage.correct("w", LESSON)
    stage.correct("w", OTHER)
    assert "2 lines to go out: fleet sync" in stage.run("w").stdout
    assert look(stage)["next"] == {"command": "fleet sync", "why": "sends what was logged here to the clan"}
    (lock := stage.folder / "w/.fleet/locks/sidecar-velma.lock").touch()
    with lock.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "2 lines to go out: the sidecar sends them" in stage.run("w").stdout
        assert look(stage)["next"]["command"] != "fleet sync"
    stage.run("w", "install", "claude-code")
    assert "2 lines to go out: the end of a session sends them" in stage.run("w").stdout
    assert look(stage)["next"]["command"] != "fleet sync"
    stage.run("w", "sync")
    assert (look(stage)["waits"]["lines"], "to go out" in stage.run("w").stdout) == (0, False)


def test_hooks_that_are_gone_or_sync_nothing_send_no_lines(stage):
    stage.join("velma", "w")
    stage.correct("w", LESSON)
    for ms, sender in ((None, "hooks"), (time.time_ns() // 1_000_000 - 9 * 86_400_000, "")):
        fired(stage, ms)
        assert look(stage)["waits"]["sent_by"] == sender
        (stage.folder / "w/.fleet/fired/Stop").unlink()
        (stage.folder / "w/.fleet/fired").rmdir()
    fired(stage)
    stage.run("w", "pause")
    assert look(stage)["waits"]["sent_by"] == ""
    assert "1 line to go out: fleet resume" in stage.run("w").stdout
    stage.run("w", "resume")
    stage.run("w", "config", "set", "hook.sync_at_end", "false")
    assert look(stage)["waits"]["sent_by"] == ""


def test_a_yes_to_another_remote_is_none_to_the_one_that_the_file_names_by_now(stage):
    stage.join("velma", "w")
    assert look(stage)["agreed"]
    config = stage.folder / "w/fleet.toml"
    config.write_text(config.read_text().replace("clan.git", "other.git"))
    assert not look(stage)["agreed"]


def test_where_the_projects_origin_moved_nothing_goes_out_until_somebody_agrees_and_that_is_said(stage):
    stage.run("w", "init", "--agent", "velma")
    for name in ("clan.git", "moved.git"):
        stage.git("init", "--quiet", "--bare", name)
    stage.git("init", "--quiet", where="w")
    stage.git("remote", "add", "origin", str(stage.folder / "clan.git"), where="w")
    stage.run("w", "sync", "--yes")
    stage.git("remote", "set-url", "origin", str(stage.folder / "moved.git"), where="w")
    stage.correct("w", LESSON)
    fired(stage)
    assert not look(stage)["agreed"]
    assert "1 line to go out: fleet sync\n" in stage.run("w").stdout, "no hook sends it"
    assert "nobody has agreed" in stage.run("w", "poll", expect=None).stdout
    seen = look(stage)
    assert "moved.git" in seen["silent"][0]
    assert "nobody has agreed" in seen["silent"][0]
    assert seen["next"]["command"] == "fleet sync"
    assert "nobody has agreed" in json.loads(stage.run("w", "status", "--json").stdout)["sync_failed"]
    stage.run("w", "sync", "--yes")
    assert look(stage)["agreed"]
    assert not look(stage)["silent"]


def test_a_yes_to_one_branch_is_none_to_another(stage):
    stage.join("velma", "w")
    stage.correct("w", LESSON)
    stage.run("w", "config", "set", "share.branch", "other")
    assert not look(stage)["agreed"]
    assert "1 line to go out: fleet sync\n" in stage.run("w").stdout
    stage.run("w", "sync", expect=2)
    stage.run("w", "sync", "--yes")
    assert look(stage)["agreed"]


def test_a_week_of_the_statistics_is_one_row_of_the_terminal(w):
    entry = "\n## 2026-11-{0:02} 14:30 — t\n**What I got wrong:** w\n**Correct approach:** r\n**Pattern:** Use {0}\n"
    log = w.folder / "w/agents/velma/corrections.md"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("# Corrections\n" + "".join(map(entry.format, range(1, 30))))
    w.run("w", "sync")
    rows = [row for row in w.on_a_terminal("stats", columns=50).splitlines() if "█" in row and "W" in row]
    assert rows
    assert all("relapses" in row and len(row) <= 50 for row in rows), rows
