// Plugins and handlers that were written for OpenClaw and not for us. They run if they are there.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { folder, startHost } from "./child.mjs";

const here = (place) => fileURLToPath(new URL(place, import.meta.url));
const SAMPLES = here("../../../../../shared/samples");
const EXTENSIONS = here("../../../../target/conform/2026.2.9/node_modules/openclaw/extensions");
const samples = { skip: existsSync(SAMPLES) ? false : "the folder ../shared/samples is not there" };
const extensions = { skip: existsSync(EXTENSIONS) ? false : "openclaw@2026.2.9 is not there; cargo xtask conform fetches it" };

const lines = (file) => readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));

function extension(id, pluginConfig) {
  const rootDir = path.join(EXTENSIONS, id);
  const manifest = JSON.parse(readFileSync(path.join(rootDir, "openclaw.plugin.json"), "utf8"));
  return { id, source: path.join(rootDir, "index.ts"), rootDir, pluginConfig, manifest };
}

test("the probe plugin finds everything it looks for", samples, async (t) => {
  const host = await startHost(t);
  const rootDir = path.join(SAMPLES, "probe-plugin");
  const out = path.join(folder({}), "out.jsonl");
  const manifest = JSON.parse(readFileSync(path.join(rootDir, "openclaw.plugin.json"), "utf8"));
  const { probe } = await host.load({ id: "probe", source: path.join(rootDir, "index.js"), rootDir, pluginConfig: { out }, manifest });
  assert.deepEqual([probe.status, probe.version, probe.diagnostics], ["loaded", "0.0.1", []]);
  const { tools, commands, services, gatewayMethods, httpRoutes, internalHooks, hooks } = probe.registrations;
  const counts = [tools, commands, services, gatewayMethods, httpRoutes, internalHooks, hooks].map((list) => list.length);
  assert.deepEqual(counts, [2, 1, 1, 1, 1, 1, 41]);

  const materialized = await host.ask("tools.materialize", { ctx: { agentId: "main", sessionKey: "agent:main:main", sandboxed: false } });
  assert.deepEqual(materialized.tools.map(({ name }) => name), ["probe_tool"]);
  const ran = await host.ask("tools.execute", { ref: tools[0].ref, toolCallId: "c1", params: { x: "y" } });
  assert.deepEqual(ran, { content: [{ type: "text", text: 'probe:{"x":"y"}' }], details: { ok: true } });
  assert.deepEqual(await host.ask("command.run", { ref: commands[0].ref, ctx: { args: "a b" } }), { text: "probe command ran: a b" });
  assert.deepEqual(await host.ask("gatewayMethod.call", { ref: gatewayMethods[0].ref, params: { a: 1 } }), { ok: true, payload: { pong: true, params: { a: 1 } } });
  const page = await host.ask("http.request", { ref: httpRoutes[0].ref, method: "GET", url: "/probe", headers: {}, body: "" });
  assert.equal(Buffer.from(page.body, "base64").toString(), "probe ok");
  await host.ask("service.start", { ref: services[0].ref });
  await host.ask("service.stop", { ref: services[0].ref });
  await host.ask("internalHook.emit", { ref: internalHooks[0].ref, event: { type: "command", action: "new", context: {} } });
  const before = hooks.find(({ name }) => name === "before_tool_call");
  assert.deepEqual(await host.ask("hook.invoke", { ref: before.ref, event: { toolName: "exec", params: {} }, ctx: { toolName: "exec" } }), { result: null });

  const written = lines(out);
  assert.deepEqual(written.map(({ kind }) => kind), ["register", "tool-factory-ctx", "tool-exec", "command", "gw-method", "http", "service-start", "service-stop", "internal-via-plugin", "hook"]);
  const recorded = lines(path.join(SAMPLES, "hooks/old-plugin-hooks.jsonl"));
  assert.deepEqual(Object.keys(written[0].api).sort(), Object.keys(recorded[0].api).sort());
  assert.deepEqual(Object.keys(written[6].ctx).sort(), Object.keys(recorded.find(({ kind }) => kind === "service-start").ctx).sort());
  assert.deepEqual([written.at(-1).event, written.at(-1).ctx], [{ toolName: "exec", params: {} }, { toolName: "exec" }]);
});

