// A real gateway with a scripted model, and a page that is connected to it.
import { test as base, expect, type Page } from "@playwright/test";
import { AxeBuilder } from "@axe-core/playwright";
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startModel } from "./model.mjs";

const BINARY = process.env["HOMARD_BIN"] ?? new URL("../../../target/debug/homard", import.meta.url).pathname;

export interface GatewayOptions {
  /** Further messages of the scripted model. */
  answers?: Record<string, unknown>;
  config?: Record<string, unknown>;
  /** Of the scripted model, in tokens. */
  contextWindow?: number;
  /** Fills the state directory before the first start. */
  prepare?: (state: string) => void | Promise<void>;
}

/** A free port, so that a restarted gateway has the same one. */
function freePort(): Promise<number> {
  return new Promise((done) => {
    const server = createServer();
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => done(typeof address === "object" && address ? address.port : 0));
    });
  });
}

export class Gateway {
  private process: ChildProcess | null = null;
  private constructor(
    readonly state: string,
    readonly port: number,
    readonly model: Awaited<ReturnType<typeof startModel>>,
  ) {}

  static async start({ config = {}, answers = {}, contextWindow = 128_000, prepare }: GatewayOptions = {}): Promise<Gateway> {
    const state = mkdtempSync(join(tmpdir(), "homard-page-"));
    const model = await startModel(answers);
    const cost = { input: 1, output: 5, cacheRead: 0.1, cacheWrite: 1.25 };
    const models = [
      { id: "one", contextWindow, maxTokens: 8_192, reasoning: true, input: ["text", "image"], cost },
      { id: "two", contextWindow: 64_000, cost },
    ];
    const defaults = { model: { primary: "scripted/one", fallbacks: [] }, models: { "scripted/one": {}, "scripted/two": {} }, retry: { maxTotalSeconds: 1 }, heartbeat: { every: "0m" } };
    const all = { models: { providers: { scripted: { baseUrl: model.url, apiKey: "k", api: "openai-completions", models } } }, agents: { defaults }, ...config };
    writeFileSync(join(state, "homard.json"), JSON.stringify(all, null, 2), { mode: 0o600 });
    await prepare?.(state);
    const gateway = new Gateway(state, await freePort(), model);
    await gateway.run();
    return gateway;
  }

  /** Starts the process, and waits until it serves. */
  async run(): Promise<void> {
    const started = spawn(BINARY, ["gateway", "--port", String(this.port)], { env: { ...process.env, HOMARD_STATE_DIR: this.state, HOME: this.state }, stdio: ["ignore", "pipe", "pipe"] });
    this.process = started;
    let output = "";
    await new Promise<void>((done, failed) => {
      const read = (chunk: Buffer) => {
        output += String(chunk);
        if (output.includes("listening")) done();
      };
      started.stdout?.on("data", read);
      started.stderr?.on("data", read);
      started.once("exit", (code) => failed(new Error(`the gateway ended with ${code}: ${output}`)));
    });
  }

  /** Ends the process without warning. */
  async kill(): Promise<void> {
    const running = this.process;
    if (!running) return;
    running.removeAllListeners("exit");
    const ended = new Promise((done) => running.once("exit", done));
    running.kill("SIGKILL");
    await ended;
    this.process = null;
  }

  async stop(): Promise<void> {
    await this.kill();
    this.model.close();
    rmSync(this.state, { recursive: true, force: true });
  }

  /** Memory of the process in bytes: in use, and of it what is not backed by a file. */
  memory(): { resident: number; anonymous: number } {
    const status = readFileSync(`/proc/${this.process?.pid}/status`, "utf8");
    const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) * 1_024;
    return { resident: bytes("VmRSS"), anonymous: bytes("RssAnon") };
  }

  get token(): string {
    const path = join(this.state, "gateway-token");
    return existsSync(path) ? readFileSync(path, "utf8").trim() : "";
  }

  get address(): string {
    return `http://127.0.0.1:${this.port}/`;
  }

  /** Calls a method with the command line. */
  async call<T = Record<string, unknown>>(method: string, params: object = {}): Promise<T> {
    const output = await this.homard("gateway", "call", method, "--params", JSON.stringify(params));
    return JSON.parse(output) as T;
  }

  /** Changes the configuration of the running gateway. */
  async configure(changes: object): Promise<void> {
    const { hash } = await this.call<{ hash: string }>("config.get");
    await this.call("config.patch", { raw: JSON.stringify(changes), baseHash: hash });
  }

  homard(...args: string[]): Promise<string> {
    return new Promise((done, failed) => {
      const run = spawn(BINARY, args, { env: { ...process.env, HOMARD_STATE_DIR: this.state, HOME: this.state } });
      let [output, errors] = ["", ""];
      run.stdout.on("data", (chunk) => (output += chunk));
      run.stderr.on("data", (chunk) => (errors += chunk));
      run.on("exit", (code) => (code === 0 ? done(output) : failed(new Error(`homard ${args.join(" ")}: ${code}: ${errors}`))));
    });
  }
}

/** Problems that must not occur in any test: script errors, violations of the policy, requests to other origins. */
export function watch(page: Page, gateway: Gateway): string[] {
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(`script error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/WebSocket connection|ERR_CONNECTION_REFUSED/.test(message.text())) problems.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "blob:" && url.host !== `127.0.0.1:${gateway.port}`) problems.push(`request to ${request.url()}`);
  });
  return problems;
}

interface Fixtures {
  problems: string[];
  open: (path?: string) => Promise<void>;
}
interface Shared {
  options: GatewayOptions;
  gateway: Gateway;
}

export const test = base.extend<Fixtures, Shared>({
  options: [{}, { scope: "worker", option: true }],
  gateway: [
    async ({ options }, use) => {
      const gateway = await Gateway.start(options);
      await use(gateway);
      await gateway.stop();
    },
    { scope: "worker" },
  ],
  problems: [
    async ({ page, gateway }, use) => {
      const problems = watch(page, gateway);
      await use(problems);
      expect(problems).toEqual([]);
    },
    { auto: true },
  ],
  open: async ({ page, gateway }, use) => {
    await use(async (path = "") => {
      await page.goto(`${gateway.address}#token=${gateway.token}`);
      await expect(page.locator("#nav")).toBeAttached();
      await page.evaluate((path) => (location.hash = `#/${path}`), path);
    });
  },
});
export { expect };

/** Opens a session of its own, so that tests of one gateway do not share a conversation. */
export async function openChat(page: Page, open: Fixtures["open"], name: string): Promise<string> {
  const key = `agent:main:${name}`;
  await open(`chat/${key}`);
  await expect(message(page)).toBeEnabled();
  return key;
}

export const message = (page: Page) => page.getByRole("textbox", { name: "Message", exact: true });
export const messages = (page: Page) => page.getByRole("log", { name: "Messages" });

export async function send(page: Page, text: string): Promise<void> {
  await message(page).fill(text);
  await message(page).press("Enter");
}

/** Number of times that a text is shown. */
export async function times(page: Page, text: string): Promise<number> {
  const all = await messages(page).innerText();
  return all.split(text).length - 1;
}

/** No violation of accessibility rules, in light and dark. */
export async function accessible(page: Page): Promise<void> {
  for (const colorScheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme });
    // Only colours differ between the two.
    const axe = new AxeBuilder({ page });
    const { violations } = await (colorScheme === "light" ? axe : axe.withRules(["color-contrast"])).analyze();
    expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`).join(" | ")}`)).toEqual([]);
  }
  await page.emulateMedia({ colorScheme: "light" });
}
