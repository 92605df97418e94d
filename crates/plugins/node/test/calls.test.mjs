// What a loaded plugin is called for: hooks, commands, services, gateway methods, and what it asks of the gateway.

import assert from "node:assert/strict";
import os from "node:os";
import { test } from "node:test";
import { plugin, startHost } from "./child.mjs";

test("a hook gets its event and context, and its result comes back", async (t) => {
  const host = await startHost(t);
  const { h } = await host.load(plugin("h", `export default (api) => {
    api.on("before_tool_call", (event, ctx) => ({ params: { ...event.params, by: ctx.sessionKey }, keys: Object.keys(ctx), signal: ctx.abortSignal instanceof AbortSignal }), { priority: 7, timeoutMs: 900, guard: true });
    api.on("before_agent_start", async () => ({ prependContext: "later" }));
    api.on("agent_end", () => "a string");
  };`));
  assert.deepEqual(h.registrations.hooks, [
    { ref: "h#hook.0", name: "before_tool_call", priority: 7, timeoutMs: 900, guard: true },
    { ref: "h#hook.1", name: "before_agent_start", priority: 0, guard: false },
    { ref: "h#hook.2", name: "agent_end", priority: 0, guard: false },
  ]);
  const call = (number, event, ctx) => host.ask("hook.invoke", { ref: `h#hook.${number}`, event, ctx, deadlineMs: 1000 });
  assert.deepEqual(await call(0, { params: { a: 1 } }, { sessionKey: "s" }), { result: { params: { a: 1, by: "s" }, keys: ["sessionKey"], signal: true } });
  assert.deepEqual(await call(1, {}, {}), { result: { prependContext: "later" } });
  assert.deepEqual(await call(2, {}, {}), {}, "no result, so a guard would refuse");
  assert.equal((await host.untilLog("returned a string, not an object")).plugin, "h");
});

test("the hooks of the transcript do not wait for promises", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("p", `export default (api) => {
    api.on("tool_result_persist", async (event) => ({ message: event.message })); api.on("before_message_write", (event) => ({ message: { ...event.message, seen: true } }));
  };`));
  assert.deepEqual(await host.ask("hook.invoke", { ref: "p#hook.0", event: { message: {} } }), {}, "no result, so a guard would refuse");
  assert.match((await host.untilLog("returned a promise")).message, /tool_result_persist/);
  assert.deepEqual(await host.ask("hook.invoke", { ref: "p#hook.1", event: { message: { role: "user" } } }), { result: { message: { role: "user", seen: true } } });
});

test("a handler that throws is an error with its words", async (t) => {
  const host = await startHost(t);
  await host.load(plugin("x", `export default (api) => { api.on("agent_end", () => { throw new Error("boom"); }); api.on("llm_input", async () => { throw "bare"; }); };`));
  await assert.rejects(host.ask("hook.invoke", { ref: "x#hook.0", event: {} }), { code: -32000, message: "boom" });
  await assert.rejects(host.ask("hook.invoke", { ref: "x#hook.1", event: {} }), { code: -32000, message: "bare" });
});

test("a large value is fetched by its reference, once, and everybody gets an own copy", async (t) => {
  const answers = { "ref.get": ({ ref }) => ({ value: [{ role: "user", content: ref }] }) };
  const host = await startHost(t, { answers });
  await host.load(plugin("r", `export default (api) => api.on("agent_end", (event) => ({ count: event.messages.push("mine"), first: event.messages[0], inner: event.params }));`));
  const event = () => ({ messages: { $ref: "msgs:1" }, params: { schema: { $ref: "#/defs/a" } } });
  const expected = { result: { count: 2, first: { role: "user", content: "msgs:1" }, inner: { schema: { $ref: "#/defs/a" } } } };
  assert.deepEqual(await host.ask("hook.invoke", { ref: "r#hook.0", event: event() }), expected);
  assert.deepEqual(await host.ask("hook.invoke", { ref: "r#hook.0", event: event() }), expected);
  assert.deepEqual(host.asked, [{ method: "ref.get", params: { ref: "msgs:1" } }]);
});

