// Internal hooks: handlers in their own directories or registered by plugins; and webhook transforms.

import { importFile, unwrap } from "./loader.mjs";
import { actAs, settle } from "./owner.mjs";
import { describe } from "./rpc.mjs";
import path from "node:path";
import { statSync } from "node:fs";

/** Makes `internalHook.load`, `internalHook.emit` and `transform.run`. */
export function internalHooks({ registry, resolveRefs, gatewayInfo, log }) {
  const loadOne = async ({ name, handlerPath, export: wanted = "default", events = [], env = {} }) => {
    // All handlers share one environment; existing variables are not overwritten.
    for (const [key, value] of Object.entries(env)) process.env[key] ??= value;
    const ref = `${name}#handler`;
    settle(name, path.dirname(handlerPath));
    registry.forget(name);
    try {
      const handler = pick(await importFile(name, handlerPath, freshness(handlerPath)), wanted);
      if (typeof handler !== "function") throw new Error(`${handlerPath} does not export a function ${JSON.stringify(wanted)}`);
      registry.add({ ref, kind: "internalHook", plugin: name, handler });
      return { name, ref, events, status: "loaded" };
    } catch (error) {
      log("error", `hook ${name} did not load: ${describe(error)}`, name);
      return { name, ref, events, status: "error", error: describe(error) };
    }
  };

  const load = async ({ entries = [] }) => ({ entries: await Promise.all(entries.map(loadOne)) });

  const emit = async ({ ref, event: sent }) => {
    const { handler, plugin, pluginConfig } = registry.get(ref, "internalHook");
    const event = revive(sent ?? {}, gatewayInfo, pluginConfig);
    await resolveRefs(event.context);
    const before = JSON.stringify(event.context.bootstrapFiles);
    await actAs(plugin, () => handler(event));
    const all = [event.messages].flat().filter((each) => typeof each === "string");
    // Only messages added by this hook are returned.
    const known = [sent?.messages ?? []].flat();
    const messages = known.every((each, index) => all[index] === each) ? all.slice(known.length) : all;
    const { bootstrapFiles } = event.context ?? {};
    // Unchanged files are not sent back: they can be large.
    const isChanged = Array.isArray(bootstrapFiles) && JSON.stringify(bootstrapFiles) !== before;
    return { messages, context: isChanged ? { bootstrapFiles } : {} };
  };

  const transform = async ({ module, export: wanted, ctx = {} }) => {
    const exported = await importFile(module, module, freshness(module));
    const run = wanted ? pick(exported, wanted) : [pick(exported, "default"), exported.transform].find((each) => typeof each === "function");
    if (typeof run !== "function") throw new Error(`${module} does not export a function ${JSON.stringify(wanted ?? "default")}`);
    const url = typeof ctx.url === "string" ? new URL(ctx.url, "http://localhost") : ctx.url;
    const result = await actAs(module, () => run({ ...ctx, url }));
    // `undefined` means no change; only null skips the request.
    return { result: result === undefined ? {} : result };
  };

  return { "internalHook.load": load, "internalHook.emit": emit, "transform.run": transform };
}

function pick(module, wanted) {
  return wanted === "default" ? unwrap(module) : (module[wanted] ?? unwrap(module)?.[wanted]);
}

// A modified file is imported as a new module; an unmodified one only once.
function freshness(file) {
  try {
    return `?t=${Math.trunc(statSync(file).mtimeMs)}`;
  } catch {
    return "";
  }
}

function revive(sent, gatewayInfo, pluginConfig) {
  const context = { ...sent.context };
  if (!("cfg" in context)) context.cfg = gatewayInfo.config();
  if (pluginConfig !== undefined) context.pluginConfig = pluginConfig;
  const timestamp = sent.timestamp === undefined ? new Date() : new Date(sent.timestamp);
  return { ...sent, context, timestamp, messages: [...(sent.messages ?? [])] };
}
