#!/usr/bin/env python3
"""Records the databases of a real OpenClaw 2026.9 as SQL, for the tests of the import.

    record.py NODE OPENCLAW_MJS TARGET

NODE is the Node that this version needs, OPENCLAW_MJS the script of the installed npm package `openclaw` (`cargo xtask
conform --install-only` installs both), TARGET the folder for state.sql and agent.sql. Everything that a user would have
is made by the program's own commands: conversations, jobs, approvals, a paired device and an allowed sender. Only the
pairing request is inserted, because no Telegram server is asked.
"""
import http.server, json, os, pathlib, re, shutil, socket, sqlite3, subprocess, sys, tempfile, threading, time

NODE, SCRIPT, TARGET = sys.argv[1:4]
HOME = pathlib.Path(tempfile.mkdtemp(prefix="openclaw-record-"))
STATE = HOME / ".openclaw"
STATE_TABLES = ["cron_jobs", "exec_approvals_config", "config_machine_state", "channel_pairing_requests",
                "channel_pairing_allow_entries", "device_pairing_paired", "device_auth_tokens"]
AGENT_TABLES = ["session_nodes", "transcript_events", "auth_profile_store"]


class Model(http.server.BaseHTTPRequestHandler):
    """A model that repeats the end of the message, and calls a tool once if asked to."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        last = body.get("messages", [{}])[-1]
        text = last.get("content", "")
        text = (text if isinstance(text, str) else json.dumps(text))[-60:]
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-1"}
        if "TOOL" in text and last.get("role") == "user":
            call = {"index": 0, "id": "call_1", "type": "function",
                    "function": {"name": "read", "arguments": json.dumps({"path": "AGENTS.md"})}}
            choices = [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": None}], "tool_calls"
        else:
            choices = [{"index": 0, "delta": {"role": "assistant", "content": "You said: " + text}, "finish_reason": None}], "stop"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        end = [{"index": 0, "delta": {}, "finish_reason": choices[1]}]
        for event in (dict(chunk, choices=choices[0]), dict(chunk, choices=end)):
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


# A client with a device identity, made from the bytes 7, that asks for a role. The gateway pairs it, because it is local.
DEVICE = r"""
const crypto = require("node:crypto");
const [port, token, id, mode, scopes] = process.argv.slice(1);
const seed = Buffer.alloc(32, 7);
const der = Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]);
const key = crypto.createPrivateKey({ key: der, format: "der", type: "pkcs8" });
const raw = crypto.createPublicKey(key).export({ format: "der", type: "spki" }).subarray(-32);
const device = crypto.createHash("sha256").update(raw).digest("hex");
const socket = new WebSocket(`ws://127.0.0.1:${port}`);
socket.onmessage = ({ data }) => {
  const frame = JSON.parse(data);
  if (frame.event === "connect.challenge") {
    const signedAt = Date.now(), nonce = frame.payload.nonce;
    const text = ["v2", device, id, mode, "operator", scopes, signedAt, token, nonce].join("|");
    const signature = crypto.sign(null, Buffer.from(text), key).toString("base64url");
    socket.send(JSON.stringify({ type: "req", id: "1", method: "connect", params: {
      minProtocol: 4, maxProtocol: 4, role: "operator", scopes: scopes.split(","), auth: { token },
      client: { id, mode, version: "1", platform: "linux", displayName: "Desk" },
      device: { id: device, publicKey: raw.toString("base64url"), signature, signedAt, nonce } } }));
  } else if (frame.id === "1") {
    console.log(JSON.stringify(frame).slice(0, 400));
    process.exit(frame.ok ? 0 : 1);
  }
};
socket.onclose = () => process.exit(2);
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def environment():
    return {"HOME": str(HOME), "PATH": f"{os.path.dirname(NODE)}:/usr/bin:/bin", "OPENCLAW_SKIP_CHANNELS": "1",
            "OPENCLAW_SKIP_BROWSER_CONTROL_SERVER": "1", "OPENCLAW_DISABLE_BONJOUR": "1"}


