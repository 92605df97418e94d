//! Golden screens, by topic.
#![expect(clippy::needless_pass_by_value, reason = "values are built in place")]

mod answers;
mod approvals;
mod composer;
mod during_a_run;
mod pickers;
mod reconnect;
mod start;
mod terminals;
mod tools;

use serde_json::{Value, json};

use crate::chat::{Chat, Terminal};

fn check(name: &str, chat: &mut Chat) {
    compare(name, &chat.picture());
}

fn check_styles(name: &str, chat: &mut Chat) {
    compare(name, &format!("{}\n{}", chat.picture(), chat.styles()));
}

fn compare(name: &str, picture: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("screens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, picture));
}

fn connected() -> Chat {
    Chat::connected(Terminal::WIDE)
}

const ANSWER: &str = "Here is the plan:\n\n1. Read `src/main.rs`\n2. Fix the **bug**\n\n```rust\nfn main() {\n    \
                      // start\n    println!(\"hi {}\", 42);\n}\n```\n\n| File | Lines |\n|---|---:|\n| main.rs | 12 |\n\n\
                      > Done is better than perfect.\n";

fn stored(id: u64, role: &str, run: &str, content: Value) -> Value {
    let mut message =
        json!({"role": role, "content": content, "__openclaw": {"id": format!("e{id}"), "seq": id, "runId": run}});
    if role == "user" {
        message["idempotencyKey"] = format!("{run}:user").into();
    }
    message
}

fn text(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}
