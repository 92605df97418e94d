// `cargo xtask page --figures` measures an optimised gateway.
import config from "./playwright.config";

export default { ...config, testDir: "tests", testMatch: "figures.ts", workers: 1, timeout: 180_000, reporter: "list" as const };
