//! Telegram updates over real HTTP: each one reaches the sink despite faults.

use std::{collections::BTreeSet, future::Future, time::Duration};

use crate::support::{RecordingSink, bot, telegram_at};
use homard_channels::{
    Batch, Channel, ChannelError, ConnectionState, HttpClients, Secret, Sink, SinkError,
    telegram::{Telegram, UpdateMode},
};
use homard_stdx::SeededRng;
use homard_testkit::{
    FakeTelegram,
    fake_telegram::{TOKEN, TelegramFault},
};

/// Receives until another future completes.
async fn receive_until<T>(bot: &Telegram, sink: &RecordingSink, task: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        output = task => output,
        failure = bot.receive(sink.cursor(), sink) => panic!("receiving ended: {failure}"),
    }
}

#[tokio::test]
async fn messages_arrive_once_and_in_order() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), RecordingSink::default());
    fake.add_message(7, "one");
    receive_until(&bot, &sink, async {
        sink.until(|sink| sink.texts().len() == 1).await;
        fake.add_message(7, "two");
        fake.add_message(8, "three");
        sink.until(|sink| sink.texts().len() == 3).await;
        fake.until(|fake| fake.pending_updates().is_empty()).await;
    })
    .await;
    assert_eq!(sink.texts(), ["one", "two", "three"]);
    assert_eq!((sink.cursor(), sink.notes()), (Some("123456:1004".to_owned()), vec![ConnectionState::Up]));
}

/// A sink that checks which updates Telegram still keeps while the batch is not stored.
struct CheckingSink<'a> {
    fake: &'a FakeTelegram,
    memory: RecordingSink,
}

#[async_trait::async_trait]
impl Sink for CheckingSink<'_> {
    async fn store(&self, batch: Batch) -> Result<(), SinkError> {
        let pending: BTreeSet<String> = self.fake.pending_updates().iter().map(i64::to_string).collect();
        let is_pending = batch.events.iter().all(|event| pending.contains(event.id()));
        assert!(is_pending, "Telegram forgot what is not stored");
        self.memory.store(batch).await
    }

    fn report_state(&self, note: ConnectionState) {
        self.memory.report_state(note);
    }
}

#[tokio::test]
async fn telegram_keeps_updates_until_they_are_stored() {
    let fake = FakeTelegram::start().await.unwrap();
    let bot = bot(&fake);
    let sink = CheckingSink { fake: &fake, memory: RecordingSink::default() };
    for n in 0..5 {
        fake.add_message(7, &n.to_string());
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
    let reason = "failed to store the received events: the disk is full".to_owned();
    assert_eq!(notes[0], ConnectionState::Down { why: reason, wait });
}

#[tokio::test]
async fn duplicate_and_unordered_updates_are_corrected() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), RecordingSink::default());
    for text in ["one", "two", "three"] {
        fake.add_message(7, text);
    }
    fake.add_fault("getUpdates", TelegramFault::Disorder);
    receive_until(&bot, &sink, sink.until(|sink| sink.texts().len() >= 3)).await;
    assert_eq!(sink.texts(), ["one", "two", "three"]);
}

#[tokio::test]
async fn a_repeated_update_has_the_same_id() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), RecordingSink::default());
    fake.add_message(7, "one");
    receive_until(&bot, &sink, async {
        sink.until(|sink| sink.texts().len() == 1).await;
        fake.until(|fake| fake.calls_of("getUpdates").len() == 2).await;
        fake.add_fault("getUpdates", TelegramFault::Again);
        fake.add_message(7, "two");
        fake.until(|fake| fake.calls_of("getUpdates").len() == 3).await;
        fake.add_message(7, "three");
        sink.until(|sink| sink.texts().contains(&"three".to_owned())).await;
    })
    .await;
    let distinct: BTreeSet<String> = sink.ids().into_iter().collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), ["1001", "1002", "1003"]);
}

