import { expect, test } from "vitest";
import { merge, nested, valueAt } from "../../src/lib/config";
import { describe as whenOf } from "../../src/views/schedule";
import { parseLine } from "../../src/views/logs";
import { matches, settingsOf } from "../../src/settings/schema";

test("a schema becomes a list of settings", () => {
  const schema = {
    properties: {
      a: { properties: { on: { type: ["boolean", "null"], description: "Switch" }, mode: { type: "string", enum: ["x", "y", null] } } },
      list: { type: "array", items: { type: "string" } },
      size: { anyOf: [{ type: "integer", minimum: 1 }, { type: "null" }] },
    },
  };
  const settings = settingsOf(schema, { "a.on": { label: "On", sensitive: true } });
  expect(settings.map(({ name, kind, label }) => [name, kind, label])).toEqual([
    ["a.on", "boolean", "On"],
    ["a.mode", "choice", "mode"],
    ["list", "json", "list"],
    ["size", "integer", "size"],
  ]);
  expect(settings[0]!.isSecret).toBe(true);
  expect(settings[1]!.choices).toEqual(["x", "y"]);
  expect(matches(settings[0]!, "switch on")).toBe(true);
  expect(matches(settings[0]!, "off")).toBe(false);
});

test("changes are nested and merged", () => {
  expect(merge(nested(["a", "b"], 1), nested(["a", "c"], null))).toEqual({ a: { b: 1, c: null } });
  expect(valueAt({ a: { b: 1 } }, ["a", "b"])).toBe(1);
  expect(valueAt({ a: 1 }, ["a", "b"])).toBeUndefined();
});

test("log lines are parsed, and others shown as they are", () => {
  expect(parseLine('{"time":"2026-01-01T00:00:00Z","level":"WARN","subsystem":"homard::x","message":"m"}')).toEqual({ at: 1_767_225_600_000, level: "warn", subsystem: "homard::x", text: "m" });
  expect(parseLine("plain")).toEqual({ at: 0, level: "info", subsystem: "", text: "plain" });
});

test("schedules are described", () => {
  expect([whenOf({ kind: "every", everyMs: 90_000 }), whenOf({ kind: "cron", expr: "0 9 * * *", tz: "Europe/Berlin" })]).toEqual(["every 1 min 30 s", "0 9 * * * (Europe/Berlin)"]);
});
