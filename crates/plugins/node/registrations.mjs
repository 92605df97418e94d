// Collects the registrations of one plugin while it loads. They become callable only if loading succeeds.

/** The registrations of one plugin. */
export class RegistrationCollector {
  #counts = new Map();
  #isClosed = false;
  entries = [];
  told = {
    tools: [], hooks: [], internalHooks: [], commands: [], services: [],
    gatewayMethods: [], httpRoutes: [], cli: [], unsupported: [],
  };
  diagnostics = [];
  disposers = [];

  constructor(plugin, log) {
    this.plugin = plugin;
    this.log = log;
  }

  /** Adds a callable registration to `list`, with the description that the gateway gets. */
  add(list, kind, parts, told) {
    if (this.#isClosed) {
      this.warn(`${kind} ${told.name ?? told.id ?? told.path ?? ""} was registered after register() had returned; it is ignored`);
      return;
    }
    const number = this.#counts.get(kind) ?? 0;
    this.#counts.set(kind, number + 1);
    const ref = `${this.plugin}#${kind}.${number}`;
    this.entries.push({ ref, kind, plugin: this.plugin, ...parts });
    this.told[list].push({ ref, ...told });
  }

  /** Logs a warning; the plugin is still loaded. */
  warn(message) {
    this.diagnostics.push({ level: "warn", message });
    this.log("warn", message, this.plugin);
  }

  /** Rejects further registrations. */
  close() {
    this.#isClosed = true;
  }
}
