// Blob stores of packages: one file for the bytes and one for the description of each entry, replaced atomically.

import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

/** Opens a store in a directory below `stateDir`. */
export function blobStore(stateDir, { namespace, maxEntries = 1000, maxBytesPerEntry = Infinity, maxBytesPerNamespace = Infinity, overflowPolicy = "evict-oldest", defaultTtlMs }) {
  const dir = path.join(stateDir, "blobs", createHash("sha256").update(String(namespace)).digest("hex").slice(0, 32));
  fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  const fileOf = (key, kind) => path.join(dir, `${createHash("sha256").update(String(key)).digest("hex")}.${kind}`);
  const put = (file, bytes) => {
    const temporary = path.join(dir, `${randomUUID()}.new`);
    fs.writeFileSync(temporary, bytes, { mode: 0o600, flush: true });
    fs.renameSync(temporary, file);
  };
  const info = (key) => {
    try {
      return JSON.parse(fs.readFileSync(fileOf(key, "json"), "utf8"));
    } catch {
      return undefined;
    }
  };
  const isExpired = (entry) => entry.expiresAt !== undefined && entry.expiresAt <= Date.now();
  const all = () => fs.readdirSync(dir).filter((name) => name.endsWith(".json")).map((name) => JSON.parse(fs.readFileSync(path.join(dir, name), "utf8"))).sort((one, other) => one.createdAt - other.createdAt);
  const remove = (key) => {
    const known = info(key);
    for (const kind of ["json", "bin"]) fs.rmSync(fileOf(key, kind), { force: true });
    return known;
  };
  const makeRoom = (size) => {
    if (size > maxBytesPerEntry) throw new Error(`a blob of ${size} bytes exceeds the limit of ${maxBytesPerEntry}`);
    const entries = all();
    let used = entries.reduce((sum, entry) => sum + entry.sizeBytes, 0);
    while (entries.length >= maxEntries || used + size > maxBytesPerNamespace) {
      if (overflowPolicy === "reject-new" || entries.length === 0) throw new Error(`the blob store ${namespace} is full`);
      const oldest = entries.shift();
      used -= oldest.sizeBytes;
      remove(oldest.key);
    }
  };
  const store = {
    async register(key, bytes, metadata, { ttlMs = defaultTtlMs } = {}) {
      remove(key);
      makeRoom(bytes.byteLength);
      const now = Date.now();
      const entry = { key, metadata, sizeBytes: bytes.byteLength, createdAt: now, ...(ttlMs === undefined ? {} : { expiresAt: now + ttlMs }) };
      put(fileOf(key, "bin"), bytes);
      put(fileOf(key, "json"), JSON.stringify(entry));
    },
    async registerIfAbsent(key, bytes, metadata, options) {
      const known = info(key);
      if (known !== undefined && !isExpired(known)) return false;
      await store.register(key, bytes, metadata, options);
      return true;
    },
    async lookup(key) {
      const known = info(key);
      return known === undefined || isExpired(known) ? undefined : { ...known, bytes: new Uint8Array(fs.readFileSync(fileOf(key, "bin"))) };
    },
    entries: async () => all().filter((entry) => !isExpired(entry)),
    delete: async (key) => remove(key) !== undefined,
    async deleteExpiredKey(key) {
      const known = info(key);
      return known !== undefined && isExpired(known) ? remove(key) : undefined;
    },
    deleteExpired: async () => all().filter(isExpired).map((entry) => remove(entry.key)).filter(Boolean),
    async clear() {
      for (const entry of all()) remove(entry.key);
    },
  };
  return store;
}
