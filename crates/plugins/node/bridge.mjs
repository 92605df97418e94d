// Functions of the host that the SDK modules, which plugins import, call.

/** Filled in by the host before any plugin is loaded. */
export const bridge = {
  /** Plugins that want to see the log. */
  logListeners: new Set(),
  /** Runs an agent's turn. */
  runAgent: undefined,
  /** Writes a line of the log. */
  log: undefined,
};
