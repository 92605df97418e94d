// Loads a channel package beside the `openclaw` package, which serves as its library. No OpenClaw gateway runs.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { blobStore } from "./blobs.mjs";
import { makeLogger } from "./log.mjs";
import { ingressQueues } from "./ingress.mjs";
import { replyDispatcher } from "./inbound.mjs";
import { actAs, settle } from "./owner.mjs";

const load = (file) => import(pathToFileURL(file).href);
const readJson = (file) => JSON.parse(fs.readFileSync(file, "utf8"));

/** Loads the package and returns its plugin, the runtime that it uses, and its config schema. */
export async function loadPackage({ channel, root, package: name, stateDir, hasUploads }, { peer, log, routes, accounts }) {
  const dir = path.join(root, "node_modules", name);
  settle(channel, dir);
  const manifest = readJson(path.join(dir, "package.json"));
  const entryFile = manifest.openclaw?.runtimeExtensions?.[0] ?? manifest.main ?? "./dist/index.js";
  const schema = manifestSchema(dir, channel);
  const logger = makeLogger(log, channel);
  const library = path.join(root, "node_modules", "openclaw");
  const dispatchReplyFromConfig = replyDispatcher(channel, peer, () => loaded.plugin);
  const runtime = {
    version: readJson(path.join(library, "package.json")).version,
    config: {
      current: () => accounts().config(),
      loadConfig: () => accounts().config(),
      replaceConfigFile: async () => refuse("change the config"),
      mutateConfigFile: async () => refuse("change the config"),
    },
    logging: { shouldLogVerbose: () => false, getChildLogger: (bindings) => makeLogger(log, channel, bindings) },
    state: await stateStores(library, channel, peer, stateDir, log),
    system: { enqueueSystemEvent: () => true, formatNativeDependencyHint: () => "" },
    media: {},
    channel: await channelRuntime(library, dispatchReplyFromConfig),
  };
  const publishConfig = await configPublisher(library);
  const loaded = { channel, publishConfig, schema, runtime, logger, hasUploads, plugin: undefined };
  const registrar = {
    id: channel, registrationMode: "full", config: {}, pluginConfig: {}, runtime, logger,
    resolvePath: (file) => path.resolve(dir, file),
    on() {},
    lifecycle: { signal: new AbortController().signal, onDispose: () => () => {} },
    registerChannel: (registration) => (loaded.plugin = registration.plugin ?? registration),
    registerHttpRoute: (route) => routes.add(route),
  };
  // Packages also register tools, commands and gateway methods, which belong to OpenClaw's own agent.
  const api = new Proxy(registrar, {
    get: (target, key) => (key in target ? target[key] : typeof key === "string" && key.startsWith("register") ? () => {} : undefined),
  });
  await actAs(channel, async () => {
    const entry = await load(path.join(dir, entryFile));
    const plugin = entry.default ?? entry;
    await (typeof plugin === "function" ? plugin(api) : plugin.register(api));
  });
  if (loaded.plugin?.gateway?.startAccount === undefined) throw new Error(`${name} registers no channel that can be started`);
  return loaded;
}

/** Sets the config that OpenClaw's own functions read, so that they do not look for a file. */
async function configPublisher(library) {
  const resolve = createRequire(path.join(library, "package.json")).resolve;
  return (await load(resolve("openclaw/plugin-sdk/runtime-config-snapshot"))).setRuntimeConfigSnapshot;
}

function refuse(what) {
  throw new Error(`a channel package may not ${what}`);
}

function manifestSchema(dir, channel) {
  try {
    return readJson(path.join(dir, "openclaw.plugin.json")).channelConfigs?.[channel]?.schema ?? {};
  } catch {
    return {};
  }
}

/** Finds a function of the library by its name: OpenClaw's build gives the files names of their own in each version. */
async function libraryFunction(library, prefix, name) {
  const dist = path.join(library, "dist");
  const files = fs.readdirSync(dist).filter((file) => file.startsWith(prefix) && /\.m?js$/.test(file));
  for (const file of files) {
    const found = Object.values(await load(path.join(dist, file))).find((value) => typeof value === "function" && value.name === name);
    if (found !== undefined) return found;
  }
  throw new Error(`this version of openclaw does not fit: ${dist} has no ${name}`);
}

/** OpenClaw's functions for channels, with our dispatcher in every way in. */
async function channelRuntime(library, dispatchReplyFromConfig) {
  const create = await libraryFunction(library, "runtime-channel-", "createRuntimeChannel");
  const runtime = create({ dispatchReplyFromConfig });
  const run = runtime.inbound.run;
  const withOurs = (turn) => (turn !== null && typeof turn === "object" ? { ...turn, dispatchReplyFromConfig } : turn);
  runtime.inbound.run = (params) =>
    run({ ...params, adapter: { ...params.adapter, resolveTurn: async (...args) => withOurs(await params.adapter.resolveTurn(...args)) } });
  runtime.turn = runtime.inbound;
  return runtime;
}

/** Stores of a package: the ingress queue is in the gateway, the others in OpenClaw's database in our state directory. */
async function stateStores(library, channel, peer, stateDir, log) {
  const keyedStore = await libraryFunction(library, "plugin-state-store-", "createPluginStateKeyedStore");
  const syncKeyedStore = await libraryFunction(library, "plugin-state-store-", "createPluginStateSyncKeyedStore");
  return {
    resolveStateDir: () => stateDir,
    openKeyedStore: (options) => keyedStore(channel, options),
    openSyncKeyedStore: (options) => syncKeyedStore(channel, options),
    openBlobStore: (options) => blobStore(stateDir, options),
    openChannelIngressQueue: ingressQueues(channel, {
      load: async (account) => (await peer.request("ingress.load", { account })).rows,
      write: (account, rows, removed) => peer.request("ingress.write", { account, rows, removed }),
      failed: (account, row) => log("warn", `account ${account}: an inbound event was given up (${row.reason}): ${row.message ?? "no details"}`, channel),
    }),
  };
}
