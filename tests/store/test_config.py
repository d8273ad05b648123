"""The file that ``fleet init`` writes."""

import tomllib

import msgspec

from fleet.store import config
from fleet.text import shell


def uncommented(text: str) -> str:
    """Return the file with every default in force; its first line is a remark."""
    rows = text.splitlines()[1:]
    return "\n".join(row.removeprefix("# ") for row in rows)


def test_a_new_file_shows_every_setting_with_its_default(tmp_path):
    text = uncommented(config.render("", "fleet"))
    (tmp_path / "fleet.toml").write_text(text)
    found = config.load(tmp_path / "fleet.toml")
    assert found.problems == []
    assert found.share.remote == "git@example.org:team/learnings.git"
    assert found.attempts.builds == list(shell.BUILDS)
    found.share.remote, found.attempts.builds = "", None
    assert found == config.Config()
    for name, table in tomllib.loads(text).items():
        assert set(table) == {field.name for field in msgspec.structs.fields(type(getattr(found, name)))}
    assert set(tomllib.loads(text)) == {each.name for each in msgspec.structs.fields(config.Config)} - {
        "problems",
        "is_read",
    }


def test_a_remote_in_a_new_file_is_in_force_and_so_is_the_branch(tmp_path):
    (tmp_path / "fleet.toml").write_text(config.render('git@example.org:a"b.git', "lessons"))
    share = config.load(tmp_path / "fleet.toml").share
    assert (share.remote, share.branch) == ('git@example.org:a"b.git', "lessons")
