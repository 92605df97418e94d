// Sends messages through a package, once, and reports the outcome.

import { inFlight } from "./flight.mjs";
import { actAs } from "./owner.mjs";
import { describe } from "./rpc.mjs";

const CONNECT_ERRORS = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);
const NOT_CONNECTED = /not (yet |currently )?(connected|ready|logged in|linked|running)|no active (connection|session|listener|client)|disconnected|is not running/i;

const INVALID = /\b(required|invalid|not a valid|does not support|unsupported|no such|unknown (target|user|channel|recipient))\b/i;

/** A failure with a classification: refused, later, unavailable or unknown. */
const failure = (kind, message, afterMs = null) => ({ ok: false, kind, message, afterMs });

export class Outbound {
  #loaded;
  #accounts;

  constructor(loaded, accounts) {
    this.#loaded = loaded;
    this.#accounts = accounts;
  }

  /** Sends a message; of a text that is too long, its parts one after the other. */
  async send(params) {
    const { plugin, channel } = this.#loaded;
    const flight = { requests: [], results: [], isDispatched: false };
    try {
      const running = this.#running(params.account);
      if (running === undefined) return failure("unavailable", `the account ${params.account} is not connected`);
      const base = this.#context(running, params, flight);
      const { to, error } = this.#target(running, params);
      if (error !== undefined) return failure("refused", error);
      await inFlight(flight, () => actAs(channel, () => this.#sendParts(plugin.outbound, { ...base, to }, params, flight)));
      const messages = flight.results.flatMap(idsOf);
      return { ok: true, message: messages.at(-1) ?? null, messages };
    } catch (error) {
      return classify(error, flight);
    }
  }

  #running(account) {
    try {
      return this.#accounts.get(account);
    } catch {
      return undefined;
    }
  }

  #context(running, { account, id, replyTo, thread, isSilent, isVoice }, flight) {
    return {
      cfg: running.cfg, accountId: account, deliveryQueueId: id, silent: isSilent === true, audioAsVoice: isVoice === true,
      ...(replyTo ? { replyToId: replyTo, replyToIdSource: "explicit" } : {}),
      ...(thread ? { threadId: thread } : {}),
      onPlatformSendDispatch: async () => void (flight.isDispatched = true),
      assertDirectAdapterHandoff: () => {},
      onDeliveryResult: (result) => void flight.results.push(result),
    };
  }

  #target(running, { to, account }) {
    const resolve = this.#loaded.plugin.outbound.resolveTarget;
    if (resolve === undefined) return { to };
    const found = resolve({ cfg: running.cfg, to, accountId: account, allowFrom: ["*"], mode: "explicit" });
    return found?.ok === false ? { error: describe(found.error ?? `${to} is not a chat`) } : { to: found?.to ?? to };
  }

  async #sendParts(outbound, context, params, flight) {
    const { media = [], poll } = params;
    const clean = (text) => outbound.sanitizeText?.({ text, payload: { text }, cfg: context.cfg, accountId: context.accountId }) ?? text;
    const text = clean(params.text ?? "");
    const limit = outbound.textChunkLimit;
    const isLong = Number.isFinite(limit) && text.length > limit && typeof outbound.chunker === "function";
    const caption = media.length > 0 && !isLong ? text : "";
    const parts = [];
    if (caption === "" && text.trim() !== "") {
      const texts = isLong ? outbound.chunker(text, limit) : [text];
      parts.push(...texts.map((part) => (context) => outbound.sendText({ ...context, text: part })));
    }
    for (const [at, item] of media.entries()) {
      if (outbound.sendMedia === undefined || (item.path !== undefined && !this.#loaded.hasUploads)) throw new Error("the channel does not support attached files");
      const roots = item.dir === undefined ? {} : { mediaLocalRoots: [item.dir] };
      parts.push((context) => outbound.sendMedia({ ...context, ...roots, text: at === 0 ? caption : "", mediaUrl: item.url ?? item.path }));
    }
    if (poll !== undefined && poll !== null) {
      if (outbound.sendPoll === undefined) throw new Error("the channel does not support polls");
      const asked = { question: poll.question, options: poll.options, maxSelections: poll.isMultiple ? poll.options.length : 1 };
      parts.push((context) => outbound.sendPoll({ ...context, poll: asked }));
    }
    for (const [at, send] of parts.entries()) {
      const before = flight.results.length;
      const result = await send({ ...context, deliveryPartIndex: at, deliveryPartCount: parts.length });
      // Some packages report their parts one by one, others return the last one only.
      if (flight.results.length === before && result !== undefined && result !== null) flight.results.push(result);
      flight.parts = at + 1;
    }
  }

  /** Performs an idempotent action. */
  async perform({ account, action, to, thread, message, emoji, text }) {
    const { plugin, channel } = this.#loaded;
    const flight = { requests: [], results: [], isDispatched: false };
    try {
      const running = this.#running(account);
      if (running === undefined) return failure("unavailable", `the account ${account} is not connected`);
      const common = { cfg: running.cfg, accountId: account, to, threadId: thread };
      if (action === "typing") {
        if (plugin.heartbeat?.sendTyping === undefined) return failure("unsupported", "typing");
        await inFlight(flight, () => actAs(channel, () => plugin.heartbeat.sendTyping(common)));
        return { ok: true, message: null, messages: [] };
      }
      const supports = plugin.actions?.supportsAction?.({ action }) ?? plugin.actions?.handleAction !== undefined;
      if (!supports) return failure("unsupported", action);
      const isRemoval = action === "react" && !emoji;
      const params = { to, target: to, channelId: to, chatId: to, chatJid: to, messageId: message, message: text, text, emoji: emoji ?? "", remove: isRemoval, threadId: thread };
      await inFlight(flight, () => actAs(channel, () => plugin.actions.handleAction({ channel, action, cfg: running.cfg, accountId: account, params, senderIsOwner: true })));
      return { ok: true, message, messages: [] };
    } catch (error) {
      return classify(error, flight);
    }
  }
}

function idsOf(result) {
  const ids = result?.receipt?.platformMessageIds ?? [result?.messageId];
  return ids.filter((id) => id !== undefined && id !== null && id !== "" && id !== "unknown").map(String);
}

const codesOf = (error) => {
  const codes = [];
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth += 1) codes.push(at.code, at.name);
  return codes;
};

/** Says what is known after a failure: whether something reached the platform, and what it answered. */
export function classify(error, flight) {
  const message = describe(error);
  const codes = codesOf(error);
  if (flight.results.length > 0 || (flight.parts ?? 0) > 0) return failure("unknown", `only a part was sent: ${message}`);
  if (codes.includes("PlatformMessageRejectedError")) return failure("refused", message);
  if (codes.includes("PlatformMessageNotDispatchedError")) return failure("unavailable", message);
  const last = flight.requests.at(-1);
  if (last?.status === 429) return failure("later", message, last.retryAfter ?? 1000);
  if (last?.status === 503) return last.retryAfter === undefined ? failure("unavailable", message) : failure("later", message, last.retryAfter);
  if (last?.status >= 400 && last.status < 500 && last.status !== 408) return failure("refused", message);
  const wasWritten = flight.requests.some((request) => request.isWrite && request.isSent);
  if (wasWritten) return failure("unknown", message);
  if (flight.requests.length > 0 || codes.some((code) => CONNECT_ERRORS.has(code))) return failure("unavailable", message);
  if (NOT_CONNECTED.test(message)) return failure("unavailable", message);
  return failure(!flight.isDispatched && INVALID.test(message) ? "refused" : "unknown", message);
}
