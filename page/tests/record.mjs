// Records `runs.trace` of many kinds of run from a real gateway with the scripted model, for the unit tests:
//
//   HOMARD_BIN=../target/debug/homard node tests/record.mjs
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startModel } from "./browser/model.mjs";
import { GUARD, installGuard, installPlugin } from "./browser/plugin.mjs";
import { startTelegram } from "./browser/telegram.mjs";

const BINARY = process.env.HOMARD_BIN ?? new URL("../../target/debug/homard", import.meta.url).pathname;
const OUT = new URL("./unit/traces/", import.meta.url).pathname;
const KEY = "agent:main:main";
mkdirSync(OUT, { recursive: true });

const cost = { input: 1, output: 5, cacheRead: 0.1, cacheWrite: 1.25 };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

class Gateway {
  static async start(change = {}) {
    const gateway = new Gateway();
    gateway.state = mkdtempSync(join(tmpdir(), "homard-record-"));
    gateway.model = await startModel();
    const provider = (baseUrl) => ({ baseUrl, apiKey: "k", api: "openai-completions", models: [{ id: "one", contextWindow: change.window ?? 128_000, maxTokens: 4_096, reasoning: true, cost }] });
    const config = {
      models: { providers: { scripted: provider(gateway.model.url), broken: provider("http://127.0.0.1:9/v1") } },
      agents: { defaults: { model: { primary: change.primary ?? "scripted/one", fallbacks: change.fallbacks ?? [] }, retry: { maxTotalSeconds: change.retry ?? 1 }, heartbeat: { every: "0m" }, ...change.defaults } },
      ...change.config,
    };
    writeFileSync(join(gateway.state, "homard.json"), JSON.stringify(config), { mode: 0o600 });
    change.install?.(gateway.state);
    await gateway.run();
    return gateway;
  }
  async run() {
    this.process = spawn(BINARY, ["gateway", "--port", "0"], { env: this.env, stdio: ["ignore", "pipe", "ignore"] });
    await new Promise((done) => this.process.stdout.once("data", done));
  }
  get env() {
    return { ...process.env, HOMARD_STATE_DIR: this.state, HOME: this.state };
  }
  async kill() {
    const ended = new Promise((done) => this.process.once("exit", done));
    this.process.kill("SIGKILL");
    await ended;
  }
  async stop() {
    await this.kill();
    this.model.close();
    rmSync(this.state, { recursive: true, force: true });
  }
  call(method, params = {}) {
    return new Promise((done, failed) => {
      const run = spawn(BINARY, ["gateway", "call", method, "--params", JSON.stringify(params)], { env: this.env });
      let [output, errors] = ["", ""];
      run.stdout.on("data", (chunk) => (output += chunk));
      run.stderr.on("data", (chunk) => (errors += chunk));
      run.on("exit", (code) => (code === 0 ? done(JSON.parse(output)) : failed(new Error(`${method}: ${errors}`))));
    });
  }
  async send(message, id, more = {}) {
    await this.call("chat.send", { sessionKey: KEY, message, idempotencyKey: id, ...more });
  }
  async ended(id) {
    for (let turn = 0; turn < 400; turn += 1) {
      const trace = await this.call("runs.trace", { id });
      if (trace.run.endedAt) return trace;
      await pause(50);
    }
    throw new Error(`${id} did not end`);
  }
  async record(name, message, more) {
    await this.send(message, name, more);
    keep(name, await this.ended(name));
  }
}

function keep(name, trace) {
  writeFileSync(join(OUT, `${name}.json`), `${JSON.stringify(trace, null, 1)}\n`);
  console.log(name, trace.run.status, trace.totalMs, trace.steps.map(({ step }) => step).join(" "));
}

