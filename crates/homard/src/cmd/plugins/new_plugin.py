# Reads one JSON-RPC request per line and answers it. Standard error goes to the gateway's log.
# More about plugins: homard docs plugins

import json
import sys

for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue  # a notification, which has no answer
    if request["method"] == "initialize":
        result = {}
    elif request["method"] == "tools.execute":
        arguments = request["params"].get("arguments", {})
        result = {"content": [{"type": "text", "text": arguments.get("text", "")}]}
    else:
        result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
