// HTTP routes of packages, which the gateway serves.

import { setTimeout as sleep } from "node:timers/promises";

/** Where OpenClaw keeps the routes that packages register while they run. */
const REGISTRY = Symbol.for("openclaw.pluginRegistryState");
/** How often it is read. */
const REFRESH_MS = 500;

export class Routes {
  #peer;
  #own = [];
  #published = "[]";

  constructor(peer) {
    this.#peer = peer;
    void this.#refresh();
  }

  /** Adds a route that was registered while the package was loaded. */
  add(route) {
    this.#own.push(route);
    return () => (this.#own = this.#own.filter((known) => known !== route));
  }

  #all() {
    const registered = globalThis[REGISTRY]?.activeRegistry?.httpRoutes ?? [];
    return [...this.#own, ...registered].filter((route) => typeof route?.path === "string" && typeof route.handler === "function");
  }

  /** Tells the gateway which paths there are, if they changed. */
  publish() {
    const routes = this.#all().map(({ path, match }) => ({ path, isPrefix: match === "prefix" }));
    const text = JSON.stringify(routes);
    if (text === this.#published) return;
    this.#published = text;
    this.#peer.hint("routes", { routes });
  }

  async #refresh() {
    for await (const _ of ticks()) this.publish();
  }

  /** The handler of a path; the interface that http.mjs expects. */
  get(path) {
    const fits = (route) => path === route.path || (route.match === "prefix" && path.startsWith(`${route.path.replace(/\/$/, "")}/`));
    const route = this.#all().filter(fits).sort((one, other) => other.path.length - one.path.length)[0];
    if (route === undefined) throw new Error(`no route for ${path}`);
    return { handler: route.handler, plugin: null, isAsked: false };
  }
}

async function* ticks() {
  for (;;) yield await sleep(REFRESH_MS, undefined, { ref: false });
}
