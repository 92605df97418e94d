//! Tests of device pairing: scopes, requests and tokens, and attempts to escalate them.

use homard_proto::{Generation, method::connect::ConnectParams};
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Every known scope, one of OpenClaw's that is not supported here, and an unknown one.
const ALL: [&str; 8] = [
    "operator.read",
    "operator.write",
    "operator.approvals",
    "operator.questions",
    "operator.pairing",
    "operator.admin",
    "operator.talk.secrets",
    "operator.everything",
];

fn params(device: &str, scopes: &[String]) -> ConnectParams {
    let device =
        json!({"id": device, "publicKey": format!("key-{device}"), "signature": "s", "signedAt": 1, "nonce": "n"});
    serde_json::from_value(json!({
        "minProtocol": 4, "maxProtocol": 4, "device": device, "scopes": scopes,
        "client": {"id": "cli", "mode": "cli", "version": "1", "platform": "linux", "displayName": "desk\u{7}"},
    }))
    .unwrap()
}

fn scopes(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn granted_scopes(names: &[String]) -> Scopes {
    Scopes::granted(Generation::Four, Some(names))
}

fn subset(bits: u8) -> Vec<String> {
    ALL.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, &name)| name.to_owned()).collect()
}

struct DevicesDir(PathBuf);

impl DevicesDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("homard-devices-{}-{name}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for DevicesDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn open(dir: &DevicesDir) -> Devices {
    Devices::new(&dir.0, PairedDevices::read(&dir.0).unwrap(), homard_audit::Audit::default())
}

#[test]
fn a_device_and_its_token_are_known_after_a_restart_and_no_token_is_on_disk() {
    let dir = DevicesDir::new("restart");
    let devices = open(&dir);
    let requested = scopes(&["operator.read"]);
    devices.pair(&params("d1", &requested), &granted_scopes(&requested), 5);
    let token = devices.issue("d1", "nobody-guesses-this", 6).unwrap();
    assert_eq!((token.len(), devices.issue("d1", "another", 7)), (43, None));
    drop(devices);
    let devices = open(&dir);
    assert_eq!(devices.token_scopes("d1", &token), Some(requested));
    assert!(
        devices.allows("d1", "key-d1", &granted_scopes(&[])) && !devices.allows("d1", "key-d2", &granted_scopes(&[]))
    );
    let file = dir.0.join("devices").join("paired.json");
    let written = fs::read_to_string(&file).unwrap();
    assert!(!written.contains(&token) && !devices.list(8).to_string().contains(&digest(&token)));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn an_unreadable_device_list_is_an_error_and_is_not_overwritten() {
    for is_directory in [false, true] {
        let dir = DevicesDir::new(if is_directory { "folder" } else { "broken" });
        let file = dir.0.join("devices").join("paired.json");
        fs::create_dir_all(if is_directory { &file } else { file.parent().unwrap() }).unwrap();
        if !is_directory {
            fs::write(&file, "{").unwrap();
        }
        let error = PairedDevices::read(&dir.0).unwrap_err().to_string();
        assert!(error.contains("paired.json cannot be read") && error.contains("restore it from a backup"), "{error}");
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), (!is_directory).then_some("{"));
    }
    let dir = DevicesDir::new("empty");
    assert_eq!(open(&dir).list(1), json!({"pending": [], "paired": []}));
}

