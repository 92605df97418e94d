//! Telegram updates over real HTTP: each one reaches the sink despite faults.

use std::{collections::BTreeSet, future::Future, time::Duration};

use crate::support::{Memory, bot, telegram_at};
use homard_channels::{
    Batch, Channel, Failure, Note, Road, Secret, Sink, Unstored,
    telegram::{Intake, Telegram},
};
use homard_testkit::{
    FakeTelegram,
    chance::Dice,
    fake_telegram::{Fault, TOKEN},
};

/// Receives until another future completes.
async fn receiving<T>(bot: &Telegram, sink: &Memory, doing: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = doing => done,
        failure = bot.receive(sink.cursor(), sink) => panic!("receiving ended: {failure}"),
    }
}

#[tokio::test]
async fn messages_come_in_order_and_once() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), Memory::default());
    fake.writes(7, "one");
    receiving(&bot, &sink, async {
        sink.until(|sink| sink.texts().len() == 1).await;
        fake.writes(7, "two");
        fake.writes(8, "three");
        sink.until(|sink| sink.texts().len() == 3).await;
        fake.until(|fake| fake.waiting().is_empty()).await;
    })
    .await;
    assert_eq!(sink.texts(), ["one", "two", "three"]);
    assert_eq!((sink.cursor(), sink.notes()), (Some("123456:1004".to_owned()), vec![Note::Up]));
}

/// A sink that checks which updates Telegram still keeps while the batch is not stored.
struct Careful<'a> {
    fake: &'a FakeTelegram,
    memory: Memory,
}

#[async_trait::async_trait]
impl Sink for Careful<'_> {
    async fn take(&self, batch: Batch) -> Result<(), Unstored> {
        let kept: BTreeSet<String> = self.fake.waiting().iter().map(i64::to_string).collect();
        let is_kept = batch.events.iter().all(|event| kept.contains(event.id()));
        assert!(is_kept, "Telegram forgot what is not stored");
        self.memory.take(batch).await
    }

    fn note(&self, note: Note) {
        self.memory.note(note);
    }
}

#[tokio::test]
async fn telegram_keeps_what_is_not_stored() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let sink = Careful { fake: &fake, memory: Memory::default() };
    for n in 0..5 {
        fake.writes(7, &n.to_string());
    }
    sink.memory.refuse(2);
    tokio::select! {
        biased;
        () = sink.memory.until(|memory| memory.texts().len() == 5) => {}
        failure = bot.receive(None, &sink) => panic!("{failure}"),
    }
    assert_eq!(sink.memory.texts(), ["0", "1", "2", "3", "4"]);
    let notes = sink.memory.notes();
    let wait = Duration::from_millis(1);
    let why = "what came in could not be stored: the disk is full".to_owned();
    assert_eq!(notes[0], Note::Down { why, wait });
}

#[tokio::test]
async fn doubles_and_disorder_are_put_right() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), Memory::default());
    for text in ["one", "two", "three"] {
        fake.writes(7, text);
    }
    fake.spoil("getUpdates", Fault::Disorder);
    receiving(&bot, &sink, sink.until(|sink| sink.texts().len() >= 3)).await;
    assert_eq!(sink.texts(), ["one", "two", "three"]);
}

#[tokio::test]
async fn what_comes_again_has_the_same_id() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), Memory::default());
    fake.writes(7, "one");
    receiving(&bot, &sink, async {
        sink.until(|sink| sink.texts().len() == 1).await;
        fake.until(|fake| fake.calls_of("getUpdates").len() == 2).await;
        fake.spoil("getUpdates", Fault::Again);
        fake.writes(7, "two");
        fake.until(|fake| fake.calls_of("getUpdates").len() == 3).await;
        fake.writes(7, "three");
        sink.until(|sink| sink.texts().contains(&"three".to_owned())).await;
    })
    .await;
    let distinct: BTreeSet<String> = sink.ids().into_iter().collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), ["1001", "1002", "1003"]);
}

#[tokio::test]
async fn a_failing_server_is_asked_again_and_nothing_is_lost() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), Memory::default());
    fake.writes(7, "one");
    fake.spoil("getMe", Fault::Page(502));
    fake.spoil("deleteWebhook", Fault::Cut);
    for fault in [
        Fault::Flood(0),
        Fault::Denied(500, "Internal Server Error"),
        Fault::Page(502),
        Fault::Cut,
        Fault::AcceptThenDrop,
        Fault::AcceptThenHalf,
    ] {
        fake.spoil("getUpdates", fault);
    }
    receiving(&bot, &sink, sink.until(|sink| sink.notes().contains(&Note::Up))).await;
    assert_eq!(sink.texts(), ["one"]);
    let notes = sink.notes();
    assert_eq!(notes.len(), 9, "{notes:#?}");
    assert!(notes[..8].iter().all(|note| matches!(note, Note::Down { .. })) && notes[8] == Note::Up, "{notes:#?}");
    assert!(!format!("{notes:?} {bot:?}").contains(TOKEN));
}

