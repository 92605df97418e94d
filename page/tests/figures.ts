// Measures the page with an optimised gateway that has 100,000 runs and sessions of 5,000 messages:
//
//   cargo xtask page --figures
//
// Times are those that the browser sees; the longest of them counts, except for what other programs on the machine delay.
import { cpSync, readdirSync, readFileSync, statSync } from "node:fs";
import { relative } from "node:path";
import type { Page } from "@playwright/test";
import { expect, Gateway, test } from "./browser/gateway";
import { framesOf, LONG_SESSION, readyTimes, writeSession } from "./browser/measure";

const TIMES = 30;
const WARM_UP = 40;
const LONG_VIEW = "a session of 5,000 messages";
const LIMITS = { answer: 100, frame: 50, ready: 300, memory: 1 << 20, files: 1.5 * (1 << 20) };
/** A state directory with 100,000 runs and the session `agent:main:long`, of `journal/examples/seed_runs.rs`. */
const SEED = process.env["HOMARD_SEED"] ?? "";
const DIST = new URL("../dist/", import.meta.url).pathname;

test.use({
  options: {
    contextWindow: 2_000_000,
    prepare: (state) => {
      cpSync(SEED, state, { recursive: true });
      writeSession(state, LONG_SESSION);
    },
  },
});

interface Times {
  /** Until the answer was processed by the page, by method. */
  answers: Record<string, number[]>;
}

/** Measures each request of the page from its start until the page has processed the answer. */
async function watchRequests(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const times: Record<string, number[]> = {};
    (globalThis as unknown as { requestTimes: typeof times }).requestTimes = times;
    const open = new Map<string, { method: string; at: number }>();
    const watched = new WeakSet<WebSocket>();
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
      if (!watched.has(this)) {
        watched.add(this);
        // It is called after the listeners of the page.
        this.addEventListener("message", ({ data }) => {
          const id = /^\{"type":"res","id":"([^"]+)"/.exec(String(data).slice(0, 200))?.[1];
          const request = id === undefined ? undefined : open.get(id);
          if (request) (times[request.method] ??= []).push(performance.now() - request.at);
        });
      }
      const { id, method } = JSON.parse(String(data)) as { id: string; method: string };
      open.set(id, { method, at: performance.now() });
      send.call(this, data);
    };
  });
}

const requestTimes = (page: Page) => page.evaluate(() => (globalThis as unknown as { requestTimes: Times["answers"] }).requestTimes);

/** Goes to a view, and measures until its content is drawn. */
function drawn(page: Page, address: string, selector: string, text: string): Promise<number> {
  return page.evaluate(
    ([address, selector, text]) =>
      new Promise<number>((done) => {
        const start = performance.now();
        const isThere = () => {
          const all = [...document.querySelectorAll(selector!)];
          return all.length > 0 && all.every((element) => element.textContent?.includes(text!));
        };
        const observer = new MutationObserver(() => {
          if (!isThere()) return;
          observer.disconnect();
          requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
        });
        observer.observe(document, { childList: true, subtree: true, characterData: true });
        location.hash = address!;
      }),
    [address, selector, text] as const,
  );
}

interface Figure {
  name: string;
  median: number;
  p95: number;
  longest: number;
}

function figure(name: string, times: number[]): Figure {
  const sorted = [...times].sort((left, right) => left - right);
  const at = (share: number) => Math.round((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Infinity) * 10) / 10;
  return { name, median: at(0.5), p95: at(0.95), longest: at(1) };
}

function print(title: string, rows: object[]): void {
  console.log(`\n${title}`);
  console.table(rows);
}

