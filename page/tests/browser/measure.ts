// Measurements in the browser and of the gateway: frames, times of answers, memory.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CDPSession, Page } from "@playwright/test";
import { expect, messages, send } from "./gateway";

export const MESSAGES = 5_000;
export const LONG_SESSION = "agent:main:long-markdown";

interface TraceEvent {
  name: string;
  ph: string;
  pid: number;
  tid: number;
  ts: number;
  dur?: number;
  tdur?: number;
  args?: { name?: string };
}

/** Writes a session of 5,000 messages into the state directory, as OpenClaw does. */
export function writeSession(state: string, key: string): void {
  const folder = join(state, "agents", "main", "sessions");
  mkdirSync(folder, { recursive: true });
  const id = "00000000-0000-4000-8000-000000005000";
  const timestamp = "2026-01-01T00:00:00.000Z";
  const entries: object[] = [{ type: "session", version: 3, id, timestamp, cwd: "/" }];
  for (let at = 0; at < MESSAGES; at += 1) {
    const text = `Message ${at}. ${"Some **words** of a long conversation, with `code`.\n".repeat(1 + (at % 12))}`;
    const message = at % 2 ? { role: "assistant", content: [{ type: "text", text }], provider: "scripted", model: "one", stopReason: "stop", timestamp: 1_767_225_600_000 + at } : { role: "user", content: text, timestamp: 1_767_225_600_000 + at };
    const name = (number: number) => String(number).padStart(8, "0");
    entries.push({ type: "message", id: name(at + 1), parentId: at ? name(at) : null, timestamp, message });
  }
  writeFileSync(join(folder, `${id}.jsonl`), entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
  const path = join(folder, "sessions.json");
  const known = existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as object) : {};
  writeFileSync(path, JSON.stringify({ ...known, [key]: { sessionId: id, updatedAt: Date.now() } }));
}

/** Records a trace while something happens. Returns the events of the page's main thread. */
export async function traced(client: CDPSession, action: () => Promise<void>): Promise<TraceEvent[]> {
  const events: TraceEvent[] = [];
  client.on("Tracing.dataCollected", ({ value }) => events.push(...(value as unknown as TraceEvent[])));
  await client.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "devtools.timeline", "__metadata"] } });
  await action();
  const complete = new Promise((done) => client.once("Tracing.tracingComplete", done));
  await client.send("Tracing.end");
  await complete;
  const main = events.filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain");
  return events.filter((event) => main.some(({ pid, tid }) => pid === event.pid && tid === event.tid));
}

/** Tasks of the main thread, longest first: each is at most one frame. Processor time does not depend on other programs. */
export function tasks(events: TraceEvent[]): { cpu: number; wall: number }[] {
  const whole = events.filter(({ name, ph }) => ph === "X" && /RunTask|ThreadControllerImpl::RunTask/.test(name));
  return whole.map(({ dur = 0, tdur = 0 }) => ({ cpu: tdur / 1_000, wall: dur / 1_000 })).sort((left, right) => right.cpu - left.cpu);
}

export interface Frames {
  name: "opening" | "scrolling" | "streaming";
  count: number;
  longest: { cpu: number; wall: number };
}

/** Opens the long session, scrolls in it, and receives 100 chunks a second in it. Returns the longest task of each. */
export async function framesOf(page: Page, key: string): Promise<Frames[]> {
  const client = await page.context().newCDPSession(page);
  const opening = await traced(client, async () => {
    await page.evaluate((key) => (location.hash = `#/chat/${key}`), key);
    await expect(messages(page)).toContainText(`Message ${MESSAGES - 1}.`);
  });
  const scrolling = await traced(client, async () => {
    for (let turn = 0; turn < 20; turn += 1) await messages(page).evaluate((element) => element.scrollBy(0, -2_000));
    await messages(page).evaluate((element) => (element.scrollTop = element.scrollHeight));
  });
  await send(page, "stream 500 10");
  await expect(messages(page)).toContainText("fox3");
  const streaming = await traced(client, async () => {
    await expect(page.getByRole("article", { name: "Agent, working" })).toBeHidden({ timeout: 30_000 });
  });
  const phases = [["opening", opening], ["scrolling", scrolling], ["streaming", streaming]] as const;
  return phases.map(([name, events]) => ({ name, count: tasks(events).length, longest: tasks(events)[0] ?? { cpu: Infinity, wall: Infinity } }));
}

/** Times from the start of a navigation until the overview is drawn and can be used, in milliseconds. */
export async function readyTimes(page: Page, open: () => Promise<void>, count: number): Promise<number[]> {
  await page.addInitScript(() => {
    const observer = new MutationObserver(() => {
      if (document.querySelector("main h1")?.textContent !== "Overview") return;
      observer.disconnect();
      performance.mark("ready");
    });
    observer.observe(document, { childList: true, subtree: true });
  });
  await open();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  const times: number[] = [];
  for (let turn = 0; turn < count; turn += 1) {
    await page.reload();
    await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
    times.push(Math.round(await page.evaluate(() => performance.getEntriesByName("ready")[0]?.startTime ?? Infinity)));
  }
  return times;
}
