//! The sign-in at a provider with a device code, against a fake issuer that is also the model's server.

use std::{
    collections::VecDeque,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    home::{CommandOutput, Home, Process, run_command},
    models::files,
};

/// State of the issuer.
#[derive(Debug, Default)]
struct Issuer {
    address: Option<SocketAddr>,
    /// Errors of the token endpoint before it grants a token to a device.
    device_errors: VecDeque<&'static str>,
    /// Number of tokens issued; the last one is valid.
    issued: usize,
    /// Lifetime of a token in seconds.
    lifetime: u64,
    /// True once the user has withdrawn the consent.
    is_revoked: bool,
    /// Requests: path, and form or empty.
    requests: Vec<(String, String)>,
}

impl Issuer {
    fn tokens(&self) -> Value {
        json!({
            "access_token": format!("canary-access-{}", self.issued), "token_type": "Bearer",
            "refresh_token": format!("canary-refresh-{}", self.issued), "expires_in": self.lifetime,
        })
    }

    /// Returns the status, the content type and the body for a request.
    fn answer(&mut self, path: &str, form: &str, bearer: &str) -> (u16, &'static str, String) {
        let base = format!("http://{}", self.address.unwrap());
        let invalid = |code: &str| (400, json!({"error": code, "error_description": "as the test asked"}));
        let (status, body) = match path {
            "/.well-known/oauth-authorization-server" => (
                200,
                json!({"issuer": base, "token_endpoint": format!("{base}/token"),
                    "device_authorization_endpoint": format!("{base}/device")}),
            ),
            "/device" => (
                200,
                json!({"device_code": "canary-device-code", "user_code": "WDJB-MJHT", "interval": 1, "expires_in": 600,
                    "verification_uri": format!("{base}/activate"),
                    "verification_uri_complete": format!("{base}/activate?user_code=WDJB-MJHT")}),
            ),
            "/token" if form.contains("device_code=canary-device-code") => match self.device_errors.pop_front() {
                Some(code) => invalid(code),
                None => {
                    self.issued += 1;
                    (200, self.tokens())
                }
            },
            "/token" if form.contains(&format!("refresh_token=canary-refresh-{}", self.issued)) && !self.is_revoked => {
                self.issued += 1;
                (200, self.tokens())
            }
            "/token" => invalid("invalid_grant"),
            "/v1/chat/completions" if bearer == format!("Bearer canary-access-{}", self.issued) && !self.is_revoked => {
                let delta =
                    json!({"choices": [{"index": 0, "delta": {"content": "Good day"}, "finish_reason": "stop"}]});
                return (200, "text/event-stream", format!("data: {delta}\n\ndata: [DONE]\n\n"));
            }
            "/v1/chat/completions" => (401, json!({"error": {"message": format!("bad token {bearer}")}})),
            _ => (404, json!({})),
        };
        (status, "application/json", body.to_string())
    }
}

/// A running issuer. Its thread ends with the test process.
struct FakeIssuer(Arc<Mutex<Issuer>>);

impl FakeIssuer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = Issuer { address: listener.local_addr().ok(), lifetime: 3600, ..Issuer::default() };
        let issuer = Arc::new(Mutex::new(issuer));
        let shared = issuer.clone();
        thread::spawn(move || listener.incoming().for_each(|stream| serve(&stream.unwrap(), &shared)));
        Self(issuer)
    }

    fn state(&self) -> MutexGuard<'_, Issuer> {
        self.0.lock().unwrap()
    }

    /// Returns a home whose only provider needs a sign-in here.
    fn home(&self) -> Home {
        let home = Home::new();
        let base = format!("http://{}", self.state().address.unwrap());
        let provider = json!({
            "baseUrl": format!("{base}/v1"), "api": "openai-completions", "models": [{"id": "m"}],
            "oauth": {"issuer": base, "clientId": "homard-test", "scopes": ["models.use", "offline_access"]},
        });
        let agents = json!({"defaults": {"model": "mine/m"}});
        home.configure(&json!({"agents": agents, "models": {"providers": {"mine": provider}}}).to_string());
        home
    }

    /// Returns the forms that were sent to a path.
    fn forms(&self, path: &str) -> Vec<String> {
        let forms = |(asked, form): &(String, String)| (asked == path).then(|| form.clone());
        self.state().requests.iter().filter_map(forms).collect()
    }
}

fn serve(mut stream: &TcpStream, issuer: &Mutex<Issuer>) {
    let mut reader = BufReader::new(stream);
    let (mut path, mut length, mut bearer) = (String::new(), 0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        match line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim())) {
            Some((name, value)) if name == "content-length" => length = value.parse().unwrap(),
            Some((name, value)) if name == "authorization" => value.clone_into(&mut bearer),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let form = if path.starts_with("/v1") { String::new() } else { String::from_utf8(body).unwrap() };
    let mut issuer = issuer.lock().unwrap();
    issuer.requests.push((path.clone(), form.clone()));
    let (status, kind, body) = issuer.answer(&path, &form, &bearer);
    drop(issuer);
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", body.len());
    // The client may have ended.
    write!(stream, "{head}connection: close\r\n\r\n{body}").ok();
}

const LOGIN: [&str; 5] = ["models", "auth", "login", "--provider", "mine"];

