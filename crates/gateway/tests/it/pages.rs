//! Homard's own page and the Control UI as served over HTTP.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use homard_gateway::ControlUi;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    http::http,
    support::{TOKEN, TestGateway, says},
};

/// A directory that looks like an installed Control UI, with a private file beside it.
struct ControlUiDir(PathBuf);

impl ControlUiDir {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("homard-pages-{}-{name}", std::process::id()));
        fs::remove_dir_all(&root).ok();
        let ui = root.join("dist").join("control-ui");
        fs::create_dir_all(ui.join("assets")).unwrap();
        fs::write(ui.join("index.html"), "<script>go()</script><title>UI</title>").unwrap();
        fs::write(ui.join("assets").join("app-1.js"), "export {}").unwrap();
        fs::write(ui.join(".secret.txt"), "hush").unwrap();
        fs::write(root.join("outside.js"), "hush").unwrap();
        symlink(root.join("outside.js"), ui.join("assets").join("link.js")).unwrap();
        Self(root)
    }

    fn open(&self) -> ControlUi {
        ControlUi::open(&self.0).unwrap()
    }
}

impl Drop for ControlUiDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

async fn get(gateway: &TestGateway, path: &str) -> (u16, String) {
    http(gateway.address, &format!("GET {path} HTTP/1.1\r\nHost: localhost")).await
}

#[tokio::test]
async fn a_control_ui_is_served_from_its_directory_only() {
    let installed = ControlUiDir::new("served");
    let gateway = TestGateway::with(|gateway| gateway.with_control_ui(installed.open())).await;
    let page = (200, "<script>go()</script><title>UI</title>".to_owned());
    for path in ["/", "/index.html", "/chat", "/sessions", "/config?x=1", "/chat/agent:main:main"] {
        assert_eq!(get(&gateway, path).await, page, "{path}");
    }
    for path in ["/assets/app-1.js", "/chat/assets/app-1.js"] {
        assert_eq!(get(&gateway, path).await, (200, "export {}".to_owned()), "{path}");
    }
    for path in [
        "/assets/missing.js",
        "/assets/link.js",
        "/.secret.txt",
        "/../outside.js",
        "/assets/../../outside.js",
        "/%2e%2e/outside.js",
        "/assets/..%2f..%2foutside.js",
        "//etc/passwd.txt",
    ] {
        let (status, body) = get(&gateway, path).await;
        assert_eq!((status, body.contains("hush")), (404, false), "{path}");
    }
    assert_eq!(http(gateway.address, "POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0").await.0, 405);
    // Other routes still work.
    assert_eq!(get(&gateway, "/health").await.0, 200);
}

#[tokio::test]
async fn control_ui_settings_require_the_secret() {
    let installed = ControlUiDir::new("settings");
    let gateway = TestGateway::with(|gateway| gateway.with_control_ui(installed.open())).await;
    let get_with_token = |path: &'static str, bearer: String| {
        let address = gateway.address;
        async move {
            http(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}")).await
        }
    };
    for path in ["/control-ui-config.json", "/__openclaw/control-ui-config.json"] {
        let (status, body) = get_with_token(path, TOKEN.to_owned()).await;
        let settings: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (status, &settings["assistantName"], &settings["terminalEnabled"]),
            (200, &json!("Assistant"), &json!(false))
        );
        assert_eq!(get_with_token(path, "nope".to_owned()).await.0, 401);
        assert_eq!(get(&gateway, path).await.0, 401);
    }
    assert_eq!(get(&gateway, "/avatar/main?meta=1").await, (200, r#"{"avatarUrl":null}"#.to_owned()));
}

#[tokio::test]
async fn without_a_control_ui_the_own_page_is_served() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let (status, body) = get(&gateway, "/").await;
    assert_eq!(status, 200);
    assert!(body.contains("<title>Homard</title>"), "{body}");
    let script = body.split('"').find(|word| word.ends_with(".js")).unwrap().trim_start_matches("./").to_owned();
    for path in [format!("/{script}"), format!("/homard/{script}"), "/homard/".to_owned(), "/index.html".to_owned()] {
        assert_eq!(get(&gateway, &path).await.0, 200, "{path}");
    }
    for path in ["/chat", "/control-ui-config.json", "/assets/app-1.js", "/assets/", "/homard/chat", "/../Cargo.toml"] {
        assert_eq!(get(&gateway, path).await.0, 404, "{path}");
    }
    assert_eq!(get(&gateway, "/homard").await.0, 308);
    assert_eq!(http(gateway.address, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0").await.0, 405);
}

#[tokio::test]
async fn the_own_page_is_compressed_and_cached_by_its_hash() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let (_, body) = get(&gateway, "/").await;
    let script = body.split('"').find(|word| word.ends_with(".js")).unwrap().trim_start_matches("./").to_owned();
    let plain = head(&gateway, &format!("/{script}"), "identity").await;
    let compressed = head(&gateway, &format!("/{script}"), "br, gzip").await;
    assert!(
        compressed.contains("content-encoding: gzip") && !plain.contains("content-encoding"),
        "{compressed}{plain}"
    );
    assert!(compressed.contains("cache-control: public, max-age=31536000, immutable"), "{compressed}");
    let refused = head(&gateway, &format!("/{script}"), "gzip;q=0").await;
    assert!(!refused.contains("content-encoding"), "{refused}");
    let page = head(&gateway, "/", "gzip").await;
    assert!(page.contains("cache-control: no-cache") && page.contains("x-frame-options: deny"), "{page}");
    assert_eq!(page.matches("content-type: ").count(), 1, "{page}");
    assert!(page.contains("content-type: text/html; charset=utf-8"), "{page}");
    assert!(page.contains("default-src 'none'; script-src 'self'") && !page.contains("unsafe"), "{page}");
}

/// Returns the headers of a response in lower case.
async fn head(gateway: &TestGateway, path: &str, encoding: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: {encoding}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    text.split("\r\n\r\n").next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn beside_a_control_ui_the_own_page_has_a_path_of_its_own() {
    let installed = ControlUiDir::new("beside");
    let gateway = TestGateway::with(|gateway| gateway.with_control_ui(installed.open())).await;
    assert!(get(&gateway, "/").await.1.contains("<title>UI</title>"));
    assert!(get(&gateway, "/homard/").await.1.contains("<title>Homard</title>"));
    let mut owner = gateway.client(4, json!({})).await;
    let answer = owner.ask("1", "device.loginCode.create", json!({})).await;
    assert_eq!(answer["payload"]["path"], "/homard/");
}

#[test]
fn a_directory_without_a_page_is_rejected_with_a_hint() {
    let missing = ControlUi::open("/nonexistent/ui".as_ref()).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/ui cannot be read: "), "{missing}");
    let installed = ControlUiDir::new("empty");
    let empty = installed.0.join("dist").join("control-ui").join("assets");
    let message = ControlUi::open(&empty).unwrap_err().to_string();
    assert!(
        message.ends_with(
            "contains no Control UI: specify a directory with an index.html, such as node_modules/openclaw/dist/control-ui"
        ),
        "{message}"
    );
}
