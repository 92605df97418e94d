//! The files of pairing: read when asked, written whole or not at all, for the owner's eyes only.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tempfile::NamedTempFile;

use super::{Approved, Asked, LENGTH, Request, Requests};

/// Why pairing did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name would not be the name of a file.
    #[error("{0} is not the name of a channel")]
    Channel(String),
    /// Nobody waits with this code.
    #[error("no request waits with the code {0}; codes are good for an hour: see homard pairing list")]
    Code(String),
    /// A file is not what it should be.
    #[error("{} cannot be understood ({why}); mend it or delete it, nobody is let in by it meanwhile", path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The disk or its rights are in the way.
    #[error("cannot {doing} {}", path.display())]
    Disk {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The requests and approvals of all channels, in a folder. One of these per process, and one process per folder.
#[derive(Debug)]
pub struct Book {
    folder: PathBuf,
    /// Held while a file is read, changed and written.
    turn: Mutex<()>,
}

impl Book {
    /// The book in the folder `credentials` of the state directory.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), turn: Mutex::new(()) }
    }

    /// Somebody whom nobody knows asks to be let in. `draw` gives random bytes.
    pub fn ask(&self, channel: &str, who: Who<'_>, draw: impl FnMut() -> [u8; LENGTH]) -> Result<Asked, Error> {
        let path = self.path(channel, "pairing")?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Requests = read(&path)?;
        let mut requests = before.clone();
        let asked = requests.ask(who.id, who.meta, at(who.now_ms), draw);
        if requests != before {
            write(&path, &requests)?;
        }
        Ok(asked)
    }

    /// Who waits in a channel.
    pub fn pending(&self, channel: &str, now_ms: u64) -> Result<Vec<Request>, Error> {
        let mut requests: Requests = read(&self.path(channel, "pairing")?)?;
        requests.expire(at(now_ms));
        Ok(requests.requests)
    }

    /// Lets in who was told this code.
    pub fn approve(&self, channel: &str, code: &str, now_ms: u64) -> Result<Request, Error> {
        let path = self.path(channel, "pairing")?;
        let list = self.path(channel, "allowFrom")?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut requests: Requests = read(&path)?;
        let mut approved: Approved = read(&list)?;
        let request = requests.take(code, at(now_ms)).ok_or_else(|| nobody(code))?;
        // The list first: a crash between the two leaves a request that can be approved again, not one that is lost.
        if !approved.allow_from.contains(&request.id) {
            approved.allow_from.push(request.id.clone());
            write(&list, &approved)?;
        }
        write(&path, &requests)?;
        Ok(request)
    }

    /// Lets go of the request of whoever was told this code. They are not in, and may ask again.
    pub fn dismiss(&self, channel: &str, code: &str, now_ms: u64) -> Result<Request, Error> {
        let path = self.path(channel, "pairing")?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut requests: Requests = read(&path)?;
        let request = requests.take(code, at(now_ms)).ok_or_else(|| nobody(code))?;
        write(&path, &requests)?;
        Ok(request)
    }

    /// The ids that were let in.
    pub fn approved(&self, channel: &str) -> Result<Vec<String>, Error> {
        let approved: Approved = read(&self.path(channel, "allowFrom")?)?;
        Ok(approved.allow_from)
    }

    /// Sends somebody out again; `false` if they were not in.
    pub fn revoke(&self, channel: &str, id: &str) -> Result<bool, Error> {
        let path = self.path(channel, "allowFrom")?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut approved: Approved = read(&path)?;
        let before = approved.allow_from.len();
        approved.allow_from.retain(|entry| entry != id);
        let was_in = approved.allow_from.len() < before;
        if was_in {
            write(&path, &approved)?;
        }
        Ok(was_in)
    }

    fn path(&self, channel: &str, what: &str) -> Result<PathBuf, Error> {
        let is_name = !channel.is_empty()
            && channel.len() <= 64
            && channel.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
        if !is_name {
            return Err(Error::Channel(channel.chars().filter(|c| !c.is_control()).take(64).collect()));
        }
        Ok(self.folder.join(format!("{channel}-{what}.json")))
    }
}

/// Somebody whom nobody knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Who<'a> {
    /// What the platform calls them.
    pub id: &'a str,
    /// What else is known of them.
    pub meta: Map<String, Value>,
    /// When they ask, in milliseconds since the epoch.
    pub now_ms: u64,
}

fn nobody(code: &str) -> Error {
    Error::Code(code.trim().chars().take(20).collect())
}

