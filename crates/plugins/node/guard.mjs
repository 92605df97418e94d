// Protects the shared process from plugins: they cannot write to stdout, read stdin or end the process.

import { Readable, Writable } from "node:stream";
import { format } from "node:util";
import { whose } from "./owner.mjs";

const LEVELS = { log: "info", info: "info", debug: "debug", trace: "debug", warn: "warn", error: "error" };

/** Puts the guards in place. Returns the only way out of the process. */
export function guard(log) {
  const exit = process.exit.bind(process);
  for (const [name, level] of Object.entries(LEVELS)) {
    console[name] = (...args) => log(level, format(...args));
  }
  replace("stdout", lineSink((line) => log("info", line)));
  replace("stdin", Readable.from([]));
  // Ending the process would end the other plugins, too. The plugin gets an error instead.
  process.exit = (code) => {
    throw new Error(`plugins must not call process.exit(${code ?? ""}): they share this process`);
  };
  // An interrupt in a terminal reaches the gateway, too, which then ends this process.
  process.on("SIGINT", () => {});
  process.on("uncaughtException", (error) => stray(log, "uncaught exception", error));
  process.on("unhandledRejection", (error) => stray(log, "unhandled promise rejection", error));
  process.removeAllListeners("warning");
  process.on("warning", (warning) => log("debug", `${warning.name}: ${warning.message}`));
  return exit;
}

function stray(log, what, error) {
  const stack = error instanceof Error ? (error.stack ?? error.message) : format(error);
  log("error", `${what}: ${stack}`, whose(stack), { uncaught: true });
}

function replace(name, value) {
  Object.defineProperty(process, name, { value, configurable: true, enumerable: true });
}

function lineSink(onLine) {
  let rest = "";
  return new Writable({
    decodeStrings: false,
    write(chunk, _encoding, done) {
      const lines = (rest + chunk.toString()).split("\n");
      rest = lines.pop();
      // A line without an end is logged in parts, so that the buffer is bounded.
      if (rest.length > 8192) lines.push(rest), (rest = "");
      for (const line of lines) if (line.trim() !== "") onLine(line);
      done();
    },
  });
}
