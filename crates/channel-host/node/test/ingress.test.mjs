// The ingress queue: what packages rely on.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ingressQueues } from "../ingress.mjs";

function stored(rows = []) {
  const disk = new Map(rows.map((row) => [row.id, row]));
  let fails = 0;
  const store = {
    disk,
    failOnce: () => (fails = 1),
    load: async () => structuredClone([...disk.values()]),
    async write(_account, changed, removed) {
      if (fails-- > 0) throw new Error("the disk is full");
      for (const row of changed) disk.set(row.id, structuredClone(row));
      for (const id of removed) disk.delete(id);
    },
    failed() {},
  };
  return store;
}

const queueOf = (store) => ingressQueues("irc", store)({ accountId: "default" });

test("an event is accepted once, in whatever state it is", async () => {
  const store = stored();
  const queue = queueOf(store);
  const [first, second] = await Promise.all([queue.enqueue("1", { a: 1 }), queue.enqueue("1", { a: 1 })]);
  assert.deepEqual([first.kind, second.kind, second.duplicate], ["accepted", "claimed", true]);
  const claim = await queue.claimNext();
  assert.deepEqual([claim.id, claim.payload, claim.attempts], ["1", { a: 1 }, 0]);
  assert.equal((await queue.enqueue("1", {})).kind, "claimed");
  assert.equal(await queue.complete(claim), true);
  assert.equal(await queue.complete(claim), false);
  assert.equal((await queue.enqueue("1", {})).kind, "completed");
  assert.equal(store.disk.get("1").payload, null);
});

test("an event that could not be stored is not known", async () => {
  const store = stored();
  const queue = queueOf(store);
  store.failOnce();
  await assert.rejects(queue.enqueue("1", {}), /disk is full/);
  assert.equal((await queue.enqueue("1", {})).kind, "accepted");
});

test("completing an unknown event leaves a tombstone", async () => {
  const queue = queueOf(stored());
  assert.equal(await queue.complete("unknown"), true);
  assert.equal((await queue.enqueue("unknown", {})).kind, "completed");
});

test("claims end with the process, and rows do not", async () => {
  const store = stored();
  const queue = queueOf(store);
  await queue.enqueue("1", {}, { receivedAt: 2 });
  await queue.enqueue("2", {}, { receivedAt: 1 });
  assert.equal((await queue.claimNext()).id, "2");
  const next = queueOf(store);
  assert.deepEqual((await next.listPending()).map((row) => row.id), ["2", "1"]);
});

test("blocked lanes wait, and a released event counts its attempts", async () => {
  const queue = queueOf(stored());
  await queue.enqueue("1", {}, { laneKey: "a", receivedAt: 1 });
  await queue.enqueue("2", {}, { laneKey: "b", receivedAt: 2 });
  const second = await queue.claimNext({ blockedLaneKeys: ["a"] });
  assert.equal(second.id, "2");
  assert.equal(await queue.claimNext({ blockedLaneKeys: ["a"] }), null);
  assert.equal(await queue.release(second, { lastError: "later" }), true);
  assert.deepEqual((await queue.listPending()).map((row) => [row.id, row.attempts]), [["1", 0], ["2", 1]]);
  const stale = await queue.claim("2");
  assert.equal(await queue.recoverStaleClaims({ staleMs: 0, now: Date.now() + 1 }), 1);
  assert.equal(await queue.complete(stale), false);
});

test("a failed event is kept and can be submitted again", async () => {
  const queue = queueOf(stored());
  await queue.enqueue("1", { a: 1 });
  assert.equal(await queue.fail("1", { reason: "broken", message: "why" }), true);
  assert.deepEqual((await queue.listFailed()).map((row) => row.reason), ["broken"]);
  assert.equal((await queue.resubmit("1")).kind, "resubmitted");
  assert.equal((await queue.claimNext()).id, "1");
  assert.equal((await queue.resubmit("2")).kind, "not-found");
});

test("old tombstones are pruned", async () => {
  const queue = queueOf(stored());
  for (const id of ["1", "2", "3"]) await queue.complete(id, { completedAt: Number(id) });
  assert.equal(await queue.prune({ completedMaxEntries: 1, protectIds: ["1"] }), 1);
  assert.equal((await queue.enqueue("2", {})).kind, "accepted");
  assert.equal((await queue.enqueue("1", {})).kind, "completed");
});
