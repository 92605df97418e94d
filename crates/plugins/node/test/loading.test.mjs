// Loading: what plugins may look like, TypeScript, imports, and what happens to those that cannot be loaded.

import assert from "node:assert/strict";
import { test } from "node:test";
import { plugin, startHost } from "./child.mjs";
import { NAMESPACES, REGISTRARS } from "../unsupported.mjs";

const hookNames = ({ registrations }) => registrations.hooks.map(({ name }) => name);

test("a plugin is a function, or an object with register or activate, however it is exported", async (t) => {
  const host = await startHost(t);
  const cjs = { files: { "package.json": "{}" } };
  const plugins = await host.load(
    plugin("function", `export default (api) => api.on("agent_end", () => {});`),
    plugin("object", `export default { name: "Object", version: "2", register(api) { this.name && api.on("agent_end", () => {}); } };`),
    plugin("activate", `export default { activate(api) { api.on("agent_end", () => {}); } };`),
    plugin("named", `export function register(api) { api.on("agent_end", () => {}); }`),
    plugin("commonjs", `module.exports = (api) => api.on("agent_end", () => {});`, cjs),
    plugin("compiled", `Object.defineProperty(exports, "__esModule", { value: true }); exports.default = (api) => api.on("agent_end", () => {});`, cjs),
  );
  for (const each of Object.values(plugins)) assert.deepEqual([each.id, each.status, hookNames(each)], [each.id, "loaded", ["agent_end"]]);
  assert.deepEqual([plugins.object.name, plugins.object.version, plugins.function.name], ["Object", "2", "function"]);
});

test("what is no plugin says so", async (t) => {
  const host = await startHost(t);
  const { empty } = await host.load(plugin("empty", "export const x = 1;"));
  assert.deepEqual([empty.status, empty.error], ["error", "the plugin exports neither a function nor an object with register or activate"]);
});

test("a plugin that throws loses what it had registered, and its neighbour nothing", async (t) => {
  const host = await startHost(t);
  const plugins = await host.load(
    plugin("broken", `export default (api) => { api.on("agent_end", () => {}); throw new Error("no key"); };`),
    plugin("fine", `export default (api) => api.on("agent_end", () => {});`),
  );
  assert.deepEqual([plugins.broken.status, plugins.broken.error, hookNames(plugins.broken)], ["error", "no key", []]);
  await assert.rejects(host.ask("hook.invoke", { ref: "broken#hook.0", event: {} }), { code: -32602 });
  assert.deepEqual(await host.ask("hook.invoke", { ref: "fine#hook.0", event: {} }), { result: null });
});

test("a promise of register is warned about; what came before its first await counts", async (t) => {
  const host = await startHost(t);
  const { eager } = await host.load(plugin("eager", `
    export default async (api) => { api.on("agent_end", () => {}); await null; api.on("llm_input", () => {}); throw new Error("too late"); };
  `));
  assert.deepEqual([eager.status, hookNames(eager)], ["loaded", ["agent_end"]]);
  assert.match(eager.diagnostics[0].message, /returned a promise, which is not awaited/);
  assert.equal((await host.untilLog("llm_input was registered after register() had returned")).plugin, "eager");
  assert.equal((await host.untilLog("register() failed later: too late")).level, "error");
});

test("an import that does not end is given up after the deadline, and holds nobody up", async (t) => {
  const host = await startHost(t);
  const candidates = [plugin("waits", "await new Promise(() => {}); export default () => {};"), plugin("quick", "export default () => {};")];
  const { plugins } = await host.ask("plugins.load", { candidates, deadlineMs: 50 });
  assert.deepEqual(plugins.map(({ id, status, error }) => [id, status, error]), [
    ["waits", "error", "the import did not finish within 50 ms"],
    ["quick", "loaded", undefined],
  ]);
});

test("TypeScript: enums, parameter properties, types imported as values, endings left out", async (t) => {
  const host = await startHost(t);
  const source = `
    import { OpenClawPluginApi, jsonResult } from "openclaw/plugin-sdk";
    import type { AnyAgentTool } from "../../src/plugins/types.js";
    import { Level, describe, type Shape } from "./level.js";
    import { deep } from "./lib";
    import { createRequire as _unused } from "node:module";
    import about from "./package.json";
    import said from "./said.json" with { type: "json" };
    namespace Words { export const hello = "hello"; }
    class Greeter { constructor(private readonly who: string) {} greet(): string { return Words.hello + " " + this.who; } }
    export default function register(api: OpenClawPluginApi) {
      const shape = <Shape>{ level: Level.High };
      api.registerTool({
        name: "greet", description: "greets", parameters: { type: "object" },
        execute: async () => jsonResult({ text: new Greeter("you").greet(), level: describe(shape), deep, about: about.type, said, file: typeof __dirname, os: require("node:os").EOL }),
      } as unknown as AnyAgentTool);
    }
  `;
  const files = {
    "level.ts": `export enum Level { Low, High = "high" } export interface Shape { level: Level } export const describe = (shape: Shape): string => "level " + shape.level;`,
    "said.json": "[1]",
    "lib/index.ts": "export const deep: number = 42;",
  };
  const { typed } = await host.load(plugin("typed", source, { file: "index.ts", files }));
  assert.deepEqual([typed.status, typed.error], ["loaded", undefined]);
  const { details } = await host.ask("tools.execute", { ref: typed.registrations.tools[0].ref, toolCallId: "c", params: {} });
  assert.deepEqual(details, { text: "hello you", level: "level high", deep: 42, about: "module", said: [1], file: "string", os: "\n" });
});