test("what only looks like a reference stays as it is, so that a guard sees it", async (t) => {
  const host = await startHost(t, { answers: { "ref.get": () => Promise.reject(new Error("no such reference")) } });
  await host.load(plugin("g", `export default (api) => api.on("before_tool_call", (event) => ({ block: true, blockReason: JSON.stringify(event.params) }));`));
  const answer = await host.ask("hook.invoke", { ref: "g#hook.0", event: { params: { $ref: "forged" } } });
  assert.deepEqual(answer, { result: { block: true, blockReason: '{"$ref":"forged"}' } });
});

test("a command replies, and errors are its own", async (t) => {
  const host = await startHost(t, { config: { a: 1 } });
  const { c } = await host.load(plugin("c", `export default (api) => {
    api.registerCommand({ name: "Hello", description: "says hello", acceptsArgs: true, handler: (ctx) => ({ text: "hello " + ctx.args + " " + ctx.config.a }) });
    api.registerCommand({ name: "plain", requireAuth: false, handler: async () => "just text" });
  };`));
  assert.deepEqual(c.registrations.commands, [
    { ref: "c#command.0", name: "hello", description: "says hello", acceptsArgs: true, requireAuth: true },
    { ref: "c#command.1", name: "plain", description: "", acceptsArgs: false, requireAuth: false },
  ]);
  assert.deepEqual(await host.ask("command.run", { ref: "c#command.0", ctx: { args: "you" } }), { text: "hello you 1" });
  assert.deepEqual(await host.ask("command.run", { ref: "c#command.1", ctx: {} }), { text: "just text" });
});

test("services start once and stop in reverse order, and what was asked to be tidied is", async (t) => {
  const host = await startHost(t);
  const { s } = await host.load(plugin("s", `export default (api) => {
    for (const id of ["one", "two"]) api.registerService({ id, start: (ctx) => ctx.logger.info("start " + id + " " + ctx.stateDir), stop: () => console.log("stop " + id) });
    api.registerService({ id: "bad", start: () => { throw new Error("no port"); } });
    api.lifecycle.onDispose(() => console.log("disposed " + api.lifecycle.signal.aborted));
  };`));
  const refs = s.registrations.services.map(({ ref }) => ref);
  for (const ref of [refs[0], refs[1], refs[0]]) assert.deepEqual(await host.ask("service.start", { ref }), {});
  await assert.rejects(host.ask("service.start", { ref: refs[2] }), { message: "no port" });
  await host.ask("shutdown", { graceMs: 1000 });
  const told = host.logs.map(({ message }) => message).filter((message) => /^(start|stop|disposed)/.test(message));
  assert.deepEqual(told, ["start one /state", "start two /state", "stop two", "stop one", "disposed true"]);
});

test("a gateway method answers with respond, also later; a cancelled one that never does is given up", async (t) => {
  const host = await startHost(t);
  const { m } = await host.load(plugin("m", `export default (api) => {
    api.registerGatewayMethod("m.now", ({ params, respond, client }) => respond(true, { params, who: client.id }));
    api.registerGatewayMethod("m.later", ({ respond }) => { setImmediate(() => respond(false, undefined, { code: "NOPE", message: "no" })); });
    api.registerGatewayMethod("m.throws", () => { throw new Error("broken"); });
    api.registerGatewayMethod("m.never", () => {});
  };`));
  assert.deepEqual(m.registrations.gatewayMethods.map(({ name }) => name), ["m.now", "m.later", "m.throws", "m.never"]);
  const call = (number) => host.begin("gatewayMethod.call", { ref: `m#gatewayMethod.${number}`, params: { a: 1 }, client: { id: "me" } });
  assert.deepEqual(await call(0).answer, { ok: true, payload: { params: { a: 1 }, who: "me" } });
  assert.deepEqual(await call(1).answer, { ok: false, error: { code: "NOPE", message: "no" } });
  await assert.rejects(call(2).answer, { code: -32000, message: "broken" });
  const never = call(3);
  host.notify("$/cancel", { id: never.id });
  await assert.rejects(never.answer, { code: -32800 });
});

