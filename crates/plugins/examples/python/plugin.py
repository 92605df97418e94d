"""A plugin in Python: a guard on commands, a tool, and a slash command.

One JSON object comes on each line of standard input; each one that has an id is answered with one line on standard
output. Words for people go to standard error.
"""

import json
import sys

forbidden = ["rm -rf /"]


def initialize(params):
    config = params.get("pluginConfig") or {}
    forbidden.extend(config.get("forbidden", []))
    # What the plugin registers is in homard.plugin.json, so there is nothing to add.
    return {"name": "tidy", "version": "1.0.0"}


def hook(params):
    """params["ref"] is the name of the hook; null means: nothing to say."""
    command = str(params["event"]["params"].get("command", ""))
    for words in forbidden:
        if words in command:
            return {"result": {"block": True, "blockReason": f"the plugin tidy forbids {words!r}"}}
    return {"result": None}


def tool(params):
    count = len(params["params"]["text"].split())
    return {"content": [{"type": "text", "text": f"{count} words"}], "details": {"count": count}}


def command(_params):
    return {"text": "Forbidden: " + ", ".join(forbidden)}


METHODS = {
    "initialize": initialize,
    "hook.invoke": hook,
    "tools.execute": tool,
    "command.run": command,
    "ping": lambda _params: "pong",
    "shutdown": lambda _params: {},
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue  # a notice, such as $/cancel
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        answer["result"] = METHODS[message["method"]](message.get("params") or {})
    except Exception as error:
        answer["error"] = {"code": -32000, "message": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
    if message["method"] == "shutdown":
        break
