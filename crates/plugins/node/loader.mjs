// Loads plugins: import, register, report. A plugin that fails is reported; the others are loaded.

import { pathToFileURL } from "node:url";
import { RegistrationCollector } from "./registrations.mjs";
import { makeApi } from "./api.mjs";
import { actAs, settle } from "./owner.mjs";
import { describe } from "./rpc.mjs";

/** How long the import of one plugin may take if the gateway does not say. */
const IMPORT_MS = 30_000;

/** Makes `load({candidates, deadlineMs})`. */
export function pluginLoader(host) {
  return async ({ candidates = [], deadlineMs = IMPORT_MS }) => {
    // Concurrently, so that a plugin that waits does not delay the others.
    const plugins = await Promise.all(candidates.map((each) => loadOne(host, each, deadlineMs)));
    // In the gateway's order, regardless of which was loaded first.
    for (const { collector } of plugins) for (const entry of collector?.entries ?? []) host.registry.add(entry);
    return { plugins: plugins.map(({ report }) => report) };
  };
}

async function loadOne(host, candidate, deadlineMs) {
  const { id, source, rootDir } = candidate;
  settle(id, rootDir);
  host.registry.forget(id);
  const collector = new RegistrationCollector(id, host.log);
  try {
    const definition = unwrap(await withDeadline(importFile(id, source), deadlineMs));
    const about = describePlugin(candidate, definition);
    const register = typeof definition === "function" ? definition : (definition?.register ?? definition?.activate);
    if (typeof register !== "function") throw new Error("the plugin exports neither a function nor an object with register or activate");
    const api = makeApi({ ...host, about, collector });
    const returned = actAs(id, () => register.call(definition, api));
    if (typeof returned?.then === "function") warnOfPromise(collector, returned);
    host.disposers.push(...collector.disposers.map((run) => ({ plugin: id, run })));
    const { name, version } = about;
    return { collector, report: { id, status: "loaded", name, version, registrations: collector.told, diagnostics: collector.diagnostics } };
  } catch (error) {
    host.log("error", `plugin ${id} did not load: ${error?.stack ?? describe(error)}`, id);
    const none = { ...new RegistrationCollector(id, host.log).told, unsupported: collector.told.unsupported };
    return { report: { id, status: "error", error: describe(error), registrations: none, diagnostics: collector.diagnostics } };
  } finally {
    collector.close();
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
  // The `name` of a function is not the plugin's name.
  const name = typeof definition === "function" ? manifest?.name : from("name");
  const text = (value) => (value == null ? undefined : String(value));
  return { id, name: text(name) ?? id, version: text(from("version")), description: text(from("description")), source, rootDir, pluginConfig };
}

function warnOfPromise(collector, promise) {
  collector.warn("register() returned a promise, which is not awaited; only registrations before its first await take effect");
  promise.then(undefined, (error) => collector.log("error", `register() failed later: ${describe(error)}`, collector.plugin));
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
