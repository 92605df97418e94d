// The ingress queue of an account, as OpenClaw's channel packages use it. The rows are in memory here; every change
// that must survive the process is stored by the gateway before its promise resolves. Claims are in memory only: a
// process that ends gives them up, and the next one finds their rows pending.

import { randomUUID } from "node:crypto";

/** How long a failed event is kept for inspection, at most. */
const KEPT_PAYLOAD = 64 * 1024;

const byReceipt = (one, other) => one.receivedAt - other.receivedAt || (one.id < other.id ? -1 : 1);
const byId = (one, other) => (one.id < other.id ? -1 : 1);
const orderOf = (options) => (options?.orderBy === "id" ? byId : byReceipt);
const limitOf = (limit) => (typeof limit === "number" && limit > 0 ? limit : Infinity);

function idOf(idOrClaim) {
  const id = typeof idOrClaim === "string" ? idOrClaim : idOrClaim?.id;
  const text = String(id ?? "").trim();
  if (text === "") throw new Error("Channel ingress event id cannot be empty");
  return text;
}

const tokenOf = (idOrClaim) => (typeof idOrClaim === "object" ? (idOrClaim?.claim?.token ?? null) : null);

/** Opens queues by account; `store` talks to the gateway. */
export function ingressQueues(channelId, store) {
  const queues = new Map();
  return ({ accountId } = {}) => {
    const account = String(accountId ?? "").trim() || "default";
    if (!queues.has(account)) queues.set(account, new IngressQueue(channelId, account, store));
    return queues.get(account);
  };
}

/** Durable queue of inbound events with claims and duplicate detection. */
export class IngressQueue {
  #channelId;
  #accountId;
  #store;
  #rows = new Map();
  #loading;

  constructor(channelId, accountId, store) {
    this.#channelId = channelId;
    this.#accountId = accountId;
    this.#store = store;
    for (const name of ["enqueue", "listPending", "listClaims", "listFailed", "claimNext", "claim", "refreshClaim", "complete", "release", "fail", "resubmit", "delete", "recoverStaleClaims", "prune"]) {
      this[name] = this[name].bind(this);
    }
  }

