//! Storage of pairing state: files that are read on demand, written atomically, and readable by the owner only.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use homard_proto::{ChannelAccount, Identity};
use homard_stdx::sync::Mutex;
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{ApprovedSenders, CODE_LENGTH, PairingOutcome, PairingRequest, PairingRequests};

/// Why a pairing operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The channel name is not a valid file name.
    #[error("{0} is not a valid channel name")]
    Channel(String),
    /// No request has this code.
    #[error("no pending pairing request has the code {0}; codes expire after an hour: see homard pairing list")]
    Code(String),
    /// A file has invalid content.
    #[error("{} is not valid ({why}); fix or delete the file; until then its entries are ignored", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// A file operation failed.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Pairing requests and approvals of all channels in one directory. One instance per process, and one process per
/// directory.
#[derive(Debug)]
pub struct PairingStore {
    directory: PathBuf,
    /// Held while a file is read, changed and written.
    lock: Mutex<()>,
}

impl PairingStore {
    /// Opens the store in the directory `credentials` of the state directory.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { directory: folder.into(), lock: Mutex::new(()) }
    }

    /// Registers a pairing request of an unknown sender. `draw` returns random bytes.
    pub fn request(
        &self,
        applicant: PairingApplicant<'_>,
        draw: impl FnMut() -> [u8; CODE_LENGTH],
    ) -> Result<PairingOutcome, Error> {
        let path = self.path(applicant.sender.channel(), "pairing")?;
        let _turn = self.lock.lock();
        let before: PairingRequests = read(&path)?;
        let mut requests = before.clone();
        let outcome = requests.add(applicant.sender, applicant.meta, at(applicant.now_ms), draw);
        if requests != before {
            write(&path, &requests)?;
        }
        Ok(outcome)
    }

    /// Lists the pending requests of a channel.
    pub fn pending(&self, channel: &str, now_ms: u64) -> Result<Vec<PairingRequest>, Error> {
        let mut requests: PairingRequests = read(&self.path(channel, "pairing")?)?;
        requests.expire(at(now_ms));
        Ok(requests.requests)
    }

    /// Approves the request with this code.
    pub fn approve(&self, channel: &str, code: &str, now_ms: u64) -> Result<PairingRequest, Error> {
        let path = self.path(channel, "pairing")?;
        let list = self.path(channel, "allowFrom")?;
        let _turn = self.lock.lock();
        let mut requests: PairingRequests = read(&path)?;
        let mut approved: ApprovedSenders = read(&list)?;
        let request = requests.take(code, at(now_ms)).ok_or_else(|| unknown_code(code))?;
        // The list first: a crash in between leaves a request that can be approved again, not a lost one.
        let ids = approved.of_account(request.account());
        if !ids.contains(&request.id) {
            ids.push(request.id.clone());
            write(&list, &approved)?;
        }
        write(&path, &requests)?;
        Ok(request)
    }

    /// Rejects the request with this code. The sender may ask again.
    pub fn dismiss(&self, channel: &str, code: &str, now_ms: u64) -> Result<PairingRequest, Error> {
        let path = self.path(channel, "pairing")?;
        let _turn = self.lock.lock();
        let mut requests: PairingRequests = read(&path)?;
        let request = requests.take(code, at(now_ms)).ok_or_else(|| unknown_code(code))?;
        write(&path, &requests)?;
        Ok(request)
    }

    /// Returns the senders approved for an account.
    pub fn approved(&self, at: &ChannelAccount) -> Result<Vec<Identity>, Error> {
        let approved: ApprovedSenders = read(&self.path(at.channel(), "allowFrom")?)?;
        Ok(approved.senders(at))
    }

    /// Returns all ids approved on a channel, with their account; `None` for the default one.
    pub fn all_approved(&self, channel: &str) -> Result<Vec<(Option<String>, String)>, Error> {
        let ApprovedSenders { allow_from, accounts, .. } = read(&self.path(channel, "allowFrom")?)?;
        let of_accounts =
            accounts.into_iter().flat_map(|(account, ids)| ids.into_iter().map(move |id| (Some(account.clone()), id)));
        Ok(allow_from.into_iter().map(|id| (None, id)).chain(of_accounts).collect())
    }

    /// Revokes an approval on all accounts of the channel; `false` if there was none.
    pub fn revoke(&self, channel: &str, id: &str) -> Result<bool, Error> {
        let path = self.path(channel, "allowFrom")?;
        let _turn = self.lock.lock();
        let mut approved: ApprovedSenders = read(&path)?;
        let was_approved = approved.remove(id);
        if was_approved {
            write(&path, &approved)?;
        }
        Ok(was_approved)
    }

    fn path(&self, channel: &str, suffix: &str) -> Result<PathBuf, Error> {
        let is_name = !channel.is_empty()
            && channel.len() <= 64
            && channel.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
        if !is_name {
            return Err(Error::Channel(channel.chars().filter(|c| !c.is_control()).take(64).collect()));
        }
        Ok(self.directory.join(format!("{channel}-{suffix}.json")))
    }
}

