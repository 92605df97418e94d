// The accounts of a channel: started and stopped on request, with their state reported to the gateway.

import { makeLogger } from "./log.mjs";
import { actAs } from "./owner.mjs";
import { openConfig } from "./policies.mjs";
import { describe } from "./rpc.mjs";

/** How long a stopped account may take to close its connections. */
const STOP_MS = 5000;
/** An account whose package reports no lifecycle counts as connected if it still runs after this time. */
const SILENT_MS = 5000;
const PROBE_MS = 10_000;

export class Accounts {
  #loaded;
  #host;
  #running = new Map();
  #config = { channels: {} };

  constructor(loaded, host) {
    this.#loaded = loaded;
    this.#host = host;
  }

  /** The config as the package sees it. */
  config() {
    return this.#config;
  }

  async start({ account, generation, section }) {
    await this.#stop(account);
    const { plugin, channel, runtime, schema } = this.#loaded;
    this.#config = openConfig(channel, section, schema);
    this.#loaded.publishConfig(this.#config);
    const resolved = await plugin.config.resolveAccount(this.#config, account);
    if (plugin.config.isConfigured !== undefined && !(await plugin.config.isConfigured(resolved, this.#config))) {
      const why = await plugin.config.unconfiguredReason?.(resolved, this.#config);
      throw new Error(`the account is not configured${why ? `: ${why}` : ""}`);
    }
    const running = { generation, abort: new AbortController(), status: { accountId: account }, cfg: this.#config, account: resolved, reported: undefined };
    this.#running.set(account, running);
    const log = makeLogger(this.#host.log, channel, { account });
    const context = {
      cfg: running.cfg, accountId: account, account: resolved, abortSignal: running.abort.signal, log,
      runtime: { log: log.info, error: log.error, exit: (code) => log.error(`the package asked to exit with status ${code}`) },
      getStatus: () => running.status,
      setStatus: (next) => {
        running.status = { ...running.status, ...next };
        this.#report(account, running);
      },
      channelRuntime: runtime.channel,
    };
    running.task = actAs(channel, async () => plugin.gateway.startAccount(context)).then(
      (handle) => {
        running.handle = handle;
        if (!running.abort.signal.aborted && handle === undefined) this.#ended(account, running, "the package ended the connection");
      },
      (error) => this.#ended(account, running, describe(error)),
    );
    const timer = setTimeout(() => {
      if (running.reported === undefined && running.status.lifecycle === undefined && !running.isOver) this.#tell(account, running, { state: "up" });
    }, SILENT_MS);
    timer.unref();
    return {};
  }

  async stop({ account, generation }) {
    if (this.#running.get(account)?.generation === generation) await this.#stop(account);
    return {};
  }

  async stopAll() {
    await Promise.all([...this.#running.keys()].map((account) => this.#stop(account)));
  }

  async #stop(account) {
    const running = this.#running.get(account);
    if (running === undefined) return;
    this.#running.delete(account);
    running.isOver = true;
    running.abort.abort();
    const { plugin } = this.#loaded;
    const ended = async () => {
      await plugin.gateway.stopAccount?.({ cfg: running.cfg, accountId: account, account: running.account });
      await running.handle?.stop?.();
      await running.task;
    };
    const limit = new Promise((resolve) => setTimeout(resolve, STOP_MS).unref());
    await Promise.race([ended().catch((error) => this.#host.log("warn", `account ${account} did not stop cleanly: ${describe(error)}`)), limit]);
  }

  /** The running account; an error if there is none. */
  get(account) {
    const running = this.#running.get(account);
    if (running === undefined) throw new Error(`account ${account} is not running`);
    return running;
  }

  /** Asks the platform for our own identity. */
  async probe({ account }) {
    const { plugin, runtime } = this.#loaded;
    const running = this.get(account);
    const probe = plugin.status?.probeAccount;
    const found = probe === undefined ? {} : await probe({ account: running.account, cfg: runtime.config.current(), timeoutMs: PROBE_MS });
    if (found?.ok === false) throw new Error(describe(found.error ?? "the platform did not answer"));
    const self = found?.bot ?? found?.self ?? found?.me ?? found?.account ?? found ?? {};
    const word = (...values) => values.find((value) => typeof value === "string" && value !== "") ?? null;
    return {
      id: word(self.id, self.userId, self.user_id, self.e164, self.nick, running.account?.userId, running.account?.nick, running.account?.account) ?? "",
      username: word(self.username, self.nick, found?.nick),
      name: word(self.name, self.displayName, self.display_name, self.username, running.account?.name) ?? "",
    };
  }

  #ended(account, running, why) {
    if (running.isOver) return;
    running.isOver = true;
    this.#running.delete(account);
    this.#tell(account, running, { state: "ended", why });
  }

  #report(account, running) {
    const { status } = running;
    if (running.isOver) return;
    const why = status.lastError ?? status.stateReason ?? (typeof status.lastDisconnect === "string" ? status.lastDisconnect : status.lastDisconnect?.error);
    const isDown = status.lifecycle === "blocked" || status.lifecycle === "recovering" || status.ingressUnavailable === true;
    if (isDown) this.#tell(account, running, { state: "down", why: describe(why ?? `the connection is ${status.lifecycle ?? "unavailable"}`) });
    else if (status.lifecycle === "ready" || (status.lifecycle === undefined && status.connected === true)) this.#tell(account, running, { state: "up" });
    else if (status.lifecycle === undefined && status.connected === false && why) this.#tell(account, running, { state: "down", why: describe(why) });
  }

  #tell(account, running, { state, why = null }) {
    this.#host.routes.publish();
    // Some packages append the stack.
    const reason = why === null ? null : why.split("\n")[0].slice(0, 500);
    const reported = JSON.stringify([state, reason]);
    if (running.reported === reported) return;
    running.reported = reported;
    this.#host.peer.hint("account.status", { account, generation: running.generation, state, why: reason });
  }
}
