// Data about the gateway: directories, version, and a copy of the config, which plugins read synchronously.

/** The gateway as plugins see it. */
export class GatewayInfo {
  stateDir = "";
  workspaceDir = "";
  hostVersion = "0.0.0";
  isVerbose = false;
  #peer;
  #config = {};
  #hash;

  constructor(peer) {
    this.#peer = peer;
  }

  /** Stores the parameters of `initialize`. */
  settle({ stateDir, workspaceDir, hostVersion, verbose, config, configHash }) {
    this.stateDir = stateDir ?? "";
    this.workspaceDir = workspaceDir ?? "";
    this.hostVersion = hostVersion ?? "0.0.0";
    this.isVerbose = verbose === true;
    this.changed({ config, hash: configHash });
  }

  /** Stores a new config. */
  changed({ config, hash }) {
    if (config !== null && typeof config === "object") this.#config = config;
    this.#hash = hash;
  }

  /** Returns a copy of the config, so that a plugin's changes do not affect others. */
  config() {
    return structuredClone(this.#config);
  }

  /** Writes a whole config, and returns the config as the gateway stored it. */
  async writeConfig(config, plugin) {
    await this.#peer.request("config.write", { config, baseHash: this.#hash, plugin });
    const now = await this.#peer.request("config.get", { plugin });
    this.changed(now && "config" in now ? now : { config: now });
    return this.config();
  }
}
