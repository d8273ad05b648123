"""The pages of the branch: made of its lines alone, and never fought over."""

import pytest

from tests.cli.conftest import Stage

PAGES = ("README.md", "patterns.md", "discoveries.md")
PIPED = "Count with `sort names | uniq -c`, never by eye"


def shown(stage, path):
    return stage.git("show", f"fleet:{path}", where="clan.git")


def head(stage):
    return stage.git("rev-parse", "fleet", where="clan.git").strip()


@pytest.fixture(scope="module")
def clan(tmp_path_factory):
    """Velma and tank, who have logged lessons, one of them in two wordings, two that contradict, and a discovery."""
    stage = Stage(tmp_path_factory.mktemp("clan"))
    for agent in ("velma", "tank"):
        stage.join(agent)
    stage.correct("velma", PIPED)
    stage.correct("velma", "Always quote shell variables that hold a path")
    stage.correct("velma", "Always run the linter before a commit")
    stage.run("velma", "sync")
    stage.correct("tank", "Always quote shell variables holding a path")
    stage.correct("tank", "Never run the linter before a commit")
    stage.run("tank", "discover", "--problem", "the wheel is built for x86", "--solution", "pin the builder image")
    for agent in ("tank", "velma"):
        stage.run(agent, "sync")
    return stage


def edited(stage, message, **files):
    """Push a person's own commit; None takes a file away."""
    if not (stage.folder / "by-hand").exists():
        stage.git("clone", "--quiet", "--branch", "fleet", str(stage.remote), "by-hand")
    stage.git("pull", "--quiet", where="by-hand")
    for name, text in files.items():
        path = stage.folder / "by-hand" / f"{name}.md"
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
    stage.git("add", "--all", where="by-hand")
    who = ("-c", "user.name=p", "-c", "user.email=p@example.org")
    stage.git(*who, "commit", "--quiet", "-m", message, where="by-hand")
    stage.git("push", "--quiet", where="by-hand")


def test_the_branch_opens_with_a_page_that_says_what_it_is_and_what_is_new(clan):
    front = shown(clan, "README.md")
    for told in (
        "fleet init --agent",
        "](patterns.md)",
        "](discoveries.md)",
        PIPED,
        "the wheel is built for x86",
        "- tank: 2 lessons, 1 discovery, newest of 20",
        "or the opposite:",
    ):
        assert told in front
    lessons = shown(clan, "patterns.md")
    assert lessons.count("Always quote shell variables") == 2
    assert "Also said: Always quote shell variables" in lessons, "the twin stands under the other, and not beside it"
    assert PIPED in lessons
    assert "**the wheel is built for x86**: pin the builder image" in shown(clan, "discoveries.md")


def test_who_imported_a_lesson_is_named_beside_its_number_as_beside_the_lesson(stage):
    stage.join("slash")
    (stage.folder / "slash" / "lessons.md").write_text(
        "# Lessons\n\n- Quote variables in shell scripts\n- Pin the image\n"
    )
    stage.run("slash", "import", "lessons.md")
    stage.correct("slash", "Ask first")
    stage.run("slash", "sync")
    front = shown(stage, "README.md")
    assert front.count("seen once by slash") == 3
    assert "- slash: 3 lessons, newest of 20" in front


def test_the_pages_are_the_same_bytes_from_a_machine_with_its_own_view(clan):
    clan.run("velma", "sync")
    before, pages = head(clan), {path: shown(clan, path) for path in PAGES}
    clan.run("tank", "sync")
    clan.run("tank", "block", "velma")
    settings = clan.folder / "tank/fleet.toml"
    kept = settings.read_text()
    settings.write_text(kept + "\n[recall]\npage_lessons = 1\n")
    clan.run("tank", "compact")
    assert PIPED not in (clan.folder / "tank/clan-learnings/patterns.md").read_text()
    assert {path: shown(clan, path) for path in PAGES} == pages
    log = clan.git("log", "--name-only", "--format=", f"{before}..fleet", where="clan.git")
    assert not {*log.split()}.intersection(PAGES)
    settings.write_text(kept)
    clan.run("tank", "unblock", "velma")


def test_a_page_of_a_persons_own_is_never_replaced(clan):
    edited(clan, "ours", README="# Ours\n")
    clan.correct("velma", "Read the whole error before guessing")
    clan.run("velma", "sync")
    assert shown(clan, "README.md") == "# Ours\n"
    assert "Read the whole error" in shown(clan, "patterns.md")
    edited(clan, "theirs again", README=None)
    clan.correct("velma", "Pin what the build downloads")
    clan.run("velma", "sync")
    assert "Pin what the build downloads" in shown(clan, "README.md")


def test_pages_of_an_older_fleet_stay_until_there_is_something_new(clan):
    edited(
        clan, "as an older fleet leaves it", README=None, discoveries=None, patterns="# What this clan has learned\n"
    )
    before = head(clan)
    for agent in ("velma", "tank"):
        clan.run(agent, "sync")
    assert head(clan) == before, "versions that render otherwise do not push against each other"
    clan.correct("velma", "Read the whole error before guessing")
    clan.run("velma", "sync")
    assert all(shown(clan, path).count("\n") > 5 for path in PAGES)


def test_the_page_here_is_rendered_anew_where_it_is_not_what_was_rendered(clan):
    here = clan.folder / "tank" / "clan-learnings"
    clan.run("tank", "sync")
    whole = (here / "patterns.md").read_bytes()
    (here / "patterns.md").write_text("# edited\n")
    clan.run("tank", "sync")
    assert (here / "patterns.md").read_bytes() == whole
    (here / "patterns.md").unlink()
    clan.run("tank", "sync")
    assert (here / "patterns.md").read_bytes() == whole
    (here / "members.toml").write_text('[velma]\nemoji = "🦊"\n')
    clan.run("tank", "sync")
    assert "🦊".encode() in (here / "patterns.md").read_bytes()
    clan.run("tank", "config", "set", "recall.page_lessons", "1")
    clan.run("tank", "sync")
    assert b"The best 1 are shown" in (here / "patterns.md").read_bytes()
