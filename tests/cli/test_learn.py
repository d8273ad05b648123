"""`fleet learn`, by the real command line: what a signal teaches is stated, and then it counts everywhere."""

import json
import re

import pytest

from fleet.learn.signals import Flag, Signals
from fleet.store.workspace import Workspace

LESSON = "In this repository use pnpm, never npm"
RFC_3339 = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def velma(stage):
    return stage.join("velma")


def flagged(stage, where, signal=None, session="s-1"):
    workspace = Workspace(stage.folder / where)
    return (
        Signals(workspace.files, where, workspace.wall)
        .flag(signal or Flag("human", "no, use pnpm here"), session=session)
        .id
    )


def learn(stage, where, *words, **more):
    return json.loads(stage.run(where, "learn", *words, "--json", **more).stdout)


def test_a_signal_is_listed_counted_by_status_and_gone_once_it_is_stated(stage, velma):
    entry = flagged(stage, velma)
    waiting = learn(stage, velma, "--waiting")["waiting"]
    assert [(each["id"], each["title"]) for each in waiting] == [(entry, "no, use pnpm here")]
    assert re.fullmatch(RFC_3339, waiting[0]["when"])
    assert re.fullmatch(RFC_3339, json.loads(stage.run(velma, "show", entry, "--json").stdout)["when"])
    assert json.loads(stage.run(velma, "status", "--json").stdout)["unfilled"] == 1
    for command in ("status", "handover"):
        assert "1 correction without a lesson: fleet learn --waiting" in stage.run(velma, command).stdout
    assert stage.patterns(velma)["patterns"] == []
    done = learn(stage, velma, entry, "--pattern", LESSON, "--right", "pnpm install")
    assert done == {"id": done["id"], "seen": 1, "text": LESSON, "entry": entry}
    assert learn(stage, velma, "--waiting") == {"waiting": []}
    assert json.loads(stage.run(velma, "status", "--json").stdout)["unfilled"] == 0
    (pattern,) = stage.patterns(velma)["patterns"]
    assert (pattern["id"], pattern["seen"], pattern["correct"]) == (done["id"], 1, "pnpm install")


def test_what_waits_is_shown_whole_by_its_id_and_later_with_the_lesson_it_counts_for(stage, velma):
    said = "no, again: " + "use pnpm and never npm, " * 20
    entry = flagged(stage, velma, Flag("human", said, title=said))
    (title,) = [each["title"] for each in learn(stage, velma, "--waiting")["waiting"]]
    assert len(title) < len(said)
    for name in (entry, entry[:8]):
        shown = json.loads(stage.run(velma, "show", name, "--json").stdout)
        assert (shown["id"], shown["agent"], shown["wrong"], shown["lesson"]) == (entry, "velma", said.strip(), "")
    assert said.strip() in stage.run(velma, "show", entry).stdout
    lesson = learn(stage, velma, entry, "--pattern", LESSON)["id"]
    assert json.loads(stage.run(velma, "show", entry, "--json").stdout)["lesson"] == lesson
    assert "learn --waiting --all" in stage.run(velma, "show", "c-0000", expect=1).stderr


def test_what_a_lesson_was_wrongly_stated_for_waits_again_after_an_undo_and_counts_once(stage, velma):
    entry = flagged(stage, velma)
    wrong = learn(stage, velma, entry, "--pattern", "Use yarn here", "--right", "yarn")["id"]
    done = json.loads(stage.run(velma, "undo", "--json").stdout)
    (waits,) = learn(stage, velma, "--waiting")["waiting"]
    assert (waits["id"] != entry, waits["title"]) == (True, "no, use pnpm here")
    assert any(waits["id"] in each for each in done["did"])
    assert f"as {waits['id']}" in stage.run(velma, "learn", entry, "--pattern", LESSON, expect=1).stderr
    assert json.loads(stage.run(velma, "show", entry, "--json").stdout)["lesson"] == ""
    stated = learn(stage, velma, waits["id"], "--pattern", LESSON, "--right", "pnpm")
    assert learn(stage, velma, "--waiting") == {"waiting": []}
    assert [(each["id"], each["seen"], each["correct"]) for each in stage.patterns(velma)["patterns"]] == [
        (stated["id"], 1, "pnpm")
    ]
    assert wrong != stated["id"]


@pytest.mark.parametrize("kind", ["human", "failure"])
def test_a_lesson_that_is_stated_again_by_an_undo_of_its_undo_waits_no_more(stage, velma, kind):
    entry = flagged(stage, velma, Flag(kind, "no, use pnpm here"))
    learn(stage, velma, entry, "--pattern", LESSON)
    for times in (1, 2):
        done = json.loads(stage.run(velma, "undo", "--json").stdout)
        assert len(learn(stage, velma, "--waiting", "--all")["waiting"]) == times, "a dismissed one is listed, too"
        stage.run(velma, "undo", done["undone_by"])
        assert learn(stage, velma, "--waiting") == {"waiting": []}
        assert [each["seen"] for each in stage.patterns(velma)["patterns"]] == [1]


