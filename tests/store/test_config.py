"""The file that ``fleet init`` writes."""

import tomllib
from pathlib import Path

import msgspec
import pytest

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
    assert set(found.given) == {each.name for each in config.settings(tmp_path / "fleet.toml")}
    found.share.remote, found.attempts.builds, found.given = "", None, []
    assert found == config.Config()
    for name, table in tomllib.loads(text).items():
        assert set(table) == {field.name for field in msgspec.structs.fields(type(getattr(found, name)))}
    assert set(tomllib.loads(text)) == {each.name for each in msgspec.structs.fields(config.Config)} - {
        "problems",
        "is_read",
        "given",
    }


def test_a_remote_in_a_new_file_is_in_force_and_so_is_the_branch(tmp_path):
    (tmp_path / "fleet.toml").write_text(config.render('git@example.org:a"b.git', "lessons"))
    share = config.load(tmp_path / "fleet.toml").share
    assert (share.remote, share.branch) == ('git@example.org:a"b.git', "lessons")


def _numbers() -> list[str]:
    return [
        each.name
        for each in config.settings(Path("none"))
        if isinstance(each.value, (int, float)) and not isinstance(each.value, bool)
    ]


def test_a_name_for_a_code_that_does_not_exist_is_passed_over(tmp_path):
    (tmp_path / "fleet.toml").write_text('[attempts]\nlimit = 5\nnames = { M9 = "x" }\n')
    loaded = config.load(tmp_path / "fleet.toml")
    assert "it is a table, each key M1 to M8" in loaded.problems[0]
    assert (loaded.attempts.limit, loaded.attempts.names) == (5, {})


@pytest.mark.parametrize("name", _numbers())
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308", "99999999999999999999999", "-1"])
def test_no_number_is_without_limits(tmp_path, name, value):
    section, _, key = name.partition(".")
    (tmp_path / "fleet.toml").write_text(f"[{section}]\n{key} = {value}\n")
    loaded = config.load(tmp_path / "fleet.toml")
    assert len(loaded.problems) == 1
    assert getattr(getattr(loaded, section), key) == getattr(getattr(config.Config(), section), key)
