// Loading plugins: import, register, report. A plugin that fails is reported and the others go on.

import { pathToFileURL } from "node:url";
import { Book } from "./book.mjs";
import { makeApi } from "./api.mjs";
import { actAs, settle } from "./owner.mjs";
import { describe } from "./rpc.mjs";

/** How long the import of one plugin may take if the gateway does not say. */
const IMPORT_MS = 30_000;

/** Makes `load({candidates, deadlineMs})`. */
export function pluginLoader(host) {
  return async ({ candidates = [], deadlineMs = IMPORT_MS }) => {
    // At once, because one that waits for something must not hold the others up.
    const plugins = await Promise.all(candidates.map((each) => loadOne(host, each, deadlineMs)));
    // In the gateway's order, whoever was first to arrive.
    for (const { book } of plugins) for (const entry of book?.entries ?? []) host.registry.add(entry);
    return { plugins: plugins.map(({ report }) => report) };
  };
}

async function loadOne(host, candidate, deadlineMs) {
  const { id, source, rootDir } = candidate;
  settle(id, rootDir);
  host.registry.forget(id);
  const book = new Book(id, host.log);
  try {
    const definition = unwrap(await withDeadline(importFile(id, source), deadlineMs));
    const about = describePlugin(candidate, definition);
    const register = typeof definition === "function" ? definition : (definition?.register ?? definition?.activate);
    if (typeof register !== "function") throw new Error("the plugin exports neither a function nor an object with register or activate");
    const api = makeApi({ ...host, about, book });
    const returned = actAs(id, () => register.call(definition, api));
    if (typeof returned?.then === "function") warnOfPromise(book, returned);
    host.disposers.push(...book.disposers.map((run) => ({ plugin: id, run })));
    const { name, version } = about;
    return { book, report: { id, status: "loaded", name, version, registrations: book.told, diagnostics: book.diagnostics } };
  } catch (error) {
    host.log("error", `plugin ${id} did not load: ${error?.stack ?? describe(error)}`, id);
    const none = { ...new Book(id, host.log).told, unsupported: book.told.unsupported };
    return { report: { id, status: "error", error: describe(error), registrations: none, diagnostics: book.diagnostics } };
  } finally {
    book.close();
  }
}

/** Imports a file in the name of a plugin. */
export function importFile(plugin, file, query = "") {
  return actAs(plugin, () => import(pathToFileURL(file).href + query));
}

/** What a module means to export: the default, also through CommonJS that was once an ES module. */
export function unwrap(module) {
  const inner = module?.default ?? module;
  return inner?.__esModule && "default" in inner ? inner.default : inner;
}

function describePlugin({ id, source, rootDir, pluginConfig, manifest }, definition) {
  const from = (key) => definition?.[key] ?? manifest?.[key];
  // A function has a name too, but it is not the plugin's.
  const name = typeof definition === "function" ? manifest?.name : from("name");
  const text = (value) => (value == null ? undefined : String(value));
  return { id, name: text(name) ?? id, version: text(from("version")), description: text(from("description")), source, rootDir, pluginConfig };
}

function warnOfPromise(book, promise) {
  book.warn("register() returned a promise, which is not awaited; only registrations before its first await take effect");
  promise.then(undefined, (error) => book.log("error", `register() failed later: ${describe(error)}`, book.plugin));
}

async function withDeadline(promise, deadlineMs) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the import did not finish within ${deadlineMs} ms`)), deadlineMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