@pytest.mark.parametrize("verb", ["correct", "learn"])
def test_a_trigger_may_be_given_and_is_shown_and_stays_when_the_database_is_lost(stage, velma, verb):
    words = ("--right", "pnpm install", "--pattern", LESSON, "--trigger", "Bash:npm *")
    if verb == "learn":
        done = learn(stage, velma, flagged(stage, velma), *words)
    else:
        done = json.loads(stage.run(velma, "correct", "--wrong", "w", *words, "--json").stdout)
    for file in (*(stage.folder / velma / ".fleet").glob("state-*"), *(stage.folder / velma).rglob("*.jsonl")):
        file.unlink()
    stage.run(velma, "sync")
    shown = json.loads(stage.run(velma, "show", done["id"], "--json").stdout)
    assert (shown["trigger"], shown["trigger_derived"]) == ("Bash:npm *", False)
    assert "trigger:    Bash:npm *\n" in stage.run(velma, "show", done["id"]).stdout


def test_a_trigger_that_fits_nothing_is_refused_and_nothing_is_logged(stage, velma):
    words = ("--right", "r", "--pattern", LESSON, "--trigger", "git push")
    assert "nothing was logged" in stage.run(velma, "correct", "--wrong", "w", *words, expect=None).stderr
    assert stage.patterns(velma)["patterns"] == []


@pytest.mark.parametrize("trigger", ["WebFetch:*", "Bash:npm *, Foo:bar"])
def test_a_trigger_before_which_no_installed_hook_calls_fleet_is_logged_and_said_so(stage, velma, trigger):
    words = ("--wrong", "w", "--right", "r", "--pattern", LESSON, "--trigger", trigger)
    done = stage.run(velma, "correct", *words)
    told = f"warning: trigger {trigger.split(', ')[-1]}: no host that `fleet install` sets up calls fleet before such"
    assert told in done.stderr
    pattern = done.stdout.split()[0]
    assert told in stage.run(velma, "edit", pattern, "--set", f"trigger={trigger}").stderr
    assert (
        "calls fleet" not in stage.run(velma, "edit", pattern, "--set", "trigger=Bash, :x, mcp__a__b, Ed*, *b").stderr
    )
    entry = flagged(stage, velma)
    assert told in stage.run(velma, "learn", entry, "--pattern", LESSON, "--trigger", trigger).stderr


def test_the_step_that_a_lesson_names_is_its_trigger_until_another_is_set(stage, velma):
    known = stage.correct(velma, "Pull before `git push`")
    shown = stage.run(velma, "show", known[:8]).stdout
    assert f"trigger:    Bash:git push*; guessed from its words: fleet edit {known} --set trigger=" in shown
    stage.run(velma, "edit", known, "--set", "trigger=none")
    shown = json.loads(stage.run(velma, "show", known, "--json").stdout)
    assert (shown["trigger"], shown["trigger_derived"]) == ("none", False)


def test_it_reads_like_a_correction(stage, velma):
    entry = flagged(stage, velma)
    listed = stage.run(velma, "learn", "--waiting")
    assert listed.stdout.startswith(f"{entry}  20")
    assert f"fleet learn {entry} --pattern" in listed.stderr
    said = stage.run(velma, "learn", entry[:6], "--pattern", LESSON).stdout
    assert said.startswith("p-")
    assert said.endswith(f"seen 1 time: {LESSON}\n")
    assert "no correction waits" in stage.run(velma, "learn", "--waiting").stdout


def test_a_close_lesson_is_told_as_it_is_to_who_corrects(stage, velma):
    known = stage.correct(velma, "Always run the type checker before pushing")
    done = learn(stage, velma, flagged(stage, velma), "--pattern", "Always run the typechecker before you push")
    assert done["near"][0]["id"] == known


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["c-zzz", "--pattern", "x"], 1, "begins with 'c-zzz'"),
        (["--pattern", "x"], 2, "name the correction"),
        (["ENTRY"], 2, "state the lesson"),
        (["ENTRY", "--waiting"], 2, "--waiting lists"),
        (["ENTRY", "--same", "p-zzz"], 1, "no lesson has an id that begins with"),
        (["ENTRY", "--pattern", "..."], 2, "no words"),
        (["ENTRY", "--pattern", "x " * 9000], 3, "limit"),
    ],
)
def test_what_cannot_be_done_is_told_and_nothing_is_written(stage, velma, words, code, told):
    entry = flagged(stage, velma)
    log = stage.folder / velma / "agents" / velma / "corrections.md"
    before = log.read_bytes()
    done = stage.run(velma, "learn", *[entry if word == "ENTRY" else word for word in words], expect=code)
    assert told in done.stderr
    assert log.read_bytes() == before


