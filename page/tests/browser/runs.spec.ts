import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
  await expect(detail.getByRole("list", { name: "Sections of the system prompt" })).toContainText("Tooling");
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

test("a request shows the text of its prompt, and what changed since the previous one", async ({ page, open, gateway }) => {
  await openChat(page, open, "prompted");
  await send(page, "hello");
  await expect(messages(page)).toContainText("You said: hello");
  writeFileSync(join(gateway.state, "workspace", "AGENTS.md"), "Be brief and kind.\n");
  await send(page, "hello again");
  await expect(messages(page)).toContainText("You said: hello again");
  await page.evaluate(() => (location.hash = "#/runs/last"));
  await page.getByRole("list", { name: "Steps" }).getByRole("button", { name: /scripted\/one/ }).click();
  const detail = page.locator(".detail");
  await expect(detail).toContainText('"system prompt: Project Context" differs from the previous request');
  await expect(detail).toContainText("Compared with the last request of the previous run");
  const sections = detail.getByRole("list", { name: "Sections of the system prompt" });
  const changed = sections.getByRole("listitem").filter({ hasText: /^Project Context/ });
  await expect(changed).toContainText("changed");
  await expect(changed.locator(".diff .added").filter({ hasText: "Be brief and kind." })).toBeVisible();
  const identity = sections.getByRole("listitem").filter({ hasText: /^Identity/ });
  await expect(identity.locator("pre")).toBeHidden();
  await identity.locator("summary").click();
  await expect(identity.locator("pre")).toContainText("You are");
  const tools = detail.getByRole("list", { name: "Tools of the request" });
  await expect(tools).toContainText("exec");
  const sent = detail.getByRole("list", { name: "Messages of the request" }).getByRole("listitem");
  await expect(sent).toHaveCount(3);
  await expect(sent.last()).toContainText("hello again");
  await expect(sent.last()).toContainText("new");
  await accessible(page);
  // A request with a known prompt writes nothing.
  const kept = () => readdirSync(join(gateway.state, "prompts")).length;
  const before = kept();
  await page.evaluate(() => (location.hash = "#/chat/agent:main:prompted"));
  await send(page, "and again");
  await expect(messages(page)).toContainText("You said: and again");
  expect(kept()).toBe(before);
});