test("the probe hook hears every event as it was recorded", samples, async (t) => {
  const out = path.join(folder({}), "out.jsonl");
  const host = await startHost(t, { env: { PROBE_HOOK_OUT: out } });
  const handlerPath = path.join(SAMPLES, "probe-hook/handler.js");
  const { entries } = await host.ask("internalHook.load", { entries: [{ name: "probe-hook", handlerPath, export: "default", events: ["command"] }] });
  assert.deepEqual(entries, [{ name: "probe-hook", ref: "probe-hook#handler", events: ["command"], status: "loaded" }]);
  const recorded = lines(path.join(SAMPLES, "hooks/old-internal-hooks.jsonl")).map(({ pid: _pid, ...event }) => event);
  for (const event of recorded) await host.ask("internalHook.emit", { ref: entries[0].ref, event: { ...event, timestamp: "2026-02-09T10:00:00Z" } });
  const heard = lines(out);
  assert.equal(heard.length, recorded.length);
  for (const [number, event] of recorded.entries()) {
    const { pid: _pid, ...again } = heard[number];
    assert.deepEqual(Object.keys(again), Object.keys(event));
    assert.deepEqual([again.type, again.action, again.sessionKey, again.timestamp], [event.type, event.action, event.sessionKey, {}]);
  }
});

test("memory-lancedb registers its tools, hooks, service and command", extensions, async (t) => {
  const host = await startHost(t);
  const pluginConfig = { embedding: { apiKey: "k", model: "text-embedding-3-small" }, dbPath: path.join(folder({}), "db"), autoRecall: true, autoCapture: true };
  const plugins = await host.load(extension("memory-lancedb", pluginConfig));
  const { status, error, registrations } = plugins["memory-lancedb"];
  assert.deepEqual([status, error], ["loaded", undefined]);
  assert.deepEqual(registrations.tools.map(({ name }) => name), ["memory_recall", "memory_store", "memory_forget"]);
  assert.deepEqual(registrations.hooks.map(({ name }) => name), ["before_agent_start", "agent_end"]);
  assert.deepEqual([registrations.services[0].id, registrations.cli], ["memory-lancedb", [{ commands: ["ltm"] }]]);
});

test("llm-task asks the gateway for a run and checks the answer against its schema", extensions, async (t) => {
  const answers = { "agent.run": () => ({ payloads: [{ text: '```json\n{"n": 1}\n```' }] }) };
  const host = await startHost(t, { answers, config: { agents: { defaults: { model: { primary: "fake/fake-1" } } } } });
  const plugins = await host.load(extension("llm-task"));
  const [tool] = plugins["llm-task"].registrations.tools;
  assert.deepEqual([tool.name, tool.optional, tool.parameters.required], ["llm-task", true, ["prompt"]]);
  const run = (params) => host.ask("tools.execute", { ref: tool.ref, toolCallId: "c", params });
  assert.deepEqual((await run({ prompt: "count" })).details, { json: { n: 1 }, provider: "fake", model: "fake-1" });
  const { plugin, provider, disableTools } = host.asked[0].params;
  assert.deepEqual([plugin, provider, disableTools, "config" in host.asked[0].params], ["llm-task", "fake", true, false]);
  const schema = { type: "object", required: ["m"] };
  await assert.rejects(run({ prompt: "count", schema }), { message: /LLM JSON did not match schema/ });
  await assert.rejects(run({}), { message: "prompt required" });
});

test("lobster is made for runs that are not in a sandbox, and fails with its own words", extensions, async (t) => {
  const host = await startHost(t);
  await host.load(extension("lobster"));
  assert.deepEqual((await host.ask("tools.materialize", { ctx: { sandboxed: true } })).tools, []);
  const { tools } = await host.ask("tools.materialize", { ctx: { sandboxed: false } });
  assert.deepEqual(tools.map(({ name, optional }) => [name, optional]), [["lobster", true]]);
  const run = (params) => host.ask("tools.execute", { ref: tools[0].ref, toolCallId: "c", params });
  await assert.rejects(run({ action: "run" }), { code: -32000, message: "pipeline required" });
  await assert.rejects(run({ action: "run", pipeline: "x", lobsterPath: "/bin/sh" }), { message: "lobsterPath must point to the lobster executable" });
});

test("the other bundled plugins load, or say what they miss", extensions, async (t) => {
  const host = await startHost(t);
  const plugins = await host.load(...["memory-core", "phone-control", "talk-voice", "voice-call", "telegram", "copilot-proxy", "feishu"].map((id) => extension(id)));
  const verdicts = Object.fromEntries(Object.values(plugins).map(({ id, status, error }) => [id, error?.replace(/ imported from .*/s, "") ?? status]));
  assert.deepEqual(verdicts, {
    "memory-core": "loaded",
    "phone-control": "loaded",
    "talk-voice": "loaded",
    "voice-call": "loaded",
    telegram: "The requested module 'openclaw/plugin-sdk' does not provide an export named 'TelegramConfigSchema'",
    "copilot-proxy": "api.registerProvider is not supported by this gateway",
    feishu: "api.registerChannel is not supported by this gateway",
  });
});
