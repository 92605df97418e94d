import { Empty } from "../lib/ui";
export default function View() { return <Empty title="channels" />; }
