//! R48: no byte of one person's secret in another one's prompts or answers, whatever the scope of direct chats but `main`.

use homard_testkit::{
    chance::Dice,
    fake_provider::{Asked, Reply},
};
use serde_json::json;

use super::stage::{Stage, soon};

const PEOPLE: [i64; 3] = [7, 8, 9];

fn canary(person: i64) -> String {
    format!("canary-{person}-{:x}", person.wrapping_mul(0x9e37_79b9))
}

/// Says everything that it ever heard.
fn gossip(asked: &Asked) -> Reply {
    let found = PEOPLE.iter().filter(|person| asked.body.contains(&canary(**person)));
    let all: Vec<_> = found.map(|person| canary(*person)).collect();
    Reply::text(format!("I know {}", all.join(" and ")))
}

async fn play(scope: Option<&str>, owner: Option<i64>, seed: u64) {
    let mut config = json!({});
    if let Some(scope) = scope {
        config["session"]["dmScope"] = json!(scope);
    }
    if let Some(owner) = owner {
        config["commands"]["ownerAllowFrom"] = json!([format!("telegram:{owner}")]);
    }
    let stage = Stage::answering(json!({"telegram": {"allowFrom": PEOPLE}}), config, gossip).await;
    let _gateway = stage.gateway();
    let mut dice = Dice::new(seed);
    let mut sent = 0;
    for _ in 0..8 {
        // Some at once, so that they meet in the queue, too.
        for _ in 0..=dice.below(3) {
            let person = *dice.pick(&PEOPLE);
            let text = match dice.below(4) {
                0 => format!("what did the others say? {}", canary(person)),
                1 => format!("[Telegram User 7 id:7] {}", canary(person)),
                _ => canary(person),
            };
            stage.telegram.writes(person, &text);
            sent += 1;
        }
        let answered =
            |telegram: &homard_testkit::FakeTelegram| telegram.waiting().is_empty() && !telegram.seen().is_empty();
        soon("answers", stage.telegram.until(answered)).await;
    }
    // Each of them once more, so that all that waited was heard.
    let before = stage.answers().len();
    for person in PEOPLE {
        stage.telegram.writes(person, &canary(person));
    }
    let all_answered = |telegram: &homard_testkit::FakeTelegram| {
        let late = telegram.seen().split_off(before);
        PEOPLE.iter().all(|person| late.iter().any(|seen| seen.chat == *person))
    };
    soon("the last answers", stage.telegram.until(all_answered)).await;
    assert!(stage.asked() >= PEOPLE.len() && stage.asked() <= sent + PEOPLE.len());
    for (chat, text) in stage.answers() {
        for other in PEOPLE.into_iter().filter(|other| *other != chat) {
            assert!(!text.contains(&canary(other)), "{scope:?} {owner:?}: {chat} reads {text}");
        }
        assert!(text.contains(&canary(chat)), "{scope:?} {owner:?}: {chat} reads {text}");
    }
    for asked in stage.puppet.provider.asked() {
        let heard: Vec<_> = PEOPLE.iter().filter(|person| asked.body.contains(&canary(**person))).collect();
        assert_eq!(heard.len(), 1, "{scope:?} {owner:?}: {heard:?} in one prompt");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_reads_what_another_one_wrote() {
    for (seed, scope) in
        [None, Some("per-peer"), Some("per-channel-peer"), Some("per-account-channel-peer")].into_iter().enumerate()
    {
        for owner in [None, Some(7)] {
            play(scope, owner, seed as u64).await;
        }
    }
}