def test_twice_is_told_with_a_way_out(stage, velma):
    entry = flagged(stage, velma)
    pattern = learn(stage, velma, entry, "--pattern", LESSON)["id"]
    for words in (["--pattern", LESSON], ["--pattern", "Other"], ["--same", pattern]):
        done = stage.run(velma, "learn", entry, *words, expect=1)
        assert f"is filled already, and counted as {pattern}" in done.stderr
        assert "fleet merge" in done.stderr
    assert stage.seen(velma) == {LESSON: 1}


def test_three_signals_of_three_kinds_are_one_lesson_in_another_agents_clan(stage, velma):
    signals = (Flag("human", "no"), Flag.of_failure("npm ci", 1, "no lockfile"), Flag("agent", "pnpm!", agent="tank"))
    pattern = ""
    for number, signal in enumerate(signals):
        entry = flagged(stage, velma, signal, f"s-{number}")
        words = ["--same", pattern] if pattern else ["--pattern", LESSON]
        pattern = learn(stage, velma, entry, *words)["id"]
    assert LESSON in (stage.folder / velma / "agents" / velma / "memory.md").read_text(), "the third promotes at once"
    stage.run(velma, "sync")
    tank = stage.join("tank")
    stage.run(tank, "sync")
    (found,) = stage.patterns(tank)["patterns"]
    assert (found["id"], found["seen"], found["sessions"], found["agents"]) == (pattern, 3, 3, ["velma"])


def test_words_that_a_known_lesson_does_not_take_over_are_said_to_stay_in_the_log(stage, velma):
    told = ("correct", "--wrong", "w", "--right", "r")
    pattern = stage.run(velma, *told, "--pattern", LESSON).stdout.split()[0]
    hint = f"--pattern stays in the log alone: `fleet edit {pattern} --set text=...`"
    assert hint in stage.run(velma, *told, "--same", pattern, "--pattern", "Other words").stderr
    assert hint in stage.run(velma, "learn", flagged(stage, velma), "--same", pattern, "--pattern", "More").stderr
    assert "in the log" not in stage.run(velma, *told, "--same", pattern, "--pattern", LESSON).stderr


def test_a_secret_in_the_lesson_is_taken_out_and_told(stage, velma):
    token = "ghp_" + "a1B2" * 9
    done = stage.run(velma, "learn", flagged(stage, velma), "--pattern", f"Never print {token}")
    assert "a secret was taken out (github-classic)" in done.stderr
    assert "a1B2" not in done.stdout


def test_search_finds_an_entry_by_what_was_learned_from_it(stage, velma):
    learn(stage, velma, flagged(stage, velma), "--pattern", "Quokkas need a lockfile")
    assert "corrections.md" in stage.run(velma, "search", "--kind", "correction", "quokkas").stdout


def test_what_is_dismissed_waits_no_more_stays_in_the_log_and_can_be_stated(stage, velma):
    first, second = (flagged(stage, velma, Flag("human", f"no, {word}")) for word in ("pnpm", "tabs"))
    done = stage.run(velma, "learn", "--dismiss", first, "--json")
    assert json.loads(done.stdout) == {"dismissed": [{"id": first, "title": "no, pnpm"}]}
    assert first not in stage.run(velma, "learn", "--waiting").stdout
    assert json.loads(stage.run(velma, "status", "--json").stdout)["unfilled"] == 1
    assert re.findall("dismissed: no, (.+)", stage.run(velma, "learn", "--waiting", "--all").stdout) == ["pnpm"]
    assert second in stage.run(velma, "learn", "--dismiss", "--all").stdout
    assert "no correction waits" in stage.run(velma, "learn", "--dismiss", "--all").stdout
    assert stage.run(velma, "learn", "--waiting", "--all").stderr == "", "no lesson is asked for"
    listed = json.loads(stage.run(velma, "learn", "--waiting", "--all", "--json").stdout)["waiting"]
    assert [each["id"] for each in listed] == [first, second]
    assert "seen 1 time" in stage.run(velma, "learn", second, "--pattern", "Use tabs").stdout