/// An unknown sender that requests pairing.
#[derive(Debug, Clone, PartialEq)]
pub struct PairingApplicant<'a> {
    /// Its identity.
    pub sender: &'a Identity,
    /// Further data about the sender.
    pub meta: Map<String, Value>,
    /// Time of the request in milliseconds since the epoch.
    pub now_ms: u64,
}

fn unknown_code(code: &str) -> Error {
    Error::Code(code.trim().chars().take(20).collect())
}

fn at(now_ms: u64) -> Timestamp {
    i64::try_from(now_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
        Err(source) => return Err(Error::Io { doing: "read", path: path.to_owned(), source }),
    };
    serde_json::from_str(&text).map_err(|error| Error::Corrupt { path: path.to_owned(), why: error.to_string() })
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let failed = |doing: &'static str| move |source| Error::Io { doing, path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create the directory of"))?;
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::from).map_err(failed("write"))?;
    text.push('\n');
    homard_stdx::file::replace(path, text.as_bytes()).map_err(failed("write"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use homard_proto::IdIssuer;
    use serde_json::json;

    use super::*;

    const NOON: u64 = 1_794_000_000_000;

    fn telegram() -> ChannelAccount {
        ChannelAccount::new("telegram", "default", IdIssuer::Platform, true)
    }

    /// Requests pairing for a sender of an account.
    fn request_at(store: &PairingStore, at: &ChannelAccount, id: &str, byte: u8) -> Result<PairingOutcome, Error> {
        let meta = json!({"username": "ann"}).as_object().cloned().unwrap_or_default();
        store.request(PairingApplicant { sender: &at.sender(id), meta, now_ms: NOON }, || [byte; 8])
    }

    fn request_pairing(store: &PairingStore, id: &str, byte: u8) -> Result<PairingOutcome, Error> {
        request_at(store, &telegram(), id, byte)
    }

    fn approved(store: &PairingStore) -> Vec<String> {
        store.approved(&telegram()).unwrap().iter().map(|sender| sender.id().to_owned()).collect()
    }

    fn json_at(path: &Path) -> Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn the_files_have_openclaws_format_and_are_private() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("credentials");
        let store = PairingStore::new(&folder);
        assert_eq!(request_pairing(&store, "7", 1).unwrap(), PairingOutcome::New("BBBBBBBB".to_owned()));
        let (pending_file, allowlist_file) =
            (folder.join("telegram-pairing.json"), folder.join("telegram-allowFrom.json"));
        let request = json!({
            "id": "7", "code": "BBBBBBBB", "createdAt": "2026-11-06T21:20:00.000Z", "lastSeenAt": "2026-11-06T21:20:00.000Z",
            "meta": {"username": "ann"},
        });
        assert_eq!(json_at(&pending_file), json!({"version": 1, "requests": [request]}));
        assert_eq!(approved(&store), Vec::<String>::new());
        assert_eq!(store.approve("telegram", "bbbbbbbb", NOON).unwrap().id, "7");
        assert_eq!(json_at(&pending_file), json!({"version": 1, "requests": []}));
        assert_eq!(json_at(&allowlist_file), json!({"version": 1, "allowFrom": ["7"]}));
        for (path, mode) in [(&pending_file, 0o600), (&allowlist_file, 0o600), (&folder, 0o700)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left over");
        assert!(store.revoke("telegram", "7").unwrap() && !store.revoke("telegram", "7").unwrap());
        assert_eq!(approved(&store), Vec::<String>::new());
    }

    #[test]
    fn a_request_is_pending_on_its_channel_until_it_expires() {
        let home = tempfile::tempdir().unwrap();
        let store = PairingStore::new(home.path());
        request_pairing(&store, "7", 1).unwrap();
        let pending = |channel, now| store.pending(channel, now).unwrap().len();
        assert_eq!((pending("telegram", NOON), pending("webhook", NOON)), (1, 0));
        assert_eq!(pending("telegram", NOON + 3_600_000), 0);
        let error = store.approve("telegram", "BBBBBBBB", NOON + 3_600_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no pending pairing request has the code BBBBBBBB; codes expire after an hour: see homard pairing list"
        );
    }

    #[test]
    fn a_dismissed_request_is_removed_and_approves_no_sender() {
        let home = tempfile::tempdir().unwrap();
        let store = PairingStore::new(home.path());
        request_pairing(&store, "7", 1).unwrap();
        request_pairing(&store, "8", 2).unwrap();
        assert_eq!(store.dismiss("telegram", " bbbbbbbb ", NOON).unwrap().id, "7");
        let waiting: Vec<_> = store.pending("telegram", NOON).unwrap().into_iter().map(|request| request.id).collect();
        assert_eq!((waiting, approved(&store)), (vec!["8".to_owned()], Vec::new()));
        for result in [store.dismiss("telegram", "BBBBBBBB", NOON), store.approve("telegram", "BBBBBBBB", NOON)] {
            assert!(matches!(result, Err(Error::Code(code)) if code == "BBBBBBBB"));
        }
        assert_eq!(request_pairing(&store, "7", 3).unwrap(), PairingOutcome::New("DDDDDDDD".to_owned()));
    }

    #[test]
    fn an_approval_applies_to_one_account_only() {
        let home = tempfile::tempdir().unwrap();
        let store = PairingStore::new(home.path());
        let at = |account: &str| ChannelAccount::new("webhook", account, IdIssuer::Peer, false);
        let (shop, bank, default) = (at("shop"), at("bank"), at("default"));
        assert_eq!(request_at(&store, &shop, "ann", 1).unwrap(), PairingOutcome::New("BBBBBBBB".to_owned()));
        assert_eq!(
            request_at(&store, &bank, "ann", 2).unwrap(),
            PairingOutcome::New("CCCCCCCC".to_owned()),
            "somebody else"
        );
        assert_eq!(request_at(&store, &shop, "ann", 3).unwrap(), PairingOutcome::Waiting("BBBBBBBB".to_owned()));
        assert_eq!(store.approve("webhook", "BBBBBBBB", NOON).unwrap().account(), "shop");
        let admitted = |store: &PairingStore| {
            [&shop, &bank, &default].map(|at| store.approved(at).unwrap().contains(&at.sender("ann")))
        };
        assert_eq!(admitted(&store), [true, false, false]);
        let written = json_at(&home.path().join("webhook-allowFrom.json"));
        assert_eq!(written, json!({"version": 1, "allowFrom": [], "accounts": {"shop": ["ann"]}}));
        assert!(store.revoke("webhook", "ann").unwrap());
        assert_eq!(admitted(&store), [false; 3]);
    }

    #[test]
    fn approvals_in_the_old_format_apply_where_they_are_unambiguous() {
        let home = tempfile::tempdir().unwrap();
        let store = PairingStore::new(home.path());
        for channel in ["telegram", "webhook"] {
            let text = json!({"version": 1, "allowFrom": ["7", ""]}).to_string();
            fs::write(home.path().join(format!("{channel}-allowFrom.json")), text).unwrap();
        }
        let is_approved = |channel, account, issuer, is_only| {
            store.approved(&ChannelAccount::new(channel, account, issuer, is_only)).unwrap().len() == 1
        };
        assert!(is_approved("telegram", "default", IdIssuer::Platform, false));
        assert!(is_approved("telegram", "work", IdIssuer::Platform, false), "one person on all bots");
        assert!(is_approved("webhook", "default", IdIssuer::Peer, false));
        assert!(is_approved("webhook", "door", IdIssuer::Peer, true));
        assert!(!is_approved("webhook", "door", IdIssuer::Peer, false), "of which program is not known");
    }

    #[test]
    fn a_corrupt_file_approves_no_sender_and_is_not_changed() {
        let home = tempfile::tempdir().unwrap();
        let store = PairingStore::new(home.path());
        for name in ["telegram-pairing.json", "telegram-allowFrom.json"] {
            fs::write(home.path().join(name), "{\"version\": 1, \"requests\": 5, \"allowFrom\": {}}").unwrap();
        }
        assert!(matches!(request_pairing(&store, "7", 1), Err(Error::Corrupt { .. })));
        assert!(matches!(store.approved(&telegram()), Err(Error::Corrupt { .. })));
        assert!(matches!(store.approve("telegram", "BBBBBBBB", NOON), Err(Error::Corrupt { .. })));
        let text = fs::read_to_string(home.path().join("telegram-pairing.json")).unwrap();
        assert!(text.contains("\"requests\": 5"));
    }

    #[test]
    fn a_channel_name_cannot_escape_the_directory() {
        let store = PairingStore::new("/nowhere");
        for name in ["../x", "", "a/b", "A", "a.b", &"x".repeat(65)] {
            assert!(matches!(store.pending(name, 0), Err(Error::Channel(_))), "{name}");
        }
    }
}
