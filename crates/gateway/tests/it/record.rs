//! Records the frames that the gateway sent in these tests; `cargo xtask conform` validates them against OpenClaw's
//! published schema.

use std::{collections::HashMap, fs::OpenOptions, io::Write as _};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Environment variable with the output file; without it nothing is recorded.
const FILE: &str = "HOMARD_TEST_FRAMES";

/// State of one connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionRecord {
    /// Protocol version, once connected.
    protocol: Option<u64>,
    /// Methods by request id.
    methods: HashMap<String, String>,
}

impl ConnectionRecord {
    pub(crate) fn record_request(&mut self, id: &str, method: &str) {
        self.methods.insert(id.to_owned(), method.to_owned());
    }

    pub(crate) fn record_frame(&mut self, message: &Message) {
        #[expect(clippy::disallowed_methods, reason = "a test is told by whoever starts it")]
        let Some(file) = std::env::var_os(FILE) else { return };
        let Some(frame) = message.to_text().ok().and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
            return;
        };
        self.protocol = frame["payload"]["protocol"].as_u64().or(self.protocol);
        let method = frame["id"].as_str().and_then(|id| self.methods.get(id));
        let line = json!({"protocol": self.protocol, "method": method, "heard": frame});
        // One write per line: other tests append to the same file.
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
