// A scripted model that speaks the OpenAI chat completions protocol. The last user message selects what it does:
//
//   stream N [MS]   N words, one each MS milliseconds (20 by default)
//   hold NAME         three words, and the rest when the test calls `release(NAME)`
//   think TEXT      reasoning, then an answer
//   tool NAME JSON  a call of this tool, then an answer that quotes the end of its result
//   fail STATUS     an error with this status
//   raw BASE64      exactly this text
//
// Anything else is repeated: "You said: …".
import { createServer } from "node:http";

const words = "the quick brown fox jumps over a lazy dog while seven wizards box".split(" ");

/**
 * Starts the model on a free port and returns its address and the requests that it received. `answers` has further
 * messages: what the model thinks, the tool that it calls, and what it says.
 */
export async function startModel(answers = {}) {
  const requests = [];
  const held = new Map();
  /** Resolves when a name is released, at once if it was released before. */
  const hold = (name) => {
    if (!held.has(name)) {
      let release;
      const released = new Promise((done) => (release = done));
      held.set(name, { released, release });
    }
    return held.get(name);
  };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => answer(JSON.parse(body), { requests, answers, hold }, response));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${server.address().port}/v1`,
    requests,
    release: (name) => hold(name).release(),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function textOf(content) {
  return typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("\n");
}

/** The gateway puts the time and other notes before the text of a message; the instruction is its last line. */
function instruction(text) {
  return text.trim().split("\n").at(-1).replace(/^\[[^\]]*\]\s*/, "").trim();
}

function answer(body, { requests, answers, hold }, response) {
  requests.push(body);
  const users = body.messages.map((message, at) => [message, at]).filter(([message]) => message.role === "user");
  const [last, at] = users.at(-1) ?? [{ content: "" }, 0];
  const text = instruction(textOf(last.content));
  const results = body.messages.slice(at).filter((message) => message.role === "tool");
  const [word, ...rest] = text.split(" ");
  if (word === "fail") {
    response.writeHead(Number(rest[0] ?? 500), { "content-type": "application/json" });
    response.end(JSON.stringify({ error: { message: `scripted failure ${rest[0]}`, type: "server_error" } }));
    return;
  }
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (delta, finish = null) =>
    response.write(
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", model: body.model, choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`,
    );
  const prompt = Math.ceil(JSON.stringify(body.messages).length / 4);
  const end = (finish, completion) => {
    send({}, finish);
    const usage = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
    const cached = body.messages.length > 2 ? Math.floor(prompt * 0.8) : 0;
    usage.prompt_tokens_details = { cached_tokens: cached };
    response.write(`data: ${JSON.stringify({ id: "c", choices: [], usage })}\n\n`);
    response.end("data: [DONE]\n\n");
  };
  const say = (reply) => {
    send({ role: "assistant", content: reply });
    end("stop", Math.ceil(reply.length / 4));
  };
  const scripted = answers[text];
  if (scripted) {
    if (scripted.thinking) send({ role: "assistant", reasoning_content: scripted.thinking });
    const next = scripted.tools?.[results.length];
    if (!next) return say(scripted.reply);
    if (next.say) send({ role: "assistant", content: next.say });
    send({ tool_calls: [{ index: 0, id: `call_${requests.length}`, type: "function", function: { name: next.name, arguments: JSON.stringify(next.arguments) } }] });
    return end("tool_calls", 24);
  }
  if (word === "stream") {
    const count = Number(rest[0] ?? 50);
    const pause = Number(rest[1] ?? 20);
    let sent = 0;
    const timer = setInterval(() => {
      if (response.destroyed) return clearInterval(timer);
      sent += 1;
      send({ content: `${words[sent % words.length]}${sent} ` });
      if (sent === count) {
        clearInterval(timer);
        end("stop", count);
      }
    }, pause);
    return;
  }
  if (word === "hold") {
    for (const start of ["held1, ", "held2, ", "held3, "]) send({ content: start });
    void hold(rest[0]).released.then(() => {
      if (response.destroyed) return;
      send({ content: "released4." });
      end("stop", 4);
    });
    return;
  }
  if (word === "think") {
    send({ role: "assistant", reasoning_content: `Let me think about ${rest.join(" ")}.` });
    send({ reasoning_content: " First this, then that." });
    return say(`The answer to ${rest.join(" ")} is 42.`);
  }
  if (word === "tool" && results.length === 0) {
    const [name, ...json] = rest;
    const call = { index: 0, id: `call_${requests.length}`, type: "function", function: { name, arguments: json.join(" ") } };
    send({ role: "assistant", content: "I look." });
    send({ tool_calls: [call] });
    return end("tool_calls", 20);
  }
  if (word === "tool") return say(`The tool said: ${textOf(results.at(-1).content).slice(-200)}`);
  if (word === "raw") return say(Buffer.from(rest[0] ?? "", "base64").toString("utf8"));
  return say(`You said: ${text}`);
}

if (process.argv[1] === new URL(import.meta.url).pathname) console.log((await startModel()).url);
