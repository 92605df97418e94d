// Internal hooks and transforms: handlers in files of their own.

import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { folder, plugin, startHost } from "./child.mjs";

const EVENT = { type: "agent", action: "bootstrap", sessionKey: "agent:main:main", timestamp: "2026-02-09T10:00:00.000Z", messages: [] };

test("a handler gets a real date, adds messages and replaces the bootstrap files", async (t) => {
  const host = await startHost(t);
  const dir = folder({
    "handler.ts": `type Event = { timestamp: Date; messages: string[]; context: any };
      export default async function (event: Event) { event.messages.push("at " + event.timestamp.toISOString(), 7 as any); event.context.bootstrapFiles = event.context.bootstrapFiles.filter((f: any) => f.name !== "B.md").concat({ name: "C.md", content: "c" }); }
      export const other = (event: Event) => { event.messages.push("other"); };`,
    "broken.js": "throw new Error('at import');",
  });
  const entry = (name, file, wanted) => ({ name, handlerPath: path.join(dir, file), export: wanted, events: ["agent"] });
  const { entries } = await host.ask("internalHook.load", { entries: [entry("one", "handler.ts"), entry("two", "handler.ts", "other"), entry("three", "handler.ts", "nope"), entry("four", "broken.js")] });
  assert.deepEqual(entries.map(({ name, ref, status }) => [name, ref, status]), [
    ["one", "one#handler", "loaded"], ["two", "two#handler", "loaded"], ["three", "three#handler", "error"], ["four", "four#handler", "error"],
  ]);
  assert.match(entries[2].error, /does not export a function "nope"/);
  assert.equal(entries[3].error, "at import");
  const event = { ...EVENT, context: { bootstrapFiles: [{ name: "A.md", content: "a" }, { name: "B.md", content: "b" }] } };
  assert.deepEqual(await host.ask("internalHook.emit", { ref: "one#handler", event }), {
    messages: ["at 2026-02-09T10:00:00.000Z"],
    context: { bootstrapFiles: [{ name: "A.md", content: "a" }, { name: "C.md", content: "c" }] },
  });
  assert.deepEqual(await host.ask("internalHook.emit", { ref: "two#handler", event }), { messages: ["other"], context: {} });
});

test("a plugin's internal hook gets its config and, if none was sent, the gateway's", async (t) => {
  const host = await startHost(t, { config: { c: 1 } });
  const { ih } = await host.load(plugin("ih", `export default (api) => {
    api.registerHook(["command:new", "session"], (event) => { event.messages.push(JSON.stringify([event.context.pluginConfig, event.context.cfg])); }, { name: "notes" });
    api.registerHook("command", () => {}, { name: "off", register: false });
  };`, { pluginConfig: { p: 2 } }));
  assert.deepEqual(ih.registrations.internalHooks, [{ ref: "ih#internalHook.0", name: "notes", events: ["command:new", "session"] }]);
  const { messages } = await host.ask("internalHook.emit", { ref: "ih#internalHook.0", event: { ...EVENT, context: {} } });
  assert.deepEqual(messages, ['[{"p":2},{"c":1}]']);
});

test("a handler that throws is an error with its words", async (t) => {
  const host = await startHost(t);
  const dir = folder({ "package.json": '{"type":"module"}', "handler.js": `export default () => { throw new Error("no disk"); };` });
  await host.ask("internalHook.load", { entries: [{ name: "bad", handlerPath: path.join(dir, "handler.js"), events: [] }] });
  await assert.rejects(host.ask("internalHook.emit", { ref: "bad#handler", event: EVENT }), { code: -32000, message: "no disk" });
});

test("a transform gets its address as a URL; nothing said changes nothing, null skips", async (t) => {
  const host = await startHost(t);
  const dir = folder({
    "package.json": '{"type":"module"}',
    "t.js": `export default ({ payload, url }) => payload === "skip" ? null : payload === "keep" ? undefined : { message: url.searchParams.get("q") + payload };
      export const named = async () => ({ named: true });`,
    "u.js": `export const transform = () => ({ u: 1 });`,
    "none.js": "export const x = 1;",
  });
  const run = async (file, wanted, payload) => (await host.ask("transform.run", { module: path.join(dir, file), export: wanted, ctx: { payload, headers: {}, url: "http://h/hooks/a?q=1", path: "a" } })).result;
  assert.deepEqual(await run("t.js", undefined, "x"), { message: "1x" });
  assert.deepEqual([await run("t.js", "default", "skip"), await run("t.js", "default", "keep")], [null, {}]);
  assert.deepEqual([await run("t.js", "named"), await run("u.js")], [{ named: true }, { u: 1 }]);
  await assert.rejects(run("none.js"), { message: /does not export a function "default"/ });
});
