// Runs a program for a plugin, with a timeout.

import { spawn } from "node:child_process";

/** Of what a program says, this much of each stream is kept. */
const MOST_OUTPUT = 16 * 1024 * 1024;

/** Runs `argv` and waits for its end. The second argument is a time limit or `{timeoutMs, cwd, input, env}`. */
export function runCommandWithTimeout(argv, wish = {}) {
  const { timeoutMs = 60_000, cwd, input, env } = typeof wish === "number" ? { timeoutMs: wish } : wish;
  return new Promise((resolve, reject) => {
    const child = spawn(argv[0], argv.slice(1), { cwd, env: { ...process.env, ...env }, stdio: "pipe" });
    const said = { stdout: "", stderr: "" };
    let isLate = false;
    for (const name of ["stdout", "stderr"]) {
      child[name].setEncoding("utf8").on("data", (text) => (said[name] += text.slice(0, MOST_OUTPUT - said[name].length)));
    }
    const timer = setTimeout(() => ((isLate = true), child.kill("SIGKILL")), timeoutMs);
    // A program may exit without reading its input.
    child.stdin.on("error", () => {});
    child.stdin.end(input ?? "");
    child.on("error", (error) => (clearTimeout(timer), reject(error)));
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      resolve({ ...said, code, signal, killed: isLate });
    });
  });
}

/** What to do about a package with native parts that does not load. */
export function formatNativeDependencyHint({ packageName, manager = "npm", rebuildCommand, downCommand } = {}) {
  const rebuild = rebuildCommand ?? (manager === "npm" ? `npm rebuild ${packageName}` : `${manager} rebuild ${packageName}`);
  return [`Rebuild ${packageName}: ${rebuild}`, downCommand && `or: ${downCommand}`].filter(Boolean).join("; ");
}
