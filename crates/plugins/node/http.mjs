// HTTP requests for plugins. The gateway sends a request as a message; Node's own server and client exchange it
// in memory, so that handlers get real request and response objects.

import http from "node:http";
import { duplexPair } from "node:stream";
import { actAs } from "./owner.mjs";

/** The largest answer that is passed on: as base64 it has to fit into a line. */
const LARGEST_ANSWER = 5 * 1024 * 1024;
const HOP_BY_HOP = new Set(["connection", "keep-alive", "transfer-encoding", "proxy-connection", "upgrade", "te", "trailer"]);

/** Makes `http.request`. */
export function httpDoor({ registry }) {
  return async ({ ref, ...request }, call) => {
    const { handler, plugin, isAsked } = registry.get(ref, "httpRoute");
    const visit = new Visit(request, call.signal);
    const serve = async (req, res) => {
      const answer = await actAs(plugin, () => handler(req, res));
      // A catch-all handler returns whether it handled the request; a route handler did, unless it returns false.
      const isHandled = isAsked ? Boolean(answer) || res.writableEnded : answer !== false;
      if (!isHandled && !res.headersSent) visit.decline();
    };
    try {
      return await visit.play(serve);
    } finally {
      visit.close();
    }
  };
}

class Visit {
  #request;
  #signal;
  #ends = duplexPair();
  #end = Promise.withResolvers();

  constructor(request, signal) {
    this.#request = request;
    this.#signal = signal;
  }

  decline() {
    this.#end.resolve({ handled: false, status: 404, headers: {}, body: "" });
  }

  close() {
    for (const end of this.#ends) end.destroy();
  }

  play(serve) {
    const { method = "GET", url = "/", headers = {}, body = "", remoteAddress = "127.0.0.1" } = this.#request;
    const [ours, theirs] = this.#ends;
    for (const end of this.#ends) end.on("error", (error) => this.#end.reject(error));
    Object.assign(theirs, { remoteAddress });
    const server = http.createServer({ keepAliveTimeout: 0, requestTimeout: 0 }, (req, res) => {
      res.sendDate = false;
      serve(req, res).catch((error) => this.#end.reject(error));
    });
    server.emit("connection", theirs);
    const bytes = Buffer.from(body, "base64");
    const sent = http.request({ createConnection: () => ours, method, path: url, headers: outgoing(headers, bytes), setHost: false });
    sent.on("response", (response) => collect(response).then(this.#end.resolve, this.#end.reject));
    sent.on("error", (error) => this.#end.reject(error));
    sent.end(bytes);
    this.#signal.addEventListener("abort", () => this.#end.reject(this.#signal.reason), { once: true });
    return this.#end.promise;
  }
}

function outgoing(headers, bytes) {
  const pairs = Array.isArray(headers) ? headers : Object.entries(headers);
  const kept = { host: "localhost" };
  for (const [name, value] of pairs) {
    const key = String(name).toLowerCase();
    if (HOP_BY_HOP.has(key) || key === "content-length" || key === "expect") continue;
    kept[key] = key in kept && key !== "host" ? [kept[key], value].flat() : value;
  }
  return { ...kept, connection: "close", "content-length": bytes.length };
}

async function collect(response) {
  const parts = [];
  let size = 0;
  for await (const part of response) {
    size += part.length;
    if (size > LARGEST_ANSWER) throw new Error(`the answer is larger than ${LARGEST_ANSWER} bytes`);
    parts.push(part);
  }
  const headers = Object.fromEntries(Object.entries(response.headers).filter(([name]) => !HOP_BY_HOP.has(name)));
  return { handled: true, status: response.statusCode, headers, body: Buffer.concat(parts).toString("base64") };
}
