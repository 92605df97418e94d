// The object that a plugin's register(api) gets.

import os from "node:os";
import path from "node:path";
import { makeLogger } from "./log.mjs";
import { makeRuntime } from "./runtime.mjs";
import { toJsonSchema } from "./schema.mjs";
import { absent, NAMESPACES, notSupported, REGISTRARS } from "./unsupported.mjs";

const COMMAND_NAME = /^[a-z][a-z0-9_-]*$/;

/** Makes the api of one plugin; what it registers goes into `book`. */
export function makeApi({ about, book, house, peer, log, dispose }) {
  const { id, name, version, description, source, rootDir, pluginConfig } = about;
  const api = {
    id, name, version, description, source,
    get config() {
      return house.config();
    },
    pluginConfig,
    runtime: makeRuntime({ plugin: id, house, peer, log }),
    logger: makeLogger(log, id),
    registerTool: (tool, options) => registerTool(book, about, tool, options),
    registerHook: (events, handler, options) => registerHook(book, events, handler, options, pluginConfig),
    registerHttpHandler: (handler) => registerHandler(book, handler),
    registerHttpRoute: (route) => registerRoute(book, route),
    registerChannel: undefined,
    registerProvider: undefined,
    registerGatewayMethod: (method, handler, options) => registerMethod(book, method, handler, options),
    registerCli: (_registrar, options) => book.told.cli.push({ commands: options?.commands ?? [] }),
    registerService: (service) => registerService(book, service),
    registerCommand: (command) => registerCommand(book, command),
    resolvePath: (given) => resolvePath(given),
    on: (hook, handler, options) => registerListener(book, hook, handler, options),
  };
  const refuse = (member) => () => {
    book.told.unsupported.push(member);
    throw notSupported(`api.${member}`);
  };
  for (const member of REGISTRARS) {
    // The older list is what plugins see when they look around; the newer names are only there to be called.
    const enumerable = member in api;
    Object.defineProperty(api, member, { value: refuse(member), enumerable });
  }
  const life = lifecycle(book, dispose);
  const quiet = { rootDir, runtimeSource: source, registrationMode: "full", lifecycle: life };
  quiet.registerRuntimeLifecycle = life.registerRuntimeLifecycle;
  for (const member of NAMESPACES) quiet[member] = absent(`api.${member}`, (used) => book.told.unsupported.push(used));
  for (const [member, value] of Object.entries(quiet)) Object.defineProperty(api, member, { value, enumerable: false });
  return api;
}

function lifecycle(book, signal) {
  return {
    signal,
    onDispose: (run) => book.disposers.push(run),
    registerRuntimeLifecycle: ({ cleanup }) => cleanup && book.disposers.push(cleanup),
  };
}

function registerTool(book, about, tool, options) {
  const optional = options?.optional === true;
  const { name, names } = options ?? {};
  const isFactory = typeof tool === "function" || typeof tool?.create === "function";
  const declared = [names ?? name ?? []].flat().map(String);
  if (isFactory) {
    const make = typeof tool === "function" ? tool : (context) => tool.create(context);
    book.add("tools", "tool", { make, optional, rootDir: about.rootDir }, { names: declared, optional, isFactory });
    return;
  }
  if (typeof tool?.name !== "string" || typeof tool.execute !== "function") {
    throw new Error("registerTool needs a tool with a name and an execute function, or a factory function");
  }
  const parameters = toJsonSchema(tool.parameters, about.rootDir);
  const told = { name: tool.name, label: text(tool.label) ?? tool.name, description: text(tool.description) ?? "", parameters };
  book.add("tools", "tool", { tool, told, optional }, { ...told, names: [tool.name], optional, isFactory });
}

function registerHook(book, events, handler, options = {}, pluginConfig) {
  const name = options.entry?.hook?.name ?? options.name;
  if (!name || typeof handler !== "function") {
    book.warn(`registerHook needs a function and a name; ${[events].flat().join(", ")} is ignored`);
    return;
  }
  if (options.register === false) return;
  const list = [events].flat().map(String);
  book.add("internalHooks", "internalHook", { handler, pluginConfig }, { name: String(name), events: list });
}

function registerListener(book, hook, handler, options = {}) {
  if (typeof hook !== "string" || typeof handler !== "function") {
    book.warn(`on needs the name of a hook and a function; ${String(hook)} is ignored`);
    return;
  }
  const priority = Math.trunc(Math.max(-1e9, Math.min(1e9, Number(options.priority) || 0)));
  const timeoutMs = options.timeoutMs > 0 ? Math.trunc(Math.min(options.timeoutMs, 1e9)) : undefined;
  book.add("hooks", "hook", { name: hook, handler }, { name: hook, priority, timeoutMs, guard: options.guard === true });
}

// It is asked about everything that nobody else answers, so it has no path of its own.
function registerHandler(book, handler) {
  if (typeof handler === "function") book.add("httpRoutes", "httpRoute", { handler, isAsked: true }, { path: "" });
  else book.warn("registerHttpHandler needs a function; it is ignored");
}

function registerRoute(book, { path: given, handler, auth, match } = {}) {
  if (typeof given !== "string" || given.trim() === "" || typeof handler !== "function") {
    book.warn("an HTTP route needs a path and a handler; it is ignored");
    return;
  }
  const route = given.trim().startsWith("/") ? given.trim() : `/${given.trim()}`;
  book.add("httpRoutes", "httpRoute", { handler, isAsked: false }, { path: route, auth: text(auth), match: text(match) });
}

function registerMethod(book, name, handler, options) {
  if (typeof name !== "string" || name.trim() === "" || typeof handler !== "function") {
    book.warn("a gateway method needs a name and a handler; it is ignored");
    return;
  }
  book.add("gatewayMethods", "gatewayMethod", { handler }, { name: name.trim(), scope: text(options?.scope) });
}

function registerService(book, service) {
  if (typeof service?.id !== "string" || typeof service.start !== "function") {
    book.warn("a service needs an id and a start function; it is ignored");
    return;
  }
  book.add("services", "service", { service }, { id: service.id });
}

function registerCommand(book, command) {
  const name = String(command?.name ?? "").trim().toLowerCase();
  if (!COMMAND_NAME.test(name) || typeof command?.handler !== "function") {
    book.warn(`the command ${JSON.stringify(name)} needs a name like "my-command" and a handler; it is ignored`);
    return;
  }
  const { acceptsArgs, requireAuth = true } = command;
  const told = { name, description: text(command.description) ?? "", acceptsArgs: acceptsArgs === true, requireAuth: requireAuth !== false };
  book.add("commands", "command", { command }, told);
}

// What is told is typed; what plugins write is not.
function text(value) {
  return typeof value === "string" ? value : undefined;
}

function resolvePath(given) {
  const text = String(given).trim();
  if (text === "~" || text.startsWith("~/")) return path.join(os.homedir(), text.slice(1));
  return path.resolve(text);
}
