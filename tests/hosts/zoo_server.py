"""An MCP server of one tool over standard input and output, for the real clients."""

import json
import sys

TOOL = {"name": "feed", "description": "Feed an animal", "inputSchema": {"type": "object", "properties": {}}}


def result(method: str, given: dict) -> dict:
    """Return the answer to a request."""
    if method == "initialize":
        about = {"name": "zoo", "version": "1"}
        return {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    return {"tools/list": {"tools": [TOOL]}, "tools/call": {"content": [{"type": "text", "text": "fed"}]}}.get(
        method, {}
    )


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        answer = result(request["method"], request.get("params", {}))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
