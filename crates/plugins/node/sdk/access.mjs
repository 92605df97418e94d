// For channels: access rules, mentions, and which config entry applies.

const texts = (list) => (list ?? []).map((each) => String(each).trim()).filter(Boolean);

/** A list of senders as texts. */
export const normalizeAllowFrom = (allowFrom) => texts(allowFrom);

/** The list with everybody on it. */
export function addWildcardAllowFrom(allowFrom) {
  return [...new Set([...texts(allowFrom), "*"])];
}

/** Both lists in one; a name that differs only in case is there once. */
export function mergeAllowlist({ existing, additions }) {
  const known = new Map();
  for (const each of [...texts(existing), ...texts(additions)]) {
    if (!known.has(each.toLowerCase())) known.set(each.toLowerCase(), each);
  }
  return [...known.values()];
}

/** For zod: a policy "open" needs "*" on the list. */
export function requireOpenAllowFrom({ policy, allowFrom, ctx, path, message }) {
  if (policy === "open" && !texts(allowFrom).includes("*")) ctx.addIssue({ code: "custom", path, message });
}

/** Says which names were found and which were not. */
export function summarizeMapping(label, mapping, unresolved, runtime) {
  const line = (word, list) => `${label} ${word}: ${list.slice(0, 6).join(", ")}${list.length > 6 ? ` (+${list.length - 6})` : ""}`;
  const lines = [mapping.length > 0 && line("resolved", mapping), unresolved.length > 0 && line("unresolved", unresolved)].filter(Boolean);
  if (lines.length > 0) runtime.log?.(lines.join("\n"));
}

/** Why somebody was let in, for a log. */
export function formatAllowlistMatchMeta(match) {
  return `matchKey=${match?.matchKey ?? "none"} matchSource=${match?.matchSource ?? "none"}`;
}

/** Whether a message in a group is for the agent. */
export function resolveMentionGating({ requireMention, canDetectMention, wasMentioned, implicitMention, shouldBypassMention }) {
  const effectiveWasMentioned = Boolean(wasMentioned || implicitMention || shouldBypassMention);
  return { effectiveWasMentioned, shouldSkip: Boolean(requireMention && canDetectMention && !effectiveWasMentioned) };
}

/** The same, where a command by somebody who may give it needs no mention. */
export function resolveMentionGatingWithBypass(about) {
  const isFree = about.isGroup && about.requireMention && !about.wasMentioned && !about.hasAnyMention;
  const isCommand = about.allowTextCommands && about.commandAuthorized && about.hasControlCommand;
  const shouldBypassMention = Boolean(isFree && isCommand);
  return { ...resolveMentionGating({ ...about, shouldBypassMention }), shouldBypassMention };
}

/** Whether one of those who can allow a command does. */
export function resolveCommandAuthorizedFromAuthorizers({ useAccessGroups, authorizers, modeWhenAccessGroupsOff = "allow" }) {
  const isAllowed = authorizers.some((each) => each.configured && each.allowed);
  if (useAccessGroups) return isAllowed;
  if (modeWhenAccessGroupsOff === "configured") return isAllowed || !authorizers.some((each) => each.configured);
  return modeWhenAccessGroupsOff === "allow";
}

/** Whether a command may be given, and whether the message is to be dropped because it may not. */
export function resolveControlCommandGate({ allowTextCommands, hasControlCommand, ...about }) {
  const commandAuthorized = resolveCommandAuthorizedFromAuthorizers(about);
  return { commandAuthorized, shouldBlock: allowTextCommands && hasControlCommand && !commandAuthorized };
}

/** A channel's name as it stands in configs. */
export function normalizeChannelSlug(name) {
  return name.toLowerCase().trim().replace(/^#/, "").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
}

/** The names under which a channel may be in a config, each once. */
export function buildChannelKeyCandidates(...names) {
  return [...new Set(names.filter((each) => typeof each === "string").map((each) => each.trim()).filter(Boolean))];
}

/** The first of `keys` that has an entry, and the entry for all. */
export function resolveChannelEntryMatch({ entries = {}, keys, wildcardKey }) {
  const key = keys.find((each) => Object.hasOwn(entries, each));
  const hasWildcard = wildcardKey && Object.hasOwn(entries, wildcardKey);
  return {
    ...(key !== undefined && { entry: entries[key], key }),
    ...(hasWildcard && { wildcardEntry: entries[wildcardKey], wildcardKey }),
  };
}

/** The same, then by normalised names, then the parent's, then the entry for all. */
export function resolveChannelEntryMatchWithFallback({ entries = {}, keys, parentKeys = [], wildcardKey, normalizeKey }) {
  const match = resolveChannelEntryMatch({ entries, keys, wildcardKey });
  const own = findKey(entries, keys, normalizeKey);
  if (own !== undefined) return { ...match, entry: entries[own], key: own, matchKey: own, matchSource: "direct" };
  const parent = findKey(entries, parentKeys, normalizeKey);
  if (parent !== undefined) {
    const entry = entries[parent];
    return { ...match, entry, key: parent, parentEntry: entry, parentKey: parent, matchKey: parent, matchSource: "parent" };
  }
  if (match.wildcardKey === undefined) return match;
  return { ...match, entry: match.wildcardEntry, key: wildcardKey, matchKey: wildcardKey, matchSource: "wildcard" };
}

function findKey(entries, keys, normalize) {
  const exact = keys.find((key) => entries[key] && Object.hasOwn(entries, key));
  if (exact !== undefined || !normalize) return exact;
  const wanted = keys.map(normalize).filter(Boolean);
  return Object.keys(entries).find((key) => entries[key] && wanted.includes(normalize(key)));
}

/** Whether a list within a list lets somebody in. A list that is not there lets everybody in. */
export function resolveNestedAllowlistDecision({ outerConfigured, outerMatched, innerConfigured, innerMatched }) {
  return !outerConfigured || (outerMatched && (!innerConfigured || innerMatched));
}

/** The tools that a sender may use: by id, number, user name or name, else the entry for all. */
export function resolveToolsBySender({ toolsBySender, senderId, senderE164, senderUsername, senderName }) {
  const plain = (key) => key.trim().toLowerCase().replace(/^@/, "");
  const policies = Object.entries(toolsBySender ?? {}).filter(([, policy]) => policy);
  for (const who of [senderId, senderE164, senderUsername, senderName]) {
    const match = who?.trim() && policies.find(([key]) => key.trim() !== "*" && plain(key) === plain(who));
    if (match) return match[1];
  }
  return policies.find(([key]) => key.trim() === "*")?.[1];
}
