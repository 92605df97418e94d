//! Tests for a config that changes, vanishes and becomes invalid under a running gateway.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use homard_gateway::{Secret, Settings};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::assemble::Purpose;

/// A gateway's objects, with the watcher of its config.
struct ReloadBench {
    /// The config is in `place`, a symlink to a directory.
    folder: TempDir,
    paths: Paths,
    house: App,
    live: ConfigReloader,
}

impl ReloadBench {
    /// Starts with this text, or without a file.
    async fn new(text: Option<&str>) -> Self {
        Self::with_edit(text, |_| ()).await
    }

    /// Starts like `new`, and calls `edit` during the start.
    async fn with_edit(text: Option<&str>, edit: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("real")).unwrap();
        symlink("real", folder.path().join("place")).unwrap();
        let paths = Paths { config: folder.path().join("place/homard.json"), state: folder.path().join("state") };
        if let Some(text) = text {
            fs::write(&paths.config, text).unwrap();
        }
        let chosen = Config::choose(&paths).unwrap();
        let (house, _feed) = App::open(&chosen, &paths, Purpose::Gateway).unwrap();
        let settings = Settings {
            bind: vec![([127, 0, 0, 1], 0).into()],
            secret: Secret::new(Some("hush".to_owned()), None),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            state_dir: paths.state.clone(),
            config_path: None,
            tls: None,
            allow_insecure: false,
        };
        let gateway = homard_gateway::bind(settings).await.unwrap();
        edit(&paths.config);
        let live = ConfigReloader::new(&paths, &chosen, &house, (gateway.warnings(), gateway.broadcaster()));
        Self { folder, paths, house, live }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.paths.config.with_file_name(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(&self) -> ReloadResult {
        self.live.reload()
    }

    /// Checks an unacceptable config and returns the reason.
    fn refused(&self) -> String {
        match self.look() {
            ReloadResult::Rejected(why) => why,
            came @ (ReloadResult::Unchanged | ReloadResult::Applied { .. }) => panic!("{came:?}"),
        }
    }

    fn notice(&self) -> String {
        self.live.state().warning().unwrap_or_default()
    }

    fn kept(&self) -> Option<Value> {
        last_good::load_saved(&self.paths.state)
    }

    /// Watches until the config with this port is in use.
    async fn watch_until(&self, port: u16) {
        let is_there = async {
            while self.live.current().config.gateway.port != Some(port) {
                tokio::task::yield_now().await;
            }
        };
        let watched = async {
            tokio::select! {
                () = self.live.watch() => {}
                () = is_there => {}
            }
        };
        timeout(Duration::from_secs(30), watched).await.expect("the change is seen");
    }

    async fn close(self) {
        self.house.close().await.unwrap();
    }
}

fn applied(changed: &[&str], waits: &[&str]) -> ReloadResult {
    let list = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
    ReloadResult::Applied { changed: list(changed), waits: list(waits) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_vanishes_or_is_emptied_leaves_what_was_read() {
    let bench = ReloadBench::new(Some("{gateway: {port: 1}}")).await;
    let file = bench.paths.config.display().to_string();
    fs::remove_file(&bench.paths.config).unwrap();
    let gone = format!(
        "config file {file} is missing; the previous config stays in use; restore the file, or write {{}} to it for \
         an empty config"
    );
    assert_eq!((bench.refused(), bench.notice()), (gone.clone(), gone));
    bench.write("homard.json", " // soon\n");
    assert!(bench.refused().contains("the file is empty; write {} for an empty config"));
    assert_eq!(bench.live.current().config.gateway.port, Some(1));
    assert_eq!(bench.kept(), Some(json!({"gateway": {"port": 1}})));
    bench.write("homard.json", "{}");
    assert_eq!(bench.look(), applied(&["gateway.port"], &["gateway.port"]));
    assert_eq!(bench.kept(), Some(json!({})));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_never_was_a_file_nothing_is_kept_and_none_is_missed() {
    let bench = ReloadBench::new(None).await;
    assert_eq!((bench.kept(), bench.look()), (None, ReloadResult::Unchanged));
    bench.write("homard.json", "{gateway: ");
    bench.refused();
    fs::remove_file(&bench.paths.config).unwrap();
    assert_eq!((bench.look(), bench.notice()), (applied(&[], &[]), String::new()));
    assert_eq!(bench.kept(), None);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_set_up_is_tried_again() {
    let bench = ReloadBench::new(Some("{}")).await;
    bench.write("keys/auth-profiles.json", "{\"profiles\":");
    let keys = bench.paths.config.with_file_name("keys");
    let text = json!({"gateway": {"port": 1}, "agents": {"list": [{"id": "main", "agentDir": keys}]}});
    bench.write("homard.json", &text.to_string());
    let why = bench.refused();
    assert!(why.contains("cannot be used"), "{why}");
    assert_eq!((bench.refused(), bench.notice()), (why.clone(), why));
    // The config stays the same; the file that it depends on is corrected.
    bench.write("keys/auth-profiles.json", "{}");
    assert_eq!(bench.look(), applied(&["agents.list", "gateway.port"], &["gateway.port"]));
    assert_eq!(bench.look(), ReloadResult::Unchanged);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_leaves_what_else_is_true() {
    let bench = ReloadBench::new(Some("{agents: {defaults: {model: 'nobody/none'}}}")).await;
    let text = "{gateway: {port: 1}, agents: {defaults: {model: 'nobody/none'}}}";
    bench.write("homard.json", text);
    assert!(matches!(bench.look(), ReloadResult::Applied { .. }));
    let before = bench.notice();
    let restart = "the config has changed; restart the gateway to apply gateway.port; line 1, column 49: agents.defaults.model is ";
    assert!(before.starts_with(restart), "{before}");
    bench.write("homard.json", "{gateway: {prot: 1}}");
    let why = bench.refused();
    assert_eq!(bench.notice(), format!("{why}; {before}"));
    let worse = text.replace("nobody/none", "nobody/else");
    bench.write("homard.json", &worse);
    assert!(bench.refused().contains("agents.defaults.model is \"nobody/else\""));
    bench.write("homard.json", text);
    assert_eq!((bench.look(), bench.notice()), (applied(&[], &["gateway.port"]), before));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changed_while_the_gateway_began_is_seen() {
    let edit = |config: &Path| fs::write(config, "{gateway: {port: 2}}").unwrap();
    let bench = ReloadBench::with_edit(Some("{gateway: {port: 1}}"), edit).await;
    assert_eq!(bench.live.current().config.gateway.port, Some(1));
    bench.watch_until(2).await;
    bench.close().await;
}

#[tokio::test(start_paused = true)]
async fn what_no_watch_tells_is_seen_within_a_minute() {
    let bench = ReloadBench::new(Some("{gateway: {port: 1}}")).await;
    let folder = bench.folder.path();
    let mut seconds = interval(Duration::from_secs(1));
    let mut until = async |port| {
        while bench.live.current().config.gateway.port != Some(port) {
            seconds.tick().await;
        }
    };
    let changes = async {
        bench.write("homard.json", "{gateway: {port: 2}}");
        until(2).await;
        // No event occurs at the file itself; a symlink on its path is replaced.
        fs::create_dir(folder.join("other")).unwrap();
        fs::write(folder.join("other/homard.json"), "{gateway: {port: 3}}").unwrap();
        symlink("other", folder.join("new")).unwrap();
        fs::rename(folder.join("new"), folder.join("place")).unwrap();
        until(3).await;
    };
    let watched = async {
        tokio::select! {
            () = bench.live.watch() => {}
            () = changes => {}
        }
    };
    timeout(POLL_INTERVAL * 10, watched).await.expect("the change is seen");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_not_valid_may_be_mended_in_a_file_that_only_it_includes() {
    let bench = ReloadBench::new(Some("{gateway: {port: 1}}")).await;
    bench.write("more/gateway.json", "{port: 'x'}");
    bench.write("homard.json", "{gateway: {$include: 'more/gateway.json'}}");
    let mended = async {
        while bench.live.state().rejected.is_none() {
            tokio::task::yield_now().await;
        }
        bench.write("more/gateway.json", "{port: 2}");
    };
    tokio::join!(bench.watch_until(2), mended);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_look_at_once_the_last_file_wins_everywhere() {
    let bench = ReloadBench::new(Some("{gateway: {port: 1}}")).await;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| drop(bench.look())));
        }
        for port in 2..40 {
            bench.write("homard.json.new", &format!("{{gateway: {{port: {port}}}}}"));
            fs::rename(bench.paths.config.with_file_name("homard.json.new"), &bench.paths.config).unwrap();
        }
    });
    bench.look();
    assert_eq!(bench.live.current().config.gateway.port, Some(39));
    assert_eq!(bench.kept(), Some(json!({"gateway": {"port": 39}})));
    bench.close().await;
}
