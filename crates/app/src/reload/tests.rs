//! Tests for a config that changes, vanishes and becomes invalid under a running gateway.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use homard_gateway::{Secret, Settings};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::Purpose;

/// A gateway's objects, with the watcher of its config.
struct ReloadFixture {
    /// The config is in `place`, a symlink to a directory.
    folder: TempDir,
    paths: Paths,
    app: App,
    live: ConfigReloader,
}

impl ReloadFixture {
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
        let (app, _feed) = App::open(&chosen, &paths, Purpose::Gateway).unwrap();
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
        let live = ConfigReloader::new(&paths, &chosen, &app, &gateway);
        Self { folder, paths, app, live }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.paths.config.with_file_name(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn reload(&self) -> ReloadResult {
        self.live.reload()
    }

    /// Checks an unacceptable config and returns the reason.
    fn rejection(&self) -> String {
        match self.reload() {
            ReloadResult::Rejected(why) => why,
            result @ (ReloadResult::Unchanged | ReloadResult::Applied { .. }) => panic!("{result:?}"),
        }
    }

    fn notice(&self) -> String {
        self.live.state().warning().unwrap_or_default()
    }

    fn last_good_config(&self) -> Option<Value> {
        last_good::load_saved(&self.paths.state)
    }

    /// Watches until the config with this port is in use.
    async fn watch_until(&self, port: u16) {
        let is_applied = async {
            while self.live.current().config.gateway.port != Some(port) {
                tokio::task::yield_now().await;
            }
        };
        let watched = async {
            tokio::select! {
                () = self.live.watch() => {}
                () = is_applied => {}
            }
        };
        timeout(Duration::from_secs(30), watched).await.expect("the change is seen");
    }

    async fn close(self) {
        self.app.close().await.unwrap();
    }
}

fn applied(changed: &[&str], waits: &[&str]) -> ReloadResult {
    let list = |keys: &[&str]| keys.iter().map(|&key| key.to_owned()).collect();
    ReloadResult::Applied { changed: list(changed), waits: list(waits) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_or_empty_file_keeps_the_current_config() {
    let fixture = ReloadFixture::new(Some("{gateway: {port: 1}}")).await;
    let file = fixture.paths.config.display().to_string();
    fs::remove_file(&fixture.paths.config).unwrap();
    let expected = format!(
        "config file {file} is missing; the previous config stays in use; restore the file, or write {{}} to it for \
         an empty config"
    );
    assert_eq!((fixture.rejection(), fixture.notice()), (expected.clone(), expected));
    fixture.write("homard.json", " // soon\n");
    assert!(fixture.rejection().contains("the file is empty; write {} for an empty config"));
    assert_eq!(fixture.live.current().config.gateway.port, Some(1));
    assert_eq!(fixture.last_good_config(), Some(json!({"gateway": {"port": 1}})));
    fixture.write("homard.json", "{}");
    assert_eq!(fixture.reload(), applied(&["gateway.port"], &["gateway.port"]));
    assert_eq!(fixture.last_good_config(), Some(json!({})));
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_config_file_nothing_is_saved_and_nothing_is_reported() {
    let fixture = ReloadFixture::new(None).await;
    assert_eq!((fixture.last_good_config(), fixture.reload()), (None, ReloadResult::Unchanged));
    fixture.write("homard.json", "{gateway: ");
    fixture.rejection();
    fs::remove_file(&fixture.paths.config).unwrap();
    assert_eq!((fixture.reload(), fixture.notice()), (applied(&[], &[]), String::new()));
    assert_eq!(fixture.last_good_config(), None);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_could_not_be_applied_is_retried() {
    let fixture = ReloadFixture::new(Some("{}")).await;
    fixture.write("keys/auth-profiles.json", "{\"profiles\":");
    let keys = fixture.paths.config.with_file_name("keys");
    let text = json!({"gateway": {"port": 1}, "agents": {"list": [{"id": "main", "agentDir": keys}]}});
    fixture.write("homard.json", &text.to_string());
    let why = fixture.rejection();
    assert!(why.contains("cannot be used"), "{why}");
    assert_eq!((fixture.rejection(), fixture.notice()), (why.clone(), why));
    // The config stays the same; the file that it depends on is corrected.
    fixture.write("keys/auth-profiles.json", "{}");
    assert_eq!(fixture.reload(), applied(&["agents.list", "gateway.port"], &["gateway.port"]));
    assert_eq!(fixture.reload(), ReloadResult::Unchanged);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_config_keeps_the_other_warnings() {
    let fixture = ReloadFixture::new(Some("{agents: {defaults: {model: 'nobody/none'}}}")).await;
    let text = "{gateway: {port: 1}, agents: {defaults: {model: 'nobody/none'}}}";
    fixture.write("homard.json", text);
    assert!(matches!(fixture.reload(), ReloadResult::Applied { .. }));
    let notice = fixture.notice();
    let restart = "the config has changed; restart the gateway to apply gateway.port; line 1, column 49: agents.defaults.model is ";
    assert!(notice.starts_with(restart), "{notice}");
    fixture.write("homard.json", "{gateway: {prot: 1}}");
    let why = fixture.rejection();
    assert_eq!(fixture.notice(), format!("{why}; {notice}"));
    let other_text = text.replace("nobody/none", "nobody/else");
    fixture.write("homard.json", &other_text);
    assert!(fixture.rejection().contains("agents.defaults.model is \"nobody/else\""));
    fixture.write("homard.json", text);
    assert_eq!((fixture.reload(), fixture.notice()), (applied(&[], &["gateway.port"]), notice));
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_the_start_is_noticed() {
    let edit = |config: &Path| fs::write(config, "{gateway: {port: 2}}").unwrap();
    let fixture = ReloadFixture::with_edit(Some("{gateway: {port: 1}}"), edit).await;
    assert_eq!(fixture.live.current().config.gateway.port, Some(1));
    fixture.watch_until(2).await;
    fixture.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_without_a_watch_event_is_noticed_within_a_minute() {
    let fixture = ReloadFixture::new(Some("{gateway: {port: 1}}")).await;
    let folder = fixture.folder.path();
    let mut seconds = interval(Duration::from_secs(1));
    let mut until = async |port| {
        while fixture.live.current().config.gateway.port != Some(port) {
            seconds.tick().await;
        }
    };
    let changes = async {
        fixture.write("homard.json", "{gateway: {port: 2}}");
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
            () = fixture.live.watch() => {}
            () = changes => {}
        }
    };
    timeout(POLL_INTERVAL * 10, watched).await.expect("the change is seen");
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_config_can_be_corrected_in_an_included_file() {
    let fixture = ReloadFixture::new(Some("{gateway: {port: 1}}")).await;
    fixture.write("more/gateway.json", "{port: 'x'}");
    fixture.write("homard.json", "{gateway: {$include: 'more/gateway.json'}}");
    let corrected = async {
        while fixture.live.state().rejected.is_none() {
            tokio::task::yield_now().await;
        }
        fixture.write("more/gateway.json", "{port: 2}");
    };
    tokio::join!(fixture.watch_until(2), corrected);
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reloads_end_with_the_last_file() {
    let fixture = ReloadFixture::new(Some("{gateway: {port: 1}}")).await;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| drop(fixture.reload())));
        }
        for port in 2..40 {
            fixture.write("homard.json.new", &format!("{{gateway: {{port: {port}}}}}"));
            fs::rename(fixture.paths.config.with_file_name("homard.json.new"), &fixture.paths.config).unwrap();
        }
    });
    fixture.reload();
    assert_eq!(fixture.live.current().config.gateway.port, Some(39));
    assert_eq!(fixture.last_good_config(), Some(json!({"gateway": {"port": 39}})));
    fixture.close().await;
}
