// The SDK's helpers, by what plugins rely on.

import assert from "node:assert/strict";
import { test } from "node:test";
import { lineReader } from "../lines.mjs";
import * as sdk from "../sdk/index.mjs";
import { Type } from "../sdk/typebox.mjs";
import { formatOf, toJavaScript } from "../typescript.mjs";

test("account ids have one spelling", () => {
  const given = [undefined, "", " A ", "Foo Bar!", "--x--", "a".repeat(70)];
  assert.deepEqual(given.map(sdk.normalizeAccountId), ["default", "default", "a", "foo-bar", "x", "a".repeat(64)]);
});

test("the last account takes its section with it, and the input stays as it was", () => {
  const cfg = Object.freeze({ keep: 1, channels: Object.freeze({ chat: Object.freeze({ token: "t" }) }) });
  assert.deepEqual(sdk.deleteAccountFromConfigSection({ cfg, sectionKey: "chat", accountId: "default" }), { keep: 1 });
  const enabled = sdk.setAccountEnabledInConfigSection({ cfg, sectionKey: "chat", accountId: "b", enabled: true });
  assert.deepEqual(enabled.channels.chat, { token: "t", accounts: { b: { enabled: true } } });
});

test("parameters are read leniently and missed by name", () => {
  assert.equal(sdk.readStringParam({ a: " x " }, "a"), "x");
  assert.equal(sdk.readNumberParam({ a: "7.9 apples" }, "a", { integer: true }), 7);
  assert.deepEqual(sdk.readStringArrayParam({ a: "one" }, "a"), ["one"]);
  assert.equal(sdk.readStringParam({ a: "" }, "a"), undefined);
  assert.throws(() => sdk.readStringParam({}, "a", { required: true, label: "the a" }), { name: "ToolInputError", message: "the a required" });
  assert.throws(() => sdk.readNumberParam({ a: "none" }, "a", { required: true }), { message: "a required" });
});

test("an empty config is empty", () => {
  const { safeParse, jsonSchema } = sdk.emptyPluginConfigSchema();
  assert.deepEqual([undefined, {}, { a: 1 }, []].map((each) => safeParse(each).success), [true, true, false, false]);
  assert.deepEqual(jsonSchema, { type: "object", additionalProperties: false, properties: {} });
});

test("a reply that says nothing is known by its word alone", () => {
  const said = ["NO_REPLY", " NO_REPLY.", "ok NO_REPLY", "NO_REPLYING", "say NO_REPLY to them", ""];
  assert.deepEqual(said.map((text) => sdk.isSilentReplyText(text)), [true, true, true, false, false, false]);
});

test("what was said in a group comes before the message, and no more than the limit", () => {
  const where = { historyMap: new Map(), historyKey: "g", limit: 2 };
  for (const body of ["a", "b", "c"]) sdk.recordPendingHistoryEntryIfEnabled({ ...where, entry: { sender: "s", body } });
  const text = sdk.buildPendingHistoryContextFromMap({ ...where, currentMessage: "now", formatEntry: ({ body }) => body });
  assert.deepEqual(text.split("\n"), ["[Chat messages since your last reply - for context]", "b", "c", "", "[Current message - respond to this]", "now"]);
  sdk.clearHistoryEntriesIfEnabled(where);
  assert.equal(sdk.buildPendingHistoryContextFromMap({ ...where, currentMessage: "now", formatEntry: String }), "now");
});

test("diagnostic events reach those who listen, until they stop", () => {
  const heard = [];
  const stop = sdk.onDiagnosticEvent(({ type }) => heard.push(type));
  sdk.emitDiagnosticEvent({ type: "one" });
  stop();
  sdk.emitDiagnosticEvent({ type: "two" });
  assert.deepEqual(heard, ["one"]);
});

test("files are known by their bytes before their names", async () => {
  const png = Buffer.from("89504e470d0a1a0a00", "hex");
  assert.equal(await sdk.detectMime({ buffer: png, filePath: "a.txt", headerMime: "text/plain" }), "image/png");
  assert.equal(await sdk.detectMime({ headerMime: "application/octet-stream", filePath: "a.pdf" }), "application/pdf");
  assert.deepEqual([sdk.extensionForMime("image/png"), sdk.getFileExtension("https://x/y.JPG?z")], [".png", ".jpg"]);
});

test("the little TypeBox makes plain JSON Schema", () => {
  const whole = Type.Partial(Type.Object({ n: Type.Integer({ minimum: 1 }), t: Type.Tuple([Type.Null()]) }));
  const tuple = { type: "array", items: [{ type: "null" }], additionalItems: false, minItems: 1, maxItems: 1 };
  assert.deepEqual(JSON.parse(JSON.stringify(whole)), { type: "object", properties: { n: { type: "integer", minimum: 1 }, t: tuple } });
  assert.deepEqual(Type.Enum({ A: 0, B: 1, 0: "A", 1: "B" }).anyOf.map((each) => each.const), [0, 1]);
});

test("imports of which only types were used are dropped, and only those", () => {
  const source = `import A, { B, C as D } from "x";\nimport * as E from "y";\nimport "z";\nconst a: A = D; export const e = (b: B): E.F => a;`;
  const code = toJavaScript(source, "file:///m.ts").split("//#")[0].trim();
  assert.equal(code.replace(/\s+/g, " "), `import { C as D } from "x"; import "z"; const a = D; export const e = (b)=>a;`);
  assert.deepEqual([formatOf(code, "/m.ts"), formatOf("module.exports = 1", "/m.ts"), formatOf("1", "/m.cts")], ["module", "commonjs", "commonjs"]);
});

test("a line that is too long is skipped, and the next one is read", () => {
  const heard = [];
  const read = lineReader({ onLine: (line) => heard.push(line), onTooLong: (limit) => heard.push(limit), limit: 8 });
  for (const chunk of ["ab", "c\n123456", "7890", "1234\nnext\n", "\n  \nlast"]) read(Buffer.from(chunk));
  assert.deepEqual(heard, ["abc", 8, "next"]);
});
