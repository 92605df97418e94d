//! Tests of the web tools, one folder per case: the site, the call, and the result.
//!
//! `site.json` describes what a local server answers: a path, and its `status`, `headers` and `body`, which is a text
//! or a `file` of the folder, repeated `times` and compressed if it has `gzip`. `call.json` is the call, in which
//! `$SITE` is that server. `result.json` is the result; if it has `asked`, also the requests that the server received.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::Path,
    sync::{Arc, Mutex},
};

use flate2::{Compression, write::GzEncoder};
use homard_agent::tool::{Lender, ProgressSender, RunOrigin, Tool, ToolCx, ToolResult};
use homard_egress::{EgressLimits, SystemResolver};
use homard_proto::{AgentId, CallId, RunId, message::Block};
use homard_runtime::{Ambient, task::spawn};
use homard_tools::{
    WebFetch, WebFetchSettings, WebSearch, WebSearchSettings,
    search::{Brave, SearchProvider, Searxng},
};
use homard_workspace::skills::Variables;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;

datatest_stable::harness! { { test = case, root = "tests/web", pattern = r"/call\.json$" } }

fn case(call: &Path) -> datatest_stable::Result<()> {
    let folder = call.parent().unwrap();
    let tool = folder.parent().unwrap().file_name().unwrap().to_str().unwrap();
    // The clock is paused, so that times are deterministic.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let actual = runtime.block_on(async {
        let site = TestSite::open(folder).await;
        let arguments = fs::read_to_string(call).unwrap().replace("$SITE", &site.url);
        let result = tool_named(tool, &site.url).call(context(), serde_json::from_str(&arguments).unwrap()).await;
        site.format_result(&result)
    });
    let expected: Value = serde_json::from_str(&fs::read_to_string(folder.join("result.json"))?)?;
    let actual = Value::Object(
        actual.into_iter().filter(|(name, _)| name != "asked" || expected.get("asked").is_some()).collect(),
    );
    assert_eq!(actual, expected);
    Ok(())
}

fn tool_named(name: &str, site: &str) -> Box<dyn Tool> {
    let names = Arc::new(SystemResolver);
    let ambient = Ambient::fixed(1_800_000_000_000);
    let search = |provider| {
        Box::new(WebSearch::new(WebSearchSettings::default(), provider, names.clone(), ambient.clone()))
            as Box<dyn Tool>
    };
    let brave =
        || Arc::new(Brave::new("a-key-of-ours", Some(&format!("{site}/brave"))).unwrap()) as Arc<dyn SearchProvider>;
    match name {
        "web_fetch" => {
            let allow = vec!["127.0.0.1".parse().unwrap()];
            let limits = EgressLimits { allow, bytes: 200_000, ..EgressLimits::default() };
            let settings = WebFetchSettings {
                bounds: limits,
                max_chars: 2_000,
                max_chars_cap: 3_000,
                ..WebFetchSettings::default()
            };
            Box::new(WebFetch::new(settings, names, ambient))
        }
        "brave" => search(Some(brave())),
        "searxng" => search(Some(Arc::new(Searxng::new(&format!("{site}/sx/")).unwrap()))),
        other => panic!("no tool for {other}"),
    }
}

fn context() -> ToolCx {
    ToolCx {
        run: RunId::parse("run").unwrap(),
        session: AgentId::main().main_session(),
        call: CallId::parse("call").unwrap(),
        workdir: "/nowhere".into(),
        sandbox: None,
        cancel: CancellationToken::new(),
        progress: ProgressSender::silent(),
        slot: Lender::default(),
        variables: Variables::default(),
        origin: RunOrigin::default(),
        hub: None,
    }
}

/// A local server.
struct TestSite {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestSite {
    async fn open(folder: &Path) -> Self {
        let answers = fs::read_to_string(folder.join("site.json")).unwrap_or_else(|_| "{}".to_owned());
        let answers: BTreeMap<String, Value> = serde_json::from_str(&answers).unwrap();
        let answers: BTreeMap<_, _> = answers.into_iter().map(|(path, is)| (path, answer(folder, &is))).collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = requests.clone();
        spawn("site", async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                let key = head.lines().find_map(|line| line.strip_prefix("x-subscription-token: "));
                recorded.lock().unwrap().push(key.map_or(target.clone(), |key| format!("{target} with {key}")));
                let path = target.split('?').next().unwrap();
                let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec();
                // A client that has read enough may close the connection early.
                stream.write_all(answers.get(path).unwrap_or(&missing)).await.unwrap_or_default();
            }
        });
        Self { url, requests }
    }

    /// Formats a result as in `result.json`.
    fn format_result(&self, result: &ToolResult) -> serde_json::Map<String, Value> {
        let [Block::Text(text)] = result.content.as_slice() else { panic!("not one text: {result:?}") };
        let mut actual = json!({"text": text.text.lines().collect::<Vec<_>>()});
        if result.is_error {
            actual["isError"] = json!(true);
        }
        actual["details"] = json!(result.details);
        if let Some(text) = actual.pointer("/details/text").and_then(Value::as_str) {
            // Corrects the length for the replaced URL.
            let url_growth = text.matches(&self.url).count() * (self.url.len() - "$SITE".len());
            let length = actual.pointer("/details/length").and_then(Value::as_u64).unwrap();
            actual["details"]["length"] = json!(length - url_growth as u64);
        }
        actual["asked"] = json!(*self.requests.lock().unwrap());
        serde_json::from_str(&actual.to_string().replace(&self.url, "$SITE")).unwrap()
    }
}

/// Returns the bytes of a response.
fn answer(folder: &Path, is: &Value) -> Vec<u8> {
    let text = |name: &str| is.get(name).and_then(Value::as_str);
    let body = match text("file") {
        Some(file) => fs::read(folder.join(file)).unwrap(),
        None => text("body").unwrap_or_default().as_bytes().to_vec(),
    };
    let times = is.get("times").and_then(Value::as_u64).unwrap_or(1);
    let mut body = body.repeat(times.try_into().unwrap());
    let mut head = format!("HTTP/1.1 {} X\r\n", is.get("status").and_then(Value::as_u64).unwrap_or(200));
    for (name, value) in is.get("headers").and_then(Value::as_object).into_iter().flatten() {
        head += &format!("{name}: {}\r\n", value.as_str().unwrap());
    }
    if is.get("gzip").is_some() {
        let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
        compressed.write_all(&body).unwrap();
        body = compressed.finish().unwrap();
        head += "content-encoding: gzip\r\n";
    }
    [format!("{head}content-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes(), &body].concat()
}