#[test]
fn r42_revoking_a_token_invalidates_it_and_closes_its_connections() {
    let dir = DevicesDir::new("r42");
    let devices = open(&dir);
    let requested = scopes(&["operator.read"]);
    devices.pair(&params("d1", &requested), &granted_scopes(&requested), 1);
    let first = devices.issue("d1", "one", 1).unwrap();
    let (revoked, other) = (devices.register_connection("d1"), devices.register_connection("d2"));
    let admin = granted_scopes(&scopes(&["operator.admin"]));
    let rotation =
        Rotation { scopes: None, caller_scopes: &admin, manageable_scopes: &admin, random: "two", now_ms: 2 };
    let RotatedToken { token: second, .. } = devices.rotate("d1", rotation).unwrap();
    assert_eq!((devices.token_scopes("d1", &first), devices.token_scopes("d1", &second)), (None, Some(requested)));
    assert_eq!((revoked.is_cancelled(), other.is_cancelled()), (true, false));
    let reconnected = devices.register_connection("d1");
    devices.revoke("d1", &granted_scopes(&scopes(&["operator.admin"]))).unwrap();
    assert_eq!((devices.token_scopes("d1", &second), reconnected.is_cancelled()), (None, true));
    let unknown = devices.remove("nobody", &granted_scopes(&scopes(&["operator.admin"])));
    assert_eq!(unknown.map(drop), Err(Error::NoDevice));
}

#[test]
fn managing_a_device_requires_all_of_its_scopes() {
    let dir = DevicesDir::new("l8");
    let devices = open(&dir);
    let (admin, pairing) = (scopes(&["operator.admin"]), scopes(&["operator.pairing"]));
    devices.pair(&params("admin", &admin), &granted_scopes(&admin), 1);
    devices.pair(&params("pairing", &pairing), &granted_scopes(&pairing), 1);
    let token = devices.issue("admin", "one", 1).unwrap();
    let missing = Err(Error::MissingScope("operator.admin".to_owned()));
    for wanted in [None, Some(&[][..]), Some(&pairing[..])] {
        let caller = granted_scopes(&pairing);
        let rotation =
            Rotation { scopes: wanted, caller_scopes: &caller, manageable_scopes: &caller, random: "two", now_ms: 2 };
        assert_eq!(devices.rotate("admin", rotation).map(|_| ()), missing);
    }
    assert_eq!(devices.revoke("admin", &granted_scopes(&pairing)).map(drop), missing);
    assert_eq!(devices.rename("admin", "mine", &granted_scopes(&pairing)).map(|_| ()), missing);
    assert_eq!(devices.remove("admin", &granted_scopes(&pairing)).map(drop), missing);
    assert_eq!(devices.token_scopes("admin", &token), Some(admin.clone()));
    // A device may manage itself, and a caller with more scopes may manage both.
    devices.rename("pairing", "desk", &granted_scopes(&pairing)).unwrap();
    devices.remove("pairing", &granted_scopes(&pairing)).unwrap();
    devices.remove("admin", &granted_scopes(&admin)).unwrap();
}

#[test]
fn a_device_that_asks_for_more_scopes_waits_and_keeps_those_it_has() {
    let dir = DevicesDir::new("l8-more");
    let devices = open(&dir);
    let (read, admin) = (scopes(&["operator.read"]), scopes(&["operator.admin"]));
    devices.pair(&params("d1", &read), &granted_scopes(&read), 1);
    assert!(
        devices.allows("d1", "key-d1", &granted_scopes(&read))
            && !devices.allows("d1", "key-d1", &granted_scopes(&admin))
    );
    let first = devices.request(&params("d1", &read), "r-1".to_owned(), 2).unwrap();
    let second = devices.request(&params("d1", &admin), "r-2".to_owned(), 3).unwrap();
    assert_eq!((first.id.as_str(), second.id.as_str()), ("r-1", "r-2"));
    assert_eq!(devices.list(3)["pending"].as_array().unwrap().len(), 1);
    assert_eq!(
        devices.approve("r-2", &granted_scopes(&read), 4),
        Err(Error::MissingScope("operator.admin".to_owned()))
    );
    devices.approve("r-2", &granted_scopes(&admin), 5).unwrap();
    assert!(devices.allows("d1", "key-d1", &granted_scopes(&[read, admin].concat())));
}

