import type { WebSocketRoute } from "@playwright/test";
import { expect, messages, openChat, send, test, times } from "./gateway";

test("a kill of the gateway in mid-stream: the page reconnects, nothing is doubled or missing, and the run shows the gap", async ({ page, open, gateway }) => {
  await openChat(page, open, "crash");
  await send(page, "hello before");
  await expect(messages(page)).toContainText("You said: hello before");
  await send(page, "hold crash");
  await expect(messages(page)).toContainText("held3");
  await gateway.kill();
  await expect(page.getByText(/^Reconnecting/)).toBeVisible();
  await gateway.run();
  await expect(page.getByText(/^Reconnecting/)).toBeHidden();
  // The run is resumed: its request is sent again.
  gateway.model.release("crash");
  await expect(messages(page)).toContainText("released4", { timeout: 20_000 });
  await expect(page.getByRole("article", { name: "Agent, working" })).toBeHidden({ timeout: 20_000 });
  expect(await times(page, "You said: hello before")).toBe(1);
  expect(await times(page, "hold crash")).toBe(1);
  for (const part of ["held1", "held3", "released4"]) expect(await times(page, part)).toBe(1);
  await page.getByRole("article", { name: "Agent" }).last().getByRole("link", { name: "run" }).click();
  await expect(page.getByRole("list", { name: "What went wrong" })).toContainText("The gateway was down during this run");
  await expect(page.getByRole("list", { name: "Steps" })).toContainText("no process was running");
});

test("a message that was sent while the gateway was down is sent after the reconnect, once", async ({ page, open, gateway }) => {
  await openChat(page, open, "offline");
  await send(page, "first");
  await expect(messages(page)).toContainText("You said: first");
  await gateway.kill();
  await send(page, "while it was down");
  await expect(messages(page)).toContainText("sending");
  await gateway.run();
  await expect(messages(page)).toContainText("You said: while it was down", { timeout: 20_000 });
  expect(await times(page, "You said: while it was down")).toBe(1);
});

test("a short loss of the connection shows no banner", async ({ page, open }) => {
  // The connection is cut between the page and a gateway that runs on, so that its start takes no time.
  const connections: WebSocketRoute[] = [];
  await page.routeWebSocket(/.*/, (socket) => {
    socket.connectToServer();
    connections.push(socket);
  });
  await openChat(page, open, "short");
  await page.evaluate(() => {
    const shown: string[] = [];
    (globalThis as unknown as { shown: string[] }).shown = shown;
    new MutationObserver(() => document.querySelector(".banner") && shown.push("banner")).observe(document.body, { childList: true, subtree: true });
  });
  const before = connections.length;
  await connections.at(-1)?.close();
  await expect.poll(() => connections.length).toBe(before + 1);
  await send(page, "still here");
  await expect(messages(page)).toContainText("You said: still here");
  expect(await page.evaluate(() => (globalThis as unknown as { shown: string[] }).shown)).toEqual([]);
});
