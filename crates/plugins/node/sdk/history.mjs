// For group chats: the messages since the agent's last reply.

export const DEFAULT_GROUP_HISTORY_LIMIT = 50;
export const HISTORY_CONTEXT_MARKER = "[Chat messages since your last reply - for context]";
const CURRENT_MESSAGE_MARKER = "[Current message - respond to this]";
/** Of so many chats the messages are kept; the one that was silent longest goes first. */
const MOST_CHATS = 1000;

/** Writes a message down. */
export function recordPendingHistoryEntry({ historyMap, historyKey, entry, limit }) {
  if (limit <= 0) return [];
  const entries = [...(historyMap.get(historyKey) ?? []), entry].slice(-limit);
  historyMap.delete(historyKey);
  historyMap.set(historyKey, entries);
  while (historyMap.size > MOST_CHATS) historyMap.delete(historyMap.keys().next().value);
  return entries;
}

/** The same, if there is a message and a wish to keep it. */
export function recordPendingHistoryEntryIfEnabled({ entry, limit, ...where }) {
  return entry && limit > 0 ? recordPendingHistoryEntry({ entry, limit, ...where }) : [];
}

/** The message with what was said before it. */
export function buildPendingHistoryContextFromMap({ historyMap, historyKey, limit, currentMessage, formatEntry, lineBreak = "\n" }) {
  const entries = limit > 0 ? (historyMap.get(historyKey) ?? []) : [];
  if (entries.length === 0) return currentMessage;
  const said = entries.map(formatEntry).join(lineBreak);
  return [HISTORY_CONTEXT_MARKER, said, "", CURRENT_MESSAGE_MARKER, currentMessage].join(lineBreak);
}

/** Forgets what was said: it has been answered. */
export function clearHistoryEntries({ historyMap, historyKey }) {
  historyMap.set(historyKey, []);
}

/** The same, if it is kept at all. */
export function clearHistoryEntriesIfEnabled({ limit, ...where }) {
  if (limit > 0) clearHistoryEntries(where);
}