#[tokio::test]
async fn a_failing_server_is_retried_and_no_update_is_lost() {
    let fake = FakeTelegram::start().await.unwrap();
    let (bot, sink) = (bot(&fake), RecordingSink::default());
    fake.add_message(7, "one");
    fake.add_fault("getMe", TelegramFault::Page(502));
    fake.add_fault("deleteWebhook", TelegramFault::Cut);
    for fault in [
        TelegramFault::Flood(0),
        TelegramFault::Denied(500, "Internal Server Error"),
        TelegramFault::Page(502),
        TelegramFault::Cut,
        TelegramFault::AcceptThenDrop,
        TelegramFault::AcceptThenHalf,
    ] {
        fake.add_fault("getUpdates", fault);
    }
    receive_until(&bot, &sink, sink.until(|sink| sink.notes().contains(&ConnectionState::Up))).await;
    assert_eq!(sink.texts(), ["one"]);
    let notes = sink.notes();
    assert_eq!(notes.len(), 9, "{notes:#?}");
    assert!(
        notes[..8].iter().all(|note| matches!(note, ConnectionState::Down { .. })) && notes[8] == ConnectionState::Up,
        "{notes:#?}"
    );
    assert!(!format!("{notes:?} {bot:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_second_poller_is_reported_as_a_conflict() {
    let fake = FakeTelegram::start().await.unwrap();
    let (first_bot, second_bot, sink) = (bot(&fake), bot(&fake), RecordingSink::default());
    let has_conflict =
        |sink: &RecordingSink| sink.notes().iter().any(|note| matches!(note, ConnectionState::Conflict { .. }));
    receive_until(&first_bot, &sink, sink.until(|sink| sink.notes() == [ConnectionState::Up])).await;
    let second_sink = RecordingSink::default();
    receive_until(&first_bot, &sink, async {
        receive_until(&second_bot, &second_sink, sink.until(has_conflict)).await;
        // The other receiver is gone, so updates arrive again.
        fake.add_message(7, "hello");
        sink.until(|sink| sink.texts().len() == 1).await;
    })
    .await;
    assert_eq!(sink.texts(), ["hello"]);
}

#[tokio::test]
async fn a_rejected_bot_stops_with_a_reason() {
    let fake = FakeTelegram::start().await.unwrap();
    let mut settings = telegram_at(fake.root());
    settings.token = Secret::from("123456:another-Token");
    let bot = Telegram::new(HttpClients::default(), settings).unwrap();
    let failure = bot.receive(None, &RecordingSink::default()).await;
    let ChannelError::Refused(reason) = &failure else { panic!("{failure}") };
    assert!(reason.starts_with("Telegram, getMe: Unauthorized; the bot token is not valid"), "{reason}");
    assert!(!reason.contains("another-Token"));
}

#[tokio::test]
async fn a_restart_continues_at_the_cursor() {
    let fake = FakeTelegram::start().await.unwrap();
    let sink = RecordingSink::default();
    fake.add_message(7, "one");
    // Stopped as soon as the first one is stored, so that Telegram still has it.
    receive_until(&bot(&fake), &sink, sink.until(|sink| sink.texts().len() == 1)).await;
    assert_eq!(fake.pending_updates(), [1001]);
    fake.add_message(7, "two");
    receive_until(&bot(&fake), &sink, sink.until(|sink| sink.texts().len() == 2)).await;
    assert_eq!(sink.texts(), ["one", "two"]);
}

#[tokio::test]
async fn a_webhook_is_registered_with_its_secret_and_command_menu() {
    let fake = FakeTelegram::start().await.unwrap();
    let mut settings = telegram_at(fake.root());
    let secret = "a-good-long-secret";
    settings.update_mode = UpdateMode::Webhook { url: "https://x.y/hook".to_owned(), secret: Secret::from(secret) };
    settings.commands = vec![("/New-Session".to_owned(), "begins anew".to_owned())];
    fake.add_fault("setMyCommands", TelegramFault::Denied(400, "Bad Request: no menu today"));
    let (bot, sink) = (Telegram::new(HttpClients::default(), settings).unwrap(), RecordingSink::default());
    receive_until(&bot, &sink, sink.until(|sink| sink.notes() == [ConnectionState::Up])).await;
    let params = fake.calls_of("setWebhook").pop().unwrap().params;
    assert_eq!((params["url"].as_str(), params["secret_token"].as_str()), (Some("https://x.y/hook"), Some(secret)));
    let menu = fake.calls_of("setMyCommands").pop().unwrap().params;
    assert_eq!(menu["commands"][0]["command"], "new_session");
    let number = fake.add_message(7, "hi");
    let update = serde_json::json!({"update_id": number, "message": {
        "message_id": 1, "date": 1, "chat": {"id": 7, "type": "private"}, "from": {"id": 7}, "text": "hi",
    }});
    let batch = bot.parse_delivery(Some(secret), update.to_string().as_bytes()).unwrap();
    assert_eq!(batch.events.len(), 1);
}

/// With failures of the server and of the sink, and receivers dropped at any time: all updates arrive in order.
#[tokio::test]
async fn every_message_arrives_in_order_despite_faults() {
    for seed in 0..8 {
        let mut rng = SeededRng::new(seed);
        let fake = FakeTelegram::start().await.unwrap();
        let sink = RecordingSink::default();
        let total = 60;
        for receiver in 0..12 {
            for _ in 0..5 {
                let fault = match rng.below(8) {
                    0 => TelegramFault::Cut,
                    1 => TelegramFault::AcceptThenDrop,
                    2 => TelegramFault::AcceptThenHalf,
                    3 => TelegramFault::Page(502),
                    4 => TelegramFault::Flood(0),
                    5 => TelegramFault::Disorder,
                    6 => TelegramFault::Again,
                    _ => TelegramFault::Denied(500, "Internal Server Error"),
                };
                fake.add_fault("getUpdates", fault);
                fake.add_message(7, "hi");
            }
            sink.refuse(rng.below(3) as usize);
            let max_calls = fake.calls_of("getUpdates").len() + 1 + rng.below(9) as usize;
            let is_last = receiver == 11;
            let last = (1000 + total).to_string();
            receive_until(&bot(&fake), &sink, async {
                if is_last {
                    sink.until(|sink| sink.ids().contains(&last)).await;
                } else {
                    // Stopped at some request; the last receiver gets the rest.
                    fake.until(|fake| {
                        fake.calls_of("getUpdates").len() >= max_calls || fake.pending_updates().is_empty()
                    })
                    .await;
                }
            })
            .await;
        }
        let mut seen = BTreeSet::new();
        let first_occurrences: Vec<String> = sink.ids().into_iter().filter(|id| seen.insert(id.clone())).collect();
        let expected: Vec<String> = (1001..=1000 + total).map(|n| n.to_string()).collect();
        assert_eq!(first_occurrences, expected, "seed {seed}");
    }
}
