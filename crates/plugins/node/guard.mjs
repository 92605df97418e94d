// What plugins may not do to the process they share: speak on the protocol's stdout, read its stdin, end it.

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
  // A plugin that ends the process would end its neighbours too. It gets an error in its own code instead.
  process.exit = (code) => {
    throw new Error(`plugins must not call process.exit(${code ?? ""}): they share this process`);
  };
  // An interrupt in a terminal reaches the gateway too, and it is the gateway that says when to end.
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
      // Without an end in sight the rest is told as it is, so that it cannot grow for ever.
      if (rest.length > 8192) lines.push(rest), (rest = "");
      for (const line of lines) if (line.trim() !== "") onLine(line);
      done();
    },
  });
}
