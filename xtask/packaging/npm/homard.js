#!/usr/bin/env node
// Starts the binary of this platform's package, with the same arguments, input and output.
"use strict";

const { spawn } = require("node:child_process");

function binary() {
  const name = `homard-${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/homard`);
  } catch {
    console.error(`error: there is no package ${name}; see https://www.npmjs.com/package/homard for supported platforms`);
    process.exit(1);
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  // Ends by the same signal, as if it had been the binary itself.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
