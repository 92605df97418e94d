// Runs: the list, or the inspector of one run.
import { route } from "../lib/router";
import { Inspector } from "./inspector";
import { RunList } from "./list";

export default function Runs() {
  const id = route.value.arg;
  return id ? <Inspector key={id} id={id} /> : <RunList />;
}
