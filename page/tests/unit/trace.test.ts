import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { adviceFor } from "../../src/runs/advice";
import { accounted, cacheNote, causes, initialStep, isFailure, label, logLines, note, report, shares, type Trace } from "../../src/runs/trace";

const folder = new URL("./traces/", import.meta.url);
const traces = readdirSync(folder).map((file) => [file.replace(".json", ""), JSON.parse(readFileSync(new URL(file, folder), "utf8")) as Trace] as const);
const trace = (name: string): Trace => {
  const found = traces.find(([file]) => file === name);
  if (!found) throw new Error(`no trace ${name}`);
  return found[1];
};

test("many kinds of run were recorded", () => {
  expect(traces.length).toBeGreaterThanOrEqual(34);
});

describe.each(traces)("%s", (_, recorded) => {
  test("the main steps are contiguous and sum to the wall time", () => {
    expect(accounted(recorded)).toBe(recorded.totalMs);
    let end = 0;
    for (const step of recorded.steps.filter(({ aside }) => !aside)) {
      expect(step.atMs).toBe(end);
      end += step.ms;
    }
    expect(shares(recorded).reduce((sum, { ms }) => sum + ms, 0)).toBe(recorded.totalMs);
  });

  test("every step has a label of its own", () => {
    for (const step of recorded.steps) {
      expect(label(step)).not.toBe("");
      // A kind of step that the page does not know would be shown under its technical name.
      if (!["queued"].includes(step.step)) expect(label(step)).not.toBe(step.step);
      expect(note(step)).not.toContain("undefined");
      expect(note(step)).not.toContain("NaN");
    }
  });

  test("a failure is explained, and the step that shows it is selected", () => {
    if (recorded.run.status === "error") {
      const cause = causes(recorded)[0]!;
      expect(cause.tone).toBe("bad");
      expect(recorded.run.error?.startsWith(cause.text)).toBe(true);
      expect(cause.next?.text).toBeTruthy();
      if (recorded.steps.some((step) => isFailure(step))) expect(initialStep(recorded)).toBe(cause.step);
    }
    const selected = initialStep(recorded);
    expect(selected).toBeLessThan(recorded.steps.length);
    if (recorded.steps.length) expect(selected).toBeGreaterThanOrEqual(0);
  });

  test("the log has a line for each step, and the report no message", () => {
    expect(logLines(recorded).length).toBeGreaterThan(recorded.steps.length);
    expect(report(recorded, "0")).not.toMatch(/undefined|NaN/);
  });
});

test("causes name what happened", () => {
  const titles = (name: string) => causes(trace(name)).map(({ title }) => title);
  expect(titles("crashed")).toEqual(["The gateway was down during this run"]);
  expect(titles("failover")).toEqual(["Another model answered"]);
  expect(titles("stopped")).toEqual(["The run was stopped"]);
  expect(titles("steered")[0]).toBe("Answered by another run");
  expect(titles("tool-refused")).toEqual(["The tool read failed"]);
  expect(titles("first")).toEqual([]);
  expect(titles("hook-block")).toEqual(["The hook careful intervened", "The tool exec failed"]);
  expect(titles("delivery-refused")).toEqual(["The reply was not delivered"]);
  expect(titles("delivered")).toEqual([]);
  expect(titles("compaction")).toEqual([]);
  expect(causes(trace("guard-failed"))[0]!.text).toContain("the guard redact failed");
  expect(causes(trace("budget"))[0]!.text).toMatch(/budget/i);
  expect(causes(trace("unreachable"))[0]!.text).toMatch(/127\.0\.0\.1:9/);
  expect(causes(trace("http-401"))[0]!.text).toMatch(/401/);
});

test("a delivery that failed comes after the run's own failure", () => {
  const delivered: Trace = {
    ...trace("first"),
    deliveries: [{ id: "d", channel: "telegram", to: "1", queuedAt: 1, attempts: 8, status: "dead", reason: "chat not found" }],
  };
  expect(causes(delivered)).toMatchObject([{ title: "The reply was not delivered", text: "telegram to 1: chat not found", next: { href: "#/channels" }, step: -1, tone: "bad" }]);
});

test("the first request has nothing to reuse, and later ones say what changed", () => {
  const [first, second] = ["first", "second"].map((name) => trace(name).steps.find(({ step }) => step === "model")!);
  expect(cacheNote(first!)).toContain("first request");
  expect(cacheNote({ ...second!, prompt: { ...second!.prompt!, changed: "Runtime" } })).toContain('"Runtime" differs');
});

test("a report hides paths, addresses and keys", () => {
  const leaky: Trace = { ...trace("first"), run: { ...trace("first").run, status: "error", error: "key sk-abcdefghijklm of me@example.org in /home/me/secret/file failed", sessionKey: "agent:main:telegram:direct:12345" } };
  const text = report(leaky, "0");
  for (const secret of ["abcdefghijklm", "me@example.org", "/home/me", "12345"]) expect(text).not.toContain(secret);
});

test.each([
  ["broken: POST http://127.0.0.1:9 failed (Connection refused); check baseUrl and the network", "broken: POST http://127.0.0.1:9 failed (Connection refused)", "Check baseUrl and the network", "models.providers"],
  ["the budget for today is 10 tokens. To raise it, set budgets.day.tokens", "the budget for today is 10 tokens", "To raise it, set budgets.day.tokens", "budgets"],
  ["p: HTTP 401: bad key; check the API key and its permissions", "p: HTTP 401: bad key", "Check the API key and its permissions", "models"],
  ["Forbidden: bot was blocked by the user", "Forbidden: bot was blocked by the user", "The person has to write to the bot again, or the bot has to be added again", "channels"],
])("the advice for %s", (error, what, text, view) => {
  const advice = adviceFor(error);
  expect(advice.what).toBe(what);
  expect(advice.next?.text).toBe(text);
  expect(advice.next?.href).toContain(view);
});

test("an error of unknown kind has no invented advice", () => {
  expect(adviceFor("something odd happened")).toEqual({ what: "something odd happened", next: null });
});
