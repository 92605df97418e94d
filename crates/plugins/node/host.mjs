// The Node host: runs plugins and hook handlers written for OpenClaw, and communicates with the gateway over
// stdin and stdout. Start reading at rpc.mjs for the protocol and at loader.mjs for what happens to a plugin.

import net from "node:net";
import { bridge } from "./bridge.mjs";
import { commandRunner, methodCaller } from "./calls.mjs";
import { guard } from "./guard.mjs";
import { hookInvoker } from "./hooks.mjs";
import { GatewayInfo } from "./gateway-info.mjs";
import { httpDoor } from "./http.mjs";
import { internalHooks } from "./internal.mjs";
import { pluginLoader } from "./loader.mjs";
import { makeLog } from "./log.mjs";
import { hookImports } from "./modules.mjs";
import { actAs } from "./owner.mjs";
import { refResolver } from "./refs.mjs";
import { Registry } from "./registry.mjs";
import { describe, INVALID_PARAMS, Peer, RpcError } from "./rpc.mjs";
import { runAgent } from "./runtime.mjs";
import { Services } from "./services.mjs";
import { toolBench } from "./tools.mjs";

const PROTOCOL = 1;
/** How long plugins may tidy up when the gateway is gone without a word. */
const ORPHAN_GRACE_MS = 1000;

const peer = new Peer({ input: process.stdin, output: protocolOutput() });
const log = makeLog(peer, bridge.logListeners);
const exit = guard(log);
const lacking = hookImports();
const gatewayInfo = new GatewayInfo(peer);
const registry = new Registry();
const disposal = new AbortController();
const host = { peer, log, gatewayInfo, registry, disposers: [], dispose: disposal.signal, resolveRefs: refResolver(peer, log) };
const services = new Services(host);
Object.assign(bridge, { runAgent: (wish, plugin) => runAgent(peer, wish, plugin), log });

peer.serve({
  initialize,
  ping: () => "pong",
  "plugins.load": pluginLoader(host),
  "hook.invoke": hookInvoker(host),
  ...toolBench(host),
  "command.run": commandRunner(host),
  "gatewayMethod.call": methodCaller(host),
  "service.start": (params) => services.start(params),
  "service.stop": (params) => services.stop(params),
  "http.request": httpDoor(host),
  ...internalHooks(host),
  shutdown: async ({ graceMs = 5000 }) => {
    await tidyUp(graceMs);
    setImmediate(() => peer.flush().then(() => exit(0)));
    return {};
  },
});
peer.listen(() => tidyUp(ORPHAN_GRACE_MS).then(() => exit(0)));

function initialize(params) {
  if (params.protocol !== PROTOCOL) {
    throw new RpcError(INVALID_PARAMS, `this host speaks protocol ${PROTOCOL}, the gateway ${params.protocol}; both must come from one release`);
  }
  gatewayInfo.settle(params);
  if (lacking !== null) log("warn", lacking, null);
  return { name: "node-host", version: gatewayInfo.hostVersion, protocol: PROTOCOL, nodeVersion: process.versions.node, lacking };
}

/** Lets plugins end what they began, for so long and no longer. */
function tidyUp(graceMs) {
  const work = async () => {
    disposal.abort();
    await services.stopAll();
    for (const { plugin, run } of host.disposers.splice(0).reverse()) {
      try {
        await actAs(plugin, () => run());
      } catch (error) {
        log("warn", `cleanup failed: ${describe(error)}`, plugin);
      }
    }
  };
  return Promise.race([work(), new Promise((resolve) => setTimeout(resolve, graceMs))]);
}

// Node writes to a pipe on process.stdout synchronously; a gateway that is slow to read would block this process
// in the middle of a plugin's code. A socket on the same file descriptor does not block.
function protocolOutput() {
  try {
    return new net.Socket({ fd: 1, readable: false, writable: true });
  } catch {
    return process.stdout;
  }
}