test("lists and searches of 100,000 runs are answered within 100 ms", async ({ page, open }) => {
  await watchRequests(page);
  await open();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  const row = ".run-item";
  const places: [name: string, address: string, selector: string, text: string][] = [
    ["all runs", "#/runs", row, ""],
    ["those that failed", "#/runs?status=error", row, "error"],
    ["search for an error", "#/runs?search=request+100", row, "request 100"],
    ["search without a result", "#/runs?search=nothing+like+this", ".empty-title", "No run matches these filters"],
    ["runs of a session", "#/runs?session=agent:main:telegram:direct:1007", row, "1007"],
    [LONG_VIEW, "#/chat/agent:main:long", ".message", "Message"],
  ];
  const times = new Map<string, number[]>(places.map(([name]) => [name, []]));
  for (let turn = 0; turn < TIMES; turn += 1) {
    for (const [name, address, selector, text] of places) times.get(name)?.push(await drawn(page, address, selector, text));
  }
  const answers = await requestTimes(page);
  const views = [...times].map(([name, all]) => figure(name, all));
  const methods = ["runs.list", "chat.history", "sessions.list"].map((method) => figure(method, answers[method] ?? []));
  print("Answers, in ms as the page sees them", methods);
  print("Views, in ms until drawn", views);
  for (const { name, p95 } of methods) expect(p95, name).toBeLessThanOrEqual(LIMITS.answer);
  // Opening a session also draws a hundred messages, once.
  for (const { name, median } of views) if (name !== LONG_VIEW) expect(median, name).toBeLessThanOrEqual(LIMITS.answer);
});

test("no frame takes over 50 ms while 100 chunks a second are shown", async ({ page, open }) => {
  await open();
  const frames = await framesOf(page, LONG_SESSION);
  print("Longest task of the main thread, in ms", frames.map(({ name, count, longest }) => ({ name, tasks: count, processor: longest.cpu, wall: longest.wall })));
  for (const { name, count, longest } of frames) {
    expect(count, `${name}: the trace has tasks`).toBeGreaterThan(10);
    // Opening a conversation is one task, once.
    if (name !== "opening") expect(longest.cpu, name).toBeLessThanOrEqual(LIMITS.frame);
  }
});

test("the page can be used within 300 ms", async ({ page, open }) => {
  const times = await readyTimes(page, open, TIMES);
  print("Until the overview can be used, in ms", [figure("ready", times)]);
  expect(figure("ready", times).median).toBeLessThanOrEqual(LIMITS.ready);
});

/** Memory of an idle gateway that is not backed by a file, in bytes. */
async function idle(isEnabled: boolean, use: (gateway: Gateway) => Promise<void> = async () => {}): Promise<number> {
  const gateway = await Gateway.start({ config: { gateway: { controlUi: { enabled: isEnabled } } } });
  // Requests that are not for the page: they have a cost of their own, once.
  for (let turn = 0; turn < WARM_UP; turn += 1) await (await fetch(`${gateway.address}healthz`)).arrayBuffer();
  await use(gateway);
  await settled(gateway);
  const { anonymous } = gateway.memory();
  await gateway.stop();
  return anonymous;
}

test("the gateway's memory and program grow little", async () => {
  const entries = readdirSync(DIST, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const files = entries.map((entry) => `${entry.parentPath.replace(/\/$/, "")}/${entry.name}`);
  const embedded = files.reduce((sum, file) => sum + statSync(file).size, 0);
  const request = async (gateway: Gateway) => {
    for (const file of files) {
      const answer = await fetch(`${gateway.address}${relative(DIST, file)}`, { headers: { "accept-encoding": "gzip" } });
      expect((await answer.arrayBuffer()).byteLength, `${file}: the gateway was built from these files`).toBe(readFileSync(file).length);
    }
  };
  const samples: { without: number[]; with: number[]; served: number[] } = { without: [], with: [], served: [] };
  for (let turn = 0; turn < 5; turn += 1) {
    samples.without.push(await idle(false));
    samples.with.push(await idle(true));
    samples.served.push(await idle(true, request));
  }
  const median = (all: number[]) => figure("", all).median;
  const without = median(samples.without);
  const growth = { offered: median(samples.with) - without, served: median(samples.served) - without };
  print("Bytes, medians of 5", [{ name: "embedded files", bytes: embedded }, { name: "idle memory without the page", bytes: without }, { name: "more with the page", bytes: growth.offered }, { name: "more after all its files were requested", bytes: growth.served }]);
  expect(growth.served).toBeLessThanOrEqual(LIMITS.memory);
  expect(embedded).toBeLessThanOrEqual(LIMITS.files);
});

/** Waits until the memory in use does not change for two seconds. */
async function settled(gateway: Gateway): Promise<void> {
  for (let last = -1, same = 0; same < 20; ) {
    const { resident } = gateway.memory();
    same = resident === last ? same + 1 : 0;
    last = resident;
    await new Promise((done) => setTimeout(done, 100));
  }
}
