// What one plugin registers while it loads. It becomes callable only if the whole of it went well.

/** The registrations of one plugin. */
export class Book {
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

  /** Writes down something callable under `list`, with what the gateway is told of it. */
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

  /** Says that something is not as it should be, without giving the plugin up. */
  warn(message) {
    this.diagnostics.push({ level: "warn", message });
    this.log("warn", message, this.plugin);
  }

  /** Nothing more is taken. */
  close() {
    this.#isClosed = true;
  }
}
