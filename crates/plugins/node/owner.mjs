// Determines which plugin's code is running, so that logs and uncaught errors name the right plugin.

import { AsyncLocalStorage } from "node:async_hooks";
import { realpathSync } from "node:fs";
import path from "node:path";

const acting = new AsyncLocalStorage();
const roots = new Map();

/** Runs `run` in the name of a plugin; what it starts later still carries the name. */
export function actAs(plugin, run) {
  return acting.run(plugin, run);
}

/** Remembers where a plugin's files are. */
export function settle(plugin, rootDir) {
  if (!rootDir) return;
  for (const dir of new Set([path.resolve(rootDir), resolved(rootDir)])) roots.set(dir + path.sep, plugin);
}

/** The plugin that acts now, or the one whose files are first on the stack. */
export function whose(stack) {
  return acting.getStore() ?? owns(stack ?? new Error().stack);
}

function owns(stack) {
  // The root of a single-file plugin also contains other plugins, so the longest matching root is used.
  const nearest = [...roots].sort(([one], [other]) => other.length - one.length);
  for (const line of stack.split("\n")) {
    const found = nearest.find(([root]) => line.includes(root));
    if (found !== undefined) return found[1];
  }
  return null;
}

function resolved(dir) {
  try {
    return realpathSync(dir);
  } catch {
    return dir;
  }
}
