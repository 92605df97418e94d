// Helpers for texts, numbers and time.

import path from "node:path";

export const SILENT_REPLY_TOKEN = "NO_REPLY";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const clamp = (value, min, max) => Math.min(max, Math.max(min, value));
export const escapeRegExp = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
// eslint-disable-next-line no-control-regex
export const stripAnsi = (text) => text.replace(/\u001b\[[0-9;]*m|\u001b\]8;;.*?(\u001b\\|\u0007)/g, "");

/** What a text says in JSON, or null. */
export function safeParseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Whether a reply says that there is nothing to say: at its beginning or at its end. */
export function isSilentReplyText(text, token = SILENT_REPLY_TOKEN) {
  if (!text) return false;
  const word = escapeRegExp(token);
  return new RegExp(`^\\s*${word}(?=$|\\W)|\\b${word}\\b\\W*$`).test(text);
}

/** What went wrong, in words. */
export function formatErrorMessage(error) {
  if (error instanceof Error) return error.message || error.name;
  if (typeof error === "object") return JSON.stringify(error);
  return String(error);
}

/** A telephone number with its plus and nothing but digits. */
export function normalizeE164(number) {
  return `+${number.replace(/^whatsapp:/, "").replace(/\D/g, "")}`;
}

/** A link into OpenClaw's manual, which is where plugins' links lead. */
export function formatDocsLink(where, label) {
  const target = where.trim();
  const url = target.startsWith("http") ? target : `https://docs.openclaw.ai/${target.replace(/^\//, "")}`;
  return label && label !== url ? `${label} (${url})` : url;
}

/** The error for a message that does not say where to. */
export function missingTargetError(provider, hint) {
  return new Error(`${provider} needs a target${hint ? ` ${hint}` : ""}`);
}

/** The name that a stored file had before a unique id was added to it. */
export function extractOriginalFilename(file) {
  const { name, ext, base } = path.parse(file);
  const original = name.match(/^(.+)---[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i)?.[1];
  return original ? original + ext : base || "file.bin";
}

const MARKS = [
  [/\*\*(.+?)\*\*/g, "$1"], [/__(.+?)__/g, "$1"], [/~~(.+?)~~/g, "$1"], [/(?<![*\w])\*([^*\n]+)\*(?!\*)/g, "$1"],
  [/(?<![_\w])_([^_\n]+)_(?![_\w])/g, "$1"], [/^#{1,6}\s+/gm, ""], [/^>\s?/gm, ""], [/^[-*_]{3,}$/gm, ""],
  [/`([^`]+)`/g, "$1"], [/\n{3,}/g, "\n\n"],
];

/** A text without its Markdown. */
export function stripMarkdown(text) {
  return MARKS.reduce((plain, [mark, instead]) => plain.replace(mark, instead), text).trim();
}
