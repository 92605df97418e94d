import { render } from "preact";
import { App } from "./app";
import { start } from "./lib/connection";
import { startRouter } from "./lib/router";
import "./style/base.css";
import "./style/chat.css";
import "./style/runs.css";
import "./style/views.css";

const root = document.getElementById("app");
if (root) {
  // The secret is removed from the address before the router reads it.
  const starting = start();
  startRouter();
  root.textContent = "";
  render(<App />, root);
  await starting;
}