fn at(now_ms: u64) -> Timestamp {
    i64::try_from(now_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, Error> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
        Err(source) => return Err(Error::Disk { doing: "read", path: path.to_owned(), source }),
    };
    serde_json::from_str(&text).map_err(|error| Error::Garbled { path: path.to_owned(), why: error.to_string() })
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let failed = |doing: &'static str| move |source| Error::Disk { doing, path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("create the folder of"))?;
    let mut text = serde_json::to_string_pretty(value).map_err(io::Error::from).map_err(failed("write"))?;
    text.push('\n');
    let mut file = NamedTempFile::new_in(folder).map_err(failed("write beside"))?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed("set the rights of"))?;
    file.write_all(text.as_bytes()).map_err(failed("write"))?;
    file.as_file().sync_all().map_err(failed("write"))?;
    file.persist(path).map_err(|error| failed("replace")(error.error))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("make durable"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOON: u64 = 1_794_000_000_000;

    fn who(id: &str) -> Who<'_> {
        let meta = json!({"username": "ann"}).as_object().cloned().unwrap_or_default();
        Who { id, meta, now_ms: NOON }
    }

    fn json_at(path: &Path) -> Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn the_files_are_as_openclaw_has_them_and_private() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("credentials");
        let book = Book::new(&folder);
        assert_eq!(book.ask("telegram", who("7"), || [1; 8]).unwrap(), Asked::New("BBBBBBBB".to_owned()));
        let (asked, allowed) = (folder.join("telegram-pairing.json"), folder.join("telegram-allowFrom.json"));
        let request = json!({
            "id": "7", "code": "BBBBBBBB", "createdAt": "2026-11-06T21:20:00.000Z", "lastSeenAt": "2026-11-06T21:20:00.000Z",
            "meta": {"username": "ann"},
        });
        assert_eq!(json_at(&asked), json!({"version": 1, "requests": [request]}));
        assert_eq!(book.approved("telegram").unwrap(), Vec::<String>::new());
        assert_eq!(book.approve("telegram", "bbbbbbbb", NOON).unwrap().id, "7");
        assert_eq!(json_at(&asked), json!({"version": 1, "requests": []}));
        assert_eq!(json_at(&allowed), json!({"version": 1, "allowFrom": ["7"]}));
        for (path, mode) in [(&asked, 0o600), (&allowed, 0o600), (&folder, 0o700)] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left over");
        assert!(book.revoke("telegram", "7").unwrap() && !book.revoke("telegram", "7").unwrap());
        assert_eq!(book.approved("telegram").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_request_waits_in_its_own_channel_until_its_time_is_over() {
        let home = tempfile::tempdir().unwrap();
        let book = Book::new(home.path());
        book.ask("telegram", who("7"), || [1; 8]).unwrap();
        let pending = |channel, now| book.pending(channel, now).unwrap().len();
        assert_eq!((pending("telegram", NOON), pending("webhook", NOON)), (1, 0));
        assert_eq!(pending("telegram", NOON + 3_600_000), 0);
        let gone = book.approve("telegram", "BBBBBBBB", NOON + 3_600_000).unwrap_err();
        assert_eq!(
            gone.to_string(),
            "no request waits with the code BBBBBBBB; codes are good for an hour: see homard pairing list"
        );
    }

    #[test]
    fn a_request_that_is_dismissed_is_gone_and_lets_nobody_in() {
        let home = tempfile::tempdir().unwrap();
        let book = Book::new(home.path());
        book.ask("telegram", who("7"), || [1; 8]).unwrap();
        book.ask("telegram", who("8"), || [2; 8]).unwrap();
        assert_eq!(book.dismiss("telegram", " bbbbbbbb ", NOON).unwrap().id, "7");
        let waiting: Vec<_> = book.pending("telegram", NOON).unwrap().into_iter().map(|request| request.id).collect();
        assert_eq!((waiting, book.approved("telegram").unwrap()), (vec!["8".to_owned()], Vec::new()));
        for gone in [book.dismiss("telegram", "BBBBBBBB", NOON), book.approve("telegram", "BBBBBBBB", NOON)] {
            assert!(matches!(gone, Err(Error::Code(code)) if code == "BBBBBBBB"));
        }
        assert_eq!(book.ask("telegram", who("7"), || [3; 8]).unwrap(), Asked::New("DDDDDDDD".to_owned()));
    }

    #[test]
    fn a_garbled_file_lets_nobody_in_and_stays_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let book = Book::new(home.path());
        for name in ["telegram-pairing.json", "telegram-allowFrom.json"] {
            fs::write(home.path().join(name), "{\"version\": 1, \"requests\": 5, \"allowFrom\": {}}").unwrap();
        }
        assert!(matches!(book.ask("telegram", who("7"), || [1; 8]), Err(Error::Garbled { .. })));
        assert!(matches!(book.approved("telegram"), Err(Error::Garbled { .. })));
        assert!(matches!(book.approve("telegram", "BBBBBBBB", NOON), Err(Error::Garbled { .. })));
        let text = fs::read_to_string(home.path().join("telegram-pairing.json")).unwrap();
        assert!(text.contains("\"requests\": 5"));
    }

    #[test]
    fn a_channel_cannot_lead_out_of_the_folder() {
        let book = Book::new("/nowhere");
        for name in ["../x", "", "a/b", "A", "a.b", &"x".repeat(65)] {
            assert!(matches!(book.pending(name, 0), Err(Error::Channel(_))), "{name}");
        }
    }
}