def test_all_that_wait_are_dismissed_with_the_failed_builds_and_each_once(stage, velma):
    first, build = flagged(stage, velma), flagged(stage, velma, Flag.of_failure("npm test", 1, "boom"))
    assert "1 failed build more" in stage.run(velma, "learn", "--waiting").stdout
    done = stage.run(velma, "learn", "--dismiss", "--all").stdout
    assert build in done
    assert done.endswith("in all 1 correction and 1 failed build\n")
    assert stage.run(velma, "learn", "--waiting").stdout == "no correction waits for its lesson\n"
    log = stage.folder / velma / "agents" / velma / "corrections.md"
    before = log.read_bytes()
    for entry in (first, build):
        assert "is not asked about any more" in stage.run(velma, "learn", "--dismiss", entry).stdout
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    "words", [["--dismiss"], ["--dismiss", "--all", "c-1"], ["--dismiss", "c-1", "--pattern", "x"]]
)
def test_a_dismissal_names_one_or_all_and_nothing_else(stage, velma, words):
    assert "nothing was changed" in stage.run(velma, "learn", *words, expect=2).stderr


def test_an_entry_that_was_edited_after_it_was_counted_is_told_and_counts_as_before(stage, velma):
    words = ("--wrong", "w", "--right", "pnpm install", "--pattern", LESSON)
    done = json.loads(stage.run(velma, "correct", *words, "--json").stdout)
    assert json.loads(stage.run(velma, "status", "--json").stdout)["edited"] == []
    path = stage.folder / velma / "agents" / velma / "corrections.md"
    path.write_text(path.read_text().replace(LESSON, "In this repository use yarn"))
    assert json.loads(stage.run(velma, "status", "--json").stdout)["edited"] == [done["id"]]
    assert f"fleet edit {done['id']} --set text=" in stage.run(velma, "status").stdout
    assert [each["seen"] for each in stage.patterns(velma)["patterns"]] == [1]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [(LESSON, "In this repository use yarn", "text"), ("pnpm install", "yarn install", "right")],
)
def test_an_edited_entry_is_told_by_a_sync_and_no_more_once_its_lesson_follows(stage, velma, old, new, field):
    words = ("--wrong", "w", "--right", "pnpm install", "--pattern", LESSON)
    done = json.loads(stage.run(velma, "correct", *words, "--json").stdout)
    told = "1 entry of agents/velma/corrections.md edited since counted"
    assert told not in stage.run(velma, "sync").stderr
    path = stage.folder / velma / "agents" / velma / "corrections.md"
    path.write_text(path.read_text().replace(old, new))
    assert told in stage.run(velma, "sync").stderr
    assert told not in stage.run(velma, "sync").stderr
    stage.run(velma, "edit", done["id"], "--set", f"{field}={new}")
    assert json.loads(stage.run(velma, "status", "--json").stdout)["edited"] == []
    assert [each["seen"] for each in stage.patterns(velma)["patterns"]] == [1]


def test_a_start_mentions_what_has_no_lesson_for_as_long_as_somebody_wants_and_no_longer(stage, velma):
    flagged(stage, velma)
    assert "1 correction without a lesson" in stage.run(velma, "start").stdout
    config = stage.folder / velma / "fleet.toml"
    config.write_text(config.read_text().replace("# ask_days = 1 ", "ask_days = 0.000000001 "))
    assert "without a lesson" not in stage.run(velma, "start").stdout
    assert len(learn(stage, velma, "--waiting")["waiting"]) == 1


def test_a_failed_build_is_counted_below_what_waits_and_listed_with_all(stage, velma):
    entry = flagged(stage, velma, Flag.of_failure("pnpm test", 1, "boom"))
    shown = stage.run(velma, "learn", "--waiting").stdout
    assert shown.endswith("no correction waits for its lesson\n1 failed build more: `fleet learn --waiting --all`\n")
    assert learn(stage, velma, "--waiting") == {"waiting": [], "failures": 1}
    listed = stage.run(velma, "learn", "--waiting", "--all").stdout
    assert f"{entry}  " in listed
    assert "pnpm test: exit code 1" in listed
    assert "failed build" not in listed
    stage.run(velma, "learn", "--dismiss", entry)
    assert learn(stage, velma, "--waiting") == {"waiting": []}


def test_what_waits_is_listed_with_the_words_that_say_what_was_meant(stage, velma):
    whole = "why did you delete the config? I told you\nto keep it"
    flagged(stage, velma, Flag("human", whole, "why did you delete the config?"))
    assert "why did you delete the config? I told you to keep it\n" in stage.run(velma, "learn", "--waiting").stdout
    assert learn(stage, velma, "--waiting")["waiting"][0]["wrong"] == whole
    late = f"{'a lot of context, ' * 30}and no, use pnpm here. {'It is faster. ' * 40}"
    flagged(stage, velma, Flag("human", late, "no, use pnpm here."))
    shown = stage.run(velma, "learn", "--waiting").stdout
    assert "…no, use pnpm here. It is faster." in shown
    assert all(len(row) < 350 for row in shown.splitlines())
    flagged(stage, velma, Flag("human", "no, use awk\n(Refused Bash: sed -i s/a/b/ x)", "no, use awk"))
    assert "  no, use awk\n" in stage.run(velma, "learn", "--waiting").stdout
