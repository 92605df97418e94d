// What this process knows of the gateway. Plugins read the config synchronously, so a copy of it is kept here.

/** The gateway as plugins see it. */
export class House {
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

  /** Takes what `initialize` says. */
  settle({ stateDir, workspaceDir, hostVersion, verbose, config, configHash }) {
    this.stateDir = stateDir ?? "";
    this.workspaceDir = workspaceDir ?? "";
    this.hostVersion = hostVersion ?? "0.0.0";
    this.isVerbose = verbose === true;
    this.changed({ config, hash: configHash });
  }

  /** Takes a new config. */
  changed({ config, hash }) {
    if (config !== null && typeof config === "object") this.#config = config;
    this.#hash = hash;
  }

  /** The config. A copy, because one plugin's scribbles are none of another's business. */
  config() {
    return structuredClone(this.#config);
  }

  /** Writes a whole config, and reads what became of it. */
  async writeConfig(config, plugin) {
    await this.#peer.request("config.write", { config, baseHash: this.#hash, plugin });
    const now = await this.#peer.request("config.get", { plugin });
    this.changed(now && "config" in now ? now : { config: now });
    return this.config();
  }
}
