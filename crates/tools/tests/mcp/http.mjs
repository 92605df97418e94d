// An MCP server for tests, over streamable HTTP. It says on which port it listens, and wants a header "x-key: open".
import { createServer } from "node:http";

const tools = ["json", "stream", "where"].map((name) => ({ name, inputSchema: { type: "object" } }));

const server = createServer((request, response) => {
  if (request.headers["x-key"] !== "open") return response.writeHead(403).end();
  if (request.url === "/moved") return response.writeHead(307, { location: "/mcp" }).end();
  if (request.method !== "POST") return response.writeHead(405).end();
  let body = "";
  request.on("data", (data) => (body += data));
  request.on("end", () => answer(JSON.parse(body), response));
});

function answer({ id, method, params }, response) {
  if (id === undefined) return response.writeHead(202).end();
  const result =
    method === "initialize"
      ? { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "web", version: "2" } }
      : method === "tools/list"
        ? { tools }
        : { content: [{ type: "text", text: `${params.name} said ${JSON.stringify(params.arguments)}` }] };
  const message = JSON.stringify({ jsonrpc: "2.0", id, result });
  if (params?.name === "stream") {
    response.writeHead(200, { "content-type": "text/event-stream" }).end(`event: message\ndata: ${message}\n\n`);
  } else {
    response.writeHead(200, { "content-type": "application/json", "mcp-session-id": "one" }).end(message);
  }
}

server.listen(0, "127.0.0.1", () => console.log(server.address().port));
