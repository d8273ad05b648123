"""``fleet mutate``, ``fleet journal`` and ``fleet handover`` through the real command line."""

import json
import subprocess

import pytest

from fleet.learn import journal
from fleet.learn.attempts import AttemptLog
from fleet.learn.journal import Journal
from fleet.store.workspace import Workspace

SAID = ("--failed", "the full pipeline", "--switch", "the first step", "--why", "it is too large")


@pytest.fixture
def tank(stage):
    stage.run("tank", "init", "--agent", "tank", "--yes")
    return stage


def fail(stage, times=3):
    for _ in range(times):
        AttemptLog(stage.folder / "tank", "tank").note_failure("s-1", "pytest -q", "E   KeyError: 'region'", 1)


def succeed(stage):
    """Note a success as a hook does."""
    workspace = Workspace(stage.folder / "tank")
    for event in AttemptLog(workspace.root, "tank").note_success("s-1", "pytest -q"):
        Journal(workspace, "tank").record_success(event, "pytest -q")
    workspace.close()


def stopped(stage):
    return AttemptLog(stage.folder / "tank", "tank").verdict("s-1", "pytest -q")


def handover(stage, *more):
    return json.loads(stage.run("tank", "handover", "--json", *more).stdout)


def test_the_way_out_of_a_closed_door_and_into_a_lesson(tank):
    fail(tank)
    assert handover(tank)["open"]["attempts"] == [
        {
            "session": "s-1",
            "family": "pytest",
            "command": "pytest -q",
            "error": "E KeyError: 'region'",
            "failures": 3,
            "closed": True,
        }
    ]
    assert "fleet mutate M5 --failed" in journal.message(stopped(tank))
    said = tank.run("tank", "mutate", "M5", *SAID).stdout
    assert "## MUTATION: M5 (Reduce Scope)\nFailed 3x on: the full pipeline\n" in said
    assert stopped(tank) is None
    succeed(tank)
    [proposal] = json.loads(tank.run("tank", "mutate", "--proposed", "--json").stdout)["proposals"]
    assert proposal["command"] in tank.run("tank", "handover").stdout


def test_the_list(tank):
    listed = json.loads(tank.run("tank", "mutate", "--list", "--json").stdout)["mutations"]
    assert [each["code"] for each in listed] == [f"M{number}" for number in range(1, 9)]
    assert all(each.keys() == {"code", "name", "when", "example"} for each in listed)
    assert "M7 Ask the Oracle: " in tank.run("tank", "mutate", "--list").stdout


def test_the_oracle_says_what_is_known(tank):
    tank.correct("tank", "Invoices need the tenant in the header")
    tank.run("tank", "journal", "--title", "Something about zeppelins")
    told = ("--failed", "posting invoices gives 400", "--switch", "look it up", "--why", "known")
    said = tank.run("tank", "mutate", "M7", *told).stdout
    assert "Invoices need the tenant in the header" in said
    assert "zeppelins" not in said
    found = json.loads(tank.run("tank", "mutate", "M7", *told, "--json").stdout)
    assert found["known"]
    assert "known" not in json.loads(tank.run("tank", "mutate", "M6", *told, "--json").stdout)


@pytest.mark.parametrize(
    "words",
    [(), ("M5",), ("M9", *SAID), ("M5", "--failed", "x"), ("--list", "--proposed"), ("M5", "--worked", *SAID)],
)
def test_what_is_not_understood_writes_nothing(tank, words):
    assert "othing was written" in tank.run("tank", "mutate", *words, expect=2).stderr
    assert not (tank.folder / "tank" / "agents" / "tank" / "JOURNAL.md").exists()


def test_a_mutation_that_nobody_noticed(tank):
    tank.run("tank", "mutate", "--worked", expect=1)
    tank.run("tank", "mutate", "M2", *SAID)
    assert "M2 (Extreme Debug Logging) worked" in tank.run("tank", "mutate", "--worked").stdout
    assert len(json.loads(tank.run("tank", "mutate", "--proposed", "--json").stdout)["proposals"]) == 1


def test_journal_handover_and_search_go_together(tank):
    tank.git("init", "-q", "-b", "trunk", where="tank")
    told = json.loads(
        tank.run(
            *("tank", "journal", "--title", "Zeppelins", "--intent", "fly", "--approach", "gas", "--failed", "one"),
            *("--next", "two", "--failed", "three", "--next", "four", "--ok", "five", "--state", "done", "--json"),
        ).stdout
    )
    assert told == {"journal": "agents/tank/JOURNAL.md", "branch": "trunk"}
    found = handover(tank)
    assert found["lines"][0] == "# JOURNAL — trunk"
    assert found["lines"][5:] == [
        "❌ Failed: one",
        "→ two",
        "❌ Failed: three",
        "→ four",
        "✅ five",
        "Current state: done",
    ]
    assert found["open"] == {"attempts": [], "unfilled": 0, "proposals": []}
    assert "nothing is open" in tank.run("tank", "handover").stdout
    tank.git("checkout", "-q", "-b", "side/way", where="tank")
    assert handover(tank)["lines"] == []
    tank.run("tank", "journal", "--title", "Balloons")
    hits = json.loads(tank.run("tank", "search", "balloons", "--json").stdout)["results"]
    assert hits[0]["where"].startswith("agents/tank/journals/side-way-")
    assert json.loads(tank.run("tank", "search", "zeppelins", "--json").stdout)["results"]


def test_the_journal_of_a_branch_goes_on_while_git_holds_head_elsewhere(tank):
    def git(*words):
        tank.git("-c", "user.name=t", "-c", "user.email=t@example.org", *words, where="tank")

    def write(text):
        (tank.folder / "tank" / "z").write_text(text)
        git("add", "z")
        git("commit", "-q", "-m", text)

    git("init", "-q", "-b", "trunk")
    write("one")
    git("checkout", "-q", "-b", "feat")
    write("theirs")
    git("checkout", "-q", "trunk")
    write("ours")
    git("checkout", "-q", "feat")
    with pytest.raises(subprocess.CalledProcessError):
        git("rebase", "trunk")
    wrote = tank.run("tank", "journal", "--title", "In the rebase")
    assert wrote.stdout == "in agents/tank/JOURNAL.md, the journal of feat\n"
    assert wrote.stderr == ""
    git("rebase", "--abort")
    assert "In the rebase" in "".join(handover(tank)["lines"])
    git("bisect", "start", "feat", "feat~1")
    tank.run("tank", "journal", "--title", "In the bisection")
    git("bisect", "reset")
    git("checkout", "-q", "--detach", "feat~1")
    loose = tank.run("tank", "journal", "--title", "On no branch")
    assert "HEAD is on no branch: the journal of feat" in loose.stderr
    git("checkout", "-q", "feat")
    shown = tank.run("tank", "handover").stdout
    assert all(each in shown for each in ("In the rebase", "In the bisection", "On no branch"))


def test_a_secret_is_taken_out_and_said_so(tank):
    secret = "ghp_" + "a1B2" * 9
    done = tank.run("tank", "journal", "--title", f"Use {secret}")
    assert "rotate it" in done.stderr
    assert secret not in done.stdout + done.stderr + json.dumps(handover(tank))


def test_an_ephemeral_workspace_is_not_written(stage):
    stage.join("velma")
    stage.run("job", "init", "--ephemeral", "--agent", "tank", "--remote", str(stage.remote), "--yes")
    assert "ephemeral" in stage.run("job", "journal", "--title", "x", expect=2).stderr
