// A proxy before a gateway, which adds a path or headers.
import { createServer, request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { type AddressInfo, connect } from "node:net";
import type { Gateway } from "./gateway";

interface ProxyOptions {
  /** Path that is removed before a request is passed on. */
  prefix?: string;
  /** Headers that are added. */
  headers?: Record<string, string>;
  /** The address under which the proxy is known, without the scheme; by default that of the gateway. */
  host?: string;
}

export async function startProxy(gateway: Gateway, { prefix = "", headers = {}, host: named }: ProxyOptions): Promise<{ port: number; close: () => void }> {
  const host = named ?? `127.0.0.1:${gateway.port}`;
  const origin = named ? `https://${named}` : `http://${host}`;
  const forwarded = (received: IncomingHttpHeaders) => ({ ...received, host, ...(received.origin ? { origin } : {}), ...headers });
  const proxy = createServer((request, response) => {
    const path = (request.url ?? "").slice(prefix.length);
    const upstream = httpRequest({ host: "127.0.0.1", port: gateway.port, path, method: request.method, headers: forwarded(request.headers) }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    request.pipe(upstream);
  });
  proxy.on("upgrade", (request, socket, head) => {
    const upstream = connect(gateway.port, "127.0.0.1", () => {
      const lines = Object.entries(forwarded(request.headers)).map(([name, value]) => `${name}: ${value}`);
      upstream.write(`GET / HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n`);
      upstream.write(head);
      socket.pipe(upstream).pipe(socket);
    });
    upstream.on("error", () => socket.destroy());
    socket.on("error", () => upstream.destroy());
  });
  await new Promise<void>((done) => proxy.listen(0, "127.0.0.1", done));
  const close = () => {
    proxy.closeAllConnections();
    proxy.close();
  };
  return { port: (proxy.address() as AddressInfo).port, close };
}