#[tokio::test]
async fn two_pollers_are_told_of_each_other() {
    let fake = FakeTelegram::start().await.unwrap();
    let (one, other, sink) = (bot(&fake), bot(&fake), Memory::default());
    let is_rivalled = |sink: &Memory| sink.notes().iter().any(|note| matches!(note, Note::Rivalled { .. }));
    receiving(&one, &sink, sink.until(|sink| sink.notes() == [Note::Up])).await;
    let rival = Memory::default();
    receiving(&one, &sink, async {
        receiving(&other, &rival, sink.until(is_rivalled)).await;
        // The other receiver is gone, so updates arrive again.
        fake.writes(7, "hello");
        sink.until(|sink| sink.texts().len() == 1).await;
    })
    .await;
    assert_eq!(sink.texts(), ["hello"]);
}

#[tokio::test]
async fn a_bot_that_is_not_wanted_stops_and_says_why() {
    let fake = FakeTelegram::start().await.unwrap();
    let mut settings = telegram_at(fake.root());
    settings.token = Secret::from("123456:another-Token");
    let bot = Telegram::new(Road::default(), settings).unwrap();
    let failure = bot.receive(None, &Memory::default()).await;
    let Failure::Refused(why) = &failure else { panic!("{failure}") };
    assert!(why.starts_with("Telegram, getMe: Unauthorized; the bot token is not valid"), "{why}");
    assert!(!why.contains("another-Token"));
}

#[tokio::test]
async fn a_restart_goes_on_where_the_cursor_is() {
    let fake = FakeTelegram::start().await.unwrap();
    let sink = Memory::default();
    fake.writes(7, "one");
    // Stopped as soon as the first one is stored, so that Telegram still has it.
    receiving(&bot(&fake), &sink, sink.until(|sink| sink.texts().len() == 1)).await;
    assert_eq!(fake.waiting(), [1001]);
    fake.writes(7, "two");
    receiving(&bot(&fake), &sink, sink.until(|sink| sink.texts().len() == 2)).await;
    assert_eq!(sink.texts(), ["one", "two"]);
}

#[tokio::test]
async fn a_webhook_is_announced_with_its_secret_and_the_menu_with_it() {
    let fake = FakeTelegram::start().await.unwrap();
    let mut settings = telegram_at(fake.root());
    let secret = "a-good-long-secret";
    settings.intake = Intake::Webhook { url: "https://x.y/hook".to_owned(), secret: Secret::from(secret) };
    settings.commands = vec![("/New-Session".to_owned(), "begins anew".to_owned())];
    fake.spoil("setMyCommands", Fault::Denied(400, "Bad Request: no menu today"));
    let (bot, sink) = (Telegram::new(Road::default(), settings).unwrap(), Memory::default());
    receiving(&bot, &sink, sink.until(|sink| sink.notes() == [Note::Up])).await;
    let told = fake.calls_of("setWebhook").pop().unwrap().params;
    assert_eq!((told["url"].as_str(), told["secret_token"].as_str()), (Some("https://x.y/hook"), Some(secret)));
    let menu = fake.calls_of("setMyCommands").pop().unwrap().params;
    assert_eq!(menu["commands"][0]["command"], "new_session");
    let number = fake.writes(7, "hi");
    let update = serde_json::json!({"update_id": number, "message": {
        "message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7}, "text": "hi",
    }});
    let batch = bot.delivered(Some(secret), update.to_string().as_bytes()).unwrap();
    assert_eq!(batch.events.len(), 1);
}

/// With failures of the server and of the sink, and receivers dropped at any time: all updates arrive in order.
#[tokio::test]
async fn whatever_goes_wrong_every_message_arrives_in_order() {
    for seed in 0..8 {
        let mut dice = Dice::new(seed);
        let fake = FakeTelegram::start().await.unwrap();
        let sink = Memory::default();
        let total = 60;
        for life in 0..12 {
            for _ in 0..5 {
                let fault = match dice.below(8) {
                    0 => Fault::Cut,
                    1 => Fault::AcceptThenDrop,
                    2 => Fault::AcceptThenHalf,
                    3 => Fault::Page(502),
                    4 => Fault::Flood(0),
                    5 => Fault::Disorder,
                    6 => Fault::Again,
                    _ => Fault::Denied(500, "Internal Server Error"),
                };
                fake.spoil("getUpdates", fault);
                fake.writes(7, "hi");
            }
            sink.refuse(dice.below(3) as usize);
            let asked = fake.calls_of("getUpdates").len() + 1 + dice.below(9) as usize;
            let is_last = life == 11;
            let last = (1000 + total).to_string();
            receiving(&bot(&fake), &sink, async {
                if is_last {
                    sink.until(|sink| sink.ids().contains(&last)).await;
                } else {
                    // Stopped at some request; the last receiver gets the rest.
                    fake.until(|fake| fake.calls_of("getUpdates").len() >= asked || fake.waiting().is_empty()).await;
                }
            })
            .await;
        }
        let mut seen = BTreeSet::new();
        let first_sight: Vec<String> = sink.ids().into_iter().filter(|id| seen.insert(id.clone())).collect();
        let expected: Vec<String> = (1001..=1000 + total).map(|n| n.to_string()).collect();
        assert_eq!(first_sight, expected, "seed {seed}");
    }
}
