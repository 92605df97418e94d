// The log. Lines go to the gateway, with the name of the plugin they come from.

import { format } from "node:util";
import { whose } from "./owner.mjs";

/** Longer lines are cut: a log is for reading. */
const LONGEST = 8192;

/** So many lines of one plugin are told… */
const MOST_LINES = 200;
/** …within this time. The gateway ends a process that talks without end, and the neighbours live in it too. */
const WITHIN_MS = 10_000;

/** Makes `log(level, message, plugin?, more?)`; `more` are further members of the notification. `listeners` are plugins that asked to see the log too. */
export function makeLog(peer, listeners) {
  const bears = patience();
  let isTelling = false;
  return (level, message, plugin = whose(), more = {}) => {
    const verdict = bears(plugin);
    if (verdict === "no") return;
    const text = verdict === "last" ? `the plugin logs more than ${MOST_LINES} lines in ${WITHIN_MS / 1000} s; dropping the rest` : String(message);
    const line = text.length > LONGEST ? `${text.slice(0, LONGEST)}… (${text.length} characters)` : text;
    peer.hint("log", { level, plugin, message: line, ...more });
    // What a listener logs goes to the gateway only; otherwise it would receive its own lines endlessly.
    if (isTelling) return;
    isTelling = true;
    for (const listen of listeners) {
      try {
        listen({ time: new Date(), level, plugin, message: line });
      } catch {
        // A failing listener must not break the log, and its error cannot be logged.
      }
    }
    isTelling = false;
  };
}

function patience() {
  const seen = new Map();
  return (plugin) => {
    const now = performance.now();
    const known = seen.get(plugin);
    const count = known && now - known.since < WITHIN_MS ? known : { since: now, lines: 0 };
    seen.set(plugin, count);
    count.lines += 1;
    if (count.lines <= MOST_LINES) return "yes";
    return count.lines === MOST_LINES + 1 ? "last" : "no";
  };
}

/** A logger as plugins know it, in the name of one of them. */
export function makeLogger(log, plugin, bindings) {
  const prefix = bindings && Object.keys(bindings).length > 0 ? `[${Object.values(bindings).join(" ")}] ` : "";
  const at = (level) => (...args) => log(level, prefix + format(...args), plugin);
  return { info: at("info"), warn: at("warn"), error: at("error"), debug: at("debug") };
}
