//! A chat without a running gateway: the one that it starts, other chats, and a gateway that starts later.

use std::{fs, path::Path};

use homard_journal::lock;
use homard_testkit::fake_provider::ProviderReply;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::Tmux;
use crate::{
    home::{Home, skip, until},
    scripted_model::ScriptedHome,
};

/// Returns the process that holds the state directory.
fn holder(home: &Home) -> u32 {
    lock::holder(&home.state()).expect("no process holds the state directory").pid
}

/// Returns the parent of a process.
fn parent(pid: u32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn is_running(pid: u32) -> bool {
    lock::process_start_time(pid).is_some()
}

/// A home without a gateway, whose model answers `ASK word` with `answered word`.
async fn home() -> ScriptedHome {
    ScriptedHome::answering(json!({}), |request| {
        let messages = request.json()["messages"].as_array().cloned().unwrap_or_default();
        let last = messages.last().map(|last| last["content"].to_string()).unwrap_or_default();
        let word: String =
            last.split("ASK ").last().unwrap_or_default().chars().take_while(|c| c.is_alphanumeric()).collect();
        ProviderReply::text(format!("answered {word}"))
    })
    .await
}

/// Asks something, and waits for the answer.
fn ask(tmux: &Tmux<'_>, word: &str) {
    tmux.types(&format!("ASK {word}"), "Enter");
    tmux.shows(&format!("answered {word}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_killed_chat() {
    let fixture = home().await;
    let Some(tmux) = Tmux::start(&fixture.home, "tmux", &["chat"]) else {
        return skip("a killed chat", "tmux is not installed");
    };
    tmux.shows("one was started for this chat");
    ask(&tmux, "first");
    let gateway = holder(&fixture.home);
    let chat = parent(gateway);
    assert!(Path::new(&format!("/proc/{chat}")).exists());
    kill_process(Pid::from_raw(chat).unwrap(), Signal::KILL).unwrap();
    tmux.shows("left with 137");
    until("the gateway has ended", || !is_running(gateway));
    // Another chat finds the state as it was.
    let Some(second) = Tmux::start(&fixture.home, "tmux-2", &["chat", "-c"]) else { return };
    second.shows("› ASK first");
    ask(&second, "second");
    let gateway = holder(&fixture.home);
    second.run(&["send-keys", "C-d"]);
    second.shows("left with 0");
    assert!(!is_running(gateway), "the gateway outlives the chat");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_chats_share_a_gateway_and_the_second_one_outlives_the_first() {
    let fixture = home().await;
    let chats = ["tmux-1", "tmux-2"].map(|socket| Tmux::start(&fixture.home, socket, &["chat"]));
    let [Some(one), Some(two)] = chats else {
        return skip("two chats", "tmux is not installed");
    };
    // Both start at the same time, so either may have started the gateway. Before the chat reads the terminal, keys of a
    // message and its Enter would count as one paste.
    one.shows("Ask anything");
    two.shows("Ask anything");
    ask(&one, "one");
    ask(&two, "two");
    let started = |tmux: &Tmux<'_>| tmux.everything().contains("one was started for this chat");
    assert_ne!(started(&one), started(&two), "{}\n{}", one.everything(), two.everything());
    let (first, second) = if started(&one) { (one, two) } else { (two, one) };
    first.run(&["send-keys", "C-d"]);
    first.shows("left with 0");
    second.shows("one was started for this chat");
    ask(&second, "alone");
    second.run(&["send-keys", "C-d"]);
    second.shows("left with 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_starts_later_takes_over() {
    let fixture = home().await;
    let Some(tmux) = Tmux::start(&fixture.home, "tmux", &["chat"]) else {
        return skip("a gateway beside a chat", "tmux is not installed");
    };
    tmux.shows("one was started for this chat");
    ask(&tmux, "before");
    let own = holder(&fixture.home);
    let gateway = fixture.home.gateway();
    assert_ne!(holder(&fixture.home), own);
    until("the own gateway has ended", || !is_running(own));
    ask(&tmux, "after");
    tmux.run(&["send-keys", "C-d"]);
    tmux.shows("left with 0");
    assert_eq!(gateway.run(&["agent", "-m", "still there"]).code, Some(0));
}
