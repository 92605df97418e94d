//! Kills at any point: inbound messages are answered, and none twice. `kill_grid` does the same on every platform of the
//! suite of all channels.
//!
//! `GRID=all` has a thousand replies instead of fifty.

use homard_stdx::SeededRng;
use homard_testkit::{
    FakeWebhook,
    fake_provider::{ProviderReply, ReceivedRequest, fault::ProviderFault as Broken},
    fake_telegram::TelegramFault,
};
use rustix::process::Signal;
use serde_json::json;

use super::setup::{ChannelFixture, SECRET, last_message, post_signed, webhook_message, within_timeout};
use crate::{
    chaos::gateway::is_long,
    home::{RunningGateway, until},
};

/// Returns the number of replies, and how many of them are concurrent.
fn grid() -> (u64, u64) {
    (if is_long() { 1000 } else { 50 }, 10)
}

fn kill(gateway: RunningGateway<'_>) {
    gateway.process.signal(Signal::KILL);
    gateway.end();
}

/// Stalls for the first requests, so that each kill hits an active run.
fn hesitant(kills: usize) -> impl FnMut(&ReceivedRequest) -> ProviderReply + Send {
    move |request| match request.number < kills {
        true => ProviderReply { fault: Some(Broken::Stall(0)), ..ProviderReply::text("never said") },
        false => ProviderReply::text(format!("echo {}", last_message(request))),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_repeated_a_hundred_times_over_five_kills_causes_one_run_and_one_reply() {
    // A run that was active at three crashes would be held.
    let fixture = ChannelFixture::answering(json!({"telegram": {"allowFrom": [7]}}), json!({}), hesitant(2)).await;
    fixture.telegram.add_message(7, "hello");
    let mut gateway = fixture.gateway();
    for killed in 1..=5 {
        until("the model is asked", || fixture.request_count() >= killed.min(3));
        let before = fixture.telegram.calls_of("getUpdates").len();
        (0..20).for_each(|_| fixture.telegram.add_fault("getUpdates", TelegramFault::Again));
        // An unknown update is ignored, but it ends the open long poll.
        fixture.telegram.add_update(json!({"something_new": {}}));
        within_timeout(
            "it comes again",
            fixture.telegram.until(|telegram| telegram.calls_of("getUpdates").len() > before + 20),
        )
        .await;
        kill(gateway);
        gateway = fixture.gateway();
    }
    within_timeout("an answer", fixture.telegram.until(|telegram| !telegram.visible_messages().is_empty())).await;
    fixture.telegram.add_message(7, "next");
    within_timeout("the next answer", fixture.telegram.until(|telegram| telegram.visible_messages().len() > 1)).await;
    assert_eq!(fixture.answers(), [(7, "echo hello".to_owned()), (7, "echo next".to_owned())]);
    let last = fixture.scripted.provider.requests().pop().unwrap().body;
    assert_eq!(last.matches("] hello").count(), 1, "{last}");
}

/// Returns the texts of the messages that a peer accepted.
fn taken(peer: &FakeWebhook) -> Vec<String> {
    let messages = peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
    messages.map(|seen| seen["text"].as_str().unwrap().to_owned()).collect()
}

/// Sends messages to a gateway; returns those that it did not accept.
fn bring(gateway: &RunningGateway<'_>, mut open: Vec<u64>) -> Vec<u64> {
    open.retain(|n| {
        let message = webhook_message(&format!("m{n}"), &format!("user{n}"), &format!("n{n}."));
        post_signed(gateway.port, "/channels/webhook", &message, SECRET).is_none_or(|(status, _)| status != 200)
    });
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn r92_kills_lose_and_duplicate_no_reply_with_an_idempotent_peer() {
    let (replies, at_once) = grid();
    let fixture = ChannelFixture::with(json!({"webhook": {"allowFrom": ["*"], "dmPolicy": "open"}}), json!({})).await;
    let mut rng = SeededRng::new(12);
    let mut gateway = fixture.gateway();
    for from in (0..replies).step_by(usize::try_from(at_once).unwrap()) {
        let all: Vec<u64> = (from..from + at_once).collect();
        let calls = fixture.peer.deliveries().len() as u64;
        let mut open = match rng.below(2) {
            // Kill while they are sent,
            0 => {
                let (first, rest) = all.split_at(rng.below(at_once + 1) as usize);
                [&bring(&gateway, first.to_vec())[..], rest].concat()
            }
            // or while they are answered, or afterwards.
            _ => {
                let (open, call_target) = (bring(&gateway, all), calls + rng.below(3 * at_once));
                let is_there = |peer: &FakeWebhook| {
                    peer.deliveries().len() as u64 >= call_target || taken(peer).len() as u64 >= from + at_once
                };
                within_timeout("some are answered", fixture.peer.until(is_there)).await;
                open
            }
        };
        kill(gateway);
        gateway = fixture.gateway();
        // Unaccepted messages are sent again, as a peer does.
        while !open.is_empty() {
            open = bring(&gateway, open);
        }
        // Otherwise a run would be active at three crashes and be held.
        within_timeout("all replies", fixture.peer.until(|peer| taken(peer).len() as u64 >= from + at_once)).await;
    }
    drop(gateway);
    let mut texts = taken(&fixture.peer);
    texts.sort();
    let mut expected: Vec<_> = (0..replies).map(|n| format!("echo n{n}.")).collect();
    expected.sort();
    assert_eq!(texts, expected);
    let calls = fixture.peer.deliveries().iter().filter(|delivery| delivery.json()["type"] == "message").count();
    eprintln!("{replies} replies: {} said once, {} of them told again", texts.len(), calls - texts.len());
}
