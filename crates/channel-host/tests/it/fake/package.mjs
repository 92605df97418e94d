// A channel package with the shape of OpenClaw's. Its platform speaks JSON lines over TCP: `{id, text, from, chat, …}`
// arrives, `{ack}` confirms it, `{send}` leaves and is answered with `{sent}` or `{failed}`. `mode` makes it hostile.

import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import readline from "node:readline";

const sockets = new Map();
const waiting = new Map();
let lastSend = 0;

const HOSTILE = {
  hang: () => {
    for (;;);
  },
  die: () => process.kill(process.pid, "SIGKILL"),
  garbage: () => fs.writeSync(1, "this is not a message\n{\"id\":\n\u0000\n".repeat(20)),
  flood: (api) => setInterval(() => {
    for (let at = 0; at < 2000; at += 1) api.logger.error(`line ${at} ${"x".repeat(200)}`);
    fs.writeSync(1, "flood\n".repeat(2000));
  }, 10),
  memory: () => {
    globalThis.kept = Buffer.alloc(400 * 1024 * 1024, 1);
  },
};

function factsOf(message) {
  const isGroup = message.chat !== undefined;
  return {
    RawBody: message.text, MessageSid: message.id, From: `irc:${message.from}`, To: isGroup ? `irc:channel:${message.chat}` : `irc:${message.from}`,
    SenderId: message.from, SenderName: message.from, ChatType: isGroup ? "channel" : "direct", WasMentioned: message.mentioned === true,
    AccountId: message.account ?? "default", Timestamp: 1000, MediaPath: message.media, MediaType: message.media ? "image/png" : undefined,
    Provider: "telegram", OriginatingChannel: "telegram",
  };
}

async function startAccount(api, ctx) {
  const { port, mode } = ctx.account;
  HOSTILE[mode]?.(api);
  const queue = api.runtime.state.openChannelIngressQueue({ accountId: ctx.accountId });
  const socket = net.connect(port, "127.0.0.1");
  sockets.set(ctx.accountId, socket);
  const tell = (message) => socket.write(`${JSON.stringify(message)}\n`);
  let draining = Promise.resolve();
  const drain = () => {
    draining = draining.then(async () => {
      for (let claim = await queue.claimNext(); claim !== null; claim = await queue.claimNext()) {
        try {
          const turnAdoptionLifecycle = { onAdopted: () => queue.complete(claim) };
          await ctx.channelRuntime.reply.dispatchReplyFromConfig({ ctx: factsOf(claim.payload), cfg: ctx.cfg, replyOptions: { turnAdoptionLifecycle } });
        } catch (error) {
          ctx.log.warn(String(error));
          if (/no valid id|does not receive/.test(String(error))) {
            await queue.fail(claim, { reason: "invalid", message: String(error) });
            continue;
          }
          await queue.release(claim, { lastError: String(error) });
          setTimeout(drain, 20);
          return;
        }
      }
    });
  };
  readline.createInterface({ input: socket }).on("line", async (line) => {
    const message = JSON.parse(line);
    if (message.sent !== undefined || message.failed !== undefined) {
      waiting.get(message.n)?.(message);
      return;
    }
    if (message.saves) {
      message.media = path.join(api.runtime.state.resolveStateDir(), "in.png");
      fs.writeFileSync(message.media, message.saves);
    }
    const { duplicate } = await queue.enqueue(message.id, message);
    tell({ ack: message.id, duplicate });
    drain();
  });
  socket.on("connect", () => {
    tell({ hello: ctx.accountId, env: Object.keys(process.env).sort(), section: globalThis.configSnapshot.channels });
    ctx.setStatus({ accountId: ctx.accountId, lifecycle: "ready" });
    drain();
  });
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.on("error", () => {});
  ctx.abortSignal.addEventListener("abort", () => socket.destroy());
  await closed;
  if (!ctx.abortSignal.aborted) throw new Error("the platform closed the connection");
}

function send(to, { text, accountId, mediaUrl, replyToId }) {
  lastSend += 1;
  const n = lastSend;
  const file = mediaUrl === undefined ? undefined : { name: path.basename(mediaUrl), text: fs.readFileSync(mediaUrl, "utf8") };
  return new Promise((resolve, reject) => {
    waiting.set(n, ({ sent, failed }) => {
      if (failed === undefined) resolve({ messageId: sent });
      else reject(Object.assign(new Error(failed), { code: failed }));
    });
    sockets.get(accountId).write(`${JSON.stringify({ n, send: { to, text, file, replyTo: replyToId } })}\n`);
  });
}

export default {
  register(api) {
    api.registerHttpRoute({ path: "/fake/hook", auth: "plugin", handler: (request, response) => response.end(`${request.method} ${request.url}`) });
    api.registerChannel({
      plugin: {
        id: "irc",
        capabilities: { chatTypes: ["direct", "group"], threads: false },
        config: { listAccountIds: () => ["default"], resolveAccount: (cfg, id) => ({ ...cfg.channels.irc, ...cfg.channels.irc.accounts?.[id] }) },
        gateway: { startAccount: (ctx) => startAccount(api, ctx) },
        status: { probeAccount: async () => ({ ok: true, bot: { id: "7", username: "fake", name: "Fake" } }) },
        messaging: { normalizeTarget: (target) => target.replace(/^channel:/, "") },
        outbound: { textChunkLimit: 50, chunker: (text, limit) => text.match(new RegExp(`[^]{1,${limit}}`, "g")), sendText: (context) => send(context.to, context), sendMedia: (context) => send(context.to, context) },
      },
    });
  },
};
