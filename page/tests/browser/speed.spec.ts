// The cost of frames, measured with Chromium's tracing, in a session of 5,000 messages. `figures.ts` measures an optimised
// gateway.
import { expect, test } from "./gateway";
import { framesOf, LONG_SESSION, readyTimes, writeSession } from "./measure";

/** Longest task, in milliseconds of processor time. Opening a conversation is one task, once. */
const LIMITS = { opening: 150, scrolling: 50, streaming: 50 };

// No compaction during the measurement.
test.use({ options: { contextWindow: 2_000_000, prepare: (state) => writeSession(state, LONG_SESSION) } });

test("in a session of 5,000 messages, scrolling and 100 chunks a second cost no frame over 50 ms", async ({ page, open }, info) => {
  test.setTimeout(90_000);
  await open();
  const figures = await framesOf(page, LONG_SESSION);
  info.annotations.push({ type: "frames", description: JSON.stringify(figures) });
  for (const { name, count, longest } of figures) {
    expect(count, `${name}: the trace has tasks`).toBeGreaterThan(10);
    expect(longest.cpu, name).toBeLessThanOrEqual(LIMITS[name]);
  }
});

test("the page is ready within 300 ms", async ({ page, open }, info) => {
  const times = await readyTimes(page, open, 9);
  info.annotations.push({ type: "ready", description: JSON.stringify(times) });
  // Other programs on the machine delay some of them.
  expect(Math.min(...times), JSON.stringify(times)).toBeLessThanOrEqual(300);
});
