// What the SDK's modules, which plugins import, need of the host that runs them.

/** Filled in by the host before any plugin is loaded. */
export const bridge = {
  /** Plugins that want to see the log. */
  logListeners: new Set(),
  /** Runs an agent's turn. */
  runAgent: undefined,
  /** Writes a line of the log. */
  log: undefined,
};
