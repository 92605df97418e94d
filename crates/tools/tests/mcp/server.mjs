// An MCP server for tests, over its input and output. With a path as its argument it waits until somebody writes to the
// pipe there before it answers anything; with "mute" it never does; with "broken" it ends at once.
import { spawn } from "node:child_process";
import { open } from "node:fs/promises";
import { createInterface } from "node:readline";

const empty = { type: "object" };
const tools = () => [
  { name: "echo", description: "Says it again.", inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] } },
  ...["crash", "environment", "fail", "grow", "hang", "picture", "refuse", "spawn"].map((name) => ({ name, inputSchema: empty })),
  ...(globalThis.grown ? [{ name: "grown", inputSchema: empty }] : []),
];

function say(message) {
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
}

function answer({ id, method, params }) {
  if (method === "initialize") {
    const { protocolVersion } = params;
    say({ id, result: { protocolVersion, capabilities: { tools: { listChanged: true } }, serverInfo: { name: "fake", version: "1" } } });
  } else if (method === "tools/list") {
    // In two pages.
    const all = tools();
    const result = params?.cursor ? { tools: all.slice(4) } : { tools: all.slice(0, 4), nextCursor: "4" };
    say({ id, result });
  } else if (method === "tools/call") {
    call(id, params.name, params.arguments ?? {});
  } else if (id !== undefined) {
    say({ id, error: { code: -32601, message: "no such method" } });
  }
}

function call(id, name, given) {
  const text = (text, isError) => say({ id, result: { content: [{ type: "text", text }], ...(isError && { isError }) } });
  if (name === "echo") {
    // What is not JSON is noise, which some servers make.
    process.stdout.write("this is not JSON\n");
    text(given.text);
  } else if (name === "crash") {
    process.stderr.write("out of luck\n", () => process.exit(1));
  } else if (name === "environment") {
    text(Object.keys(process.env).sort().join(" ") + ` in ${process.cwd()}`);
  } else if (name === "fail") {
    text("it did not work", true);
  } else if (name === "grow") {
    globalThis.grown = true;
    say({ method: "notifications/tools/list_changed" });
    text("grown");
  } else if (name === "picture") {
    say({ id, result: { content: [{ type: "image", mimeType: "image/gif", data: "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=" }] } });
  } else if (name === "refuse") {
    say({ id, error: { code: -32602, message: "not like this" } });
  } else if (name === "spawn") {
    text(String(spawn("sleep", ["1000"], { detached: true, stdio: "ignore" }).pid));
  }
}

const mode = process.argv[2];
if (mode === "broken") {
  console.error("no config file");
  process.exit(3);
}
if (mode === "mute") {
  process.stdin.resume();
  process.on("SIGTERM", () => {});
} else {
  if (mode) await (await open(mode)).readFile();
  for await (const line of createInterface({ input: process.stdin })) answer(JSON.parse(line));
}
