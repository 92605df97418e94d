// Takes the pictures of docs/page.md, from a real gateway with a scripted conversation.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, type Page, test } from "@playwright/test";
import { Gateway, message, messages, send } from "./browser/gateway";

const OUT = new URL("../../docs/page/", import.meta.url).pathname;

const answers = {
  "Which of last night's backups failed?": {
    thinking: "The log of the backups should say it. I read the last lines of it and count the failures.",
    tools: [
      { say: "I look at the log of the backups.", name: "exec", arguments: { command: "tail -n 4 backup.log" } },
      { name: "read", arguments: { path: "backup.toml" } },
    ],
    reply:
      "**One of four failed**: `photos`, because the disk at `/mnt/nas` was full.\n\n| Backup | Result | Size |\n|---|---|---|\n| mail | ok | 1.2 GB |\n| notes | ok | 84 MB |\n| photos | **no space left** | – |\n| projects | ok | 9.7 GB |\n\nRemoving old copies would make room:\n\n```sh\nrestic forget --keep-daily 7 --prune   # keeps a week\n```",
  },
  "Keep seven daily copies of photos": {
    tools: [{ say: "I change the configuration.", name: "edit", arguments: { path: "backup.toml", oldText: "[photos]\nkeep_daily = 30", newText: "[photos]\nkeep_daily = 7" } }],
    reply: "Done: `photos` keeps seven daily copies from tonight on.",
  },
};

const config = {
  budgets: { day: { cost: 0.05 } },
  channels: {},
};

async function shot(page: Page, name: string): Promise<void> {
  await page.waitForTimeout(400);
  await page.screenshot({ path: join(OUT, `${name}.png`), animations: "disabled" });
}

test("pictures", async ({ page }) => {
  test.setTimeout(120_000);
  mkdirSync(OUT, { recursive: true });
  await page.setViewportSize({ width: 1180, height: 720 });
  const gateway = await Gateway.start({ config, answers });
  const workspace = join(gateway.state, "workspace");
  mkdirSync(join(workspace, "skills", "invoices"), { recursive: true });
  mkdirSync(join(workspace, "skills", "maps"), { recursive: true });
  writeFileSync(join(workspace, "skills", "invoices", "SKILL.md"), "---\nname: invoices\ndescription: Write and number invoices\n---\nText\n");
  writeFileSync(join(workspace, "skills", "maps", "SKILL.md"), '---\nname: maps\ndescription: Find routes\nmetadata: {"openclaw": {"requires": {"bins": ["osrm-routed"]}}}\n---\nText\n');
  writeFileSync(join(workspace, "backup.log"), "mail ok 1.2 GB\nnotes ok 84 MB\nphotos failed: no space left on /mnt/nas\nprojects ok 9.7 GB\n");
  writeFileSync(join(workspace, "backup.toml"), "[mail]\nkeep_daily = 30\n\n[photos]\nkeep_daily = 30\n");
  await page.goto(`${gateway.address}#token=${gateway.token}`);
  await expect(page.locator("#nav")).toBeAttached();
  const open = (path: string) => page.evaluate((path) => (location.hash = `#/${path}`), path);
  const ask = async (session: string, text: string, shown: string) => {
    await open(`chat/agent:main:${session}`);
    await expect(message(page)).toBeEnabled();
    await send(page, text);
    await expect(messages(page)).toContainText(shown);
    await expect(page.locator(".message.live")).toHaveCount(0);
  };
  await ask("garden", "hello", "You said");
  await gateway.call("sessions.patch", { key: "agent:main:garden", label: "Garden plan" });
  await ask("invoices", "fail 401", "HTTP 401");
  await gateway.call("sessions.patch", { key: "agent:main:invoices", label: "Invoices" });
  await ask("travel", "tool read {\"path\":\"missing.md\"}", "The tool said");
  await gateway.call("sessions.patch", { key: "agent:main:travel", label: "Trip to Lisbon" });
  await ask("main", "Which of last night's backups failed?", "One of four");
  await ask("main", "Keep seven daily copies of photos", "from tonight on");
  await page.locator("details.tool summary").last().click();
  await shot(page, "chat");
  await open("runs/last");
  await expect(page.getByRole("list", { name: "Steps" })).toContainText("edit");
  const { runs } = await gateway.call<{ runs: { runId: string; sessionKey: string }[] }>("runs.list", { sessionKey: "agent:main:main" });
  await page.emulateMedia({ colorScheme: "dark" });
  await open(`runs/${runs[1]!.runId}?step=2`);
  await expect(page.locator(".detail")).toContainText("What the model saw");
  await shot(page, "run");
  await page.emulateMedia({ colorScheme: "light" });
  await gateway.call("cron.add", { name: "Morning report", schedule: { kind: "cron", expr: "0 8 * * 1-5", tz: "Europe/Berlin" }, sessionTarget: "isolated", wakeMode: "now", payload: { kind: "agentTurn", message: "Which of last night's backups failed?" } });
  const job = await gateway.call<{ id: string }>("cron.add", { name: "Water the tomatoes", schedule: { kind: "every", everyMs: 86_400_000 }, sessionTarget: "isolated", wakeMode: "now", payload: { kind: "agentTurn", message: "Remind me to water the tomatoes" } });
  await gateway.call("cron.run", { id: job.id, mode: "force" });
  await open("runs");
  await expect(page.locator(".run-item").nth(5)).toBeVisible();
  await shot(page, "runs");
  for (const view of ["sessions", "schedule", "usage", "skills", "doctor"]) {
    await open(view);
    await shot(page, view);
  }
  await open("settings?search=budgets");
  await page.getByLabel("Cost", { exact: true }).last().fill("2.5");
  await page.getByLabel("Cost", { exact: true }).last().press("Tab");
  await shot(page, "settings");
  await gateway.configure({ tools: { exec: { sandbox: { mode: "guarded" } } } });
  await ask("main", 'tool exec {"command":"restic forget --keep-daily 7 --prune"}', "The tool said");
  await open("approvals");
  await expect(page.getByRole("region", { name: "Approval request" })).toBeVisible();
  await shot(page, "approvals");
  await open("chat/agent:main:garden");
  await send(page, "stream 3000 30");
  await open("");
  await expect(page.locator(".tiles")).toBeVisible();
  await page.waitForTimeout(900);
  await shot(page, "overview");
  await page.setViewportSize({ width: 390, height: 720 });
  await open("chat/agent:main:main");
  await expect(messages(page)).toContainText("One of four");
  await messages(page).evaluate((element) => (element.scrollTop = 260));
  await shot(page, "phone");
  await gateway.stop();
});