test("the runtime: config, state, events, models, and the gateway's methods", async (t) => {
  let stored = { a: 1 };
  const answers = {
    "config.write": ({ config }) => void (stored = config),
    "config.get": () => ({ config: stored, hash: "h2" }),
    "system.enqueueEvent": () => ({}),
    "agent.run": ({ prompt }) => ({ payloads: [{ text: `ran ${prompt}` }] }),
    "llm.complete": ({ messages }) => ({ text: `said ${messages[0].content}` }),
    "gateway.request": ({ method }) => ({ method }),
  };
  const host = await startHost(t, { answers, config: { a: 1 } });
  await host.load(plugin("rt", `export default (api) => api.on("agent_end", async () => {
    const { runtime } = api;
    const before = runtime.config.loadConfig(); before.a = 99;
    await runtime.config.mutateConfigFile({ mutate: (draft) => { draft.b = 2; } });
    runtime.system.enqueueSystemEvent("ev", { sessionKey: "s" });
    runtime.logging.getChildLogger({ part: "x" }).warn("child %s", "line");
    return {
      now: api.config, state: runtime.state.resolveStateDir(), version: runtime.version, path: api.resolvePath("~/x"), verbose: runtime.logging.shouldLogVerbose(),
      run: await runtime.agent.runEmbeddedAgent({ prompt: "p", config: {}, onDone() {} }), llm: await runtime.llm.complete({ messages: [{ role: "user", content: "c" }] }),
      gateway: await runtime.gateway.request("health"), mime: await runtime.media.detectMime({ filePath: "a.png" }), kind: runtime.media.mediaKindFromMime("image/png"),
      ran: (await runtime.system.runCommandWithTimeout([process.execPath, "-e", "console.log('out')"], 5000)).stdout,
    };
  });`));
  const { result } = await host.ask("hook.invoke", { ref: "rt#hook.0", event: {} });
  assert.deepEqual(result, {
    now: { a: 1, b: 2 }, state: "/state", version: "1.2.3", path: `${os.homedir()}/x`, verbose: false,
    run: { payloads: [{ text: "ran p" }] }, llm: { text: "said c" }, gateway: { method: "health" }, mime: "image/png", kind: "image", ran: "out\n",
  });
  const asked = Object.fromEntries(host.asked.map(({ method, params }) => [method, params]));
  assert.deepEqual(asked["agent.run"], { prompt: "p", plugin: "rt" });
  assert.deepEqual(asked["system.enqueueEvent"], { text: "ev", sessionKey: "s", plugin: "rt" });
  assert.deepEqual(asked["config.write"], { config: { a: 1, b: 2 }, plugin: "rt" });
  assert.deepEqual(await host.untilLog("child line"), { level: "warn", plugin: "rt", message: "[x] child line" });
});

test("one that asks without end waits for its turn, and values are fetched past it", async (t) => {
  const held = [];
  const answers = { "gateway.request": () => new Promise((resolve) => held.push(resolve)), "ref.get": () => ({ value: "big" }) };
  const host = await startHost(t, { answers });
  await host.load(plugin("greedy", `export default (api) => {
    api.on("agent_end", () => { for (let i = 0; i < 100; i++) api.runtime.gateway.request("health").then(() => console.log("answered")); });
    api.on("llm_input", (event) => ({ prompt: event.prompt }));
  };`));
  await host.ask("hook.invoke", { ref: "greedy#hook.0", event: {} });
  assert.deepEqual(await host.ask("hook.invoke", { ref: "greedy#hook.1", event: { prompt: { $ref: "r" } } }), { result: { prompt: "big" } });
  assert.equal(held.length, 24);
  held[0]({});
  await host.until(() => held.length === 25);
});
