// The facts of a message, and the config that a package receives.

import assert from "node:assert/strict";
import { test } from "node:test";
import { factsOf } from "../inbound.mjs";
import { openConfig } from "../policies.mjs";

const context = { RawBody: "hi", MessageSid: "1", From: "signal:+1", OriginatingTo: "signal:+1", SenderId: "+1", ChatType: "direct", AccountId: "default" };

test("a target loses the channel's prefix, and a group's prefix only if the package finds the chat without it", () => {
  const plugin = { messaging: { normalizeTarget: (target) => target.replace(/^room:/, "") } };
  const peer = (channel, OriginatingTo) => factsOf(channel, { ...context, OriginatingTo }, plugin).peer.id;
  assert.equal(peer("signal", "signal:+1"), "+1");
  assert.equal(peer("matrix", "room:!a:b"), "!a:b");
  assert.equal(peer("mattermost", "channel:abc"), "channel:abc");
  assert.equal(factsOf("irc", { ...context, OriginatingTo: "group:x" }, undefined).peer.id, "group:x");
});

test("a message that names itself is no quotation, and a placeholder is no text", () => {
  const facts = factsOf("signal", { ...context, ReplyToId: "1", RawBody: "<media:image>", MediaPath: "/a.png", MediaType: "image/png" });
  assert.equal(facts.replyTo, null);
  assert.deepEqual([facts.text, facts.media], ["", [{ path: "/a.png", mime: "image/png", name: null }]]);
  assert.equal(factsOf("signal", { ...context, ReplyToId: "0", ReplyToBody: "old" }).replyTo.text, "old");
});

test("policies are opened where the schema has them, on every level", () => {
  const policy = { type: "string", enum: ["open", "allowlist"] };
  const groups = { type: "object", additionalProperties: { type: "object", properties: { requireMention: { type: "boolean" }, enabled: { type: "boolean" } } } };
  const level = { dmPolicy: policy, groupPolicy: policy, allowFrom: { type: "array" }, groups, host: { type: "string" } };
  const schema = { properties: { ...level, accounts: { type: "object", additionalProperties: { properties: level } } } };
  const section = { dmPolicy: "pairing", allowFrom: ["+1"], host: "h", groups: { x: { enabled: false, allowFrom: ["+1"] } }, accounts: { b: { dmPolicy: "disabled" } } };
  const { irc } = openConfig("irc", section, schema).channels;
  assert.deepEqual([irc.dmPolicy, irc.groupPolicy, irc.allowFrom, irc.host], ["open", "open", ["*"], "h"]);
  assert.deepEqual(irc.groups, { x: { enabled: true, requireMention: false }, "*": { requireMention: false } });
  assert.deepEqual([irc.accounts.b.dmPolicy, irc.accounts.b.allowFrom, irc.groupAllowFrom], ["open", ["*"], undefined]);
});

test("nested policies are opened, too", () => {
  const schema = { properties: { dm: { properties: { policy: { anyOf: [{ const: "open" }, { const: "off" }] }, allowFrom: {} } } } };
  assert.deepEqual(openConfig("matrix", { dm: { policy: "off" } }, schema).channels.matrix.dm, { policy: "open", allowFrom: ["*"] });
});
