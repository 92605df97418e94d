// The channel host: runs one channel package of OpenClaw for Homard's gateway and speaks JSON-RPC over stdin and
// stdout. The gateway stores what arrives, decides who is answered, and sends the replies through the package. Start
// reading at package.mjs for how a package is loaded and at accounts.mjs for what happens to an account.

import net from "node:net";
import { Accounts } from "./accounts.mjs";
import { watchRequests } from "./flight.mjs";
import { guard } from "./guard.mjs";
import { httpDoor } from "./http.mjs";
import { makeLog } from "./log.mjs";
import { Outbound } from "./outbound.mjs";
import { loadPackage } from "./package.mjs";
import { Routes } from "./routes.mjs";
import { INVALID_PARAMS, Peer, RpcError } from "./rpc.mjs";

const PROTOCOL = 1;
/** How long accounts may close their connections when the gateway is gone without a word. */
const ORPHAN_GRACE_MS = 1000;

const peer = new Peer({ input: process.stdin, output: protocolOutput() });
const tell = makeLog(peer, []);
/** Warnings of OpenClaw's own loop that mean nothing here: the reply is sent later, by the gateway. */
const EXPECTED = /with no queued reply payloads|default (override|underride|global) .*push rule|slow SQLite reclamation/;
const log = (level, message, ...rest) => tell(level === "warn" && EXPECTED.test(String(message)) ? "debug" : level, message, ...rest);
const exit = guard(log);
watchRequests();

const routes = new Routes(peer);
let loaded;
let accounts;
let outbound;

peer.serve({
  initialize,
  ping: () => "pong",
  "account.start": (params) => accounts.start(params),
  "account.stop": (params) => accounts.stop(params),
  "account.probe": (params) => accounts.probe(params),
  send: (params) => outbound.send(params),
  perform: (params) => outbound.perform(params),
  "http.request": httpDoor({ registry: routes }),
  shutdown: async ({ graceMs = 5000 }) => {
    await tidyUp(graceMs);
    setImmediate(() => peer.flush().then(() => exit(0)));
    return {};
  },
});
peer.listen(() => tidyUp(ORPHAN_GRACE_MS).then(() => exit(0)));

async function initialize(params) {
  if (params.protocol !== PROTOCOL) {
    throw new RpcError(INVALID_PARAMS, `this host speaks protocol ${PROTOCOL}, the gateway ${params.protocol}; both must come from one release`);
  }
  loaded = await loadPackage(params, { peer, log, routes, accounts: () => accounts });
  accounts = new Accounts(loaded, { peer, log, routes });
  outbound = new Outbound(loaded, accounts);
  const { plugin } = loaded;
  const { capabilities = {}, outbound: sends = {} } = plugin;
  return {
    protocol: PROTOCOL,
    nodeVersion: process.versions.node,
    textLimit: sends.textChunkLimit ?? null,
    threads: capabilities.threads === true,
    reactions: capabilities.reactions === true && typeof plugin.actions?.handleAction === "function",
    polls: typeof sends.sendPoll === "function",
  };
}

/** Lets accounts close their connections, for so long and no longer. */
function tidyUp(graceMs) {
  return Promise.race([accounts?.stopAll(), new Promise((resolve) => setTimeout(resolve, graceMs))]);
}

// Node writes to a pipe on process.stdout synchronously; a gateway that is slow to read would block this process.
// A socket on the same file descriptor does not block.
function protocolOutput() {
  try {
    return new net.Socket({ fd: 1, readable: false, writable: true });
  } catch {
    return process.stdout;
  }
}
