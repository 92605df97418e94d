// Background services of plugins: started by the gateway, stopped in reverse order.

import { makeLogger } from "./log.mjs";
import { actAs } from "./owner.mjs";
import { describe } from "./rpc.mjs";

/** The services that run. */
export class Services {
  #host;
  #running = new Map();

  constructor(host) {
    this.#host = host;
  }

  /** Starts a service, once. */
  async start({ ref, ctx }) {
    if (this.#running.has(ref)) return {};
    const { service, plugin } = this.#host.registry.get(ref, "service");
    const { gatewayInfo, log } = this.#host;
    const { stateDir, workspaceDir } = gatewayInfo;
    const context = { config: gatewayInfo.config(), workspaceDir, stateDir, logger: makeLogger(log, plugin), ...ctx };
    this.#running.set(ref, { service, plugin, context });
    try {
      await actAs(plugin, () => service.start(context));
    } catch (error) {
      this.#running.delete(ref);
      throw error;
    }
    return {};
  }

  /** Stops a service; one that does not run is stopped already. */
  async stop({ ref }) {
    const running = this.#running.get(ref);
    this.#running.delete(ref);
    if (running) await actAs(running.plugin, () => running.service.stop?.(running.context));
    return {};
  }

  /** Stops all, the last that was started first. */
  async stopAll() {
    for (const ref of [...this.#running.keys()].reverse()) {
      const plugin = this.#running.get(ref)?.plugin;
      await this.stop({ ref }).catch((error) => this.#host.log("warn", `failed to stop a service: ${describe(error)}`, plugin));
    }
  }
}
