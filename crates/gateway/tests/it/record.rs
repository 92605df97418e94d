//! What the gateway said in these tests, on record: `cargo xtask conform` holds it against the schema that OpenClaw
//! publishes.

use std::{collections::HashMap, fs::OpenOptions, io::Write as _};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Names the file that it is put into; without it nothing is.
const FILE: &str = "HOMARD_TEST_FRAMES";

/// What is known of one connection.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The protocol, once the client was welcome.
    protocol: Option<u64>,
    /// What was asked, by the id of the question.
    asked: HashMap<String, String>,
}

impl Notes {
    pub(crate) fn asked(&mut self, id: &str, method: &str) {
        self.asked.insert(id.to_owned(), method.to_owned());
    }

    pub(crate) fn heard(&mut self, message: &Message) {
        #[expect(clippy::disallowed_methods, reason = "a test is told by whoever starts it")]
        let Some(file) = std::env::var_os(FILE) else { return };
        let Some(frame) = message.to_text().ok().and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
            return;
        };
        self.protocol = frame["payload"]["protocol"].as_u64().or(self.protocol);
        let method = frame["id"].as_str().and_then(|id| self.asked.get(id));
        let line = json!({"protocol": self.protocol, "method": method, "heard": frame});
        // One write for each line: other tests put theirs into the same file.
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
