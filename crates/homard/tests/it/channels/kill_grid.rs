//! R92: kills of a gateway at random points while it receives, answers and sends, on every platform that cannot drop
//! repeated messages: no message is lost, no answer is sent twice, and every unknown outcome is reported.
//!
//! `GRID=all` has two hundred kills on each platform instead of five. A platform joins with a line in the tests below; its
//! double is that of the suite of all channels.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use homard_journal::Journal;
use homard_stdx::SeededRng;
use homard_store::StoreReader;
use homard_testkit::{
    FakeTelegram,
    channel_double::{ChannelDouble, Operation, Place, User, UserMessage},
    fake_provider::{ProviderReply, ReceivedRequest},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    chaos::gateway::is_long,
    home::{RunningGateway, until},
    scripted_model::ScriptedHome,
};

/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Begins the text of a notice about a message that may not have arrived.
const NOTICE: &str = "⚠️";

/// A platform, a model and a home for the gateways that are killed.
struct KillGrid {
    platform: Arc<dyn ChannelDouble>,
    scripted: ScriptedHome,
    /// Who writes where. Each has another chat.
    writers: Vec<(User, Place)>,
}

impl KillGrid {
    async fn new(platform: Arc<dyn ChannelDouble>) -> Self {
        let mut account = platform.account();
        let fields = account.as_object_mut().unwrap();
        let permitted = [User::Owner, User::Friend].map(|user| platform.user_id(user));
        fields.insert("allowFrom".to_owned(), json!(permitted));
        fields.extend(platform.group_config(false).as_object().cloned().unwrap());
        let owner = format!("{}/default:{}", platform.channel(), platform.user_id(User::Owner));
        let config = json!({"channels": {platform.channel(): account}, "commands": {"ownerAllowFrom": [owner]}});
        // In a group the name of the sender comes before the text.
        let last_word = |text: &str| text.rsplit(' ').next().unwrap_or_default().to_owned();
        let echo = move |request: &ReceivedRequest| {
            ProviderReply::text(format!("echo {}", last_word(&request.last_message())))
        };
        let mut chats = BTreeSet::new();
        let mut writers = vec![
            (User::Owner, Place::Direct),
            (User::Friend, Place::Direct),
            (User::Owner, Place::Group),
            (User::Friend, Place::Thread(1)),
        ];
        writers.retain(|(user, place)| chats.insert(platform.chat_id(*place, *user)));
        Self { platform, scripted: ScriptedHome::answering(config, echo).await, writers }
    }

    fn gateway(&self) -> RunningGateway<'_> {
        let mut command = self.scripted.home.command(&["gateway", "run", "--port", "0", "--recover"]);
        command.stderr(std::process::Stdio::null());
        let gateway = self.scripted.home.listening(command);
        self.platform.gateway_started(([127, 0, 0, 1], gateway.port).into());
        gateway
    }

    async fn until(&self, what: &str, condition: impl Fn(&dyn ChannelDouble) -> bool) {
        let mut changes = self.platform.changes();
        let waiting = async {
            while !condition(self.platform.as_ref()) {
                changes.changed().await.unwrap();
            }
        };
        let result = timeout(PATIENCE, waiting).await;
        assert!(result.is_ok(), "{what}: not within {PATIENCE:?}; seen: {:#?}", self.platform.seen());
    }

    /// Returns the state of the outbox.
    fn outbox(&self, gateway: &RunningGateway<'_>) -> Value {
        let status = gateway.run(&["channels", "status", "--json"]).json();
        status["channelAccounts"][self.platform.channel()][0]["outbox"].clone()
    }

    /// Returns the deliveries that the gateway reports as unknown: id and chat.
    fn unknown(&self, gateway: &RunningGateway<'_>) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let outbox = self.outbox(gateway);
        outbox["unknown"].as_array().unwrap().iter().map(|row| (text(&row["id"]), text(&row["to"]))).collect()
    }

    /// Returns the undelivered messages of the state directory, without a running gateway: ids and texts.
    async fn undelivered(&self) -> BTreeMap<String, String> {
        let state = self.scripted.home.state();
        let journal = Journal::open(&state, || homard_runtime::Ambient::system().now_ms()).unwrap();
        let rows = journal.outbox().await.unwrap().into_iter();
        rows.map(|row| (row.delivery.id, row.delivery.payload["text"].as_str().unwrap().to_owned())).collect()
    }
}

fn kill(gateway: RunningGateway<'_>) {
    gateway.process.signal(Signal::KILL);
    gateway.end();
}

/// Kills gateways at random points of rounds. In each round every writer sends a message.
async fn kills(platform: Arc<dyn ChannelDouble>) {
    let rounds = if is_long() { 200 } else { 5 };
    let grid = KillGrid::new(platform).await;
    let (mut rng, mut reported) = (SeededRng::new(47), BTreeMap::new());
    let mut gateway = grid.gateway();
    for round in 0..rounds {
        let text = |writer: usize| format!("n{round}x{writer}.");
        let call_target = grid.platform.requests(Operation::Send) + rng.below(grid.writers.len() as u64 + 1) as usize;
        for (writer, (user, place)) in grid.writers.iter().enumerate() {
            grid.platform.post(&UserMessage { place: *place, ..UserMessage::direct(*user, text(writer)) });
        }
        grid.until("some are sent", |platform| platform.requests(Operation::Send) >= call_target).await;
        kill(gateway);
        gateway = grid.gateway();
        let mut settled: BTreeSet<String> = BTreeSet::new();
        for (id, chat) in grid.unknown(&gateway) {
            settled.extend(reported.insert(id, chat.clone()).is_none().then_some(chat));
        }
        // Otherwise a run would be active at three crashes and be held.
        let all_are = |platform: &dyn ChannelDouble| {
            let seen: BTreeSet<_> = platform.seen().into_iter().map(|message| message.text).collect();
            grid.writers.iter().enumerate().all(|(writer, (user, place))| {
                let is_seen = seen.contains(&format!("echo {}", text(writer)));
                is_seen || settled.contains(&platform.chat_id(*place, *user))
            })
        };
        grid.until("all are answered or reported", all_are).await;
    }
    until("nothing waits", || grid.outbox(&gateway)["waiting"] == 0);
    assert_eq!(grid.unknown(&gateway), reported, "it is reported until somebody looks");
    kill(gateway);
    let undelivered = grid.undelivered().await;
    assert_eq!(undelivered.keys().collect::<Vec<_>>(), reported.keys().collect::<Vec<_>>());
    let texts = grid.platform.seen().into_iter().map(|message| message.text);
    let (notices, texts): (Vec<_>, Vec<_>) = texts.partition(|text| text.starts_with(NOTICE));
    assert!(notices.len() >= reported.len(), "each person is informed: {notices:?}");
    let distinct: BTreeSet<_> = texts.iter().chain(undelivered.values()).cloned().collect();
    let all =
        (0..rounds).flat_map(|round| (0..grid.writers.len()).map(move |writer| format!("echo n{round}x{writer}.")));
    let expected: BTreeSet<_> = all.collect();
    assert_eq!(distinct, expected, "nothing is lost");
    assert_eq!(texts.len(), texts.iter().collect::<BTreeSet<_>>().len(), "nothing is said twice");
    eprintln!(
        "{}: {rounds} kills, {} messages: {} answered on the platform, {} reported as unknown",
        grid.platform.channel(),
        expected.len(),
        texts.len(),
        reported.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r92_kills_on_telegram_lose_and_repeat_nothing() {
    kills(Arc::new(FakeTelegram::start().await.unwrap())).await;
}
