// Tools: what the model is shown, who makes them, and how they run.

import assert from "node:assert/strict";
import { test } from "node:test";
import { plugin, startHost } from "./child.mjs";

test("tools are listed with their schemas, and factories are asked for every run", async (t) => {
  const host = await startHost(t, { config: { c: 1 } });
  const { f } = await host.load(plugin("f", `export default (api) => {
    api.registerTool({ name: "plain", label: "Plain", description: "d", parameters: { type: "object", properties: { x: { type: "string" } } }, execute: async (id, params) => ({ content: [{ type: "text", text: id + params.x }] }) });
    api.registerTool((ctx) => ctx.sandboxed ? null : [{ name: "made_" + ctx.agentId, description: String(ctx.config.c), execute: async () => "for " + ctx.agentId }], { names: ["made"], optional: true });
    api.registerTool(() => { throw new Error("cannot make it"); }, { name: "never" });
    api.registerTool(async () => ({}), { name: "promised" });
  };`));
  const parameters = { type: "object", properties: { x: { type: "string" } } };
  assert.deepEqual(f.registrations.tools, [
    { ref: "f#tool.0", name: "plain", label: "Plain", description: "d", parameters, names: ["plain"], optional: false, isFactory: false },
    { ref: "f#tool.1", names: ["made"], optional: true, isFactory: true },
    { ref: "f#tool.2", names: ["never"], optional: false, isFactory: true },
    { ref: "f#tool.3", names: ["promised"], optional: false, isFactory: true },
  ]);
  const plain = { ref: "f#tool.0", name: "plain", label: "Plain", description: "d", parameters, pluginId: "f", optional: false };
  const one = await host.ask("tools.materialize", { ctx: { agentId: "main", sandboxed: false } });
  const empty = { type: "object", properties: {} };
  assert.deepEqual(one.tools, [plain, { ref: "f#tool.1@1.0", name: "made_main", label: "made_main", description: "1", parameters: empty, pluginId: "f", optional: true }]);
  assert.deepEqual(one.failed.map(({ ref, error }) => [ref, error]), [
    ["f#tool.2", "cannot make it"],
    ["f#tool.3", "the tool factory returned a promise; it must return the tool"],
  ]);
  assert.deepEqual((await host.ask("tools.materialize", { ctx: { sandboxed: true } })).tools, [plain]);
  const two = await host.ask("tools.materialize", { ctx: { agentId: "other" } });
  const run = (ref, params) => host.ask("tools.execute", { ref, toolCallId: "id", params });
  assert.deepEqual(await run("f#tool.0", { x: "!" }), { content: [{ type: "text", text: "id!" }], details: null });
  assert.deepEqual(await run(one.tools[1].ref), { content: [{ type: "text", text: "for main" }], details: null });
  assert.deepEqual(await run(two.tools[1].ref), { content: [{ type: "text", text: "for other" }], details: null });
  await assert.rejects(run("f#tool.1@99.0"), { code: -32602, message: /is no longer available; request the run's tools again/ });
});

test("a tool reports progress and hears that it is cancelled", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("w", `export default (api) => api.registerTool({ name: "work", description: "", execute: (id, params, signal, onUpdate) => new Promise((resolve) => {
    onUpdate({ content: [{ type: "text", text: "half" }] });
    signal.addEventListener("abort", () => resolve({ content: [{ type: "text", text: "stopped" }], details: { aborted: true } }));
  }) });`));
  const { id, answer } = host.begin("tools.execute", { ref: "w#tool.0", toolCallId: "c", params: {} });
  assert.deepEqual(await host.until(({ progress }) => progress[0]), { id, value: { content: [{ type: "text", text: "half" }] } });
  host.notify("$/cancel", { id });
  assert.deepEqual(await answer, { content: [{ type: "text", text: "stopped" }], details: { aborted: true } });
});

test("of many reports the newest counts, and none comes after the end", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("chatty", `export default (api) => api.registerTool({ name: "chat", description: "", execute: async (id, params, signal, onUpdate) => {
    for (let i = 0; i < 5000; i++) onUpdate(i);
    await new Promise((resolve) => setTimeout(resolve, 60));
    onUpdate("last words");
    setTimeout(() => onUpdate("too late"), 1);
    return "done";
  } });`));
  const { id, answer } = host.begin("tools.execute", { ref: "chatty#tool.0", toolCallId: "c", params: {} });
  await answer;
  assert.equal(await host.ask("ping"), "pong");
  assert.deepEqual(host.progress, [{ id, value: 0 }, { id, value: 4999 }]);
});

test("what a tool asks of the gateway is cancelled with it", async (t) => {
  const host = await startHost(t, { answers: { "memory.search": () => new Promise(() => {}) } });
  await host.load(plugin("mem", `export default (api) => api.registerTool((ctx) => [api.runtime.tools.createMemorySearchTool({ agentSessionKey: ctx.sessionKey })], { names: ["memory_search"] });`));
  const { tools } = await host.ask("tools.materialize", { ctx: { sessionKey: "agent:main:main" } });
  const { id, answer } = host.begin("tools.execute", { ref: tools[0].ref, toolCallId: "c", params: { query: "q" } });
  await host.until(({ asked }) => asked.some(({ method }) => method === "memory.search"));
  host.notify("$/cancel", { id });
  await assert.rejects(answer, { code: -32800, message: "memory.search was cancelled" });
  await host.until(({ asked }) => asked.some(({ method }) => method === "$/cancel"));
  assert.deepEqual(host.asked[0].params, { query: "q", sessionKey: "agent:main:main", plugin: "mem" });
});

test("a tool that is no tool fails the load", async (t) => {
  const host = await startHost(t);
  const { n } = await host.load(plugin("n", `export default (api) => api.registerTool({ name: "x" });`));
  assert.deepEqual([n.status, n.error], ["error", "registerTool needs a tool with a name and an execute function, or a factory function"]);
});

test("a plugin that is a list of tools", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("list", `
    import { Type } from "typebox"; import { defineToolPlugin } from "openclaw/plugin-sdk/tool-plugin";
    export default defineToolPlugin({ id: "list", name: "List", tools: (tool) => [
      tool({ name: "up", description: "", parameters: Type.Object({ s: Type.String() }), execute: ({ s }, config, { toolCallId }) => ({ s: s.toUpperCase(), config, toolCallId }) }),
      tool({ name: "text", description: "", execute: () => "as is" }),
    ] });`, { pluginConfig: { k: 1 } }));
  const run = (number) => host.ask("tools.execute", { ref: `list#tool.${number}`, toolCallId: "c", params: { s: "a" } });
  assert.deepEqual((await run(0)).details, { s: "A", config: { k: 1 }, toolCallId: "c" });
  assert.deepEqual((await run(1)).content, [{ type: "text", text: "as is" }]);
});
