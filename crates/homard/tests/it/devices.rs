//! `homard devices`: a second device asks from afar, waits for an approval, and is cut off when it is revoked; and a device
//! that OpenClaw has paired.

use std::net::Ipv4Addr;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer as _, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpSocket;
use tokio_tungstenite::{
    client_async,
    tungstenite::{client::IntoClientRequest as _, http::HeaderValue},
};

use crate::{
    home::{Home, RunningGateway},
    socket::{Socket, next_frame, send_frame},
};

/// Address of the proxy that the gateway trusts.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const SCOPES: &str = "operator.read";

/// A device with an identity of its own.
pub(crate) struct Device(SigningKey);

impl Device {
    pub(crate) fn new(seed: u8) -> Self {
        Self(SigningKey::from_bytes(&[seed; 32]))
    }

    pub(crate) fn id(&self) -> String {
        Sha256::digest(self.0.verifying_key().to_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Connects through the proxy with a token. Returns the connection and the answer to `connect`.
    pub(crate) async fn connect(&self, port: u16, token: &str) -> (Socket, Value) {
        let local = TcpSocket::new_v4().unwrap();
        local.bind((PROXY, 0).into()).unwrap();
        let stream = local.connect((Ipv4Addr::LOCALHOST, port).into()).await.unwrap();
        let mut request = format!("ws://127.0.0.1:{port}").into_client_request().unwrap();
        request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("198.51.100.7"));
        let (mut socket, _) = client_async(request, stream).await.unwrap();
        let challenge = next_frame(&mut socket).await.unwrap();
        let (nonce, at) =
            (challenge["payload"]["nonce"].as_str().unwrap(), challenge["payload"]["ts"].as_u64().unwrap());
        let (id, mode) = ("gateway-client", "backend");
        let text = ["v2", &self.id(), id, mode, "operator", SCOPES, &at.to_string(), token, nonce].join("|");
        let signature = self.0.sign(text.as_bytes()).to_bytes();
        let params = json!({
            "minProtocol": 4, "maxProtocol": 4, "role": "operator", "scopes": [SCOPES], "auth": {"token": token},
            "client": {"id": id, "mode": mode, "version": "1", "platform": "linux", "displayName": "Phone"},
            "device": {"id": self.id(), "publicKey": BASE64_URL_SAFE_NO_PAD.encode(self.0.verifying_key().to_bytes()),
                "signature": BASE64_URL_SAFE_NO_PAD.encode(signature), "signedAt": at, "nonce": nonce},
        });
        send_frame(&mut socket, &json!({"type": "req", "id": "1", "method": "connect", "params": params})).await;
        let answer = next_frame(&mut socket).await.unwrap();
        (socket, answer)
    }

    /// Asks for the pairing; returns the id of the request.
    async fn ask(&self, gateway: &RunningGateway<'_>) -> String {
        let (_, refused) = self.connect(gateway.port, &gateway.token()).await;
        assert_eq!(refused["error"]["code"], "NOT_PAIRED", "{refused}");
        refused["error"]["details"]["requestId"].as_str().unwrap().to_owned()
    }
}

fn home() -> Home {
    let home = Home::new();
    home.configure(&json!({"gateway": {"trustedProxies": [PROXY]}}).to_string());
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_device_is_approved_and_revoked() {
    let home = home();
    let gateway = home.gateway();
    let (phone, tablet) = (Device::new(1), Device::new(2));
    let request = phone.ask(&gateway).await;
    let listed = gateway.run(&["devices"]);
    assert!(listed.stdout.contains("Phone") && listed.stdout.contains("asked"), "{listed:?}");
    let rejected = tablet.ask(&gateway).await;
    assert_eq!(gateway.run(&["devices", "reject", &rejected]).code, Some(0));
    let output = gateway.run(&["devices", "approve", &request]);
    assert_eq!((output.code, output.stdout), (Some(0), format!("approved device {}\n", phone.id())));
    let again = gateway.run(&["devices", "approve", &request]);
    assert!(again.code == Some(1) && again.stderr.contains("not found"), "{again:?}");
    let document = gateway.run(&["devices", "list", "--json"]).json();
    let rows = document["paired"].as_array().unwrap();
    assert_eq!((rows.len(), &document["pending"]), (1, &json!([])), "{document}");
    assert_eq!((&rows[0]["deviceId"], &rows[0]["scopes"]), (&json!(phone.id()), &json!([SCOPES])));

    let (mut socket, hello) = phone.connect(gateway.port, &gateway.token()).await;
    assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    let request = json!({"type": "req", "id": "2", "method": "health", "params": {}});
    send_frame(&mut socket, &request).await;
    loop {
        let frame = next_frame(&mut socket).await.unwrap();
        if frame["id"] == "2" {
            assert_eq!(frame["ok"], true, "{frame}");
            break;
        }
    }
    let output = gateway.run(&["devices", "revoke", &phone.id()[..8]]);
    assert_eq!(output.code, Some(0), "{output:?}");
    // The open connection ends, and no new one is accepted.
    while next_frame(&mut socket).await.is_some() {}
    let (_, refused) = phone.connect(gateway.port, &gateway.token()).await;
    assert_eq!(refused["error"]["code"], "NOT_PAIRED", "{refused}");
    assert_eq!(gateway.run(&["devices", "revoke", "Phone"]).code, Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_stays_paired_after_a_restart() {
    let home = home();
    let phone = Device::new(3);
    let gateway = home.gateway();
    let request = phone.ask(&gateway).await;
    // A prefix of the id, or the device's name, is enough.
    assert_eq!(gateway.run(&["devices", "approve", &request[..8]]).code, Some(0));
    drop(gateway);
    let gateway = home.gateway();
    let (_, hello) = phone.connect(gateway.port, &gateway.token()).await;
    assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    let output = gateway.run(&["devices", "revoke", "Phone", "--json"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    drop(gateway);
    let gateway = home.gateway();
    let (_, refused) = phone.connect(gateway.port, &gateway.token()).await;
    assert_eq!(refused["error"]["code"], "NOT_PAIRED", "{refused}");
}
