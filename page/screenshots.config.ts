// `npx playwright test --config screenshots.config.ts` takes the pictures of docs/page.md.
import config from "./playwright.config";

export default { ...config, testDir: "tests", testMatch: "screenshots.ts", workers: 1 };
