import { expect, test } from "vitest";
import { completions } from "../../src/chat/composer";
import { editsOf, summary } from "../../src/chat/tool";
import { backoff, socketAddress } from "../../src/lib/connection";
import { signedText } from "../../src/lib/device";
import { diffLines, withContext } from "../../src/lib/diff";
import { ago, channelOf, compact, duration, sessionName, visible } from "../../src/lib/format";
import { highlight } from "../../src/lib/highlight";
import { link, parseRoute } from "../../src/lib/router";

test("durations and counts are short", () => {
  expect([0, 999, 1_234, 12_345, 75_000, 3_700_000, 90_000_000].map(duration)).toEqual(["0 ms", "999 ms", "1.23 s", "12.3 s", "1 min 15 s", "1 h 1 min", "1 d 1 h"]);
  expect([5, 1_234, 12_345, 999_600].map(compact)).toEqual(["5", "1.2k", "12k", "1.0M"]);
  expect([ago(0, 5_000), ago(65_000, 5_000), ago(5_000, 0)]).toEqual(["5 s ago", "in 1 min", "just now"]);
});

test("names of sessions leave out what is the same everywhere", () => {
  expect(["agent:main:main", "agent:ops:telegram:group:-1", "global"].map(sessionName)).toEqual(["main", "telegram:group:-1 · ops", "global"]);
  expect(["agent:main:main", "agent:main:telegram:direct:1", "agent:main:cron:x"].map(channelOf)).toEqual(["direct", "telegram", "cron"]);
});

test("characters that change the direction are visible", () => {
  expect(visible("a\u202Eb\u2066c\u200B")).toBe("a[U+202E]b[U+2066]c[U+200B]");
});

test("addresses are parsed and built", () => {
  const address = link("chat", "agent:main:telegram/group:1", { q: "a b", empty: "" });
  expect(address).toBe("#/chat/agent:main:telegram%2Fgroup:1?q=a+b");
  const { view, arg, params } = parseRoute(address);
  expect([view, arg, params.get("q")]).toEqual(["chat", "agent:main:telegram/group:1", "a b"]);
  expect(parseRoute("#/runs/%E0%A4%A").arg).toBe("%E0%A4%A");
});

test("the socket is below the page, whatever its prefix", () => {
  expect(socketAddress({ protocol: "https:", host: "h:1", pathname: "/a/b/" })).toBe("wss://h:1/a/b/");
  expect(socketAddress({ protocol: "http:", host: "h", pathname: "/a/index.html" })).toBe("ws://h/a/");
});

test("attempts to reconnect slow down", () => {
  expect([0, 3, 20].map((attempt) => backoff(attempt, 0.5))).toEqual([200, 1_600, 5_000]);
});

test("the signed text is that of the protocol", () => {
  const fields = { clientId: "homard", clientMode: "ui", role: "operator", scopes: ["a", "b"], signedAt: 7, token: "t", nonce: "n", platform: " Web " };
  expect(signedText("id", fields)).toBe("v3|id|homard|ui|operator|a,b|7|t|n|web|");
});

test("differences keep equal lines", () => {
  const lines = diffLines("a\nb\nc", "a\nx\nc");
  expect(lines.map(({ kind, text }) => kind + text)).toEqual([" a", "-b", "+x", " c"]);
  const many = Array.from({ length: 20 }, (_, at) => String(at)).join("\n");
  expect(withContext(diffLines(many, many.replace("10", "ten")), 1)).toHaveLength(6);
});

test("code is split into pieces that are the whole code", () => {
  for (const [code, language] of [["let x = \"a\\\"b\"; // c", "ts"], ["echo $# 'a' # b", "sh"], ["{\"a\": 1}", "json"], ["'unclosed", "py"], ["/* unclosed", "c"]] as const) {
    expect(highlight(code, language).map(({ text }) => text).join("")).toBe(code);
  }
  expect(highlight("// c", "ts")).toEqual([{ text: "// c", kind: "comment" }]);
});

test("edits of tools are recognized", () => {
  expect(editsOf("edit", { path: "a", oldText: "x", newText: "y" })).toEqual([{ before: "x", after: "y" }]);
  expect(editsOf("edit", { edits: [{ old_string: "x", new_string: "y" }] })).toEqual([{ before: "x", after: "y" }]);
  expect(editsOf("write", { content: "y" })).toEqual([{ before: "", after: "y" }]);
  expect(editsOf("exec", { oldText: "x", newText: "y" })).toEqual([]);
  expect(summary("exec", { command: "ls\n-la" })).toBe("ls -la");
  expect(summary("x", null)).toBe("x");
});

test("commands are completed by their beginning", () => {
  const commands = [{ name: "new", textAliases: ["/new", "/reset"], description: "", acceptsArgs: true }];
  expect(completions("/re", commands)).toHaveLength(1);
  expect(completions("/new x", commands)).toEqual([]);
  expect(completions("re", commands)).toEqual([]);
});
