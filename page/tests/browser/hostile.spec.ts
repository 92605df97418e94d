// Content of models and tools is shown, and cannot act.
import type { Page } from "@playwright/test";
import { expect, messages, openChat, send, test } from "./gateway";

const raw = (text: string) => `raw ${Buffer.from(text).toString("base64")}`;

async function acted(page: Page): Promise<unknown> {
  return page.evaluate(() => (globalThis as unknown as { acted?: unknown }).acted);
}

const CASES: [name: string, text: string, shown: string][] = [
  ["script", "before <script>globalThis.acted = 1</script> after", "globalThis.acted = 1"],
  ["handler", '<img src=x onerror="globalThis.acted = 1"> after', "onerror"],
  ["svg", '<svg onload="globalThis.acted = 1"><script>globalThis.acted = 1</script></svg> after', "svg"],
  ["iframe", '<iframe srcdoc="<script>parent.acted = 1</script>"></iframe> after', "iframe"],
  ["style", "<style>body{display:none}</style> after", "display:none"],
  ["form", '<form action="https://evil.example/"><button>Send</button></form> after', "form"],
  ["javascript link", "[press](javascript:globalThis.acted=1) after", "press"],
  ["data link", "[open](data:text/html,<script>alert(1)</script>) after", "open"],
  ["foreign image", "![a](https://evil.example/x.png) after", "evil.example"],
  ["data image", "![a](data:image/svg+xml;base64,PHN2Zy8+) after", "image"],
  ["bidi", "run \u202Egnp.exe after", "[U+202E]"],
  ["mutation", '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=globalThis.acted=1&gt;"> after', "after"],
];

for (const [name, text, shown] of CASES) {
  test(`hostile text is inert: ${name}`, async ({ page, open }) => {
    await openChat(page, open, `hostile-${name.replaceAll(" ", "-")}`);
    await send(page, raw(text));
    const answer = page.getByRole("article", { name: "Agent", exact: true }).last();
    await expect(answer).toContainText("after");
    await expect(answer).toContainText(shown);
    await expect(answer.locator("script, style, iframe, form, svg:not(.icon), img, object, embed, math")).toHaveCount(0);
    for (const link of await answer.locator(".md a").all()) expect(await link.getAttribute("href")).toMatch(/^https?:/);
    expect(await acted(page)).toBeUndefined();
    // Requests to other origins fail the test by themselves.
  });
}

test("hostile tool results and errors are inert in the inspector, too", async ({ page, open }) => {
  await openChat(page, open, "hostile-inspector");
  const hostile = "<img src=https://evil.example/x.png onerror=globalThis.acted=1>\u202Etxt";
  await send(page, `tool exec ${JSON.stringify({ command: `printf '%s' '${hostile}'` })}`);
  await expect(messages(page)).toContainText("The tool said");
  await page.evaluate(() => (location.hash = "#/runs/last"));
  await page.getByRole("list", { name: "Steps" }).getByRole("button", { name: /^exec/ }).click();
  await expect(page.locator(".detail")).toContainText("<img src=https://evil.example/x.png");
  await expect(page.locator(".detail")).toContainText("[U+202E]");
  await page.keyboard.press("k");
  await page.getByRole("tab", { name: "Log" }).click();
  await expect(page.locator(".log-pane")).toContainText("accepted");
  expect(await acted(page)).toBeUndefined();
});

test("a link opens elsewhere and tells nothing", async ({ page, open }) => {
  await openChat(page, open, "link");
  await send(page, raw("[site](https://example.org/path)"));
  const link = page.getByRole("link", { name: "site" });
  await expect(link).toHaveAttribute("rel", /noopener noreferrer/);
  await expect(link).toHaveAttribute("target", "_blank");
});

test("a tool result of many megabytes does not stop the page", async ({ page, open }) => {
  await openChat(page, open, "huge");
  await send(page, 'tool exec {"command":"head -c 10000000 /dev/zero | tr \'\\\\0\' \'<\'; echo; echo end"}');
  await expect(messages(page)).toContainText("The tool said", { timeout: 20_000 });
  await page.locator("details.tool summary").click();
  await expect(page.locator("details.tool")).toContainText("Result");
  await send(page, "still alive");
  await expect(messages(page)).toContainText("You said: still alive");
});

test("names of sessions and arguments of tools are text", async ({ page, open, gateway }) => {
  const key = await openChat(page, open, "named");
  await send(page, 'tool read {"path":"<img src=x onerror=globalThis.acted=1>\u202Etxt"}');
  await expect(messages(page)).toContainText("The tool said");
  await gateway.call("sessions.patch", { key, label: "<b onmouseover=globalThis.acted=1>bold\u202E</b>" });
  await expect(page.getByRole("heading", { name: /<b onmouseover/ })).toBeVisible();
  await expect(page.locator("details.tool summary")).toContainText("[U+202E]");
  expect(await acted(page)).toBeUndefined();
});
