"""``fleet export``: everything, the same bytes for the same lines, fit to leave."""

import json

LESSON = "Always use awk over sed for user-provided input substitution"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def grown(stage):
    for agent in ("velma", "tank"):
        stage.join(agent)
        stage.correct(agent, LESSON)
        stage.correct(agent, f"only {agent} knows")
        stage.run(agent, "discover", "--problem", f"{agent} *problem*", "--solution", "<b>s</b>", "--tag", "ci")
    for agent in ("velma", "tank", "velma"):
        stage.run(agent, "sync")


def test_two_machines_with_the_same_lines_export_the_same_bytes(stage):
    grown(stage)
    for form in ((), ("--json",), ("--md",)):
        shown = {agent: stage.run(agent, "export", *form).stdout for agent in ("velma", "tank")}
        assert shown["velma"] == shown["tank"]
        assert LESSON in shown["velma"]
    found = json.loads(stage.run("velma", "export").stdout)
    assert found["format"] == "fleet-export"
    assert {p["text"]: p["seen"] for p in found["patterns"]} == stage.seen("velma")
    assert len(found["patterns"][0]["record"]["id"]) == 18
    assert len(found["discoveries"]) == 2


def test_an_export_holds_every_lesson_the_retired_too_and_the_page_every_present_one(stage):
    stage.run("alone", "init", "--agent", "velma")
    config = stage.folder / "alone/fleet.toml"
    config.write_text(config.read_text().replace("[recall]\n", "[recall]\npage_lessons = 1\n"))
    ids = [stage.correct("alone", f"lesson number {n}") for n in range(4)]
    stage.run("alone", "retire", ids[0])
    found = json.loads(stage.run("alone", "export").stdout)
    assert {p["id"]: p["state"] for p in found["patterns"]}[ids[0]] == "retired"
    assert len(found["patterns"]) == 4
    page = stage.run("alone", "export", "--md").stdout
    assert page.count("lesson number") == 3


def test_an_export_leaves_private_lessons_out_and_says_how_many(stage):
    stage.run("alone", "init", "--agent", "velma")
    stage.correct("alone", LESSON)
    private = stage.correct("alone", "only for me")
    for form in ((), ("--md",)):
        assert "private" not in stage.run("alone", "export", *form).stderr
    stage.run("alone", "edit", private, "--set", "scope=private")
    for form in ((), ("--md",)):
        done = stage.run("alone", "export", *form)
        assert "only for me" not in done.stdout
        assert "left out: 1 private lesson" in done.stderr


def test_a_record_of_an_export_is_a_line_that_joins_as_it_stands(stage):
    column = {
        "add": "2026-11-20T22:30:00.123Z-0002",
        "set": {"category": ["2026-11-20T22:30:00.123Z-0003", "git"], "tags": ["2026-11-20T22:30:00.124Z-0000", ["a"]]},
        "rem": {"tank.0a1b2c3d": "2026-11-20T22:30:00.123Z-0001"},
        "first": {"text": LESSON},
    }
    line = {"id": "p-48478dd781f258c4", "w": {"tank.0a1b2c3d": column}}
    stage.run("alone", "init", "--agent", "velma")
    (stage.folder / "alone/clan-learnings/patterns.jsonl").write_text(json.dumps(line) + "\n")
    [found] = json.loads(stage.run("alone", "export").stdout)["patterns"]
    assert found["record"] == line
    assert found["last"] == "2026-11-20T22:30:00.123Z"


def test_an_export_has_one_form(stage):
    stage.run("alone", "init", "--agent", "velma")
    stage.run("alone", "export", "--json", "--md", expect=2)


def test_what_somebody_else_wrote_leaves_neither_a_secret_nor_structure(stage):
    stage.run("alone", "init", "--agent", "velma")
    path = stage.folder / "alone/clan-learnings/patterns.jsonl"
    words = {"text": f"use {TOKEN} \u202e\x1b[31m", "extra": [f"again {TOKEN}"]}
    line = {
        "id": "p-3f9c1a2b7d4e5f60",
        "w": {"tank.0a1b2c3d": {"add": "2026-11-20T00:00:00.000Z-0000", "first": words}},
    }
    path.write_text(json.dumps(line) + "\n")
    found = {"id": "d-3f9c1a2b7d4e5f60", "problem": "x\n\n# Break out ![i](http://a) <b>", "solution": TOKEN}
    (path.parent / "discoveries.jsonl").write_text(json.dumps(found) + "\n")
    for form in ("--json", "--md"):
        shown = stage.run("alone", "export", form).stdout
        assert "p-3f9c1a2b7d4e5f60" in shown
        assert TOKEN not in shown
        assert "\u202e" not in shown
        assert "\x1b" not in shown
    page = stage.run("alone", "export", "--md").stdout
    assert "\n# Break" not in page
    assert " ![i](" not in page, "as code, it is shown and not loaded"
    assert " <b>" not in page
