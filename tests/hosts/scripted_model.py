"""The scripted model server beside the captured payloads, with one thing more: it does what its context asks for.

``{entry}`` in a command becomes the id that the last ``fleet learn c-...`` in the request names; until one is named it
answers, and calls nothing. So a test shows that the request reached the model, and not merely a log.

A command ``mcp:SERVER:TOOL`` is a call of that tool of an MCP server, under the name that the host gave it.
"""

import importlib.util
import itertools
import json
import re
import sys
import time
from pathlib import Path

_ENTRY = re.compile(r"fleet learn (c-[0-9a-f]{16})")
_MCP = re.compile(r"mcp:(\w+):(\w+)")
_THINKS_S = 0.5
"""No model answers at once; and the client writes its transcript, which hooks read, some 100 ms behind."""


def main() -> None:
    """Serve on FAKE_PORT; ``argv[1]`` is the path of ``fake_llm.py``."""
    spec = importlib.util.spec_from_file_location("fake_llm", Path(sys.argv[1]))
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    given = list(fake.CMDS)

    class Model(fake.H):
        def anthropic(self, body: dict) -> None:
            named = _ENTRY.findall(json.dumps(body.get("messages", [])))
            known = given if named else list(itertools.takewhile(lambda command: "{entry}" not in command, given))
            with fake.LOCK:
                fake.CMDS[:] = [command.replace("{entry}", named[-1] if named else "") for command in known]
            time.sleep(_THINKS_S)
            super().anthropic(body)

        def _ev(self, name: str | None, data: dict) -> None:
            if called := _MCP.search(json.dumps(data)):
                _call_tool(data, *called.groups())
            super()._ev(name, data)

    server = fake.ThreadingHTTPServer(("127.0.0.1", fake.PORT), Model)
    server.daemon_threads = True
    server.serve_forever()


def _call_tool(event: dict, server: str, tool: str) -> None:
    """Make the call of a shell in an event one of an MCP tool, as each host names those."""
    if "content_block" in event:  # Claude Code
        event["content_block"]["name"] = f"mcp__{server}__{tool}"
    elif "item" in event:  # Codex
        event["item"] |= {"namespace": f"mcp__{server}", "name": tool}
    elif "candidates" in event:  # Gemini CLI
        event["candidates"][0]["content"]["parts"][0]["functionCall"]["name"] = f"mcp_{server}_{tool}"


if __name__ == "__main__":
    main()
