import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { accessible, expect, message, messages, openChat, send, test, times } from "./gateway";

test("a message is answered once, with a link to its run", async ({ page, open }) => {
  await openChat(page, open, "answer");
  await send(page, "hello");
  await expect(messages(page)).toContainText("You said: hello");
  await expect(page.getByText(/scripted\/one · .* tokens/)).toBeVisible();
  expect(await times(page, "You said: hello")).toBe(1);
  await page.getByRole("article", { name: "Agent" }).getByRole("link", { name: "run" }).click();
  await expect(page.getByRole("list", { name: "Steps" })).toContainText("scripted/one");
});

test("text streams, and is there once when it has ended", async ({ page, open }) => {
  await openChat(page, open, "stream");
  await send(page, "stream 120 20");
  await expect(messages(page)).toContainText("fox3");
  await expect(page.getByRole("article", { name: "Agent, working" })).toBeVisible();
  await expect(messages(page)).toContainText("120 ");
  await expect(page.getByRole("article", { name: "Agent, working" })).toBeHidden();
  expect(await times(page, "quick1 ")).toBe(1);
  expect(await times(page, "fox3 ")).toBe(1);
});

test("reasoning is folded, and tool calls show arguments, result and duration", async ({ page, open }) => {
  await openChat(page, open, "tools");
  await send(page, "think life");
  await expect(messages(page)).toContainText("The answer to life is 42.");
  await expect(page.getByText("First this, then that.")).toBeHidden();
  await page.getByText("Reasoning").click();
  await expect(page.getByText("First this, then that.")).toBeVisible();
  await send(page, 'tool exec {"command":"echo one; echo two"}');
  await expect(messages(page)).toContainText("The tool said: one");
  const card = page.locator("details.tool");
  await expect(card).toContainText(/\d ms|\d s/);
  await card.locator("summary").click();
  await expect(card).toContainText("Result (exit code 0)");
  await expect(card.locator("pre").last()).toHaveText("one\ntwo");
  await accessible(page);
});

test("an edit is shown as a difference, and a long result with virtual rows", async ({ page, open }) => {
  await openChat(page, open, "edits");
  await send(page, 'tool write {"path":"a.txt","content":"one\\ntwo\\nthree\\n"}');
  await expect(messages(page)).toContainText("The tool said");
  await send(page, 'tool edit {"path":"a.txt","oldText":"two","newText":"TWO"}');
  await expect(page.locator("details.tool")).toHaveCount(2);
  await page.locator("details.tool summary").last().click();
  await expect(page.locator(".diff .removed")).toContainText("- two");
  await expect(page.locator(".diff .added")).toContainText("+ TWO");
  await send(page, 'tool exec {"command":"seq 1 1000"}');
  await expect(page.locator("details.tool")).toHaveCount(3);
  // The card of a call that still runs is drawn anew with its result.
  await expect(page.getByRole("article", { name: "Agent, working" })).toBeHidden();
  await page.locator("details.tool summary").last().click();
  await expect(page.locator(".long-row").first()).toHaveText("1");
  expect(await page.locator(".long-row").count()).toBeLessThan(100);
});

test("a run is stopped with Escape", async ({ page, open }) => {
  await openChat(page, open, "stop");
  await send(page, "stream 2000 20");
  await expect(messages(page)).toContainText("fox3");
  await message(page).press("Escape");
  await expect(page.getByRole("article", { name: "Agent, working" })).toBeHidden();
  await expect(page.getByRole("button", { name: "Stop" })).toBeHidden();
  await send(page, "hello again");
  await expect(messages(page)).toContainText("You said: hello again");
});

test("a message during a run is steered or queued, and says so", async ({ page, open, gateway }) => {
  await openChat(page, open, "steer");
  await send(page, "hold steer");
  await expect(messages(page)).toContainText("held3");
  await send(page, "left");
  await expect(messages(page)).toContainText("steered into the run");
  await page.getByRole("combobox", { name: "What happens to the message" }).selectOption("followup");
  await send(page, "later");
  await expect(messages(page)).toContainText("queued at position 1");
  gateway.model.release("steer");
  await expect(messages(page)).toContainText("You said: later");
  for (const text of ["You said: left", "You said: later"]) expect(await times(page, text)).toBe(1);
  await expect(messages(page)).not.toContainText("queued at position");
});

test("an image is pasted, sent and shown", async ({ page, open, gateway }) => {
  await openChat(page, open, "image");
  const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  await message(page).evaluate((element, pixel) => {
    const bytes = Uint8Array.from(atob(pixel), (character) => character.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], "dot.png", { type: "image/png" }));
    element.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }));
  }, pixel);
  await expect(page.getByRole("list", { name: "Attachments" }).getByRole("img", { name: "dot.png" })).toBeVisible();
  await send(page, "look");
  await expect(messages(page)).toContainText("You said: look");
  const asked = gateway.model.requests.findLast((request: { messages: unknown[] }) => JSON.stringify(request.messages).includes("look"));
  expect(JSON.stringify(asked)).toContain("data:image/png;base64");
});

test("commands are completed", async ({ page, open }) => {
  await openChat(page, open, "commands");
  await message(page).fill("/mod");
  await expect(page.getByRole("option", { name: /\/model/ })).toBeVisible();
  await message(page).press("Tab");
  await expect(message(page)).toHaveValue("/model ");
  await message(page).fill("/status");
  await message(page).press("Enter");
  await expect(messages(page)).toContainText("scripted/one");
});

test("the model and the level of thinking are changed", async ({ page, open }) => {
  await openChat(page, open, "pickers");
  await send(page, "hello");
  await expect(messages(page)).toContainText("You said: hello");
  await page.getByRole("combobox", { name: "Model" }).selectOption("scripted/two");
  await expect(page.getByText("Model: scripted/two")).toBeVisible();
  await send(page, "again");
  await expect(page.getByText(/scripted\/two · .* tokens/)).toBeVisible();
});

test("the failure of a model is shown with its reason", async ({ page, open }) => {
  await openChat(page, open, "failure");
  await send(page, "fail 400");
  await expect(page.getByRole("alert")).toContainText("HTTP 400: scripted failure 400");
  expect(await page.getByRole("alert").count()).toBe(1);
});

test("sessions are searched, created and opened", async ({ page, open }) => {
  await openChat(page, open, "first");
  await send(page, "one");
  await expect(messages(page)).toContainText("You said: one");
  await page.getByRole("button", { name: "New" }).click();
  await expect(messages(page)).not.toContainText("You said: one");
  await page.getByRole("searchbox", { name: "Search sessions" }).fill("first");
  const list = page.getByRole("complementary", { name: "Sessions" });
  await expect(list.getByRole("link")).toHaveCount(1);
  await list.getByRole("link").click();
  await expect(messages(page)).toContainText("You said: one");
});

test("a run that another client started is followed with its tools", async ({ page, open, gateway }) => {
  const key = await openChat(page, open, "others");
  const command = "until [ -e go ]; do sleep 0.05; done; echo slept";
  void gateway.call("agent", { message: `tool exec ${JSON.stringify({ command })}`, sessionKey: key, idempotencyKey: "others-1" });
  await expect(page.locator("details.tool.running")).toBeVisible();
  writeFileSync(join(gateway.state, "workspace", "go"), "");
  await expect(messages(page)).toContainText("The tool said: slept");
  expect(await page.locator("details.tool").count()).toBe(1);
});