fn stored(home: &Home) -> Value {
    let text = fs::read(home.state().join("agents/main/agent/auth-profiles.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn send(home: &Home) -> CommandOutput {
    let mut command = home.command(&["agent", "-m", "hi"]);
    command.env("HOMARD_LOG", "trace");
    run_command(command)
}

#[test]
fn a_confirmed_code_becomes_a_credential() {
    let issuer = FakeIssuer::start();
    let home = issuer.home();
    let command = "homard models auth login --provider mine";
    for args in [&["models", "status"][..], &["agent", "-m", "hi"]] {
        let output = home.run(args);
        let shown = format!("{}{}", output.stdout, output.stderr);
        assert!(shown.contains("not signed in to mine") && shown.contains(command), "{output:?}");
    }
    issuer.state().device_errors.push_back("authorization_pending");
    let output = home.run(&[&LOGIN[..], &["--json"]].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("/activate and enter the code WDJB-MJHT"), "{output:?}");
    assert!(output.stderr.contains("/activate?user_code=WDJB-MJHT"), "{output:?}");
    assert_eq!((&output.json()["profile"], &output.json()["did"]), (&json!("mine:default"), &json!("added")));
    assert_eq!(issuer.forms("/device"), ["client_id=homard-test&scope=models.use+offline_access"]);
    let polls = issuer.forms("/token");
    assert!(polls.len() == 2 && polls[0].contains("client_id=homard-test"), "{polls:?}");
    let file = home.state().join("agents/main/agent/auth-profiles.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let profile = &stored(&home)["profiles"]["mine:default"];
    assert_eq!((&profile["type"], &profile["access"]), (&json!("oauth"), &json!("canary-access-1")));
    let listed = home.run(&["models", "auth", "list"]);
    let answered = send(&home);
    assert_eq!(answered.stdout, "Good day\n", "{answered:?}");
    // Neither what is printed, nor the log, nor the transcript contains a token.
    let mut texts = vec![output.stdout, output.stderr, listed.stdout, answered.stdout, answered.stderr];
    let others = files(&home.state()).into_iter().filter(|(path, _)| !path.ends_with("auth-profiles.json"));
    texts.extend(others.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()));
    assert!(texts.iter().all(|text| !text.contains("canary-")), "{texts:?}");
    // Again: the credential is replaced.
    assert_eq!(home.run(&[&LOGIN[..], &["--json"]].concat()).json()["did"], "replaced");
    assert_eq!(stored(&home)["profiles"]["mine:default"]["access"], "canary-access-2");
}

#[test]
fn tokens_are_renewed_until_the_sign_in_is_revoked() {
    let issuer = FakeIssuer::start();
    let home = issuer.home();
    // So short that every use renews it.
    issuer.state().lifetime = 30;
    assert_eq!(home.run(&LOGIN).code, Some(0));
    assert_eq!(send(&home).stdout, "Good day\n");
    assert_eq!(stored(&home)["profiles"]["mine:default"]["refresh"], "canary-refresh-2");
    // A token that the provider rejects before it expires is renewed, too.
    issuer.state().lifetime = 3600;
    assert_eq!(send(&home).stdout, "Good day\n");
    let renewals = || issuer.forms("/token").iter().filter(|form| form.contains("grant_type=refresh_token")).count();
    assert_eq!(renewals(), 2);
    let mut document = stored(&home);
    document["profiles"]["mine:default"]["access"] = json!("canary-access-0");
    fs::write(home.state().join("agents/main/agent/auth-profiles.json"), document.to_string()).unwrap();
    assert_eq!((send(&home).stdout.as_str(), renewals()), ("Good day\n", 3));
    // A gateway whose token another process has replaced reads the new one.
    let gateway = home.gateway();
    assert_eq!(gateway.run(&["agent", "-m", "hi"]).stdout, "Good day\n");
    assert_eq!(home.run(&LOGIN).code, Some(0));
    let output = gateway.run(&["agent", "-m", "hi"]);
    assert_eq!((output.stdout.as_str(), renewals()), ("Good day\n", 3), "{output:?}");
    drop(gateway);
    issuer.state().is_revoked = true;
    let output = send(&home);
    assert_eq!(output.code, Some(1), "{output:?}");
    let expected = "sign in again with: homard models auth login --provider mine";
    assert!(output.stderr.contains("revoked") && output.stderr.contains(expected), "{output:?}");
    assert!(!output.stderr.contains("canary-"), "{output:?}");
}

#[test]
fn a_sign_in_that_fails_changes_nothing() {
    let issuer = FakeIssuer::start();
    let home = issuer.home();
    for (code, why) in [
        ("access_denied", "the sign-in was denied"),
        ("expired_token", "the code expired before it was confirmed"),
        ("unauthorized_client", "unauthorized_client: as the test asked"),
    ] {
        issuer.state().device_errors.push_back(code);
        let output = home.run(&LOGIN);
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains(why), "{output:?}");
        assert!(!home.state().join("agents").exists(), "{code}");
    }
    // Ctrl-C while it waits.
    issuer.state().device_errors.extend(["authorization_pending"; 600]);
    let mut command = home.command(&LOGIN);
    let mut process = Process(command.stdin(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Waiting for your confirmation")));
    process.signal(Signal::INT);
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(process.0.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.concat().contains("nothing was changed"), "{rest:?}");
    assert!(!home.state().join("agents").exists());
    let other = home.run(&["models", "auth", "login", "--provider", "openai"]);
    assert!(other.code == Some(2) && other.stderr.contains("models.providers.openai.oauth is not set"), "{other:?}");
    let unusable = home.run(&["config", "set", "models.providers.mine.oauth", "{clientId: 'x'}"]);
    assert!(unusable.stderr.contains("has neither an issuer"), "{unusable:?}");
}
