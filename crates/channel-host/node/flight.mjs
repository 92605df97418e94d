// Watches the HTTP requests of an outbound call, so that a failure can be classified by what reached the platform.

import { AsyncLocalStorage } from "node:async_hooks";
import diagnostics from "node:diagnostics_channel";

const flights = new AsyncLocalStorage();
const entries = new WeakMap();

/** Runs `work` and records its requests in `flight.requests`: `{isWrite, isSent, status, retryAfter}`. */
export function inFlight(flight, work) {
  return flights.run(flight, work);
}

function begin(request, method) {
  const flight = flights.getStore();
  if (flight === undefined) return;
  const entry = { isWrite: !/^(GET|HEAD|OPTIONS)$/i.test(method ?? "GET"), isSent: false, status: undefined, retryAfter: undefined };
  entries.set(request, entry);
  flight.requests.push(entry);
}

function answered(request, status, retryAfter) {
  const entry = entries.get(request);
  if (entry === undefined) return;
  const seconds = Number(retryAfter);
  Object.assign(entry, { isSent: true, status, retryAfter: Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined });
}

function sent(request) {
  const entry = entries.get(request);
  if (entry !== undefined) entry.isSent = true;
}

function undiciHeader(headers, name) {
  for (let at = 0; at + 1 < (headers?.length ?? 0); at += 2) {
    if (String(headers[at]).toLowerCase() === name) return String(headers[at + 1]);
  }
  return undefined;
}

/** Subscribes to the requests of `fetch`, undici and node:http. */
export function watchRequests() {
  const on = (name, run) => diagnostics.subscribe(name, (message) => run(message));
  on("undici:request:create", ({ request }) => begin(request, request.method));
  on("undici:client:sendHeaders", ({ request }) => sent(request));
  on("undici:request:headers", ({ request, response }) => answered(request, response.statusCode, undiciHeader(response.headers, "retry-after")));
  on("http.client.request.start", ({ request }) => {
    begin(request, request.method);
    request.once("socket", (socket) => {
      const isReady = socket.readyState === "open" && !socket.connecting;
      if (isReady) sent(request);
      else socket.once("connect", () => sent(request));
    });
  });
  on("http.client.response.finish", ({ request, response }) => answered(request, response.statusCode, response.headers["retry-after"]));
}
