// The conversation itself: framing, errors, cancelling, and that plugins cannot disturb it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { folder, plugin, startHost } from "./child.mjs";

const BLANK = { tools: [], hooks: [], internalHooks: [], commands: [], services: [], gatewayMethods: [], httpRoutes: [], cli: [], unsupported: [] };

test("it introduces itself and answers a ping", async (t) => {
  const host = await startHost(t, { greet: false });
  const about = await host.ask("initialize", { protocol: 1, hostVersion: "1.2.3", config: {} });
  assert.deepEqual(about, { name: "node-host", version: "1.2.3", protocol: 1, nodeVersion: process.versions.node, lacking: null });
  assert.equal(await host.ask("ping"), "pong");
});

test("another protocol is refused in words", async (t) => {
  const host = await startHost(t, { greet: false });
  await assert.rejects(host.ask("initialize", { protocol: 2 }), { code: -32602, message: /speaks protocol 1, the gateway 2/ });
});

test("garbage is answered with an error and does no harm", async (t) => {
  const host = await startHost(t);
  for (const line of ["not json", "[1,2]", "null", '{"jsonrpc":"2.0","id":77}', "\u0000\u0001", '{"id":5,"result":1}']) host.send(line);
  assert.equal(await host.ask("ping"), "pong");
  const codes = host.stray.map(({ id, error }) => [id, error.code]);
  assert.deepEqual(codes, [[null, -32700], [null, -32600], [null, -32600], [77, -32600], [null, -32700]]);
});

test("an unknown method is named", async (t) => {
  const host = await startHost(t);
  await assert.rejects(host.ask("no.such"), { code: -32601, message: 'unknown method "no.such"' });
});

test("a reference that nobody has says what to do", async (t) => {
  const host = await startHost(t);
  await assert.rejects(host.ask("hook.invoke", { ref: "x#hook.0", event: {} }), { code: -32602, message: /unknown hook reference "x#hook.0"; load its plugin first/ });
});

test("a message in pieces, with a character cut in two, arrives whole", async (t) => {
  const host = await startHost(t);
  const { echo } = await host.load(plugin("echo", `export default (api) => api.on("llm_input", (event) => ({ said: event.text }));`));
  const text = "ünïcode 🦞 ".repeat(40_000);
  const { result } = await host.ask("hook.invoke", { ref: echo.registrations.hooks[0].ref, event: { text }, ctx: {} });
  assert.equal(result.said, text);
});

test("console and stdout of plugins go to the log, with the plugin's name", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("loud", `
    console.log("at import");
    export default () => { console.log("one %d", 1); console.error("two"); console.table([{ a: 1 }]); process.stdout.write("three\\nfour\\n"); };
  `));
  await host.untilLog("four");
  const lines = host.logs.map(({ level, plugin, message }) => [level, plugin, message]).filter(([, , message]) => /at import|one|two|three|four/.test(message));
  assert.deepEqual(lines, [
    ["info", "loud", "at import"], ["info", "loud", "one 1"], ["error", "loud", "two"], ["info", "loud", "three"], ["info", "loud", "four"],
  ]);
  assert.deepEqual(host.stray, []);
});

test("a stray error names its plugin and ends nothing", async (t) => {
  const host = await startHost(t);
  await host.load(
    plugin("thrower", `export default () => { setTimeout(() => { throw new Error("late throw"); }, 0); };`),
    plugin("rejecter", `export default () => { Promise.reject(new Error("late reject")); };`),
  );
  const thrown = await host.untilLog("late throw");
  const rejected = await host.untilLog("late reject");
  assert.deepEqual([thrown.plugin, thrown.level, rejected.plugin, rejected.level], ["thrower", "error", "rejecter", "error"]);
  assert.equal(await host.ask("ping"), "pong");
});

test("a plugin cannot end the process", async (t) => {
  const host = await startHost(t);
  const { quitter } = await host.load(plugin("quitter", `export default (api) => api.on("agent_end", () => process.exit(3));`));
  await assert.rejects(host.ask("hook.invoke", { ref: quitter.registrations.hooks[0].ref, event: {}, ctx: {} }), { code: -32000, message: /plugins must not call process.exit\(3\)/ });
  assert.equal(await host.ask("ping"), "pong");
});