  /** Reads the stored rows once. A failed attempt is repeated by the next call. */
  #loaded() {
    this.#loading ??= this.#store.load(this.#accountId).then(
      (rows) => rows.forEach((row) => this.#rows.set(row.id, row)),
      (error) => {
        this.#loading = undefined;
        throw error;
      },
    );
    return this.#loading;
  }

  /** Stores rows and removes ids, on disk first. */
  async #write(rows, removed = []) {
    await this.#store.write(this.#accountId, rows.map(({ claim: _claim, ...row }) => row), removed);
    for (const row of rows) this.#rows.set(row.id, row);
    for (const id of removed) this.#rows.delete(id);
  }

  #record(row) {
    const { status: _status, claim, ...rest } = row;
    const record = { ...rest, channelId: this.#channelId, accountId: this.#accountId, queueName: `${this.#channelId}:${this.#accountId}` };
    return claim === undefined ? record : { ...record, claim: { ...claim } };
  }

  #all(status) {
    return [...this.#rows.values()].filter((row) => (row.claim ? "claimed" : row.status) === status);
  }

  async enqueue(id, payload, { metadata, receivedAt, laneKey } = {}) {
    await this.#loaded();
    const event = idOf(id);
    const known = this.#rows.get(event);
    if (known !== undefined) {
      return { kind: known.claim ? "claimed" : known.status, duplicate: true, record: this.#record(known) };
    }
    const now = Date.now();
    const row = { id: event, status: "pending", payload: structuredClone(payload ?? null), receivedAt: receivedAt ?? now, updatedAt: now, attempts: 0 };
    if (metadata !== undefined) row.metadata = structuredClone(metadata);
    if (laneKey !== undefined) row.laneKey = laneKey;
    // Reserved at once, so that the same event that arrives meanwhile is not stored twice.
    this.#rows.set(event, { ...row, claim: { token: "", ownerId: "", claimedAt: now } });
    try {
      await this.#write([row]);
    } catch (error) {
      this.#rows.delete(event);
      throw error;
    }
    return { kind: "accepted", duplicate: false, record: this.#record(row) };
  }

  async listPending(options) {
    await this.#loaded();
    return this.#all("pending").sort(orderOf(options)).slice(0, limitOf(options?.limit)).map((row) => this.#record(row));
  }

  async listClaims() {
    await this.#loaded();
    return this.#all("claimed").filter((row) => row.claim.token !== "").sort(byReceipt).map((row) => this.#record(row));
  }

  async listFailed(options) {
    await this.#loaded();
    return this.#all("failed").sort((one, other) => (one.failedAt ?? 0) - (other.failedAt ?? 0)).slice(0, limitOf(options?.limit)).map((row) => this.#record(row));
  }

  async claimNext(options = {}) {
    await this.#loaded();
    if (options.staleMs !== undefined) await this.recoverStaleClaims({ staleMs: options.staleMs });
    const blocked = new Set([...(options.blockedLaneKeys ?? [])].map((key) => key.trim()).filter(Boolean));
    const candidates = options.candidateIds === undefined ? null : new Set([...options.candidateIds].map(String));
    const laneOf = (row) => {
      const derived = options.deriveLaneKey?.(this.#record(row));
      if (row.laneKey === undefined) return derived;
      if (!derived || derived === row.laneKey || !options.reconcileStoredLaneKey) return row.laneKey;
      return options.reconcileStoredLaneKey(this.#record(row), row.laneKey, derived) ? derived : row.laneKey;
    };
    if (candidates !== null) {
      for (const row of this.#all("claimed")) {
        const lane = candidates.has(row.id) ? laneOf(row) : undefined;
        if (lane) blocked.add(lane);
      }
    }
    for (const row of this.#all("pending").sort(orderOf(options)).slice(0, limitOf(options.scanLimit))) {
      if (candidates !== null && !candidates.has(row.id)) continue;
      const lane = laneOf(row);
      if (lane && blocked.has(lane)) continue;
      if (lane) row.laneKey = lane;
      return this.#claimed(row, options.ownerId);
    }
    return null;
  }

  async claim(id, { ownerId } = {}) {
    await this.#loaded();
    const row = this.#rows.get(idOf(id));
    return row === undefined || row.claim || row.status !== "pending" ? null : this.#claimed(row, ownerId);
  }

  #claimed(row, ownerId) {
    row.claim = { token: randomUUID(), ownerId: ownerId ?? String(process.pid), claimedAt: Date.now() };
    row.updatedAt = row.claim.claimedAt;
    return this.#record(row);
  }

  /** The row that an id or a claim names: pending for an id, claimed with this token for a claim. */
  #owned(idOrClaim) {
    const row = this.#rows.get(idOf(idOrClaim));
    const token = tokenOf(idOrClaim);
    if (row === undefined) return undefined;
    if (token === null) return row.status === "pending" && !row.claim ? row : undefined;
    return row.claim?.token === token ? row : undefined;
  }

  async refreshClaim(claim, { refreshedAt } = {}) {
    const row = this.#owned(claim);
    if (row?.claim === undefined) return false;
    row.claim.claimedAt = refreshedAt ?? Date.now();
    return true;
  }

  async complete(idOrClaim, { metadata, completedAt } = {}) {
    await this.#loaded();
    const id = idOf(idOrClaim);
    const isUnknown = !this.#rows.has(id) && tokenOf(idOrClaim) === null;
    if (!isUnknown && this.#owned(idOrClaim) === undefined) return false;
    const at = completedAt ?? Date.now();
    // A tombstone, also for an unknown id: it makes later copies of the event duplicates.
    const tombstone = { id, status: "completed", completedAt: at, receivedAt: at, updatedAt: at, attempts: 0, payload: null };
    await this.#write([metadata === undefined ? tombstone : { ...tombstone, metadata }]);
    return true;
  }

  async release(idOrClaim, { lastError, releasedAt, recordAttempt } = {}) {
    await this.#loaded();
    const row = this.#owned(idOrClaim);
    if (row === undefined) return false;
    const { claim: _claim, ...released } = row;
    released.updatedAt = releasedAt ?? Date.now();
    if (lastError !== undefined) released.lastError = String(lastError).slice(0, 1000);
    if (recordAttempt !== false) Object.assign(released, { attempts: row.attempts + 1, lastAttemptAt: released.updatedAt });
    await this.#write([released]);
    return true;
  }

  async fail(idOrClaim, { reason, message, failedAt } = {}) {
    await this.#loaded();
    const row = this.#owned(idOrClaim);
    if (row === undefined) return false;
    const { claim: _claim, ...failed } = row;
    const isLarge = JSON.stringify(failed.payload).length > KEPT_PAYLOAD;
    Object.assign(failed, { status: "failed", failedAt: failedAt ?? Date.now(), reason: String(reason), message, payload: isLarge ? null : failed.payload });
    await this.#write([failed]);
    this.#store.failed(this.#accountId, failed);
    return true;
  }

  async resubmit(id, { resubmittedAt } = {}) {
    await this.#loaded();
    const row = this.#rows.get(idOf(id));
    if (row === undefined) return { kind: "not-found" };
    if (row.status === "completed") return { kind: "completed", record: this.#record(row) };
    if (row.status !== "failed") return { kind: "active", status: row.claim ? "claimed" : "pending" };
    if (row.payload === null) return { kind: "unrecoverable", record: this.#record(row) };
    const at = resubmittedAt ?? Date.now();
    const { failedAt: _at, reason: _reason, message: _message, ...rest } = row;
    const again = { ...rest, status: "pending", receivedAt: at, updatedAt: at, attempts: 0 };
    await this.#write([again]);
    return { kind: "resubmitted", record: this.#record(again), previous: this.#record(row) };
  }

  async delete(idOrRecord) {
    await this.#loaded();
    const id = idOf(idOrRecord);
    const row = this.#rows.get(id);
    const token = tokenOf(idOrRecord);
    if (row === undefined || (token !== null && row.claim?.token !== token)) return false;
    await this.#write([], [id]);
    return true;
  }

  async recoverStaleClaims({ staleMs = 0, now = Date.now(), shouldRecover } = {}) {
    await this.#loaded();
    let recovered = 0;
    for (const row of this.#all("claimed")) {
      const isHeld = row.claim.token === "" || row.claim.claimedAt > now - Math.max(0, staleMs);
      if (isHeld || (shouldRecover && !(await shouldRecover(this.#record(row))))) continue;
      if (await this.release(row, { releasedAt: now })) recovered += 1;
    }
    return recovered;
  }

  async prune(options = {}) {
    await this.#loaded();
    const now = options.now ?? Date.now();
    const kept = new Set(options.protectIds ?? []);
    const removed = new Set();
    const old = (status, at, ttl, most) => {
      const rows = this.#all(status).sort((one, other) => at(other) - at(one));
      rows.forEach((row, index) => {
        const isExpired = ttl !== undefined && at(row) < now - ttl;
        if ((isExpired || (most !== undefined && index >= most)) && !kept.has(row.id)) removed.add(row.id);
      });
    };
    old("pending", (row) => row.receivedAt, options.pendingTtlMs, options.pendingMaxEntries);
    old("completed", (row) => row.completedAt ?? 0, options.completedTtlMs, options.completedMaxEntries);
    old("failed", (row) => row.failedAt ?? 0, options.failedTtlMs, options.failedMaxEntries);
    if (removed.size > 0) await this.#write([], [...removed]);
    return removed.size;
  }
}
