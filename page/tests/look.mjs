// The browser of `npm run trial`, from the command line. Each call is one action; they are counted.
//
//   node tests/look.mjs read              what the page shows, as a screen reader reads it
//   node tests/look.mjs shot FILE.png     a picture
//   node tests/look.mjs click TEXT        a link, a button, or a text
//   node tests/look.mjs fill LABEL TEXT   a field
//   node tests/look.mjs press KEY         such as Escape, Control+k
//   node tests/look.mjs go ADDRESS        such as "#/runs"
//   node tests/look.mjs back | reset      to the page before; start to count again
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "@playwright/test";

export const DEBUGGING_PORT = 9_339;
const COUNTER = join(tmpdir(), "homard-trial-actions");
const ACTION_MS = 5_000;

async function element(page, text) {
  const exact = ["link", "button", "tab", "row", "listitem"].map((role) => page.getByRole(role, { name: text, exact: true }));
  const similar = [page.getByRole("link", { name: text }), page.getByRole("button", { name: text }), page.getByText(text)];
  for (const found of [...exact, ...similar]) if (await found.count()) return found.first();
  throw new Error(`nothing is called ${JSON.stringify(text)}`);
}

const ACTIONS = {
  read: async () => {},
  shot: (page, file) => page.screenshot({ path: file }),
  click: async (page, text) => (await element(page, text)).click({ timeout: ACTION_MS }),
  fill: (page, label, text) => page.getByLabel(label).first().fill(text, { timeout: ACTION_MS }),
  press: (page, key) => page.keyboard.press(key),
  go: (page, address) => page.evaluate((address) => void (location.hash = address), address),
  back: (page) => page.goBack(),
};

async function main([name = "read", ...rest]) {
  if (name === "reset") return writeFileSync(COUNTER, "0");
  const action = ACTIONS[name];
  if (!action) throw new Error(`unknown action ${name}`);
  const browser = await chromium.connectOverCDP(`http://127.0.0.1:${DEBUGGING_PORT}`);
  const page = browser.contexts()[0].pages()[0];
  await action(page, ...rest);
  await page.waitForLoadState("networkidle");
  const count = (existsSync(COUNTER) ? Number(readFileSync(COUNTER, "utf8")) : 0) + 1;
  writeFileSync(COUNTER, String(count));
  if (name !== "shot") console.log(await page.locator("body").ariaSnapshot());
  console.log(`\naction ${count}, at ${page.url()}`);
  // Disconnects only: the browser belongs to the trial.
  await browser.close();
}

if (process.argv[1] === new URL(import.meta.url).pathname) await main(process.argv.slice(2));