#[test]
fn r43_a_pairing_request_is_unique_expires_and_holds_no_secret() {
    let dir = DevicesDir::new("r43");
    let devices = open(&dir);
    let admin = granted_scopes(&scopes(&["operator.admin"]));
    let requested = scopes(&["operator.read"]);
    let request = devices.request(&params("d1", &requested), "r-1".to_owned(), 1000).unwrap();
    assert_eq!(devices.request(&params("d1", &requested), "r-2".to_owned(), 2000).unwrap(), request);
    assert_eq!(devices.approve("r-2", &admin, 2000), Err(Error::NoRequest));
    assert_eq!(devices.approve("r-1", &admin, 1000 + REQUEST_TTL_MS), Err(Error::NoRequest));
    let request = devices.request(&params("d1", &requested), "r-3".to_owned(), 400_000).unwrap();
    let json = request.to_json();
    assert_eq!((&json["displayName"], &json["scopes"]), (&json!("desk"), &json!(requested)));
    assert!(json.get("token").is_none() && json.get("tokens").is_none());
    assert_eq!(devices.approve("r-3", &admin, 400_001).unwrap()["deviceId"], "d1");
    // A request can be approved once.
    assert_eq!(devices.approve("r-3", &admin, 400_002), Err(Error::NoRequest));
    assert!(devices.allows("d1", "key-d1", &granted_scopes(&[])));
    // Five unknown request ids drop all requests, even if the sixth id is right.
    devices.request(&params("d2", &requested), "r-4".to_owned(), 400_003).unwrap();
    for guess in 0..MAX_WRONG_IDS {
        assert_eq!(devices.approve(&format!("guess-{guess}"), &admin, 400_004), Err(Error::NoRequest));
    }
    assert_eq!(devices.approve("r-4", &admin, 400_005), Err(Error::NoRequest));
    assert!(!devices.allows("d2", "key-d2", &granted_scopes(&[])));
    let many = 0..2 * MAX_REQUESTS;
    many.for_each(|at| drop(devices.request(&params(&format!("x{at}"), &requested), format!("q-{at}"), 500_000)));
    assert_eq!(devices.list(500_000)["pending"].as_array().unwrap().len(), MAX_REQUESTS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Tries four ways of privilege escalation with arbitrary scopes.
    #[test]
    fn r41_a_caller_cannot_grant_scopes_that_it_lacks(caller: u8, device: u8, requested: u8) {
        // In memory only: the directory cannot be created.
        let devices = Devices::new(Path::new("/dev/null"), PairedDevices::default(), homard_audit::Audit::default());
        let (caller, device, requested) = (granted_scopes(&subset(caller)), subset(device), subset(requested));
        devices.request(&params("new", &requested), "r".to_owned(), 1).unwrap();
        match devices.approve("r", &caller, 2) {
            Ok(_) => prop_assert!(requested.iter().all(|scope| caller.includes(scope))),
            Err(_) => prop_assert!(!devices.allows("new", "key-new", &granted_scopes(&[]))),
        }
        devices.pair(&params("old", &device), &granted_scopes(&device), 1);
        let first_token = devices.issue("old", "first", 1).unwrap();
        let rotation = Rotation { scopes: Some(&requested), caller_scopes: &caller, manageable_scopes: &caller, random: "second", now_ms: 2 };
        match devices.rotate("old", rotation) {
            Ok(RotatedToken { token, scopes, .. }) => {
                prop_assert!(scopes.iter().all(|scope| caller.includes(scope) && device.contains(scope)));
                prop_assert_eq!(devices.token_scopes("old", &token), Some(scopes));
            }
            Err(_) => prop_assert_eq!(devices.token_scopes("old", &first_token), Some(device)),
        }
    }
}

#[test]
fn r40_effective_scopes_are_the_requested_ones_within_the_grant() {
    let subsets: Vec<_> = (0..=u8::MAX).map(subset).collect();
    assert_eq!(subsets.len(), 256);
    for granted in &subsets {
        let grant = granted_scopes(granted);
        for requested in &subsets {
            let effective = granted_scopes(requested).within(granted);
            let expected: Vec<_> = requested.iter().filter(|scope| grant.includes(scope)).cloned().collect();
            assert_eq!(effective.names(), expected);
            for scope in ALL {
                assert!(
                    !effective.includes(scope) || grant.includes(scope),
                    "{requested:?} within {granted:?} holds {scope}"
                );
            }
        }
    }
}
