// Every view, and what can be changed in it.
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { accessible, expect, messages, openChat, send, test } from "./gateway";

test("each view is shown, and has no accessibility problem", async ({ page, open, gateway }) => {
  test.setTimeout(90_000);
  await openChat(page, open, "seed");
  await send(page, "hello");
  await expect(messages(page)).toContainText("You said: hello");
  await send(page, "fail 400");
  await expect(page.getByRole("alert")).toContainText("HTTP 400");
  await gateway.call("cron.add", { name: "Morning", schedule: { kind: "cron", expr: "0 9 * * *" }, sessionTarget: "isolated", wakeMode: "now", payload: { kind: "agentTurn", message: "hello" } });
  const views: [path: string, shown: string][] = [
    ["", "Failed, last 24 hours"],
    ["sessions", "seed"],
    ["approvals", "Nothing waits for you"],
    ["channels", "No channels yet"],
    ["schedule", "Morning"],
    ["models", "scripted/one"],
    ["usage", "Of it cached"],
    ["skills", "Skills"],
    ["plugins", "No plugins yet"],
    ["hooks", "session-memory"],
    ["mcp", "No MCP servers yet"],
    ["settings", "agents.defaults.model"],
    ["settings?pane=file", "JSON5"],
    ["logs", "listening|recovered"],
    ["doctor", "is valid"],
  ];
  for (const [path, shown] of views) {
    await page.evaluate((path) => (location.hash = `#/${path}`), path);
    await expect(page.locator("main"), path).toContainText(new RegExp(shown));
    await accessible(page);
  }
});

