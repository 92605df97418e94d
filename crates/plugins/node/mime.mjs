// Detects a MIME type: by the first bytes, then by the declared type, then by the file name.

import path from "node:path";

const BY_ENDING = {
  ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".gif": "image/gif", ".webp": "image/webp",
  ".heic": "image/heic", ".heif": "image/heif", ".svg": "image/svg+xml", ".bmp": "image/bmp",
  ".ogg": "audio/ogg", ".oga": "audio/ogg", ".opus": "audio/ogg", ".mp3": "audio/mpeg", ".m4a": "audio/mp4",
  ".wav": "audio/wav", ".flac": "audio/flac", ".aac": "audio/aac",
  ".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
  ".pdf": "application/pdf", ".json": "application/json", ".zip": "application/zip", ".gz": "application/gzip",
  ".txt": "text/plain", ".md": "text/markdown", ".csv": "text/csv", ".html": "text/html",
};

const BY_FIRST_BYTES = [
  [0, "ffd8ff", "image/jpeg"], [0, "89504e470d0a1a0a", "image/png"], [0, "47494638", "image/gif"],
  [8, "57454250", "image/webp"], [0, "255044462d", "application/pdf"], [0, "4f676753", "audio/ogg"],
  [0, "494433", "audio/mpeg"], [0, "664c6143", "audio/flac"], [8, "57415645", "audio/wav"],
  [4, "66747970", "video/mp4"], [0, "504b0304", "application/zip"], [0, "1f8b", "application/gzip"],
];

/** The ending of a path or an address, in lower case. */
export function getFileExtension(file) {
  if (!file) return undefined;
  const name = /^https?:\/\//i.test(file) && URL.canParse(file) ? new URL(file).pathname : file;
  return path.extname(name).toLowerCase() || undefined;
}

/** The type of some bytes, or of what is said of them. */
export async function detectMime({ buffer, headerMime, filePath } = {}) {
  const said = headerMime?.split(";")[0].trim().toLowerCase();
  const named = BY_ENDING[getFileExtension(filePath) ?? ""];
  const seen = buffer && sniff(Buffer.from(buffer));
  // Office documents are zip files, so their name is more specific than their bytes.
  if (seen && seen !== "application/zip") return seen;
  const isVague = said === undefined || said === "" || said === "application/octet-stream";
  return named ?? (isVague ? seen : said) ?? (said || undefined);
}

function sniff(bytes) {
  return BY_FIRST_BYTES.find(([at, hex]) => bytes.subarray(at, at + hex.length / 2).toString("hex") === hex)?.[2];
}

/** The usual ending for a type. */
export function extensionForMime(mime) {
  const plain = mime?.split(";")[0].trim().toLowerCase();
  return Object.entries(BY_ENDING).find(([, type]) => type === plain)?.[0];
}

/** `image`, `audio`, `video`, `document` or `unknown`. */
export function mediaKindFromMime(mime) {
  const kind = mime?.split("/")[0].toLowerCase();
  if (!kind) return "unknown";
  return ["image", "audio", "video"].includes(kind) ? kind : ["application", "text"].includes(kind) ? "document" : "unknown";
}

/** Whether a sound can be sent as a voice message. */
export function isVoiceCompatibleAudio({ contentType, fileName } = {}) {
  const mime = contentType?.split(";")[0].trim().toLowerCase();
  return ["audio/ogg", "audio/opus"].includes(mime) || [".ogg", ".oga", ".opus"].includes(getFileExtension(fileName));
}
