// The registrations of plugins, by reference. A reference consists of plugin id, kind and number, so it is
// the same after a restart, and the gateway's cache stays valid.

import { INVALID_PARAMS, RpcError } from "./rpc.mjs";

/** All that can be called. */
export class Registry {
  #entries = new Map();

  /** Keeps an entry `{ref, kind, plugin, ...}`. */
  add(entry) {
    this.#entries.set(entry.ref, entry);
    return entry;
  }

  /** Finds the entry of a reference, or says what to do. */
  get(ref, kind) {
    const entry = this.#entries.get(ref);
    if (entry?.kind === kind) return entry;
    throw new RpcError(INVALID_PARAMS, `unknown ${kind} reference ${JSON.stringify(ref)}; load its plugin first`);
  }

  /** All entries of a kind, in the order in which they came. */
  of(kind) {
    return [...this.#entries.values()].filter((entry) => entry.kind === kind);
  }

  /** Forgets what one plugin registered. */
  forget(plugin) {
    for (const [ref, entry] of this.#entries) if (entry.plugin === plugin) this.#entries.delete(ref);
  }
}
