"""The real Codex and Gemini CLI against a scripted model: what ``fleet install`` set up, seen from the model's side.

Not part of ``make test``: ``make test-hosts`` downloads the clients from npm, once, into ``.cache``.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.test_real_client import CACHE, Desk

PACKAGES = {"codex": ("@openai/codex", "0.171.0"), "gemini": ("@google/gemini-cli", "0.61.0")}
LESSON = "Zebras are striped in this project"
CODEX = """
model = "fake"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
[projects."{folder}"]
trust_level = "trusted"
[mcp_servers.zoo]
command = "{python}"
args = ["{server}"]
"""
ZOO = Path(__file__).with_name("zoo_server.py")
HEADLESS = {
    # Trust is a person's to give; here it is waived for the one run.
    "codex": ("exec", "--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox"),
    "gemini": ("--approval-mode", "yolo", "-p"),
}


@pytest.fixture(params=PACKAGES)
def host(request) -> str:
    """Return the name of a host whose client is here, installed once for each version."""
    package, version = PACKAGES[request.param]
    folder = CACHE / f"{request.param}-{version}"
    if not (folder / "node_modules" / ".bin" / request.param).exists():
        npm = shutil.which("npm")
        assert npm, f"npm is needed to download {package}"
        folder.mkdir(parents=True, exist_ok=True)
        words = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"{package}@{version}"]
        subprocess.run(words, check=True, timeout=900)
    return request.param


@pytest.fixture
def desk(tmp_path, host, shared):
    client = CACHE / f"{host}-{PACKAGES[host][1]}" / "node_modules" / ".bin" / host
    return Desk(tmp_path, client, shared / "hosts" / "fake_llm.py")


def session(desk: Desk, host: str, where: Path, prompt: str, *commands: str) -> list[str]:
    """Run one session of the client; return what the model was sent, a text each time."""
    with desk.scripted(commands) as (log, environment):
        address = environment["ANTHROPIC_BASE_URL"]
        (desk.home / ".codex").mkdir(exist_ok=True)
        of_codex = CODEX.format(address=address, folder=where, python=sys.executable, server=ZOO)
        (desk.home / ".codex" / "config.toml").write_text(of_codex)
        (desk.home / ".gemini").mkdir(exist_ok=True)
        zoo = {"command": sys.executable, "args": [str(ZOO)]}
        of_gemini = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "mcpServers": {"zoo": zoo}}
        (desk.home / ".gemini" / "settings.json").write_text(json.dumps(of_gemini))
        keys = {"FAKE_KEY": "fake", "GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": address}
        subprocess.run(
            [desk.client, *HEADLESS[host], prompt],
            cwd=where,
            env=environment | keys | {"GEMINI_CLI_TRUST_WORKSPACE": "true"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=True,
        )
        return [json.dumps(json.loads(line).get("body", "")) for line in log.read_text().splitlines()]


def test_the_loop_closes(desk, host):
    """What is known is in the first request, a correction is logged, and a fourth try of a failure is stopped."""
    where = desk.folder / "tank"
    where.mkdir()
    desk.fleet(where, "init", "--agent", "tank")
    desk.fleet(where, "install", host)
    desk.fleet(where, "correct", "--wrong", "w", "--right", "r", "--pattern", LESSON)
    sent = session(desk, host, where, "No, that's wrong. You should use pnpm here, not npm.", *["make nothing"] * 4)
    assert LESSON in next(each for each in sent if "pnpm here, not npm" in each)
    assert "You should use pnpm here, not npm." in (where / "agents" / "tank" / "corrections.md").read_text()
    assert "stopped before another try of `make nothing`" in sent[-1]


def test_a_tool_of_an_mcp_server_has_its_lesson_and_its_guard(desk, host):
    where = desk.folder / "tank"
    where.mkdir()
    desk.fleet(where, "init", "--agent", "tank")
    desk.fleet(where, "install", host)
    words = ("--wrong", "w", "--right", "r", "--pattern", LESSON, "--trigger", "mcp__zoo__*", "--json")
    lesson = json.loads(desk.fleet(where, "correct", *words))["id"]
    desk.fleet(where, "sync")
    sent = session(desk, host, where, "Feed the animals", "mcp:zoo:feed")
    assert LESSON in sent[-1].rpartition("mcp:zoo:feed")[2]
    assert "fed" in sent[-1]
    desk.fleet(where, "guard", lesson, "deny")
    sent = session(desk, host, where, "Feed them again", "mcp:zoo:feed")
    assert "Stopped by a person's decision" in sent[-1]
    desk.fleet(where, "guard", lesson, "ask")
    sent = session(desk, host, where, "Feed them once more", "mcp:zoo:feed")
    assert "a lesson guards this step" in sent[-1]
