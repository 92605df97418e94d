// A fake platform for a real package: @openclaw/crabline's servers, or an IRC server. Speaks JSON lines: first it writes
// `{section, env}`, the account's settings; `{inject: {text, group}}` arrives and is answered with `{injected}`; what
// the package sends is written as `{sent}`.
// usage: platform.mjs CHANNEL DIRECTORY_OF_PACKAGES

import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const [channel, root] = process.argv.slice(2);
const tell = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

async function irc() {
  let connection;
  const server = net.createServer((socket) => {
    let nick = "";
    readline.createInterface({ input: socket }).on("line", (line) => {
      if (line.startsWith("NICK ")) {
        nick = line.slice(5).trim();
        socket.write(`:srv 001 ${nick} :welcome\r\n`);
        // A probe uses another nick or closes at once; the newest connection that stays is the account's.
        if (connection === undefined || connection.destroyed) connection = socket;
      } else if (line.startsWith("PING")) socket.write(`PONG ${line.slice(5)}\r\n`);
      else if (line.startsWith("PRIVMSG")) tell({ sent: line.slice(line.indexOf(" :") + 2) });
    });
    socket.on("error", () => {});
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const section = { host: "127.0.0.1", port: server.address().port, tls: false, nick: "homard", channels: ["#ops"] };
  const inject = async ({ text, group }) => connection.write(`:alice!a@h PRIVMSG ${group ? "#ops" : "homard"} :${text}\r\n`);
  return { section, env: {}, inject };
}

const PEERS = {
  matrix: { direct: "!room:crabline.local", sender: "@alice:crabline.local" },
  mattermost: { direct: "b".repeat(26), sender: "b".repeat(26) },
  signal: { direct: "+15550002", sender: "+15550002" },
  whatsapp: { direct: "15550000002@s.whatsapp.net", sender: "15550000002@s.whatsapp.net" },
  zalo: { direct: "200000001", sender: "200000001" },
};

/** Writes the credentials of a device that is linked to a number. */
async function linkedDevice(id) {
  const baileys = await import(pathToFileURL(path.join(root, "node_modules/@openclaw/whatsapp/node_modules/baileys/lib/index.js")).href);
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "whatsapp-"));
  const creds = { ...baileys.initAuthCreds(), me: { id: id.replace("@", ":1@"), name: "Homard" }, registered: true };
  fs.writeFileSync(path.join(dir, "creds.json"), JSON.stringify(creds, baileys.BufferJSON.replacer));
  return dir;
}

async function crabline() {
  const library = await import(pathToFileURL(path.join(root, "node_modules/@openclaw/crabline/dist/src/index.js")).href);
  const seen = new Set();
  const onEvent = (event) => {
    const found = library.createOpenClawCrablineOutboundObservation({ manifest: server.manifest, event });
    if (found?.text !== undefined && !seen.has(event)) {
      seen.add(event);
      tell({ sent: found.text });
    }
  };
  const recorderPath = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "crabline-")), "events.jsonl");
  const server = await library.startCrablineServer({ channel, provider: channel, recorderPath, onEvent });
  const binding = library.createOpenClawCrablineProviderBinding(server.manifest);
  const env = Object.fromEntries(Object.entries(binding.createProviderReadinessEnv?.({}) ?? {}).filter(([, value]) => typeof value === "string"));
  let section = binding.createGatewayConfig({}).channels[channel];
  if (channel === "signal") section = { account: section.account, transport: { kind: "external-native", url: section.httpUrl } };
  if (channel === "whatsapp") section.authDir = await linkedDevice(env.CRABLINE_WHATSAPP_SELF_JID);
  const { direct, sender } = PEERS[channel];
  const inject = async ({ text }) => {
    const input = { conversation: { id: direct, kind: "direct" }, senderId: sender, senderName: "Alice", text };
    const inbound = library.createOpenClawCrablineInbound({ manifest: server.manifest, input });
    const headers = { "content-type": "application/json", "X-Crabline-Admin-Token": server.manifest.adminToken, ...(inbound.headers ?? {}) };
    const response = await fetch(server.manifest.endpoints.adminInboundUrl, { method: "POST", headers, body: JSON.stringify(inbound.providerBody ?? inbound.body) });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  };
  return { section, env, inject };
}

const { section, env, inject } = await (channel === "irc" ? irc() : crabline());
tell({ section, env });
readline.createInterface({ input: process.stdin }).on("line", async (line) => {
  const { inject: message } = JSON.parse(line);
  await inject(message).then(() => tell({ injected: message.text }), (error) => tell({ injected: null, error: String(error) }));
}).on("close", () => process.exit(0));
