import { accessible, expect, messages, openChat, send, test } from "./gateway";

test("the list shows runs, and opens with the keyboard", async ({ page, open }) => {
  await openChat(page, open, "listed");
  await send(page, "hello");
  await expect(messages(page)).toContainText("You said: hello");
  await send(page, "fail 400");
  await expect(page.getByRole("alert")).toContainText("HTTP 400");
  await page.evaluate(() => (location.hash = "#/runs"));
  const rows = page.getByRole("list", { name: "Runs, newest first" }).getByRole("listitem");
  await expect(rows.first()).toContainText("error");
  await expect(rows.first()).toContainText("scripted failure 400");
  await accessible(page);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("list", { name: "What went wrong" })).toContainText("HTTP 400: scripted failure 400");
  await page.keyboard.press("Escape");
  await expect(rows.first()).toBeVisible();
});

test("the inspector explains a run with a tool", async ({ page, open }) => {
  await openChat(page, open, "inspected");
  await send(page, 'tool exec {"command":"sleep 0.3; echo slept"}');
  await expect(messages(page)).toContainText("The tool said: slept");
  await page.evaluate(() => (location.hash = "#/runs/last"));
  const steps = page.getByRole("list", { name: "Steps" });
  await expect(steps).toContainText("ran tools");
  await steps.getByRole("button", { name: /scripted\/one/ }).first().click();
  const detail = page.locator(".detail");
  await expect(detail).toContainText("What the model saw");
  await expect(detail.getByRole("table", { name: "Sections of the system prompt" })).toContainText("Tooling");
  await expect(detail).toContainText("first request of the session");
  await page.keyboard.press("j");
  await expect(page).toHaveURL(/step=/);
  await accessible(page);
  await page.getByRole("tab", { name: "Log" }).click();
  await expect(page.locator(".log-pane")).toContainText("accepted");
  await page.getByRole("searchbox", { name: "Search the log of this run" }).fill("tool exec");
  await accessible(page);
});

test("an active run is followed and stopped", async ({ page, open }) => {
  await openChat(page, open, "active");
  await send(page, "stream 2000 20");
  await expect(messages(page)).toContainText("fox3");
  await page.evaluate(() => (location.hash = "#/runs/last"));
  await expect(page.getByRole("region", { name: /^Run/ })).toContainText("running");
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByRole("list", { name: "What went wrong" })).toContainText("The run was stopped");
});

test("the inspector shows what a tool got and returned", async ({ page, open }) => {
  await openChat(page, open, "toolrun");
  await send(page, 'tool exec {"command":"echo from the tool"}');
  await expect(messages(page)).toContainText("The tool said: from the tool");
  await page.evaluate(() => (location.hash = "#/runs/last"));
  await page.getByRole("list", { name: "Steps" }).getByRole("button", { name: /^exec/ }).click();
  const detail = page.locator(".detail");
  await expect(detail).toContainText("echo from the tool");
  await expect(detail).toContainText("Result (exit code 0)");
});

test("the filters of the list are in its address, and the gateway applies them", async ({ page, open }) => {
  await openChat(page, open, "filtered");
  await send(page, "fail 400");
  await expect(page.getByRole("alert")).toContainText("HTTP 400");
  await send(page, "hello filters");
  await expect(messages(page)).toContainText("You said: hello filters");
  await page.evaluate(() => (location.hash = "#/runs"));
  await page.getByRole("combobox", { name: "Status" }).selectOption("error");
  await page.getByRole("searchbox", { name: "Search runs" }).fill("SCRIPTED FAILURE");
  const rows = page.getByRole("list", { name: "Runs, newest first" }).getByRole("listitem");
  await expect(rows.first()).toContainText("error");
  await expect(page).toHaveURL(/search=SCRIPTED\+FAILURE.*status=error|status=error.*search=SCRIPTED\+FAILURE/);
  for (const row of await rows.all()) await expect(row).toContainText("error");
  await page.getByRole("searchbox", { name: "Search runs" }).fill("nothing like this");
  await expect(page.getByText("No run matches these filters")).toBeVisible();
  await page.reload();
  await expect(page.getByText("No run matches these filters")).toBeVisible();
});

test("an unknown run is explained", async ({ page, open }) => {
  await open("runs/nothing-like-this");
  await expect(page.getByRole("alert")).toContainText("unknown run");
});
