"""Transcripts for tests, as Claude Code writes them."""

import json
from pathlib import Path

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\n"
)


class Talk:
    """A transcript that is being written.

    Args:
        path: of it.
        session: the host's id.
    """

    def __init__(self, path: Path, session: str = "5e551000-0000-4000-8000-000000000001") -> None:
        self.path, self.session, self._calls = path, session, 0
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, role: str, *blocks: dict, **more: object) -> "Talk":
        line = {
            "type": role,
            "sessionId": self.session,
            "cwd": "/work/project",
            "timestamp": "2026-05-09T10:00:00.000Z",
            "message": {"role": role, "content": list(blocks)},
            **more,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return self

    def says(self, text: str, **more: object) -> "Talk":
        """A person types."""
        return self.add("user", {"type": "text", "text": text}, **more)

    def agent(self, text: str) -> "Talk":
        return self.add("assistant", {"type": "text", "text": text})

    def runs(self, command: str, printed: str = "", *, ok: bool = True) -> "Talk":
        return self.calls("Bash", printed, ok=ok, command=command)

    def calls(self, tool: str, printed: str = "", *, ok: bool = True, **given: str) -> "Talk":
        self._calls += 1
        name = f"t{self._calls}"
        self.add("assistant", {"type": "tool_use", "id": name, "name": tool, "input": given})
        result = {"type": "tool_result", "tool_use_id": name, "content": printed, "is_error": not ok}
        return self.add("user", result)

    def refuses(self, command: str, words: str) -> "Talk":
        return self.runs(command, f"{REFUSED}{words}", ok=False)


def taught(path: Path, session: str = "5e551000-0000-4000-8000-000000000001") -> Talk:
    """A session in which a person refused a call, and a build was mended."""
    talk = Talk(path, session).says("please publish the branch")
    talk.refuses("git push --force", "no, never force-push to a shared branch, use --force-with-lease instead")
    talk.runs("make build", "src/a.c:3: error: the header config.h is missing here", ok=False)
    talk.runs("make build", "src/a.c:3: error: the header config.h is missing here", ok=False)
    talk.calls("Write", "ok", file_path="/work/project/config.h")
    talk.runs("make build", "built")
    return talk.agent("All done.")