test("a mistake in TypeScript is told with its place in the source", async (t) => {
  const host = await startHost(t);
  const { bad } = await host.load(plugin("bad", `interface A {\n  x: 1\n}\nexport default () => {\n  throw new Error("here");\n};`, { file: "index.ts" }));
  assert.equal(bad.error, "here");
  assert.match((await host.untilLog("did not load: Error: here")).message, /index\.ts:5:/);
});

test("a plugin without a TypeBox of its own gets one, and one with its own keeps it", async (t) => {
  const host = await startHost(t);
  const source = `import { Type } from "@sinclair/typebox"; import { stringEnum } from "clawdbot/plugin-sdk";
    export default (api) => api.registerTool({ name: "t", description: "", execute() {}, parameters: Type.Object({
      a: Type.String({ description: "A" }), b: Type.Optional(Type.Number()), c: Type.Optional(stringEnum(["x", "y"])), d: Type.Array(Type.Union([Type.Literal("l"), Type.Boolean()])),
      e: Type.Record(Type.String(), Type.Unknown()), f: Type.Enum({ P: "p", Q: "q" }), }) });`;
  const own = { files: { "node_modules/@sinclair/typebox/package.json": '{"main":"index.js"}', "node_modules/@sinclair/typebox/index.js": `
    const any = () => ({ own: true }); exports.Type = { Object: any, String: any, Optional: any, Number: any, Array: any, Union: any, Literal: any, Boolean: any, Record: any, Unknown: any, Enum: any };` } };
  const plugins = await host.load(plugin("without", source), plugin("with", source, own));
  assert.deepEqual(plugins.with.registrations.tools[0].parameters, { own: true });
  assert.deepEqual(plugins.without.registrations.tools[0].parameters, {
    type: "object",
    required: ["a", "d", "e", "f"],
    properties: {
      a: { type: "string", description: "A" }, b: { type: "number" }, c: { type: "string", enum: ["x", "y"] },
      d: { type: "array", items: { anyOf: [{ const: "l", type: "string" }, { type: "boolean" }] } },
      e: { type: "object", additionalProperties: {} }, f: { anyOf: [{ const: "p", type: "string" }, { const: "q", type: "string" }] },
    },
  });
});

test("each registrar that is not supported fails the load with its name", async (t) => {
  const host = await startHost(t);
  const uses = [...REGISTRARS, ...NAMESPACES.map((name) => `${name}.anything.deep`)];
  const plugins = await host.load(...uses.map((name) => plugin(`uses-${name}`, `export default (api) => { api.${name}({}); };`)));
  for (const name of uses) {
    const { status, error, registrations } = plugins[`uses-${name}`];
    assert.deepEqual([status, error], ["error", `api.${name} is not supported by this gateway`]);
    assert.deepEqual(registrations.unsupported, [NAMESPACES.some((each) => name.startsWith(each)) ? `api.${name}` : name]);
  }
});

test("a part of the runtime that is not supported says its name when it is used", async (t) => {
  const host = await startHost(t);
  const source = `export default (api) => api.on("agent_end", () => api.runtime.channel.text.chunkText("x", 1));`;
  const { user } = await host.load(plugin("user", source));
  await assert.rejects(host.ask("hook.invoke", { ref: user.registrations.hooks[0].ref, event: {} }), { message: "api.runtime.channel.text.chunkText is not supported by this gateway" });
});

test("registrations that make no sense are left out and told", async (t) => {
  const host = await startHost(t);
  const { odd } = await host.load(plugin("odd", `export default (api) => {
    api.registerCommand({ name: "No Spaces", handler() {} }); api.registerService({}); api.registerHttpRoute({ path: "", handler() {} });
    api.registerGatewayMethod("", () => {}); api.registerHook("command", () => {}); api.on("agent_end", "no function"); api.registerCli(() => {}, { commands: ["odd"] });
  };`));
  assert.deepEqual([odd.status, odd.diagnostics.length, odd.registrations.cli], ["loaded", 6, [{ commands: ["odd"] }]]);
  const rest = Object.entries(odd.registrations).filter(([key]) => key !== "cli").flatMap(([, list]) => list);
  assert.deepEqual(rest, []);
});

test("a plugin that is loaded again replaces what it was", async (t) => {
  const host = await startHost(t);
  const candidate = plugin("again", `export default (api) => { api.registerCommand({ name: "c", handler: () => ({ text: api.pluginConfig.text }) }); };`, { pluginConfig: { text: "one" } });
  await host.load(candidate);
  await host.load({ ...candidate, pluginConfig: { text: "two" } });
  assert.deepEqual(await host.ask("command.run", { ref: "again#command.0", ctx: {} }), { text: "two" });
});
