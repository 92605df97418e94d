// For channels: texts and callbacks. Channels cannot be registered here, but plugins that contain one among other
// things import these, and tools for a service use them too.

export const PAIRING_APPROVED_MESSAGE = "✅ You are paired with the agent now. Send a message to begin.";

/** How the owner lets somebody in. */
export function formatPairingApproveHint(channel) {
  return `Approve with: homard pairing list ${channel}, then homard pairing approve ${channel} <code>`;
}

const at = (target) => (target ? ` target=${target}` : "");

export function logInboundDrop({ log, channel, reason, target }) {
  log(`${channel}: drop ${reason}${at(target)}`);
}

export function logTypingFailure({ log, channel, target, action, error }) {
  log(`${channel}: typing${action ? ` ${action}` : ""} failed${at(target)}: ${String(error)}`);
}

export function logAckFailure({ log, channel, target, error }) {
  log(`${channel}: ack cleanup failed${at(target)}: ${String(error)}`);
}

/** Callbacks that show and hide that the agent is typing; a failure is told, never thrown. */
export function createTypingCallbacks({ start, stop, onStartError, onStopError = onStartError }) {
  const onIdle = stop && (() => void Promise.resolve().then(stop).catch(onStopError));
  return { onReplyStart: () => Promise.resolve().then(start).catch(onStartError), onIdle, onCleanup: onIdle };
}

/** What is put before replies, and who is told which model answers. */
export function createReplyPrefixContext({ cfg }) {
  const prefixContext = {};
  const onModelSelected = ({ provider, model, thinkLevel }) =>
    Object.assign(prefixContext, { provider, model: model?.split("/").at(-1), modelFull: `${provider}/${model}`, thinkingLevel: thinkLevel ?? "off" });
  const responsePrefix = cfg?.messages?.responsePrefix;
  return { prefixContext, responsePrefix, responsePrefixContextProvider: () => prefixContext, onModelSelected };
}

/** The same, without the context itself. */
export function createReplyPrefixOptions(about) {
  const { prefixContext: _own, ...options } = createReplyPrefixContext(about);
  return options;
}

function place(location) {
  const source = location.source ?? (location.isLive ? "live" : location.name || location.address ? "place" : "pin");
  return { ...location, source, isLive: Boolean(location.isLive ?? source === "live") };
}

/** A place as a line of text. */
export function formatLocationText(location) {
  const { latitude, longitude, accuracy, name, address, isLive, source, caption } = place(location);
  const spot = `${latitude.toFixed(6)}, ${longitude.toFixed(6)}${Number.isFinite(accuracy) ? ` ±${Math.round(accuracy)}m` : ""}`;
  const title = [name, address].filter(Boolean).join(" — ");
  const head = isLive || source === "live" ? `🛰 Live location: ${spot}` : title ? `📍 ${title} (${spot})` : `📍 ${spot}`;
  return caption?.trim() ? `${head}\n${caption.trim()}` : head;
}

/** A place as fields of a message's context. */
export function toLocationContext(location) {
  const { latitude, longitude, accuracy, name, address, source, isLive } = place(location);
  return {
    LocationLat: latitude, LocationLon: longitude, LocationAccuracy: accuracy, LocationName: name,
    LocationAddress: address, LocationSource: source, LocationIsLive: isLive,
  };
}
