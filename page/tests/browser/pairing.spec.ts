// A browser on another machine has to be approved by a paired device.
import { accessible, expect, type Gateway, openChat, test } from "./gateway";
import { startProxy } from "./proxy";

const HOST = "desk.example";

test.use({ options: { config: { gateway: { trustedProxies: ["127.0.0.1"], controlUi: { allowedOrigins: [`https://${HOST}`] } } } } });

/** A gateway as a browser on another machine sees it. */
const remote = (gateway: Gateway) => startProxy(gateway, { host: HOST, headers: { "x-forwarded-for": "203.0.113.9" } });

test("a remote browser waits for its approval, and is then signed in", async ({ page, open, gateway, browser }) => {
  await open("approvals");
  await expect(page.getByRole("heading", { name: "Approvals" })).toBeVisible();
  const proxy = await remote(gateway);
  const context = await browser.newContext();
  const other = await context.newPage();
  await other.goto(`http://127.0.0.1:${proxy.port}/#token=${gateway.token}`);
  await expect(other.getByText("This browser is not paired yet")).toBeVisible();
  await accessible(other);
  const card = page.getByRole("region", { name: "Pairing request of a device" });
  await expect(card).toContainText("read, write");
  await accessible(page);
  await card.getByRole("button", { name: "Approve" }).click();
  await expect(card).toBeHidden();
  await expect(other.getByRole("navigation", { name: "Views" })).toBeVisible({ timeout: 15_000 });
  // The device token is kept: no further approval.
  await other.reload();
  await expect(other.getByRole("navigation", { name: "Views" })).toBeVisible();
  await expect(page.getByRole("row", { name: /Homard page/ }).first()).toBeVisible();
  await context.close();
  proxy.close();
});

test("a remote browser whose request is rejected stays outside", async ({ page, open, gateway, browser }) => {
  await open();
  const proxy = await remote(gateway);
  const context = await browser.newContext();
  const other = await context.newPage();
  await other.goto(`http://127.0.0.1:${proxy.port}/#token=${gateway.token}`);
  await expect(page.getByText("wants to connect")).toBeVisible();
  await page.getByRole("link", { name: "Approve or reject" }).click();
  const card = page.getByRole("region", { name: "Pairing request of a device" });
  await card.getByRole("button", { name: "Reject" }).click();
  await expect(page.locator(".toast", { hasText: "Rejected" })).toBeVisible();
  await expect(other.getByRole("navigation", { name: "Views" })).toHaveCount(0);
  await context.close();
  proxy.close();
});

test("a compaction is undone from the list of sessions", async ({ page, open, gateway }) => {
  const key = await openChat(page, open, "compacted");
  for (const number of [1, 2, 3]) await gateway.call("agent", { message: `${"many words ".repeat(4_000)}${number}`, sessionKey: key, idempotencyKey: `long-${number}` }).then(() => gateway.call("agent.wait", { runId: `long-${number}`, timeoutMs: 20_000 }));
  await page.evaluate(() => (location.hash = "#/sessions?search=compacted"));
  await page.getByRole("button", { name: /Details of/ }).click();
  await page.getByRole("button", { name: "Compact", exact: true }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText(/tokens before/);
  await dialog.getByRole("button", { name: "Undo" }).click();
  await expect(dialog).toContainText("undone");
  await expect(dialog.getByRole("button", { name: "Undo" })).toHaveCount(0);
});