test("a setting is changed after a review, and an invalid one is refused with its line", async ({ page, open, gateway }) => {
  await open("settings?search=logging.level");
  const field = page.getByLabel("Level", { exact: true });
  await field.selectOption("debug");
  await page.getByRole("button", { name: "Review and save" }).click();
  await expect(page.getByRole("dialog")).toContainText('"debug"');
  await accessible(page);
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await expect(page.locator(".toast", { hasText: /^Saved/ })).toBeVisible();
  expect(await gateway.homard("config", "get", "logging.level")).toContain("debug");
  await page.evaluate(() => (location.hash = "#/settings?search=agents.defaults.maxConcurrent"));
  await page.getByLabel(/Max concurrent/).first().fill("-5");
  await page.getByLabel(/Max concurrent/).first().press("Tab");
  await page.getByRole("button", { name: "Review and save" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("dialog")).toContainText("Nothing was saved");
  await expect(page.getByRole("dialog")).toContainText(/line \d+/);
});

test("the file is edited, with the line of an error", async ({ page, open, gateway }) => {
  await open("settings?pane=file");
  const editor = page.getByLabel("Configuration file");
  const text = await editor.inputValue();
  expect(text).not.toContain('"k"');
  await editor.fill(text.replace(/\n\}\s*$/, ',\n  "budgets": { "day": { "cost": "much" } }\n}\n'));
  await page.getByRole("button", { name: "Review and save" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await expect(page.locator(".causes")).toContainText(/line \d+/);
  await expect(page.locator(".editor-lines .wrong")).toBeVisible();
  await editor.fill((await editor.inputValue()).replace('"much"', "5"));
  await page.getByRole("button", { name: "Review and save" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
  await expect(page.locator(".toast", { hasText: /^Saved/ })).toBeVisible();
  expect(await gateway.homard("config", "get", "budgets.day.cost")).toContain("5");
  await page.evaluate(() => (location.hash = "#/usage"));
  await expect(page.locator("main")).toContainText("of $5.00");
});

test("a command waits for an approval in the chat, and runs once it is allowed", async ({ page, open, gateway }) => {
  await gateway.configure({ tools: { exec: { sandbox: { mode: "guarded" } } } });
  const key = await openChat(page, open, "approval");
  await send(page, 'tool exec {"command":"touch approved-file && echo touched"}');
  const card = page.getByRole("region", { name: "Approval request" });
  await expect(card).toContainText("touch approved-file");
  await expect(page.getByRole("link", { name: /Approvals/ })).toContainText("1");
  await accessible(page);
  await card.getByRole("button", { name: "Allow once" }).click();
  await expect(card).toBeHidden();
  await expect(messages(page)).toContainText("touched", { timeout: 15_000 });
  await page.evaluate(() => (location.hash = "#/approvals"));
  await expect(page.getByRole("table").last()).toContainText("touch approved-file");
  await page.evaluate((key) => (location.hash = `#/chat/${key}`), key);
  await gateway.configure({ tools: null });
});

test("a sender is paired", async ({ page, open, gateway }) => {
  await gateway.configure({ channels: { telegram: { enabled: true, botToken: "1:a", apiRoot: "http://127.0.0.1:9" } } });
  mkdirSync(join(gateway.state, "credentials"), { recursive: true, mode: 0o700 });
  const now = new Date().toISOString();
  writeFileSync(join(gateway.state, "credentials", "telegram-pairing.json"), JSON.stringify({ version: 1, requests: [{ id: "4242", code: "ABCD2345", createdAt: now, lastSeenAt: now, meta: { username: "kim", accountId: "default" } }] }), { mode: 0o600 });
  await open("approvals");
  const card = page.getByRole("region", { name: "Pairing request of a sender" });
  await expect(card).toContainText("kim");
  await accessible(page);
  await card.getByRole("button", { name: "Approve" }).click();
  await expect(card).toBeHidden();
  await expect(page.locator("main")).toContainText("telegram: 4242");
  await page.evaluate(() => (location.hash = "#/channels"));
  await expect(page.locator("main")).toContainText("Telegram");
  await accessible(page);
});

test("a job is added, run and removed", async ({ page, open }) => {
  await open("schedule");
  await page.getByRole("button", { name: "Add a job" }).click();
  await page.getByLabel("Name").fill("Check");
  await page.getByLabel("Message for the agent").fill("hello job");
  await accessible(page);
  await page.getByRole("dialog").getByRole("button", { name: "Add" }).click();
  const row = page.getByRole("row", { name: /Check/ });
  await row.getByRole("button", { name: "Run now" }).click();
  await expect(row).toContainText("ok");
  await row.getByRole("button", { name: "History" }).click();
  await page.getByRole("dialog").getByRole("link", { name: "run" }).click();
  await expect(page.getByRole("list", { name: "Steps" })).toBeVisible();
  await page.evaluate(() => (location.hash = "#/schedule"));
  await row.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await expect(row).toHaveCount(0);
});

test("a session is renamed, exported, compacted, reset and deleted", async ({ page, open }) => {
  await openChat(page, open, "managed");
  await send(page, "keep this");
  await expect(messages(page)).toContainText("You said: keep this");
  await page.evaluate(() => (location.hash = "#/sessions?search=managed"));
  await page.getByRole("button", { name: /Details of/ }).click();
  await page.getByLabel("Name").fill("Renamed one");
  await page.getByRole("button", { name: "Rename" }).click();
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
  expect(download.suggestedFilename()).toContain("managed");
  await accessible(page);
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog", { name: "Delete this session?" }).getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("No session matches")).toBeVisible();
});

test("the overview says what does not work, and why", async ({ page, open, gateway }) => {
  await gateway.configure({ channels: { telegram: { enabled: true, botToken: "1:a", apiRoot: "http://127.0.0.1:9" } } });
  await open();
  const alert = page.getByRole("alert").filter({ hasText: "channel telegram:default: " });
  await expect(async () => {
    await page.reload();
    await expect(alert).toContainText("refused", { timeout: 1_000 });
  }).toPass({ timeout: 15_000 });
  await gateway.configure({ channels: { telegram: null } });
});

test("the overview calls a session by the name that it was given", async ({ page, open, gateway }) => {
  const key = await openChat(page, open, "named");
  await send(page, "fail 400");
  await expect(page.getByRole("alert")).toContainText("HTTP 400");
  await gateway.call("sessions.patch", { key, label: "Garden plan" });
  await page.evaluate(() => (location.hash = "#/"));
  await page.getByRole("region", { name: "Failed" }).getByRole("link", { name: "Garden plan" }).click();
  await expect(page.getByRole("list", { name: "What went wrong" })).toContainText("HTTP 400");
});

test("the doctor shows what each check found and what to do, until it is done", async ({ page, open, gateway }) => {
  const secret = join(gateway.state, "gateway-token");
  chmodSync(secret, 0o644);
  await gateway.configure({ plugins: { entries: { tidy: { enabled: true } } } });
  await open("doctor");
  const row = (name: string) => page.getByRole("row").filter({ has: page.getByRole("rowheader", { name, exact: true }) });
  await expect(row("permissions")).toContainText("wrong");
  await expect(row("permissions")).toContainText(`${secret} is accessible by other users (mode 644)`);
  await expect(row("permissions")).toContainText(`To do: chmod 600 ${secret}, or: homard doctor --fix`);
  await expect(row("plugins")).toContainText("tidy is enabled in the config, but the plugin was not found");
  await expect(page.getByRole("status").filter({ hasText: "found" })).toContainText("homard doctor --fix");
  await accessible(page);
  await row("plugins").getByRole("link", { name: "plugins" }).click();
  await expect(page.getByRole("heading", { name: "Plugins", exact: true })).toBeVisible();
  await gateway.configure({ plugins: null });
  chmodSync(secret, 0o600);
  await page.goBack();
  await page.getByRole("button", { name: "Check again" }).click();
  await expect(row("permissions")).toContainText("is accessible only by its owner");
  await expect(row("plugins")).toContainText("enabled: 0");
});

test("a device that may only read sees no buttons that it may not use", async ({ page, gateway, open }) => {
  await openChat(page, open, "readonly");
  await send(page, "hello");
  await expect(messages(page)).toContainText("You said: hello");
  // The same page with fewer scopes: its requests are limited before they are sent.
  await page.addInitScript(() => {
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
      const frame = JSON.parse(String(data)) as { method: string; params: { scopes?: string[]; device?: unknown } };
      if (frame.method === "connect") {
        frame.params.scopes = ["operator.read"];
        delete frame.params.device;
      }
      send.call(this, JSON.stringify(frame));
    };
  });
  await page.goto(`${gateway.address}?reload#token=${gateway.token}`);
  await expect(page.locator("#nav")).toBeAttached();
  await page.evaluate(() => (location.hash = "#/chat/agent:main:readonly"));
  await expect(messages(page)).toContainText("You said: hello");
  await expect(page.getByRole("textbox", { name: "Message", exact: true })).toBeDisabled();
  await expect(page.getByRole("button", { name: "New" })).toHaveCount(0);
  await page.evaluate(() => (location.hash = "#/schedule"));
  await expect(page.getByRole("heading", { name: "Schedule" })).toBeVisible();
  await expect(page.getByRole("button", { name: "Add a job" })).toHaveCount(0);
  await page.evaluate(() => (location.hash = "#/doctor"));
  await expect(page.locator("main")).toContainText("is valid");
});
