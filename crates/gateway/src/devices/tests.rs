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

fn held(names: &[String]) -> Scopes {
    Scopes::granted(Generation::Four, Some(names))
}

fn subset(bits: u8) -> Vec<String> {
    ALL.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0).map(|(_, &name)| name.to_owned()).collect()
}

struct DevicesDir(PathBuf);

impl DevicesDir {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("homard-devices-{}-{name}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for DevicesDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn open(place: &DevicesDir) -> Devices {
    Devices::new(&place.0, PairedDevices::read(&place.0).unwrap(), homard_audit::Audit::default())
}

#[test]
fn a_device_and_its_token_are_known_after_a_restart_and_no_token_is_on_disk() {
    let place = DevicesDir::new("restart");
    let devices = open(&place);
    let asked = scopes(&["operator.read"]);
    devices.pair(&params("d1", &asked), &held(&asked), 5);
    let token = devices.issue("d1", "nobody-guesses-this", 6).unwrap();
    assert_eq!((token.len(), devices.issue("d1", "another", 7)), (43, None));
    drop(devices);
    let devices = open(&place);
    assert_eq!(devices.token_scopes("d1", &token), Some(asked));
    assert!(devices.allows("d1", "key-d1", &held(&[])) && !devices.allows("d1", "key-d2", &held(&[])));
    let file = place.0.join("devices").join("paired.json");
    let written = fs::read_to_string(&file).unwrap();
    assert!(!written.contains(&token) && !devices.list(8).to_string().contains(&digest(&token)));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_list_that_cannot_be_read_is_an_error_and_stays_as_it_is() {
    for is_folder in [false, true] {
        let place = DevicesDir::new(if is_folder { "folder" } else { "broken" });
        let file = place.0.join("devices").join("paired.json");
        fs::create_dir_all(if is_folder { &file } else { file.parent().unwrap() }).unwrap();
        if !is_folder {
            fs::write(&file, "{").unwrap();
        }
        let told = PairedDevices::read(&place.0).unwrap_err().to_string();
        assert!(told.contains("paired.json cannot be read") && told.contains("restore it from a backup"), "{told}");
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), (!is_folder).then_some("{"));
    }
    let place = DevicesDir::new("empty");
    assert_eq!(open(&place).list(1), json!({"pending": [], "paired": []}));
}

#[test]
fn r42_a_revoked_token_is_worth_nothing_and_its_connections_end() {
    let place = DevicesDir::new("r42");
    let devices = open(&place);
    let asked = scopes(&["operator.read"]);
    devices.pair(&params("d1", &asked), &held(&asked), 1);
    let first = devices.issue("d1", "one", 1).unwrap();
    let (mine, other) = (devices.register_connection("d1"), devices.register_connection("d2"));
    let admin = held(&scopes(&["operator.admin"]));
    let new = Rotation { scopes: None, caller_scopes: &admin, manageable_scopes: &admin, random: "two", now_ms: 2 };
    let (second, _) = devices.rotate("d1", new).unwrap();
    assert_eq!((devices.token_scopes("d1", &first), devices.token_scopes("d1", &second)), (None, Some(asked)));
    assert_eq!((mine.is_cancelled(), other.is_cancelled()), (true, false));
    let again = devices.register_connection("d1");
    devices.revoke("d1", &held(&scopes(&["operator.admin"]))).unwrap();
    assert_eq!((devices.token_scopes("d1", &second), again.is_cancelled()), (None, true));
    assert_eq!(devices.remove("nobody", &held(&scopes(&["operator.admin"]))), Err(Error::NoDevice));
}

#[test]
fn l8_a_device_is_managed_by_who_holds_its_scopes() {
    let place = DevicesDir::new("l8");
    let devices = open(&place);
    let (admin, pairing) = (scopes(&["operator.admin"]), scopes(&["operator.pairing"]));
    devices.pair(&params("admin", &admin), &held(&admin), 1);
    devices.pair(&params("pairing", &pairing), &held(&pairing), 1);
    let token = devices.issue("admin", "one", 1).unwrap();
    let above = Err(Error::MissingScope("operator.admin".to_owned()));
    for wanted in [None, Some(&[][..]), Some(&pairing[..])] {
        let by = held(&pairing);
        let rotation =
            Rotation { scopes: wanted, caller_scopes: &by, manageable_scopes: &by, random: "two", now_ms: 2 };
        assert_eq!(devices.rotate("admin", rotation).map(|_| ()), above);
    }
    assert_eq!(devices.revoke("admin", &held(&pairing)), above);
    assert_eq!(devices.rename("admin", "mine", &held(&pairing)).map(|_| ()), above);
    assert_eq!(devices.remove("admin", &held(&pairing)), above);
    assert_eq!(devices.token_scopes("admin", &token), Some(admin.clone()));
    // A device may manage itself, and a caller with more scopes may manage both.
    devices.rename("pairing", "desk", &held(&pairing)).unwrap();
    devices.remove("pairing", &held(&pairing)).unwrap();
    devices.remove("admin", &held(&admin)).unwrap();
}

