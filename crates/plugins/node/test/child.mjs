// A gateway for tests: starts the host as a process and speaks the protocol with it.

import { spawn } from "node:child_process";
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { lineReader } from "../lines.mjs";

process.setMaxListeners(0);
const HOST = fileURLToPath(new URL("../host.mjs", import.meta.url));

/** Starts a host and, unless told otherwise, greets it. `answers` are what the gateway can be asked. */
export async function startHost(t, { answers = {}, config = {}, greet = true, env = {} } = {}) {
  const child = new Child(answers, env);
  t.after(() => child.end());
  if (greet) await child.ask("initialize", { protocol: 1, hostVersion: "1.2.3", stateDir: "/state", workspaceDir: "/workspace", config, apiLevel: "2026.2" });
  return child;
}

/** A folder with files, as `{name: text}`. It is gone when the tests are over. */
export function folder(files) {
  const dir = mkdtempSync(path.join(os.tmpdir(), "node-host-"));
  process.on("exit", () => rmSync(dir, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    writeFileSync(path.join(dir, name), text);
  }
  return dir;
}

/** A plugin in a folder of its own: the candidate that is loaded. */
export function plugin(id, source, { file = "index.js", pluginConfig, files = {} } = {}) {
  const rootDir = folder({ "package.json": '{"type":"module"}', ...files, [file]: source });
  return { id, source: path.join(rootDir, file), rootDir, pluginConfig, manifest: { id } };
}

class Child {
  logs = [];
  progress = [];
  stray = [];
  asked = [];
  #process;
  #waiting = new Map();
  #watchers = new Set();
  #lastId = 0;

  constructor(answers, env) {
    this.answers = answers;
    this.#process = spawn(process.execPath, [HOST], { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
    this.pid = this.#process.pid;
    this.stderr = "";
    this.#process.stderr.setEncoding("utf8").on("data", (text) => (this.stderr += text));
    this.#process.stdin.on("error", () => {});
    this.exited = new Promise((resolve) => this.#process.on("exit", (code, signal) => resolve({ code, signal })));
    this.#process.stdout.on("data", lineReader({ onLine: (line) => this.#receive(line), onTooLong: () => {} }));
  }

  /** Asks and waits for the result; an error of the host is thrown, with its code. */
  ask(method, params = {}) {
    return this.begin(method, params).answer;
  }

  /** Asks and returns at once, with the id. */
  begin(method, params = {}) {
    const id = ++this.#lastId;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
    return { id, answer };
  }

  notify(method, params) {
    this.send(JSON.stringify({ jsonrpc: "2.0", method, params }));
  }

  send(line) {
    this.#process.stdin.write(`${line}\n`);
  }

  pauseReading() {
    this.#process.stdout.pause();
  }

  resumeReading() {
    this.#process.stdout.resume();
  }

  closeInput() {
    this.#process.stdin.end();
  }

  /** Waits until `find(child)` finds something. */
  until(find) {
    return new Promise((resolve) => {
      const look = () => {
        const found = find(this);
        if (!found) return;
        this.#watchers.delete(look);
        resolve(found);
      };
      this.#watchers.add(look);
      look();
    });
  }

  untilLog(part) {
    return this.until(({ logs }) => logs.find(({ message }) => message.includes(part)));
  }

  /** Loads plugins and returns the reports by id. */
  async load(...candidates) {
    const { plugins } = await this.ask("plugins.load", { candidates });
    return Object.fromEntries(plugins.map((each) => [each.id, each]));
  }

  async end() {
    this.#process.stdin.end();
    this.#process.stdout.resume();
    const timer = setTimeout(() => this.#process.kill("SIGKILL"), 5000);
    await this.exited;
    clearTimeout(timer);
  }

  #receive(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.stray.push(line);
      return;
    }
    const { id, method, params } = message;
    if (method === "log") this.logs.push(params);
    else if (method === "$/progress") this.progress.push(params);
    else if (method !== undefined) void this.#serve(message);
    else if (this.#waiting.has(id)) {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (message.error) reject(Object.assign(new Error(message.error.message), { code: message.error.code }));
      else resolve(message.result);
    } else this.stray.push(message);
    for (const look of [...this.#watchers]) look();
  }

  async #serve({ id, method, params }) {
    this.asked.push({ method, params });
    if (id === undefined) return;
    try {
      if (!(method in this.answers)) throw new Error(`no answer for ${method}`);
      const result = await this.answers[method](params);
      this.send(JSON.stringify({ jsonrpc: "2.0", id, result: result ?? null }));
    } catch (error) {
      this.send(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32000, message: error.message } }));
    }
  }
}