const plain = await Gateway.start();
await plain.record("first", "hello");
await plain.record("second", "hello again");
await plain.record("stream", "stream 20 20");
await plain.record("reasoning", "think life");
await plain.record("tool", 'tool exec {"command":"sleep 0.2; echo hi"}');
await plain.record("tool-failed", 'tool exec {"command":"exit 3"}');
await plain.record("tool-refused", 'tool read {"path":"/etc/shadow"}');
await plain.record("tool-unknown", 'tool nothing {"a":1}');
await plain.record("tool-cut", 'tool exec {"command":"seq 1 100000"}');
await plain.record("command", "/status");
await plain.record("http-400", "fail 400");
await plain.record("http-401", "fail 401");
await plain.record("http-500", "fail 500");
await plain.send("stream 2000 20", "stopped");
await pause(400);
keep("running", await plain.call("runs.trace", { id: "stopped" }));
await plain.send("hello", "queued", { queueMode: "followup" });
keep("waiting", await plain.call("runs.trace", { id: "queued" }));
await plain.call("chat.abort", { sessionKey: KEY, runId: "stopped" });
keep("stopped", await plain.ended("stopped"));
keep("queued", await plain.ended("queued"));
await plain.send("stream 60 20", "host");
await pause(300);
await plain.send("left", "steered");
keep("host", await plain.ended("host"));
keep("steered", await plain.ended("steered"));
await plain.send("stream 60 20", "host2");
await pause(300);
await plain.send("one", "collected-1", { queueMode: "collect" });
await plain.send("two", "collected-2", { queueMode: "collect" });
keep("collected-1", await plain.ended("collected-1"));
keep("collected-2", await plain.ended("collected-2"));
await plain.record("sub-agent", 'tool sessions_spawn {"task":"hello from the parent","label":"helper"}');
await pause(1_500);
const { runs } = await plain.call("runs.list", { limit: 5 });
const child = runs.find(({ sessionKey }) => sessionKey.includes("subagent"));
if (child) keep("child", await plain.ended(child.runId));
await plain.send("stream 100 20", "crashed");
await pause(600);
await plain.kill();
await pause(1_200);
await plain.run();
keep("crashed", await plain.ended("crashed"));
await plain.send('tool exec {"command":"sleep 1; echo slept"}', "crashed-in-tool");
await pause(600);
await plain.kill();
await plain.run();
keep("crashed-in-tool", await plain.ended("crashed-in-tool"));
await plain.stop();

const failing = await Gateway.start({ primary: "broken/one", fallbacks: ["scripted/one"] });
await failing.record("failover", "hello");
await failing.stop();
const retrying = await Gateway.start({ primary: "scripted/one", retry: 8 });
await retrying.record("retry", "fail 503");
await retrying.stop();
const unreachable = await Gateway.start({ primary: "broken/one" });
await unreachable.record("unreachable", "hello");
await unreachable.stop();
const poor = await Gateway.start({ config: { budgets: { day: { cost: 0.000001 } } } });
await poor.record("budget", "hello");
await poor.stop();
const careful = await Gateway.start({ install: installPlugin, config: { plugins: { entries: { careful: { enabled: true } } } } });
await careful.record("hook-block", 'tool exec {"command":"echo hi"}');
await careful.stop();
const guarded = await Gateway.start({ install: installGuard, config: { hooks: GUARD } });
await guarded.record("guard-failed", "hello");
await guarded.stop();
const long = await Gateway.start();
for (let turn = 0; turn < 4; turn += 1) {
  await long.send(`more ${"word ".repeat(3_000)}${turn}`, `fill-${turn}`);
  await long.ended(`fill-${turn}`);
}
await long.call("sessions.compact", { key: KEY });
keep("compaction", await long.ended("last"));
await long.stop();
const telegram = await startTelegram();
const chats = await Gateway.start({ config: { channels: { telegram: { enabled: true, botToken: "1:recorded", apiRoot: telegram.url, allowFrom: ["77", "78"] } } } });
for (const [name, from] of [["delivered", 78], ["delivery-refused", 77]]) {
  if (name === "delivery-refused") telegram.refused.add(String(from));
  telegram.receive({ from, name: "ann", text: "hello from a chat" });
  for (;;) {
    const { runs: newest } = await chats.call("runs.list", { limit: 1 });
    const trace = newest[0]?.sessionKey.endsWith(String(from)) ? await chats.ended(newest[0].runId) : undefined;
    if (["sent", "dead"].includes(trace?.deliveries[0]?.status)) {
      keep(name, trace);
      break;
    }
    await pause(100);
  }
}
await chats.stop();
telegram.close();
