// Signing in, the keyboard, the phone, and the policy of the page.
import { accessible, expect, message, messages, openChat, send, test } from "./gateway";
import { startProxy } from "./proxy";

test("without a token the page asks for it, and keeps the access of this browser", async ({ page, gateway, problems }) => {
  await page.goto(gateway.address);
  await expect(page.getByLabel("Token or password")).toBeVisible();
  await expect(page.getByText("homard dashboard")).toBeVisible();
  await accessible(page);
  await page.getByLabel("Token or password").fill("wrong");
  await page.getByRole("button", { name: "Connect" }).click();
  await expect(page.getByRole("alert")).toContainText("does not accept this token");
  await page.getByLabel("Token or password").fill(gateway.token);
  await page.getByRole("button", { name: "Connect" }).click();
  await expect(page.getByRole("navigation", { name: "Views" })).toBeVisible();
  // The device token is used from now on.
  await page.reload();
  await expect(page.getByRole("navigation", { name: "Views" })).toBeVisible();
  expect(problems).toEqual([]);
});

test("the token is removed from the address", async ({ page, open }) => {
  await open();
  expect(page.url()).not.toContain("token");
});

test("a link of homard dashboard signs in once", async ({ page, gateway, browser }) => {
  const { url } = JSON.parse(await gateway.homard("dashboard", "--json")) as { url: string };
  expect(new URL(url).hash).toMatch(/^#code=[0-9a-f]{64}$/);
  await page.goto(url);
  await expect(page.locator("#nav")).toBeAttached();
  expect(page.url()).not.toContain("code");
  await page.reload();
  await expect(page.locator("#nav")).toBeAttached();
  const other = await browser.newPage();
  await other.goto(url);
  await expect(other.getByRole("alert")).toContainText("used already");
  await other.close();
});

test("after signing out, the token signs in again, and stays", async ({ page, gateway, open }) => {
  await open();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("sign out");
  await page.keyboard.press("Enter");
  await page.getByLabel("Token or password").fill(gateway.token);
  await page.getByRole("button", { name: "Connect" }).click();
  await expect(page.locator("#nav")).toBeAttached();
  await page.reload();
  await expect(page.locator("#nav")).toBeAttached();
});

test("the page works below a path of a proxy", async ({ page, gateway, problems }) => {
  const proxy = await startProxy(gateway, { prefix: "/some/path" });
  const { port } = proxy;
  await page.goto(`http://127.0.0.1:${port}/some/path/#token=${gateway.token}`);
  await expect(page.locator("#nav")).toBeAttached();
  await page.getByRole("link", { name: "Runs" }).click();
  await expect(page.getByRole("heading", { name: "Runs" })).toBeVisible();
  proxy.close();
  // Everything came from the proxy's origin.
  expect(problems.filter((problem) => !problem.startsWith(`request to http://127.0.0.1:${port}/some/path/`))).toEqual([]);
  problems.length = 0;
});

test("a revoked device has to sign in again", async ({ page, gateway, open }) => {
  await open();
  const { paired } = await gateway.call<{ paired: { deviceId: string }[] }>("device.pair.list");
  for (const { deviceId } of paired) await gateway.call("device.pair.remove", { deviceId });
  await expect(page.getByLabel("Token or password")).toBeVisible();
});

test("everything is reached with the keyboard", async ({ page, open }) => {
  await open();
  await expect(page.getByRole("heading", { name: "Overview" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("chat");
  await page.keyboard.press("Enter");
  await expect(message(page)).toBeFocused();
  await page.keyboard.type("from the keyboard");
  await page.keyboard.press("Enter");
  await expect(messages(page)).toContainText("You said: from the keyboard");
  // During a run, Escape stops it.
  await expect(page.getByRole("button", { name: "Stop" })).toBeHidden();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("r");
  await expect(page.getByRole("heading", { name: "Runs" })).toBeVisible();
  await page.keyboard.press("/");
  await expect(page.getByRole("searchbox", { name: "Search runs" })).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("listitem").filter({ hasText: "scripted/one" }).first()).toBeVisible();
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("list", { name: "Steps" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("heading", { name: "Runs" })).toBeVisible();
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("dialog")).toBeVisible();
  await accessible(page);
});

test("a phone shows one thing at a time, without scrolling sideways", async ({ page, open }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await openChat(page, open, "phone");
  await send(page, "hello from the phone");
  await expect(messages(page)).toContainText("You said: hello from the phone");
  await accessible(page);
  await page.getByRole("button", { name: "Sessions" }).click();
  await expect(page.getByRole("complementary", { name: "Sessions" })).toBeVisible();
  await page.getByRole("button", { name: "Sessions" }).click();
  for (const path of ["", "chat", "runs", "runs/last", "sessions", "approvals", "channels", "schedule", "models", "usage", "settings", "logs", "doctor"]) {
    await page.evaluate((path) => (location.hash = `#/${path}`), path);
    await expect(page.locator("main")).not.toBeEmpty();
    await expect(page.locator(".loading")).toHaveCount(0);
    expect(await page.evaluate(() => document.documentElement.scrollWidth), path).toBeLessThanOrEqual(390);
  }
  await page.getByRole("button", { name: "Menu", exact: true }).click();
  await page.getByRole("link", { name: "Chat" }).click();
  await expect(message(page)).toBeVisible();
});

test("the theme is chosen and kept", async ({ page, open }) => {
  await open();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("theme: dark");
  await page.keyboard.press("Enter");
  expect(await background()).not.toBe(light);
  await page.reload();
  await expect(page.getByRole("navigation", { name: "Views" })).toBeVisible();
  expect(await background()).not.toBe(light);
});
