// A Bot API of Telegram that a gateway can use instead of the real one. Tests put updates into it.
import { createServer } from "node:http";

/** Starts the API on a free port. `refused` are chats to which nothing can be sent. */
export async function startTelegram() {
  const updates = [];
  const sent = [];
  const refused = new Set();
  const waiting = new Set();
  let nextUpdate = 1;
  const wake = () => waiting.forEach((answer) => answer());
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      const url = new URL(request.url, "http://telegram");
      const method = url.pathname.split("/").at(-1);
      const params = { ...Object.fromEntries(url.searchParams), ...(body ? parsed(body, request.headers["content-type"] ?? "") : {}) };
      const reply = (status, value) => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify(value));
      };
      const ok = (result) => reply(200, { ok: true, result });
      if (method === "getMe") return ok({ id: 1, is_bot: true, first_name: "Seeded", username: "seeded_bot", can_join_groups: true, can_read_all_group_messages: true });
      if (method === "getUpdates") {
        const from = Number(params.offset ?? 0);
        const answer = () => {
          const found = updates.filter(({ update_id }) => update_id >= from);
          if (found.length === 0) return false;
          waiting.delete(answer);
          ok(found);
          return true;
        };
        if (answer()) return;
        waiting.add(answer);
        // As Telegram does: an empty list after the time that the request allows.
        const late = setTimeout(() => waiting.delete(answer) && ok([]), Number(params.timeout ?? 0) * 1_000);
        response.on("close", () => {
          clearTimeout(late);
          waiting.delete(answer);
        });
        return;
      }
      if (method === "sendMessage" || method === "editMessageText") {
        if (refused.has(String(params.chat_id))) return reply(403, { ok: false, error_code: 403, description: "Forbidden: bot was blocked by the user" });
        sent.push(params);
        return ok({ message_id: sent.length + 100, date: Math.floor(Date.now() / 1000), chat: { id: Number(params.chat_id), type: "private" } });
      }
      return ok(true);
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    sent,
    refused,
    /** A message of a person in a chat. */
    receive: ({ from, name, chat = from, type = "private", text }) => {
      updates.push({ update_id: nextUpdate, message: { message_id: nextUpdate, date: Math.floor(Date.now() / 1000), from: { id: from, is_bot: false, first_name: name, username: name }, chat: { id: chat, type, ...(type === "private" ? { first_name: name } : { title: "A group" }) }, text } });
      nextUpdate += 1;
      wake();
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function parsed(body, type) {
  if (type.includes("json")) return JSON.parse(body);
  return Object.fromEntries(new URLSearchParams(body));
}
