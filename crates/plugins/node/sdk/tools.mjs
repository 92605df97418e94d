// For tools: reading parameters, writing results, describing choices.

import { readFile } from "node:fs/promises";
import { detectMime } from "../mime.mjs";
import { Type } from "./typebox.mjs";

/** A mistake of whoever called the tool. */
export class ToolInputError extends Error {
  status = 400;
  name = "ToolInputError";
}

const missing = (label, isRequired) => {
  if (isRequired) throw new ToolInputError(`${label} required`);
  return undefined;
};

/** A text. Blanks around it are cut, and an empty one is none, unless told otherwise. */
export function readStringParam(params, key, { required = false, trim = true, label = key, allowEmpty = false } = {}) {
  const value = typeof params[key] === "string" ? (trim ? params[key].trim() : params[key]) : undefined;
  return value === undefined || (value === "" && !allowEmpty) ? missing(label, required) : value;
}

/** A text that may have been written as a number. */
export function readStringOrNumberParam(params, key, options = {}) {
  const value = params[key];
  return readStringParam({ [key]: Number.isFinite(value) ? String(value) : value }, key, options);
}

/** A number, also one in a text. */
export function readNumberParam(params, key, { required = false, label = key, integer = false } = {}) {
  const given = params[key];
  const value = typeof given === "string" ? Number.parseFloat(given) : given;
  if (!Number.isFinite(value)) return missing(label, required);
  return integer ? Math.trunc(value) : value;
}

/** Texts, also a single one. */
export function readStringArrayParam(params, key, { required = false, label = key } = {}) {
  const given = typeof params[key] === "string" ? [params[key]] : params[key];
  const texts = Array.isArray(given) ? given.filter((each) => typeof each === "string").map((each) => each.trim()).filter(Boolean) : [];
  return texts.length === 0 ? missing(label, required) : texts;
}

/** The parameters of a reaction. */
export function readReactionParams(params, { emojiKey = "emoji", removeKey = "remove", removeErrorMessage }) {
  const remove = params[removeKey] === true;
  const emoji = readStringParam(params, emojiKey, { required: true, allowEmpty: true });
  if (remove && emoji === "") throw new ToolInputError(removeErrorMessage);
  return { emoji, remove, isEmpty: emoji === "" };
}

/** A question whether an action is switched on. */
export function createActionGate(actions) {
  return (key, otherwise = true) => (actions?.[key] === undefined ? otherwise : actions[key] !== false);
}

/** A result that the model reads as JSON. */
export function jsonResult(payload) {
  return { content: [{ type: "text", text: JSON.stringify(payload, null, 2) ?? "null" }], details: payload };
}

/** A result that is text. */
export function textResult(text, details = {}) {
  return { content: [{ type: "text", text }], details };
}

/** A result that is a picture. */
export async function imageResult({ path, base64, mimeType, extraText, details }) {
  const text = { type: "text", text: extraText ?? `MEDIA:${path}` };
  return { content: [text, { type: "image", data: base64, mimeType }], details: { path, ...details } };
}

/** A result that is a picture in a file. */
export async function imageResultFromFile({ path, ...rest }) {
  const buffer = await readFile(path);
  const mimeType = (await detectMime({ buffer, filePath: path })) ?? "image/png";
  return imageResult({ path, base64: buffer.toString("base64"), mimeType, ...rest });
}

/** One of some texts. Written as an enum, because not every provider takes unions. */
export function stringEnum(values, options = {}) {
  return Type.Unsafe({ type: "string", enum: [...values], ...options });
}

/** The same, if it may be left out. */
export function optionalStringEnum(values, options = {}) {
  return Type.Optional(stringEnum(values, options));
}
