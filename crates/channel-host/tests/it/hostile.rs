//! Hostile packages: each harms its own channel only. Beside it runs a good one, which must keep working.

use serde_json::{Value, json};

use crate::support::{Account, Installation, Platform, RecordingSink, node};

/// Starts a hostile account and a good one, checks the good one while the hostile one does what it does, and returns
/// what is known of the hostile one.
async fn beside_a_good_one(mode: &str, max_memory: u64, is_expected: impl Fn(&RecordingSink) -> bool) -> Vec<String> {
    let Some(node) = node().await else { return vec!["skipped".to_owned()] };
    let (mut bad, good) = (Installation::new(node.clone()), Installation::new(node));
    bad.max_memory = max_memory;
    let (bad_platform, mut platform) = (Platform::start().await, Platform::start().await);
    let (bad_host, good_host) = (bad.host(), good.host());
    let neighbour = Account::start(&good_host, json!({"port": platform.port}));
    let hostile = Account::start(&bad_host, json!({"port": bad_platform.port, "mode": mode}));
    hostile.sink.until(mode, is_expected).await;
    neighbour.up().await;
    platform.tell(&json!({"id": "1", "text": "still here", "from": "alice"})).await;
    neighbour.sink.until("the neighbour's message", |sink| sink.messages().len() == 1).await;
    assert!(neighbour.sink.failures().is_empty(), "{:?}", neighbour.sink.failures());
    let failures = hostile.sink.failures();
    drop(hostile);
    bad_host.close().await;
    good_host.close().await;
    failures
}

fn failed(sink: &RecordingSink) -> bool {
    !sink.failures().is_empty()
}

fn check(failures: &[String], expected: &str) {
    assert!(failures.iter().all(|why| why.contains(expected) || why == "skipped"), "{failures:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_hangs_is_killed_and_started_again() {
    let failures = beside_a_good_one("hang", 1 << 40, failed).await;
    check(&failures, "did not answer a ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_dies_in_a_loop_is_started_again_with_delays() {
    let failures = beside_a_good_one("die", 1 << 40, |sink| sink.failures().len() >= 2).await;
    check(&failures, "killed by signal 9");
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_on_stdout_is_ignored() {
    let failures = beside_a_good_one("garbage", 1 << 40, RecordingSink::is_up).await;
    check(&failures, "never");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_floods_is_killed() {
    let failures = beside_a_good_one("flood", 1 << 40, failed).await;
    check(&failures, "wrote more than");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_package_that_uses_too_much_memory_is_killed() {
    let failures = beside_a_good_one("memory", 300 << 20, failed).await;
    check(&failures, "more than the limit of 300 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_messages_stay_on_their_own_account() {
    let Some(node) = node().await else { return };
    let (installation, mut platform) = (Installation::new(node), Platform::start().await);
    let host = installation.host();
    let account = Account::start(&host, json!({"port": platform.port}));
    account.up().await;
    let forged: [Value; 4] = [
        // Another account, which does not receive.
        json!({"id": "1", "text": "x", "from": "owner", "account": "other"}),
        // No sender, and one that is too long.
        json!({"id": "2", "text": "x", "from": " "}),
        json!({"id": "3", "text": "x", "from": "o".repeat(5000)}),
        json!({"id": "4", "text": "mine", "from": "owner", "media": "/etc/passwd"}),
    ];
    for message in forged {
        platform.tell(&message).await;
        platform.heard("ack").await;
    }
    // The queue retries the others in vain; this one passes them, since each chat is on its own.
    account.sink.until("the valid message", |sink| !sink.messages().is_empty()).await;
    let received = account.sink.messages().remove(0);
    assert_eq!((received.text.as_str(), received.account.as_str()), ("mine", "default"));
    let read = homard_channels::Channel::fetch(account.channel.as_ref(), &received.media[0], 1 << 20).await;
    assert!(read.unwrap_err().to_string().contains("outside of the channel's directory"));
    host.close().await;
}
