// A trial with a new user: ten messages that were not answered, in one gateway. Run in `page`:
//
//   HOMARD_BIN=../target/debug/homard npm run trial
//
// It prints the questions and a link, and runs until it is interrupted. The reader may use any browser, or the one that it
// opens, with `node tests/look.mjs`, which counts the actions. For each question, note the answer, the time and the
// actions. The expected answers are at the end of this file.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "@playwright/test";
import { Gateway } from "./browser/gateway";
import { startTelegram } from "./browser/telegram.mjs";
import { DEBUGGING_PORT } from "./look.mjs";

const DAY = 24 * 60 * 60;
const APPROVAL_CHECK_MS = 10_000;

const answers = {
  "Which invoices are still open?": { tools: Array.from({ length: 12 }, () => ({ name: "read", arguments: { path: "invoices.csv" } })), reply: "done" },
  "Please delete last year's drafts": { tools: [{ say: "I remove them.", name: "exec", arguments: { command: "rm -r drafts/2025" } }], reply: "I asked for permission." },
};

/** A guard that fails for one session, as a script with an error does. */
function installGuard(state: string): void {
  const folder = join(state, "hooks", "redact");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "HOOK.md"), '---\nname: redact\ndescription: Removes names.\nmetadata: {"openclaw": {"events": ["agent:bootstrap"]}}\n---\n');
  writeFileSync(join(folder, "handler.sh"), "#!/bin/sh\nread -r event\ncase $event in *doctor-letter*) echo 'names.txt: no such file' >&2; exit 1 ;; esac\n", { mode: 0o755 });
}

/** Sends a message to a session with a name, and waits for its end unless it does not end. */
async function send(gateway: Gateway, session: string, label: string, message: string, more: { model?: string; ends?: boolean; queueMode?: string } = {}): Promise<void> {
  const key = `agent:main:${session}`;
  const { model, ends = true, queueMode } = more;
  const id = `${session}-${Date.now()}`;
  if (model) await gateway.call("sessions.patch", { key, model });
  await gateway.call("chat.send", { sessionKey: key, message, idempotencyKey: id, ...(queueMode ? { queueMode } : {}) });
  if (ends) await gateway.call("agent.wait", { runId: id, timeoutMs: 20_000 });
  await gateway.call("sessions.patch", { key, label });
}

async function seed(gateway: Gateway, telegram: Awaited<ReturnType<typeof startTelegram>>): Promise<void> {
  await send(gateway, "recipe", "Soup for six", "hello");
  await send(gateway, "travel", "Trip to Lisbon", "fail 401");
  await send(gateway, "translation", "Letter in French", "How do I say this in French?", { model: "dead/gone" });
  for (const month of ["January", "February", "March"]) await send(gateway, "tax", "Tax return", `${"receipt 12.50 EUR groceries, ".repeat(3_400)}\nkeep these of ${month}`);
  await send(gateway, "tax", "Tax return", "What is the sum?");
  await send(gateway, "invoices", "Invoices", "Which invoices are still open?");
  await send(gateway, "doctor-letter", "Letter to the doctor", "Write the letter");
  await send(gateway, "novel", "Novel", `stream ${DAY} 1000`, { ends: false });
  await send(gateway, "novel", "Novel", "What is the name of the cat?", { ends: false, queueMode: "followup" });
  await send(gateway, "drafts", "Drafts", "Please delete last year's drafts");
  telegram.receive({ from: 42, name: "kim", text: "Are you there?" });
  telegram.receive({ from: 77, name: "ann", chat: -900, type: "supergroup", text: "what is for lunch" });
  telegram.refused.add("77");
  telegram.receive({ from: 77, name: "ann", text: "When does the train leave?" });
}

const QUESTIONS = [
  "Trip to Lisbon: the last message was not answered.",
  "Letter in French: the message was not answered.",
  'Tax return: "What is the sum?" was not answered.',
  "Kim wrote on Telegram and got no answer from the agent.",
  "Ann asked the group on Telegram what is for lunch, and the agent said nothing.",
  "Ann asked in a direct message when the train leaves, and received nothing.",
  "Invoices: the question about open invoices was not answered.",
  "Drafts: the drafts of last year are still there.",
  "Novel: the question about the cat was not answered.",
  "Letter to the doctor: the letter was not written.",
];

async function main(): Promise<void> {
  const interrupted = new Promise<void>((stop) => process.on("SIGINT", () => stop()).on("SIGTERM", () => stop()));
  const telegram = await startTelegram();
  const model = (id: string) => ({ id, contextWindow: 400_000 });
  const channel = { enabled: true, botToken: "1:seeded", apiRoot: telegram.url, dmPolicy: "pairing", allowFrom: ["77"], groupPolicy: "open", groups: { "*": { requireMention: true } } };
  const gateway = await Gateway.start({
    answers,
    contextWindow: 400_000,
    prepare: installGuard,
    config: {
      budgets: { session: { tokens: 100_000 } },
      channels: { telegram: channel },
      hooks: { internal: { entries: { redact: { enabled: true, guard: true } } } },
      tools: { exec: { sandbox: { mode: "guarded" } } },
    },
  });
  const unreachable = { baseUrl: "http://127.0.0.1:9/v1", apiKey: "k", api: "openai-completions", models: [model("gone")] };
  await gateway.configure({ models: { providers: { dead: unreachable } }, agents: { defaults: { models: { "dead/gone": {} }, timeoutSeconds: DAY } } });
  mkdirSync(join(gateway.state, "workspace", "drafts", "2025"), { recursive: true });
  await seed(gateway, telegram);
  const { url } = JSON.parse(await gateway.homard("dashboard", "--json")) as { url: string };
  // It must not end this process before the gateway has stopped.
  const browser = await chromium.launch({ handleSIGINT: false, handleSIGTERM: false, executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage", `--remote-debugging-port=${DEBUGGING_PORT}`] });
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  await page.goto(url);
  const another = `HOMARD_STATE_DIR=${gateway.state} homard dashboard --no-open`;
  const lines = ["", "For each of these messages: why was it not answered, and what would you do?", ...QUESTIONS.map((question, at) => `${at + 1}. ${question}`), "", `The page is open in a browser: node tests/look.mjs read`, `A link for another browser, once each: ${another}`, ""];
  console.log(lines.join("\n"));
  // A request for approval expires after five minutes; then the question is asked again.
  const renewal = setInterval(() => {
    void gateway.call<{ requests?: unknown[] } | unknown[]>("exec.approval.list").then((answer) => {
      const pending = Array.isArray(answer) ? answer : (answer.requests ?? []);
      return pending.length ? undefined : send(gateway, "drafts", "Drafts", "Please delete last year's drafts");
    });
  }, APPROVAL_CHECK_MS);
  await interrupted;
  clearInterval(renewal);
  await browser.close();
  await gateway.stop();
  telegram.close();
}

await main();

// Expected: 1 the API key is refused (HTTP 401): correct it. 2 the model cannot be reached: its address or the network.
// 3 the session's budget is used up: raise it or start a new session. 4 Kim is not paired: approve. 5 the group requires
// that the agent is mentioned: mention it, or set requireMention to false. 6 Ann has blocked the bot: she has to write to
// it or unblock it. 7 the model called the same tool again and again, which failed (no such file). 8 the command waits for
// an approval: allow or deny it. 9 the message waits for the run before it: wait or stop that run. 10 the hook redact
// failed, and it guards the prompt: repair or disable the hook.
