// Tools: created for each run, because factories depend on the caller, and executed by reference.

import { format } from "node:util";
import { actAs } from "./owner.mjs";
import { describe, INVALID_PARAMS, RpcError } from "./rpc.mjs";
import { toJsonSchema } from "./schema.mjs";

/** How many runs' tools are kept. A run that is older than that many others has to ask for its tools again. */
const KEPT_RUNS = 1024;

/** Makes `tools.materialize` and `tools.execute`. */
export function toolBench({ registry, gatewayInfo, log }) {
  const made = new Map();
  let runs = 0;

  const keep = (run, tools) => {
    if (tools.size === 0) return;
    made.set(run, tools);
    if (made.size > KEPT_RUNS) made.delete(made.keys().next().value);
  };

  const find = (ref) => {
    const run = typeof ref === "string" ? ref.match(/@(\d+)\.\d+$/)?.[1] : undefined;
    if (run === undefined) return registry.get(ref, "tool");
    const tools = made.get(Number(run));
    const entry = tools?.get(ref);
    if (entry === undefined) throw new RpcError(INVALID_PARAMS, `the tool ${ref} is no longer available; request the run's tools again`);
    // Least recently used entries are evicted first.
    made.delete(Number(run));
    made.set(Number(run), tools);
    return entry;
  };

  const materialize = async ({ ctx = {} }) => {
    const run = ++runs;
    const context = { config: gatewayInfo.config(), workspaceDir: gatewayInfo.workspaceDir, ...ctx };
    const tools = [];
    const failed = [];
    const fresh = new Map();
    for (const entry of registry.of("tool")) {
      const { ref, plugin, optional } = entry;
      if (entry.make === undefined) {
        tools.push({ ref, ...entry.told, pluginId: plugin, optional });
        continue;
      }
      try {
        for (const tool of produce(entry, context)) {
          const own = `${ref}@${run}.${fresh.size}`;
          const told = { ref: own, ...describeTool(tool, entry.rootDir), pluginId: plugin, optional };
          fresh.set(own, { ref: own, plugin, tool });
          tools.push(told);
        }
      } catch (error) {
        log("warn", `failed to create a tool of ${plugin}: ${describe(error)}`, plugin);
        failed.push({ ref, pluginId: plugin, error: describe(error) });
      }
    }
    keep(run, fresh);
    return { tools, failed };
  };

  const execute = async ({ ref, toolCallId, params }, call) => {
    const { tool, plugin } = find(ref);
    const onUpdate = (value) => {
      try {
        call.progress(value);
      } catch (error) {
        log("warn", `failed to send progress of ${tool.name}: ${describe(error)}`, plugin);
      }
    };
    const run = async () => tool.execute(toolCallId, tool.prepareArguments?.(params ?? {}) ?? params ?? {}, call.signal, onUpdate);
    return asResult(await actAs(plugin, run));
  };

  return { "tools.materialize": materialize, "tools.execute": execute };
}

function produce({ make, plugin }, context) {
  const tools = actAs(plugin, () => make({ ...context }));
  if (typeof tools?.then === "function") throw new Error("the tool factory returned a promise; it must return the tool");
  return [tools].flat().filter((tool) => tool != null);
}

function describeTool(tool, rootDir) {
  if (typeof tool.name !== "string" || typeof tool.execute !== "function") throw new Error("a tool needs a name and an execute function");
  const { name, label, description } = tool;
  return { name, label: String(label ?? name), description: String(description ?? ""), parameters: toJsonSchema(tool.parameters, rootDir) };
}

// Converts an invalid result to text for the model.
function asResult(value) {
  if (Array.isArray(value?.content)) return { content: value.content, details: value.details ?? null };
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? format(value));
  return { content: [{ type: "text", text }], details: typeof value === "object" ? value : null };
}
