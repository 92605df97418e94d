// The identity of this browser: an Ed25519 key that never leaves it, and the device token that the gateway issued.

/** What is kept between visits. */
interface Stored {
  keys: CryptoKeyPair | null;
  deviceToken: string | null;
}

const DATABASE = "homard";
const STORE = "identity";

function request<T>(made: IDBRequest<T>): Promise<T> {
  return new Promise((done, failed) => {
    made.onsuccess = () => done(made.result);
    made.onerror = () => failed(made.error);
  });
}

async function store(mode: IDBTransactionMode): Promise<IDBObjectStore> {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  return (await request(opening)).transaction(STORE, mode).objectStore(STORE);
}

/** Gateways below different paths of one origin have separate identities. */
const place = () => location.pathname.replace(/[^/]*$/, "");

export function base64url(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Fields of `connect` that a device signs. */
export interface SignedFields {
  clientId: string;
  clientMode: string;
  role: string;
  scopes: string[];
  signedAt: number;
  token: string;
  nonce: string;
  platform: string;
}

/** The text that is signed, version 3. */
export function signedText(deviceId: string, fields: SignedFields): string {
  const { clientId, clientMode, role, scopes, signedAt, token, nonce, platform } = fields;
  return ["v3", deviceId, clientId, clientMode, role, scopes.join(","), signedAt, token, nonce, platform.trim().toLowerCase(), ""].join("|");
}

/** Creates keys and keeps them, without a token. */
async function newKeys(): Promise<CryptoKeyPair> {
  const keys = (await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"])) as CryptoKeyPair;
  await request((await store("readwrite")).put({ keys, deviceToken: null } satisfies Stored, place()));
  return keys;
}

async function identityOf(keys: CryptoKeyPair): Promise<{ publicKey: Uint8Array; id: string }> {
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", keys.publicKey));
  return { publicKey, id: hex(new Uint8Array(await crypto.subtle.digest("SHA-256", publicKey))) };
}

export class Device {
  private constructor(
    private keys: CryptoKeyPair | null,
    private publicKey: Uint8Array,
    public id: string,
    public token: string | null,
  ) {}

  /** Reads the identity, or creates one. Without a secure context there are no keys, and the token lasts for this tab. */
  static async load(): Promise<Device> {
    const fallback = () => new Device(null, new Uint8Array(), "", sessionStorage.getItem(`homard.token.${place()}`));
    if (!globalThis.isSecureContext || !crypto.subtle) return fallback();
    try {
      const found = (await request((await store("readonly")).get(place()))) as Stored | undefined;
      let keys = found?.keys ?? null;
      keys ??= await newKeys();
      const { publicKey, id } = await identityOf(keys);
      return new Device(keys, publicKey, id, found?.deviceToken ?? null);
    } catch (error) {
      console.warn("no device identity in this browser", error);
      return fallback();
    }
  }

  /** Forgets the token, and becomes another device. */
  async reset(): Promise<void> {
    if (!this.keys) return this.setToken(null);
    this.token = null;
    this.keys = await newKeys();
    Object.assign(this, await identityOf(this.keys));
  }

  get canSign(): boolean {
    return this.keys !== null;
  }

  async setToken(token: string | null): Promise<void> {
    this.token = token;
    if (this.keys) await request((await store("readwrite")).put({ keys: this.keys, deviceToken: token } satisfies Stored, place()));
    else if (token === null) sessionStorage.removeItem(`homard.token.${place()}`);
    else sessionStorage.setItem(`homard.token.${place()}`, token);
  }

  /** The member `device` of `connect`. */
  async sign(fields: SignedFields): Promise<object | undefined> {
    if (!this.keys) return undefined;
    const text = new TextEncoder().encode(signedText(this.id, fields));
    const signature = new Uint8Array(await crypto.subtle.sign("Ed25519", this.keys.privateKey, text));
    return {
      id: this.id,
      publicKey: base64url(this.publicKey),
      signature: base64url(signature),
      signedAt: fields.signedAt,
      nonce: fields.nonce,
    };
  }
}