def openclaw(*args, **options):
    print("openclaw", *(arg[:60] for arg in args), flush=True)
    done = subprocess.run([NODE, SCRIPT, *args], env=environment(), cwd=HOME, capture_output=True, text=True, timeout=240)
    if done.returncode and not options.get("may_fail"):
        sys.exit(f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def wait_for(port, process):
    for _ in range(240):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            sys.exit("the gateway ended")
        time.sleep(0.5)
    sys.exit("the gateway does not listen")


def dump(database, tables, target):
    db = sqlite3.connect(database)
    version = db.execute("PRAGMA user_version").fetchone()[0]
    lines = ["-- Written by tests/golden/record.py; other tables, triggers and long texts are left out.",
             f"PRAGMA user_version = {version};"]
    for table in tables:
        lines.append(db.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", [table]).fetchone()[0] + ";")
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        quoted = " || ',' || ".join(f'quote("{column}")' for column in columns)
        # Plugins and other parts of the machine are not the user's state.
        condition = "WHERE state_key LIKE 'authProfiles.%'" if table == "config_machine_state" else ""
        for (row,) in db.execute(f"SELECT {quoted} FROM {table} {condition} ORDER BY 1"):
            lines.append(f"INSERT INTO {table} VALUES({row});")
    package = str(pathlib.Path(SCRIPT).resolve().parent)
    text = "\n".join(lines).replace(str(HOME), "/home/me").replace(package, "/opt/openclaw") + "\n"
    (pathlib.Path(TARGET) / target).write_text(text)


def main():
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    port = free_port()
    STATE.mkdir()
    provider = {"baseUrl": f"http://127.0.0.1:{model.server_port}/v1", "apiKey": "sk-fake", "api": "openai-completions",
                "models": [{"id": "fake-1", "name": "fake-1", "contextWindow": 64000, "maxTokens": 4096}]}
    config = {"gateway": {"mode": "local", "port": port, "auth": {"mode": "token", "token": "throw-away-token"}},
              "agents": {"defaults": {"model": "fake/fake-1"}}, "models": {"providers": {"fake": provider}},
              "channels": {"telegram": {"enabled": True, "botToken": "123456:fake-token", "dmPolicy": "pairing"}}}
    (STATE / "openclaw.json").write_text(json.dumps(config))
    openclaw("agent", "--local", "--agent", "main", "--message", "Use a tool: TOOL", "--json")
    openclaw("agent", "--local", "--agent", "main", "--session-key", "agent:main:notes", "--message",
             "long text of the notes " * 2000, "--json")
    log = open(HOME / "gateway.log", "w")
    gateway = subprocess.Popen([NODE, SCRIPT, "gateway", "run", "--port", str(port)], env=environment(), cwd=HOME,
                               stdout=log, stderr=log)
    wait_for(port, gateway)
    openclaw("cron", "add", "--name", "Daily look", "--cron", "0 7 * * *", "--message", "look", "--session", "isolated",
             "--agent", "main", "--json")
    openclaw("cron", "add", "--name", "Every hour", "--every", "1h", "--system-event", "ping", "--session", "main",
             "--agent", "main", "--json")
    openclaw("approvals", "allowlist", "add", "--agent", "main", "/usr/bin/git")
    device = [NODE, "-e", DEVICE, str(port), "throw-away-token", "cli", "cli", "operator.read,operator.write"]
    subprocess.run(device, check=True, timeout=60)
    gateway.terminate()
    gateway.wait(60)
    shared = STATE / "state" / "openclaw.sqlite"
    db = sqlite3.connect(shared)
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    for sender, code in [("4711", "BCDFGHJK"), ("4712", "LMNPQRST")]:
        db.execute("INSERT INTO channel_pairing_requests VALUES ('telegram', 'default', ?, ?, ?, ?, ?)",
                   [sender, code, now, now, json.dumps({"username": "ann", "accountId": "default"})])
    db.commit()
    db.close()
    openclaw("pairing", "approve", "telegram", "BCDFGHJK")
    pathlib.Path(TARGET).mkdir(parents=True, exist_ok=True)
    dump(shared, STATE_TABLES, "state.sql")
    dump(STATE / "agents/main/agent/openclaw-agent.sqlite", AGENT_TABLES, "agent.sql")
    print("recorded", TARGET, "from", HOME)


main()
