// The object that a plugin's register(api) gets.

import os from "node:os";
import path from "node:path";
import { makeLogger } from "./log.mjs";
import { makeRuntime } from "./runtime.mjs";
import { toJsonSchema } from "./schema.mjs";
import { absent, NAMESPACES, notSupported, REGISTRARS } from "./unsupported.mjs";

const COMMAND_NAME = /^[a-z][a-z0-9_-]*$/;

/** Makes the api of one plugin; what it registers goes into `collector`. */
export function makeApi({ about, collector, gatewayInfo, peer, log, dispose }) {
  const { id, name, version, description, source, rootDir, pluginConfig } = about;
  const api = {
    id, name, version, description, source,
    get config() {
      return gatewayInfo.config();
    },
    pluginConfig,
    runtime: makeRuntime({ plugin: id, gatewayInfo, peer, log }),
    logger: makeLogger(log, id),
    registerTool: (tool, options) => registerTool(collector, about, tool, options),
    registerHook: (events, handler, options) => registerHook(collector, events, handler, options, pluginConfig),
    registerHttpHandler: (handler) => registerHandler(collector, handler),
    registerHttpRoute: (route) => registerRoute(collector, route),
    registerChannel: undefined,
    registerProvider: undefined,
    registerGatewayMethod: (method, handler, options) => registerMethod(collector, method, handler, options),
    registerCli: (_registrar, options) => collector.told.cli.push({ commands: options?.commands ?? [] }),
    registerService: (service) => registerService(collector, service),
    registerCommand: (command) => registerCommand(collector, command),
    resolvePath: (given) => resolvePath(given),
    on: (hook, handler, options) => registerListener(collector, hook, handler, options),
  };
  const refuse = (member) => () => {
    collector.told.unsupported.push(member);
    throw notSupported(`api.${member}`);
  };
  for (const member of REGISTRARS) {
    // Only the older names are enumerable, because plugins inspect the object; the newer ones can still be called.
    const enumerable = member in api;
    Object.defineProperty(api, member, { value: refuse(member), enumerable });
  }
  const life = lifecycle(collector, dispose);
  const quiet = { rootDir, runtimeSource: source, registrationMode: "full", lifecycle: life };
  quiet.registerRuntimeLifecycle = life.registerRuntimeLifecycle;
  for (const member of NAMESPACES) quiet[member] = absent(`api.${member}`, (used) => collector.told.unsupported.push(used));
  for (const [member, value] of Object.entries(quiet)) Object.defineProperty(api, member, { value, enumerable: false });
  return api;
}

function lifecycle(collector, signal) {
  return {
    signal,
    onDispose: (run) => collector.disposers.push(run),
    registerRuntimeLifecycle: ({ cleanup }) => cleanup && collector.disposers.push(cleanup),
  };
}

function registerTool(collector, about, tool, options) {
  const optional = options?.optional === true;
  const { name, names } = options ?? {};
  const isFactory = typeof tool === "function" || typeof tool?.create === "function";
  const declared = [names ?? name ?? []].flat().map(String);
  if (isFactory) {
    const make = typeof tool === "function" ? tool : (context) => tool.create(context);
    collector.add("tools", "tool", { make, optional, rootDir: about.rootDir }, { names: declared, optional, isFactory });
    return;
  }
  if (typeof tool?.name !== "string" || typeof tool.execute !== "function") {
    throw new Error("registerTool needs a tool with a name and an execute function, or a factory function");
  }
  const parameters = toJsonSchema(tool.parameters, about.rootDir);
  const told = { name: tool.name, label: text(tool.label) ?? tool.name, description: text(tool.description) ?? "", parameters };
  collector.add("tools", "tool", { tool, told, optional }, { ...told, names: [tool.name], optional, isFactory });
}

function registerHook(collector, events, handler, options = {}, pluginConfig) {
  const name = options.entry?.hook?.name ?? options.name;
  if (!name || typeof handler !== "function") {
    collector.warn(`registerHook needs a function and a name; ${[events].flat().join(", ")} is ignored`);
    return;
  }
  if (options.register === false) return;
  const list = [events].flat().map(String);
  collector.add("internalHooks", "internalHook", { handler, pluginConfig }, { name: String(name), events: list });
}

function registerListener(collector, hook, handler, options = {}) {
  if (typeof hook !== "string" || typeof handler !== "function") {
    collector.warn(`on needs the name of a hook and a function; ${String(hook)} is ignored`);
    return;
  }
  const priority = Math.trunc(Math.max(-1e9, Math.min(1e9, Number(options.priority) || 0)));
  const timeoutMs = options.timeoutMs > 0 ? Math.trunc(Math.min(options.timeoutMs, 1e9)) : undefined;
  collector.add("hooks", "hook", { name: hook, handler }, { name: hook, priority, timeoutMs, guard: options.guard === true });
}

// A catch-all handler: it gets every request that no route handles, so it has no path.
function registerHandler(collector, handler) {
  if (typeof handler === "function") collector.add("httpRoutes", "httpRoute", { handler, isAsked: true }, { path: "" });
  else collector.warn("registerHttpHandler needs a function; it is ignored");
}

function registerRoute(collector, { path: given, handler, auth, match } = {}) {
  if (typeof given !== "string" || given.trim() === "" || typeof handler !== "function") {
    collector.warn("an HTTP route needs a path and a handler; it is ignored");
    return;
  }
  const route = given.trim().startsWith("/") ? given.trim() : `/${given.trim()}`;
  collector.add("httpRoutes", "httpRoute", { handler, isAsked: false }, { path: route, auth: text(auth), match: text(match) });
}

function registerMethod(collector, name, handler, options) {
  if (typeof name !== "string" || name.trim() === "" || typeof handler !== "function") {
    collector.warn("a gateway method needs a name and a handler; it is ignored");
    return;
  }
  collector.add("gatewayMethods", "gatewayMethod", { handler }, { name: name.trim(), scope: text(options?.scope) });
}

function registerService(collector, service) {
  if (typeof service?.id !== "string" || typeof service.start !== "function") {
    collector.warn("a service needs an id and a start function; it is ignored");
    return;
  }
  collector.add("services", "service", { service }, { id: service.id });
}

function registerCommand(collector, command) {
  const name = String(command?.name ?? "").trim().toLowerCase();
  if (!COMMAND_NAME.test(name) || typeof command?.handler !== "function") {
    collector.warn(`the command ${JSON.stringify(name)} needs a name like "my-command" and a handler; it is ignored`);
    return;
  }
  const { acceptsArgs, requireAuth = true } = command;
  const told = { name, description: text(command.description) ?? "", acceptsArgs: acceptsArgs === true, requireAuth: requireAuth !== false };
  collector.add("commands", "command", { command }, told);
}

// Plugins pass values of any type; only strings are reported to the gateway.
function text(value) {
  return typeof value === "string" ? value : undefined;
}

function resolvePath(given) {
  const text = String(given).trim();
  if (text === "~" || text.startsWith("~/")) return path.join(os.homedir(), text.slice(1));
  return path.resolve(text);
}
