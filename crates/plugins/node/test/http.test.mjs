// HTTP routes of plugins: handlers use Node's request and response as they are used to.

import assert from "node:assert/strict";
import { test } from "node:test";
import { plugin, startHost } from "./child.mjs";

const SOURCE = `export default (api) => {
  const body = async (req) => { let all = ""; for await (const part of req) all += part; return all; };
  api.registerHttpRoute({ path: "echo", auth: "plugin", match: "exact", handler: async (req, res) => {
    res.writeHead(201, { "content-type": "text/plain", "set-cookie": ["a=1", "b=2"] }); res.write(req.method + " " + req.url + " "); res.end(await body(req) + " " + req.headers["x-test"] + " " + req.socket.remoteAddress);
  } });
  api.registerHttpRoute({ path: "/events", handler: (req, res) => { let size = 0; req.on("data", (part) => (size += part.length)); req.on("end", () => { res.statusCode = 200; res.setHeader("X-Size", size); res.end(); }); return true; } });
  api.registerHttpRoute({ path: "/no", handler: () => false });
  api.registerHttpRoute({ path: "/throws", handler: () => { throw new Error("bad handler"); } });
  api.registerHttpHandler((req, res) => { if (!req.url.startsWith("/mine")) return false; res.end("mine"); return true; });
  api.registerHttpRoute({ path: "/never", handler: () => {} });
};`;

test("routes answer with status, headers and body", async (t) => {
  const host = await startHost(t);
  const { web } = await host.load(plugin("web", SOURCE));
  const { httpRoutes } = web.registrations;
  assert.deepEqual(httpRoutes.map(({ path, auth, match }) => [path, auth, match]), [
    ["/echo", "plugin", "exact"], ["/events", undefined, undefined], ["/no", undefined, undefined],
    ["/throws", undefined, undefined], ["", undefined, undefined], ["/never", undefined, undefined],
  ]);
  const begin = (number, request) => host.begin("http.request", { ref: httpRoutes[number].ref, method: "GET", headers: {}, body: "", ...request });
  const send = async (number, request) => {
    const answer = await begin(number, request).answer;
    return { ...answer, body: Buffer.from(answer.body, "base64").toString() };
  };
  const post = { method: "POST", url: "/echo?q=1", headers: { "X-Test": "yes", connection: "keep-alive", "transfer-encoding": "chunked" }, body: Buffer.from("größe").toString("base64"), remoteAddress: "10.0.0.9" };
  assert.deepEqual(await send(0, post), {
    handled: true, status: 201, headers: { "content-type": "text/plain", "set-cookie": ["a=1", "b=2"] }, body: "POST /echo?q=1 größe yes 10.0.0.9",
  });
  const large = Buffer.alloc(3_000_000, 1).toString("base64");
  assert.deepEqual(await send(1, { method: "PUT", url: "/events", body: large }), { handled: true, status: 200, headers: { "x-size": "3000000", "content-length": "0" }, body: "" });
  assert.equal((await send(2, { url: "/no" })).handled, false);
  await assert.rejects(send(3, { url: "/throws" }), { code: -32000, message: "bad handler" });
  assert.deepEqual(await send(4, { url: "/other" }), { handled: false, status: 404, headers: {}, body: "" });
  assert.deepEqual([(await send(4, { url: "/mine/a" })).body, (await send(4, { url: "/mine/b" })).handled], ["mine", true]);
  const never = begin(5, { url: "/never" });
  host.notify("$/cancel", { id: never.id });
  await assert.rejects(never.answer, { code: -32800 });
});
