// One row of the checklist in a Control UI: opens the page in a headless Chromium, does one thing, and says what was seen.
// The only argument is JSON: {step, generation, url, token, chromium, name, folder, record, seconds}.
import { appendFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const order = JSON.parse(process.argv[2]);
const isNew = order.generation === 4;
const said = [];
const frames = [];
const note = (line) => said.push(line);

function demand(is, why) {
  if (!is) throw new Error(why);
}

const browser = await chromium.launch({
  executablePath: order.chromium,
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
const page = await context.newPage();
let sockets = 0;
page.on('console', (message) => note(`console ${message.type()}: ${message.text()}`));
page.on('pageerror', (error) => note(`page error: ${error.message}`));
page.on('response', (answer) => { if (answer.status() >= 400) note(`http ${answer.status()}: ${answer.url()}`); });
page.on('websocket', (socket) => {
  sockets += 1;
  const number = sockets;
  const keep = (dir) => ({ payload }) => {
    try {
      frames.push({ t: Date.now(), socket: number, dir, frame: JSON.parse(payload) });
    } catch { /* only JSON is looked at */ }
  };
  socket.on('framesent', keep('c>s'));
  socket.on('framereceived', keep('s>c'));
  socket.on('close', () => note(`socket ${number} closed`));
});

const sent = (method) => frames.filter(({ dir, frame }) => dir === 'c>s' && frame.method === method).map(({ frame }) => frame);

// What people see; words for screen readers say some of it again.
async function text() {
  await page.evaluate(() => {
    if (document.getElementById('conform-style')) return;
    const style = document.createElement('style');
    style.id = 'conform-style';
    style.textContent = '.sr-only { display: none !important }';
    document.head.append(style);
  }).catch(() => {});
  return (await page.locator('body').innerText()).replace(/\s+/g, ' ');
}
const count = (all, part) => all.split(part).length - 1;

async function until(what, is, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const found = await is();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what} was not seen after ${seconds} s`);
    await page.waitForTimeout(150);
  }
}

// What no page should say.
async function healthy() {
  const all = await text();
  for (const bad of ['event gap', 'unknown method', 'Connect a provider', 'missing scope', 'Disconnected from gateway', 'INVALID_REQUEST', 'refresh failed']) {
    demand(!all.includes(bad), `the page shows "${bad}": …${all.slice(Math.max(0, all.indexOf(bad) - 80), all.indexOf(bad) + 160)}…`);
  }
  const banner = page.locator('.callout.danger:visible, [role=alert]:visible, .error-banner:visible');
  if (await banner.count()) {
    // The older page says of any schema with choices that its form is not enough.
    const words = (await banner.first().innerText()).trim().replace(/^Form view can't safely edit some fields.*$/, '');
    demand(words === '', `the page shows a banner: ${words.slice(0, 200)}`);
  }
  const refused = frames.filter(({ dir, frame }) => dir === 's>c' && frame.type === 'res' && frame.ok === false)
    .map(({ socket, frame }) => {
      const asked = frames.find((one) => one.socket === socket && one.dir === 'c>s' && one.frame.id === frame.id);
      return `${asked?.frame.method}: ${frame.error?.message}`;
    });
  if (refused.length) note(`refused: ${[...new Set(refused)].join(' | ')}`);
  // One connection after the other: what is counted has no holes.
  const last = new Map();
  for (const { socket, dir, frame } of frames) {
    if (dir !== 's>c' || frame.type !== 'event' || frame.seq === undefined) continue;
    demand(!last.has(socket) || frame.seq === last.get(socket) + 1, `event ${last.get(socket)} was followed by event ${frame.seq}`);
    last.set(socket, frame.seq);
  }
}

const composer = () => page.locator('textarea:visible').last();

async function load() {
  const address = isNew ? `${order.url}/#token=${order.token}` : `${order.url}/?token=${order.token}`;
  await page.goto(address, { waitUntil: 'domcontentloaded' });
  await until('an answer to connect', () => frames.some(({ dir, frame }) => dir === 's>c' && frame.payload?.type === 'hello-ok'));
  if (!isNew) {
    await until('"Health OK"', async () => /Health\s*OK/i.test(await text()));
  } else {
    await until('the model in the composer', async () => (await text()).includes('fake-1'));
  }
  await until('an enabled composer', async () => (await composer().count()) && composer().isEnabled());
}

async function say(words) {
  await composer().fill(words);
  await composer().press('Enter');
}

// What was answered stands on the page, once, and the composer is free.
async function answered(words, seconds = 60) {
  const answer = `I have heard: ${words}`;
  await until(`"${answer}"`, async () => (await text()).includes(answer), seconds);
  // The page puts the question in its place when it has read the history again.
  await until(`"${words}" and its answer`, async () => count(await text(), words) >= 2, 20);
  await page.waitForTimeout(1500);
  const all = await text();
  demand(count(all, answer) === 1, `the answer should be shown once, but is shown ${count(all, answer)} times`);
  demand(count(all, words) === 2, `the message and its answer should be shown, but the text is shown ${count(all, words)} times`);
}

const steps = {
  async load() {},
  async chat() {
    await say('the page says one');
    await answered('the page says one');
    await say('the page says two');
    await answered('the page says two');
    demand(sent('chat.send').length === 2, `two messages should have been sent, but ${sent('chat.send').length} were`);
  },
  async tool() {
    await say('please TOOLEXEC now');
    await until('the answer after the tool', async () => (await text()).includes('The tool answered'));
    await until('the tool', async () => /exec|echo tool-was-here|\$ echo/i.test(await text()));
  },
  async stop() {
    const before = count(await text(), 'word2');
    await say('speak SLOWLY');
    await until('the first words', async () => (await text()).includes('word4'));
    const button = page.getByRole('button', { name: /stop/i }).first();
    await button.click();
    await until('the abort', () => sent('chat.abort').length > 0);
    const asked = sent('chat.abort')[0].params;
    demand(asked.sessionKey && asked.runId, `chat.abort should name the session and the run: ${JSON.stringify(asked)}`);
    await until('the end', () => frames.some(({ frame }) => frame.event === 'chat' && frame.payload.state === 'aborted'));
    await page.waitForTimeout(1500);
    const all = await text();
    if (isNew) demand(all.includes('word2'), 'the partial answer should stay');
    demand(count(all, 'word2') - before <= 1, 'the partial answer should not be shown twice');
    await say('after the stop');
    await answered('after the stop');
  },
  async pages() {
    const places = isNew ? [
      '/sessions', '/config', '/cron', '/agents', '/activity', '/dashboards', '/debug', '/logs', '/meetings', '/memory-import',
      '/plugins', '/skills/workshop', '/tasks', '/usage', '/settings/approvals', '/settings/channels', '/settings/connection',
      '/settings/devices', '/settings/mcp', '/settings/memory', '/settings/model-providers', '/settings/plugins',
      '/settings/profile', '/settings/search', '/settings/security', '/settings/skills', '/settings/talk', '/settings/updates',
    ] : ['/sessions', '/config', '/cron', '/skills', '/logs', '/debug', '/overview', '/channels', '/instances', '/nodes', '/agents', '/usage'];
    for (const place of places) {
      await page.evaluate((place) => { history.pushState({}, '', place); dispatchEvent(new PopStateEvent('popstate')); }, place);
      await page.waitForTimeout(2500);
      await page.screenshot({ path: join(order.folder, `${order.name}${place.replaceAll('/', '-')}.png`) });
      try {
        await healthy();
        const broken = said.find((line) => line.startsWith('page error: '));
        demand(!broken, broken);
      } catch (error) {
        throw new Error(`${place}: ${error.message}`);
      }
    }
  },
  async reload() {
    await say('before the reload');
    await answered('before the reload');
    const before = sockets;
    await page.reload({ waitUntil: 'domcontentloaded' });
    await until('another connection', () => sockets > before);
    await until('the same history', async () => (await text()).includes('I have heard: before the reload'));
    await page.waitForTimeout(1000);
    demand(count(await text(), 'I have heard: before the reload') === 1, 'the answer should be shown once');
  },
  async long() {
    const end = Date.now() + order.seconds * 1000;
    for (let turn = 1; Date.now() < end; turn += 1) {
      await say(`turn ${turn} of many`);
      await until(`turn ${turn}`, async () => (await text()).includes(`I have heard: turn ${turn} of many`));
      await healthy();
      await page.waitForTimeout(Math.min(5000, Math.max(0, end - Date.now())));
    }
    demand(sockets === 1, `expected one connection, but there were ${sockets}`);
  },
  async idle() {
    await page.waitForTimeout(order.seconds * 1000);
    demand(sockets === 1, `expected one connection, but there were ${sockets}`);
    demand(frames.some(({ frame }) => frame.event === 'tick'), 'expected a tick event');
  },
};

let result = { ok: true };
try {
  await load();
  await steps[order.step]();
  await healthy();
} catch (error) {
  result = { ok: false, why: error.message };
}
await page.screenshot({ path: join(order.folder, `${order.name}.png`) }).catch(() => {});
writeFileSync(join(order.folder, `${order.name}.html`), await page.content().catch(() => ''));
const methods = new Map(frames.filter(({ dir }) => dir === 'c>s').map(({ socket, frame }) => [`${socket}:${frame.id}`, frame.method]));
for (const { socket, dir, frame } of frames) {
  if (dir === 's>c') {
    const method = methods.get(`${socket}:${frame.id}`);
    appendFileSync(order.record, `${JSON.stringify({ protocol: order.generation, method, heard: frame })}\n`);
  }
}
writeFileSync(join(order.folder, `${order.name}.frames.jsonl`), frames.map((frame) => JSON.stringify(frame)).join('\n'));
writeFileSync(join(order.folder, `${order.name}.log`), `${said.join('\n')}\n`);
await browser.close();
console.log(JSON.stringify(result));
