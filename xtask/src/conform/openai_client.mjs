// The official Node client of OpenAI against a gateway: whole and streamed answers, tools of its own, and errors.
//
// Arguments: the address of the API and the secret. Prints what was sent, as JSON.

import assert from "node:assert/strict";
import OpenAI from "openai";

const [address, secret] = process.argv.slice(2);
const words = "It is 18 degrees in Paris.";
const question = { role: "user", content: "How is the weather in Paris?" };
const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const fn = { name: "get_weather", description: "The weather of a city.", parameters, strict: true };
const chatTools = [{ type: "function", function: fn }];
const tools = [{ type: "function", ...fn }];
const sent = [];
let current = "";

async function recorded(url, init) {
  const all = new Headers(init.headers);
  const headers = {};
  for (const name of ["accept", "accept-encoding", "content-type"]) {
    if (all.has(name)) headers[name] = all.get(name);
  }
  const { pathname, search } = new URL(url);
  const body = init.body ? JSON.parse(init.body) : null;
  sent.push({ check: current, method: init.method.toUpperCase(), path: pathname + search, headers, body });
  return fetch(url, init);
}

const client = (apiKey = secret) => new OpenAI({ baseURL: address, apiKey, fetch: recorded });
const isCall = (name, json) => assert.deepEqual([name, JSON.parse(json)], ["get_weather", { city: "Paris" }]);

const checks = {
  async models() {
    const ids = [];
    for await (const model of client().models.list()) ids.push(model.id);
    assert(ids.includes("openclaw/main"), ids);
    assert.equal((await client().models.retrieve("openclaw/main")).id, "openclaw/main");
  },

  async chat() {
    const answer = await client().chat.completions.create({ model: "openclaw", messages: [question] });
    assert.equal(answer.choices[0].message.content, words);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert(answer.usage.total_tokens > 0);
  },

  async chat_stream() {
    const chunks = [];
    const stream = await client().chat.completions.create({
      model: "openclaw:main",
      messages: [question],
      stream: true,
      stream_options: { include_usage: true },
      user: "Ann",
    });
    for await (const chunk of stream) chunks.push(chunk);
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), words);
    assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
    assert(chunks.at(-1).usage.total_tokens > 0);
  },

  async chat_tools() {
    const ask = (messages) => client().chat.completions.create({ model: "openclaw", messages, tools: chatTools });
    const first = await ask([question]);
    assert.equal(first.choices[0].finish_reason, "tool_calls");
    const { message } = first.choices[0];
    const [call] = message.tool_calls;
    isCall(call.function.name, call.function.arguments);
    const second = await ask([question, message, { role: "tool", tool_call_id: call.id, content: "18" }]);
    assert.equal(second.choices[0].message.content, words);
  },

  async chat_tools_stream() {
    // The client makes the call itself, and goes on until there is an answer.
    const runner = client().chat.completions.runTools({
      model: "openclaw",
      messages: [question],
      stream: true,
      tools: [{ type: "function", function: { ...fn, function: ({ city }) => `18 in ${city}`, parse: JSON.parse } }],
    });
    assert.equal(await runner.finalContent(), words);
  },

  async responses() {
    const answer = await client().responses.create({
      model: "openclaw",
      input: "How is the weather?",
      instructions: "Be brief.",
    });
    assert.deepEqual([answer.output_text, answer.status], [words, "completed"]);
    const more = await client().responses.create({
      model: "openclaw",
      input: "And now?",
      previous_response_id: answer.id,
    });
    assert.equal(more.output_text, words);
  },

  async responses_stream() {
    const stream = client().responses.stream({ model: "openclaw", input: [question] });
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    assert.equal((await stream.finalResponse()).output_text, words);
    assert.deepEqual([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
  },

  async responses_tools() {
    const first = await client().responses.create({ model: "openclaw", input: [question], tools });
    const [call] = first.output;
    assert.equal(call.type, "function_call");
    isCall(call.name, call.arguments);
    const second = await client().responses.create({
      model: "openclaw",
      input: [{ type: "function_call_output", call_id: call.call_id, output: "18" }],
      tools,
      previous_response_id: first.id,
    });
    assert.equal(second.output_text, words);
  },

  async responses_tools_stream() {
    const first = await client().responses.stream({ model: "openclaw", input: [question], tools }).finalResponse();
    const { type, call_id, name, arguments: json } = first.output[0];
    assert.equal(type, "function_call");
    isCall(name, json);
    const result = { type: "function_call_output", call_id, output: "18" };
    const input = [question, { type, call_id, name, arguments: json }, result];
    let said = "";
    for await (const event of await client().responses.create({ model: "openclaw", input, tools, stream: true })) {
      if (event.type === "response.output_text.delta") said += event.delta;
    }
    assert.equal(said, words);
  },

  async errors() {
    for (const [kind, key, model, messages] of [
      [OpenAI.AuthenticationError, "wrong", "openclaw", [question]],
      [OpenAI.NotFoundError, secret, "openclaw/nobody", [question]],
      [OpenAI.BadRequestError, secret, "openclaw", []],
    ]) {
      await assert.rejects(client(key).chat.completions.create({ model, messages }), kind);
    }
  },
};

for (const [name, check] of Object.entries(checks)) {
  current = name;
  await check();
}
console.log(JSON.stringify(sent));
