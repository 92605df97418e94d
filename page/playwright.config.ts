import { defineConfig } from "@playwright/test";

export default defineConfig({
  testDir: "tests/browser",
  timeout: 30_000,
  expect: { timeout: 8_000 },
  // Each file has its own gateway.
  workers: 2,
  fullyParallel: false,
  // A test that passes only when it is repeated hides a fault of the page or of the test.
  retries: 0,
  reporter: process.env["CI"] ? "line" : "list",
  outputDir: "test-results",
  use: {
    browserName: "chromium",
    launchOptions: { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] },
    viewport: { width: 1440, height: 900 },
    actionTimeout: 8_000,
  },
});
