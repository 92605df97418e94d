// Recorded runs in the inspector: what went wrong is visible without scrolling, and no row is without a name.
import { readdirSync, readFileSync } from "node:fs";
import type { Page } from "@playwright/test";
import { causes, type Trace } from "../../src/runs/trace";
import { expect, test } from "./gateway";

const folder = new URL("../unit/traces/", import.meta.url);
const recorded = readdirSync(folder).map((file) => [file.replace(".json", ""), JSON.parse(readFileSync(new URL(file, folder), "utf8")) as Trace] as const);

/** Lets the gateway's response to `runs.trace` be a recorded one. */
async function replaceTrace(page: Page, trace: Trace): Promise<void> {
  await page.routeWebSocket(/.*/, (socket) => {
    const server = socket.connectToServer();
    const asked = new Set<string>();
    socket.onMessage((text) => {
      const frame = JSON.parse(String(text)) as { id: string; method: string };
      if (frame.method === "runs.trace") asked.add(frame.id);
      server.send(text);
    });
    server.onMessage((text) => {
      const frame = JSON.parse(String(text)) as { id?: string };
      const isAsked = frame.id !== undefined && asked.has(frame.id);
      socket.send(isAsked ? JSON.stringify({ type: "res", id: frame.id, ok: true, payload: trace }) : text);
    });
  });
}

for (const [name, trace] of recorded) {
  const found = causes(trace);
  test(`recorded run: ${name}`, async ({ page, open }) => {
    await replaceTrace(page, trace);
    await open(`runs/${trace.run.runId}`);
    await expect(page.getByRole("region", { name: /^Run/ })).toBeVisible();
    if (trace.steps.length) await expect(page.getByRole("list", { name: "Steps" }).getByRole("listitem")).toHaveCount(trace.steps.length);
    const list = page.getByRole("list", { name: "What went wrong" });
    if (found.length === 0) return expect(list).toHaveCount(0);
    await expect(list).toContainText(found[0]!.title);
    await expect(list).toContainText(found[0]!.text);
    await expect(list).toBeInViewport({ ratio: 1 });
    expect(await page.evaluate(() => [document.scrollingElement!.scrollTop, document.scrollingElement!.scrollHeight <= innerHeight])).toEqual([0, true]);
  });
}
