// Ten reasons why a message was not answered, made in a real gateway. Each is found on the overview, in words and with
// the next step; the run's inspector says the same without scrolling.
import type { Page } from "@playwright/test";
import { expect, type Gateway, messages, openChat, send, test } from "./gateway";
import { GUARD, installGuard } from "./plugin.mjs";
import { startTelegram } from "./telegram.mjs";

const loop = { tools: Array.from({ length: 12 }, () => ({ name: "read", arguments: { path: "missing.txt" } })), reply: "done" };

test.use({ options: { answers: { "look again and again": loop } } });

async function overview(page: Page) {
  await page.evaluate(() => (location.hash = "#/"));
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  return page.locator("main");
}

/** Opens a failed run from the overview. Its cause and the next step are visible without scrolling. */
async function explained(page: Page, session: string, cause: RegExp, next: RegExp) {
  const main = await overview(page);
  const row = main.getByRole("listitem").filter({ has: page.getByRole("link", { name: session, exact: true }) });
  await expect(row.first()).toContainText(cause);
  await expect(row.first()).toContainText(next);
  await row.first().getByRole("link", { name: session, exact: true }).click();
  await inspected(page, cause, next);
}

async function inspected(page: Page, cause: RegExp, next: RegExp) {
  const causes = page.getByRole("list", { name: "What went wrong" });
  await expect(causes).toContainText(cause);
  await expect(causes).toContainText(next);
  await expect(causes).toBeInViewport({ ratio: 1 });
}

async function unreachableModel(gateway: Gateway) {
  await gateway.configure({ models: { providers: { dead: { baseUrl: "http://127.0.0.1:9/v1", apiKey: "k", api: "openai-completions", models: [{ id: "gone", contextWindow: 64_000 }] } } }, agents: { defaults: { models: { "dead/gone": {} } } } });
}

test("1: the key of the model is wrong", async ({ page, open }) => {
  await openChat(page, open, "wrong-key");
  await send(page, "fail 401");
  await expect(page.getByRole("alert")).toContainText("HTTP 401");
  await explained(page, "wrong-key", /HTTP 401/, /check the API key/i);
});

test("2: the model cannot be reached", async ({ page, open, gateway }) => {
  await unreachableModel(gateway);
  const key = await openChat(page, open, "unreachable");
  await gateway.call("sessions.patch", { key, model: "dead/gone" });
  await send(page, "hello?");
  await expect(page.getByRole("alert")).toContainText("refused");
  await explained(page, "unreachable", /refused/, /check baseUrl and the network/i);
});

test("3: the budget is used up", async ({ page, open, gateway }) => {
  await openChat(page, open, "no-budget");
  await gateway.configure({ budgets: { session: { tokens: 10 } } });
  await send(page, "hello");
  await expect(page.getByRole("alert")).toContainText("budget");
  await gateway.configure({ budgets: null });
  await explained(page, "no-budget", /the budget of this session/i, /set budgets\.session\.tokens/);
});

test("4, 5, 6: an unknown sender, a group in which nobody mentions the agent, and a person who blocked the bot", async ({ page, open, gateway }) => {
  const telegram = await startTelegram();
  const channel = { enabled: true, botToken: "1:seeded", apiRoot: telegram.url, dmPolicy: "pairing", allowFrom: ["77"], groupPolicy: "open", groups: { "*": { requireMention: true } } };
  await gateway.configure({ channels: { telegram: channel } });
  await open();
  telegram.receive({ from: 42, name: "kim", text: "Are you there?" });
  telegram.receive({ from: 77, name: "ann", chat: -900, type: "supergroup", text: "what is for lunch" });
  telegram.refused.add("77");
  telegram.receive({ from: 77, name: "ann", text: "hello from a chat" });
  const main = await overview(page);
  await expect(async () => {
    await page.reload();
    await expect(main).toContainText("kim wants to write to the agent", { timeout: 1_000 });
    await expect(main).toContainText("group -900: messages that do not mention the agent are not answered", { timeout: 1_000 });
    await expect(main).toContainText("blocked by the user", { timeout: 1_000 });
  }).toPass({ timeout: 20_000 });
  await expect(main).toContainText("requireMention to false");
  await expect(main.getByRole("link", { name: "Approve or reject" })).toBeVisible();
  // From the message that did not arrive to its run.
  await main.getByRole("list", { name: "Not delivered" }).getByRole("link").first().click();
  await inspected(page, /The reply was not delivered/, /has to write to the bot again/);
  await gateway.configure({ channels: { telegram: null } });
  telegram.close();
});

test("7: the model calls the same failing tool again and again", async ({ page, open }) => {
  await openChat(page, open, "loop");
  await send(page, "look again and again");
  await expect(page.getByRole("alert")).toContainText(/identical|same|repeat/i);
  await explained(page, "loop", /identical|same|repeat/i, /continue|repeats/i);
  await expect(page.getByRole("list", { name: "What went wrong" })).toContainText(/tool calls failed/);
});

test("8: a command waits for an approval", async ({ page, open, gateway }) => {
  await gateway.configure({ tools: { exec: { sandbox: { mode: "guarded" } } } });
  await openChat(page, open, "waits");
  await send(page, 'tool exec {"command":"touch needs-approval"}');
  const main = await overview(page);
  const card = main.getByRole("region", { name: "Approval request" });
  await expect(card).toContainText("touch needs-approval");
  await expect(card.getByRole("button", { name: "Allow once" })).toBeVisible();
  await card.getByRole("button", { name: "Deny" }).click();
  await expect(card).toBeHidden();
  await gateway.configure({ tools: null });
});

test("9: the session is busy with another message", async ({ page, open, gateway }) => {
  await openChat(page, open, "busy");
  await send(page, "hold busy");
  await expect(messages(page)).toContainText("held3");
  await page.getByRole("combobox", { name: "What happens to the message" }).selectOption("followup");
  await send(page, "and this?");
  await expect(messages(page)).toContainText("queued at position 1");
  const main = await overview(page);
  const waiting = main.getByRole("region", { name: "Waiting" });
  await waiting.getByRole("link", { name: "busy" }).click();
  await inspected(page, /The message waits/, /stop the run that comes first/);
  gateway.model.release("busy");
});

test("10: a hook that guards the prompt fails", async ({ page, open, gateway }) => {
  installGuard(gateway.state);
  await gateway.configure({ hooks: GUARD });
  await gateway.kill();
  await gateway.run();
  await openChat(page, open, "guarded");
  await send(page, "hello");
  await expect(page.getByRole("alert")).toContainText("redact");
  await explained(page, "guarded", /redact/, /hook/i);
});