test("a handler that hangs does not hold others up, and a cancelled one gives its place back", async (t) => {
  const host = await startHost(t);
  const { slow } = await host.load(plugin("slow", `export default (api) => api.on("agent_end", () => new Promise(() => {}));`));
  const hung = host.begin("hook.invoke", { ref: slow.registrations.hooks[0].ref, event: {}, ctx: {} });
  assert.equal(await host.ask("ping"), "pong");
  host.notify("$/cancel", { id: hung.id });
  await assert.rejects(hung.answer, { code: -32800, message: "cancelled" });
});

test("a result that is no JSON is an error, not a silence", async (t) => {
  const host = await startHost(t);
  const { big } = await host.load(plugin("big", `export default (api) => api.on("agent_end", () => ({ n: 1n }));`));
  await assert.rejects(host.ask("hook.invoke", { ref: big.registrations.hooks[0].ref, event: {}, ctx: {} }), { code: -32000, message: /BigInt/ });
});

test("a flood of logs is cut off and said so, and does not cut off the neighbour", async (t) => {
  const host = await startHost(t);
  await host.load(
    plugin("flood", `export default (api) => api.on("agent_end", () => { for (let i = 0; i < 50000; i++) console.log("x".repeat(1000)); return { done: true }; });`),
    plugin("calm", `export default (api) => api.on("agent_end", () => { console.log("still heard"); });`),
  );
  assert.deepEqual(await host.ask("hook.invoke", { ref: "flood#hook.0", event: {}, ctx: {} }), { result: { done: true } });
  await host.ask("hook.invoke", { ref: "calm#hook.0", event: {}, ctx: {} });
  const flood = host.logs.filter((line) => line.plugin === "flood");
  assert.deepEqual([flood.length, flood.at(-1).message], [201, "the plugin logs more than 200 lines in 10 s; dropping the rest"]);
  assert.equal((await host.untilLog("still heard")).plugin, "calm");
});

test("an answer that is too long for a line is an error", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("huge", `export default (api) => api.on("agent_end", () => ({ text: "x".repeat(9e6) }));`));
  await assert.rejects(host.ask("hook.invoke", { ref: "huge#hook.0", event: {} }), { code: -32000, message: "the message exceeds the limit of 8388608 bytes: 9000057" });
});

test("the end of stdin ends the process", async (t) => {
  const host = await startHost(t);
  host.closeInput();
  assert.deepEqual(await host.exited, { code: 0, signal: null });
});

test("shutdown answers and ends the process, also when a service does not stop", async (t) => {
  const host = await startHost(t);
  const { sticky } = await host.load(plugin("sticky", `export default (api) => api.registerService({ id: "s", start() {}, stop: () => new Promise(() => {}) });`));
  await host.ask("service.start", { ref: sticky.registrations.services[0].ref });
  assert.deepEqual(await host.ask("shutdown", { graceMs: 20 }), {});
  assert.deepEqual(await host.exited, { code: 0, signal: null });
});

test("what a plugin may import is ours: a name that is not there fails with that name", async (t) => {
  const host = await startHost(t);
  const { asks } = await host.load(plugin("asks", `import { jsonResult, noSuchThing } from "openclaw/plugin-sdk"; export default () => noSuchThing(jsonResult);`));
  assert.equal(asks.status, "error");
  assert.match(asks.error, /noSuchThing/);
  assert.deepEqual(asks.registrations, BLANK);
});

test("a file that is not there is an error of that plugin only", async (t) => {
  const host = await startHost(t);
  const rootDir = folder({});
  const plugins = await host.load({ id: "gone", source: `${rootDir}/no.js`, rootDir, manifest: {} }, plugin("here", "export default () => {};"));
  assert.deepEqual([plugins.gone.status, plugins.here.status], ["error", "loaded"]);
  assert.match(plugins.gone.error, /no\.js/);
});
