// Inbound messages: what a package found out about a message, reduced to the facts that the gateway needs.

const text = (value) => (value === undefined || value === null ? "" : String(value));
const first = (...values) => values.map(text).find((value) => value !== "") ?? "";
const PLACEHOLDER = /^<media:[a-z]+>( \(\d+ [a-z]+\))?$/;

/** Makes `dispatchReplyFromConfig`: hands a message to the gateway and returns once it is stored. The reply is sent later, by the gateway. */
export function replyDispatcher(channel, peer, plugin) {
  return async ({ ctx, dispatcher, replyOptions }) => {
    if (ctx.SenderIsSelf !== true) await peer.request("inbound", factsOf(channel, ctx, plugin()));
    const adoption = replyOptions?.turnAdoptionLifecycle;
    await adoption?.onAdopted?.();
    dispatcher?.markComplete?.();
    await dispatcher?.waitForIdle?.();
    return { queuedFinal: false, counts: { tool: 0, block: 0, final: 0 } };
  };
}

/** The facts of a message. */
export function factsOf(channel, ctx, plugin) {
  const kind = ctx.ChatType === "direct" || ctx.ChatType === undefined ? "direct" : ctx.ChatType === "channel" ? "channel" : "group";
  const peer = chatId(channel, ctx, plugin);
  const message = first(ctx.MessageSidFull, ctx.MessageSid);
  const raw = first(ctx.RawBody, ctx.BodyForCommands, ctx.CommandBody, ctx.BodyForAgent, ctx.Body);
  const body = PLACEHOLDER.test(raw.trim()) ? "" : raw;
  const answered = first(ctx.ReplyToIdFull, ctx.ReplyToId);
  // Some packages name the message itself, as the one that the reply is to quote.
  const quoted = answered === message ? "" : answered;
  return {
    account: first(ctx.AccountId, "default"),
    event: JSON.stringify([peer, message]),
    message,
    kind,
    peer: { id: peer, title: first(ctx.GroupSubject, ctx.ConversationLabel) || null },
    sender: {
      id: first(ctx.SenderId, ctx.SenderE164, withoutPrefix(channel, text(ctx.From))),
      name: text(ctx.SenderName),
      username: first(ctx.SenderUsername, ctx.SenderTag) || null,
      isBot: ctx.SenderIsBot === true,
    },
    text: body,
    replyTo: quoted === "" ? null : { message: quoted, sender: first(ctx.ReplyToSender) || null, text: text(ctx.ReplyToBody), isOurs: ctx.ReplyToIsBot === true || ctx.ImplicitMentionKinds?.includes?.("reply_to_bot") === true },
    thread: kind === "direct" ? null : first(ctx.MessageThreadId) || null,
    wasMentioned: ctx.WasMentioned === true || ctx.ExplicitlyMentionedBot === true,
    media: mediaOf(ctx),
    timestamp: Number.isFinite(ctx.Timestamp) ? ctx.Timestamp : null,
  };
}

/** Drops the channel's own prefix of a target, such as `irc:` in `irc:alice`. */
function withoutPrefix(channel, target) {
  return target.toLowerCase().startsWith(`${channel}:`) ? target.slice(channel.length + 1) : target;
}

/** The target for replies: the plain id of the chat, as it is in the config, if the package sends to the same place for it. */
function chatId(channel, ctx, plugin) {
  const target = withoutPrefix(channel, first(ctx.OriginatingTo, ctx.To, ctx.From));
  const prefix = /^(group|channel|room|conversation|thread):/i.exec(target)?.[0];
  if (prefix === undefined) return target;
  const plain = target.slice(prefix.length);
  const normalize = plugin?.messaging?.normalizeTarget;
  try {
    return normalize !== undefined && normalize(plain) === normalize(target) ? plain : target;
  } catch {
    return target;
  }
}

function mediaOf(ctx) {
  const list = (all, one) => (Array.isArray(all) && all.length > 0 ? all : one === undefined || one === null || one === "" ? [] : [one]);
  const types = list(ctx.MediaTypes, ctx.MediaType);
  const paths = list(ctx.MediaPaths, ctx.MediaPath);
  const found = paths.length > 0 ? paths.map((path) => ({ path: text(path) })) : list(ctx.MediaUrls, ctx.MediaUrl).map((url) => ({ url: text(url) }));
  return found.slice(0, 20).map((media, at) => ({ ...media, mime: first(types[at]) || null, name: null }));
}