#[test]
fn l8_a_device_that_asks_for_more_scopes_waits_and_keeps_those_it_has() {
    let place = DevicesDir::new("l8-more");
    let devices = open(&place);
    let (read, admin) = (scopes(&["operator.read"]), scopes(&["operator.admin"]));
    devices.pair(&params("d1", &read), &held(&read), 1);
    assert!(devices.allows("d1", "key-d1", &held(&read)) && !devices.allows("d1", "key-d1", &held(&admin)));
    let first = devices.request(&params("d1", &read), "r-1".to_owned(), 2).unwrap();
    let second = devices.request(&params("d1", &admin), "r-2".to_owned(), 3).unwrap();
    assert_eq!((first.id.as_str(), second.id.as_str()), ("r-1", "r-2"));
    assert_eq!(devices.list(3)["pending"].as_array().unwrap().len(), 1);
    assert_eq!(devices.approve("r-2", &held(&read), 4), Err(Error::MissingScope("operator.admin".to_owned())));
    devices.approve("r-2", &held(&admin), 5).unwrap();
    assert!(devices.allows("d1", "key-d1", &held(&[read, admin].concat())));
}

#[test]
fn r43_a_request_is_one_of_a_kind_ends_after_five_minutes_and_holds_no_secret() {
    let place = DevicesDir::new("r43");
    let devices = open(&place);
    let admin = held(&scopes(&["operator.admin"]));
    let asked = scopes(&["operator.read"]);
    let request = devices.request(&params("d1", &asked), "r-1".to_owned(), 1000).unwrap();
    assert_eq!(devices.request(&params("d1", &asked), "r-2".to_owned(), 2000).unwrap(), request);
    assert_eq!(devices.approve("r-2", &admin, 2000), Err(Error::NoRequest));
    assert_eq!(devices.approve("r-1", &admin, 1000 + REQUEST_TTL_MS), Err(Error::NoRequest));
    let request = devices.request(&params("d1", &asked), "r-3".to_owned(), 400_000).unwrap();
    let shown = request.to_json();
    assert_eq!((&shown["displayName"], &shown["scopes"]), (&json!("desk"), &json!(asked)));
    assert!(shown.get("token").is_none() && shown.get("tokens").is_none());
    assert_eq!(devices.approve("r-3", &admin, 400_001).unwrap()["deviceId"], "d1");
    // A request can be approved once.
    assert_eq!(devices.approve("r-3", &admin, 400_002), Err(Error::NoRequest));
    assert!(devices.allows("d1", "key-d1", &held(&[])));
    // Five unknown request ids drop all requests, even if the sixth id is right.
    devices.request(&params("d2", &asked), "r-4".to_owned(), 400_003).unwrap();
    for guess in 0..MAX_WRONG_IDS {
        assert_eq!(devices.approve(&format!("guess-{guess}"), &admin, 400_004), Err(Error::NoRequest));
    }
    assert_eq!(devices.approve("r-4", &admin, 400_005), Err(Error::NoRequest));
    assert!(!devices.allows("d2", "key-d2", &held(&[])));
    let many = 0..2 * MAX_REQUESTS;
    many.for_each(|at| drop(devices.request(&params(&format!("x{at}"), &asked), format!("q-{at}"), 500_000)));
    assert_eq!(devices.list(500_000)["pending"].as_array().unwrap().len(), MAX_REQUESTS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Tries four ways of privilege escalation with arbitrary scopes.
    #[test]
    fn r41_nobody_gives_a_device_more_than_he_has(caller: u8, device: u8, asked: u8) {
        // In memory only: the directory cannot be created.
        let devices = Devices::new(Path::new("/dev/null"), PairedDevices::default(), homard_audit::Audit::default());
        let (caller, device, asked) = (held(&subset(caller)), subset(device), subset(asked));
        devices.request(&params("new", &asked), "r".to_owned(), 1).unwrap();
        match devices.approve("r", &caller, 2) {
            Ok(_) => prop_assert!(asked.iter().all(|scope| caller.includes(scope))),
            Err(_) => prop_assert!(!devices.allows("new", "key-new", &held(&[]))),
        }
        devices.pair(&params("old", &device), &held(&device), 1);
        let before = devices.issue("old", "first", 1).unwrap();
        let new = Rotation { scopes: Some(&asked), caller_scopes: &caller, manageable_scopes: &caller, random: "second", now_ms: 2 };
        match devices.rotate("old", new) {
            Ok((token, scopes)) => {
                prop_assert!(scopes.iter().all(|scope| caller.includes(scope) && device.contains(scope)));
                prop_assert_eq!(devices.token_scopes("old", &token), Some(scopes));
            }
            Err(_) => prop_assert_eq!(devices.token_scopes("old", &before), Some(device)),
        }
    }
}

#[test]
fn r40_what_a_token_may_do_is_what_was_asked_for_within_its_grant() {
    let subsets: Vec<_> = (0..=u8::MAX).map(subset).collect();
    assert_eq!(subsets.len(), 256);
    for granted in &subsets {
        let grant = held(granted);
        for asked in &subsets {
            let effective = held(asked).within(granted);
            let expected: Vec<_> = asked.iter().filter(|scope| grant.includes(scope)).cloned().collect();
            assert_eq!(effective.names(), expected);
            for scope in ALL {
                assert!(
                    !effective.includes(scope) || grant.includes(scope),
                    "{asked:?} within {granted:?} holds {scope}"
                );
            }
        }
    }
}
