// Calls a plugin's hook at a point of the loop. The gateway handles order, merging and deadlines.

import { actAs } from "./owner.mjs";

/** A line of a transcript is about to be written: there is no time to wait for a promise. */
const SYNCHRONOUS = new Set(["tool_result_persist", "before_message_write"]);

/** Makes `invoke({ref, event, ctx}, call)`. */
export function hookInvoker({ registry, resolveRefs, log }) {
  return async ({ ref, event, ctx }, call) => {
    const { name, handler, plugin } = registry.get(ref, "hook");
    await resolveRefs(event);
    const context = withSignal(ctx ?? {}, call.signal);
    const returned = actAs(plugin, () => handler(event ?? {}, context));
    if (SYNCHRONOUS.has(name) && typeof returned?.then === "function") {
      log("warn", `a handler of ${name} returned a promise; this hook is synchronous, so the promise is ignored`, plugin);
      returned.then(undefined, (error) => log("warn", `a handler of ${name} failed later: ${error?.message}`, plugin));
      return {}; // no result: a guard has not answered
    }
    return { result: readable(await returned, name, plugin, log) };
  };
}

// Not enumerable: plugins that list the context see only what the gateway sent.
function withSignal(context, signal) {
  if (!("abortSignal" in context)) Object.defineProperty(context, "abortSignal", { value: signal, enumerable: false });
  return context;
}

function readable(result, name, plugin, log) {
  if (result == null) return null;
  if (typeof result === "object" && !Array.isArray(result)) return result;
  log("warn", `a handler of ${name} returned ${Array.isArray(result) ? "an array" : `a ${typeof result}`}, not an object; it is ignored`, plugin);
  return undefined; // which leaves no result: a guard has not answered
}
