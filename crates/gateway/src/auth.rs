//! Authentication with the shared secret (token or password), and the rate limiter for failed attempts.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use homard_audit::{Audit, AuditKind, AuditRecord};
use homard_proto::{ErrorShape, Generation, method::connect::Auth};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tokio::time::Instant;

/// Failed attempts from one address within [`WINDOW`] that lock it out.
const MAX_FAILURES: usize = 10;
/// Period over which failed attempts are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Duration of a lockout. Guessable secrets from a locked-out address are not compared at all.
const LOCKOUT: Duration = Duration::from_secs(300);
/// Failed attempts from all addresses within [`WINDOW`] after which attempts are throttled globally.
const MAX_TOTAL_FAILURES: usize = 1_000;
/// Minimum interval between comparisons of guessable secrets while the global throttle is active.
const THROTTLE_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum length of a token, in characters, to count as unguessable.
pub(crate) const MIN_TOKEN_CHARS: usize = 16;
/// Maximum number of addresses tracked at once. When exceeded, all counts are cleared.
const MAX_ADDRESSES: usize = 4096;

/// The gateway's token, its password, or both. Either is accepted in either field, as clients send them.
#[derive(Clone, Default)]
pub struct Secret {
    token: Option<String>,
    password: Option<String>,
}

impl Secret {
    /// Creates a secret; a blank token or password counts as absent.
    pub fn new(token: Option<String>, password: Option<String>) -> Self {
        let non_blank = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Self { token: non_blank(token), password: non_blank(password) }
    }

    /// Returns true if neither token nor password is set, so that no client could authenticate.
    pub fn is_empty(&self) -> bool {
        self.token.is_none() && self.password.is_none()
    }

    /// Length of the token in characters, if there is one. The length of a password is left to the owner.
    pub(crate) fn token_length(&self) -> Option<usize> {
        self.token.as_ref().map(|token| token.chars().count())
    }

    /// Returns the kind of secret that clients are asked for.
    pub(crate) fn kind(&self) -> Kind {
        if self.token.is_some() { Kind::Token } else { Kind::Password }
    }

    /// True if one of the credentials is the token or the password. Takes the same time for all wrong credentials.
    fn matches_any(&self, credentials: &[&str]) -> bool {
        Self::any_equal([&self.token, &self.password].into_iter().flatten(), credentials)
    }

    /// True if one of the credentials is the token and the token is long enough to be unguessable. Passwords are
    /// chosen by people and always count as guessable.
    fn token_matches_any(&self, credentials: &[&str]) -> bool {
        Self::any_equal(self.token.iter().filter(|token| token.chars().count() >= MIN_TOKEN_CHARS), credentials)
    }

    fn any_equal<'a>(secrets: impl Iterator<Item = &'a String>, credentials: &[&str]) -> bool {
        let pairs = secrets.flat_map(|secret| credentials.iter().map(move |credential| (secret, credential)));
        // Digests have equal length, so the comparison does not reveal the secret's length.
        let is_same = |secret: &str, credential: &str| Sha256::digest(secret).ct_eq(&Sha256::digest(credential));
        pairs.fold(Choice::from(0), |found, (secret, credential)| found | is_same(secret, credential)).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Kind of secret that a client is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Token,
    Password,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Password => "password",
        }
    }
}

/// How a client authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof<T> {
    /// With the shared secret.
    Secret,
    /// With another credential, which grants this.
    Other(T),
}

/// Why authentication failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// No credential was sent.
    Missing(Kind),
    /// The credential is wrong.
    Mismatch(Kind),
    /// The device token is unknown.
    DeviceToken,
    /// Too many failed attempts.
    RateLimited {
        /// Remaining time of the lockout.
        wait: Duration,
    },
}

impl AuthError {
    /// Short description for the audit log.
    fn label(self) -> &'static str {
        match self {
            Self::Missing(_) => "no credentials",
            Self::Mismatch(Kind::Token) => "wrong token",
            Self::Mismatch(Kind::Password) => "wrong password",
            Self::DeviceToken => "wrong device token",
            Self::RateLimited { .. } => "locked out",
        }
    }

    /// Returns the error that is sent to the client.
    pub(crate) fn error(self, generation: Generation) -> ErrorShape {
        let (message, code, reason, step) = match self {
            Self::Missing(kind) => {
                let name = kind.name();
                let message = format!("unauthorized: gateway {name} missing (provide gateway auth {name})");
                (message, code(kind, "MISSING"), format!("{name}_missing"), "update_auth_configuration")
            }
            Self::Mismatch(kind) => {
                let name = kind.name();
                let message = format!("unauthorized: gateway {name} mismatch (provide gateway auth {name})");
                (message, code(kind, "MISMATCH"), format!("{name}_mismatch"), "update_auth_credentials")
            }
            Self::DeviceToken => (
                "unauthorized: device token mismatch (provide the gateway token)".to_owned(),
                "AUTH_DEVICE_TOKEN_MISMATCH".to_owned(),
                "device_token_mismatch".to_owned(),
                "update_auth_credentials",
            ),
            Self::RateLimited { wait } => (
                format!(
                    "unauthorized: too many failed attempts (retry with the right secret in {})",
                    format_wait(wait)
                ),
                "AUTH_RATE_LIMITED".to_owned(),
                "rate_limited".to_owned(),
                "wait_then_retry",
            ),
        };
        let mut error = ErrorShape::invalid(message);
        if let Self::RateLimited { wait } = self {
            error.retryable = Some(true);
            error.retry_after_ms = Some(homard_stdx::time::millis(wait));
        }
        match generation {
            Generation::Three => error,
            Generation::Four => error.with_details(json!({
                "code": code, "authReason": reason, "canRetryWithDeviceToken": false, "recommendedNextStep": step,
            })),
        }
    }
}

/// Returns a waiting time in whole seconds, rounded up.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Formats a waiting time in whole seconds, rounded up.
pub(crate) fn format_wait(wait: Duration) -> String {
    let seconds = whole_seconds(wait);
    format!("{seconds} second{}", if seconds == 1 { "" } else { "s" })
}

fn code(kind: Kind, suffix: &str) -> String {
    format!("AUTH_{}_{suffix}", kind.name().to_uppercase())
}

/// Compares secrets and limits the rate of failed attempts.
#[derive(Debug)]
pub(crate) struct AuthLimiter {
    secret: Secret,
    failures: Mutex<Failures>,
    audit: Audit,
}

/// Failed attempts, per address and in total.
#[derive(Debug, Default)]
struct Failures {
    by_address: HashMap<IpAddr, AddressFailures>,
    /// Start of the current window.
    window_start: Option<Instant>,
    /// Failed attempts in the current window.
    count: usize,
    /// Earliest time of the next comparison while the global throttle is active.
    next_allowed: Option<Instant>,
}

#[derive(Debug, Default)]
struct AddressFailures {
    /// Times of failed attempts, oldest first; at most [`MAX_FAILURES`].
    failures: Vec<Instant>,
    locked_until: Option<Instant>,
}

impl AuthLimiter {
    pub(crate) fn new(secret: Secret) -> Self {
        Self { secret, failures: Mutex::default(), audit: Audit::default() }
    }

    /// Sets the audit log that failed attempts are recorded in.
    pub(crate) fn with_audit(mut self, audit: Audit) -> Self {
        self.audit = audit;
        self
    }

    /// Returns the kind of secret that clients are asked for.
    pub(crate) fn kind(&self) -> Kind {
        self.secret.kind()
    }

    /// Checks the shared secret.
    ///
    /// While an address is locked out, guessable secrets from it are not compared: the response would otherwise confirm
    /// a correct guess. A long token cannot be guessed, so its owner is never locked out.
    pub(crate) fn check(&self, auth: &Auth, address: IpAddr, now: Instant) -> Result<(), AuthError> {
        self.authenticate(auth, address, now, || None::<()>).map(|_| ())
    }

    /// Returns true if one of the words of a text is the secret, so that the text must not be shown to others.
    pub(crate) fn occurs_in(&self, text: &str) -> bool {
        self.secret.matches_any(&text.split_whitespace().collect::<Vec<_>>())
    }

    /// Checks the shared secret or, failing that, another unguessable credential: `other_credential` returns
    /// what it grants. Failures of every kind of credential are counted here, so none bypasses the lockout.
    pub(crate) fn authenticate<T>(
        &self,
        auth: &Auth,
        address: IpAddr,
        now: Instant,
        other_credential: impl FnOnce() -> Option<T>,
    ) -> Result<Proof<T>, AuthError> {
        let credentials: Vec<&str> = [&auth.token, &auth.password].into_iter().flatten().map(String::as_str).collect();
        let error = match (credentials.is_empty(), &auth.device_token) {
            (false, _) => AuthError::Mismatch(self.kind()),
            (true, Some(_)) => AuthError::DeviceToken,
            // A bootstrap token that is not a valid login code counts as a failed guess.
            (true, None) if auth.bootstrap_token.is_some() => AuthError::Mismatch(self.kind()),
            (true, None) => return Err(AuthError::Missing(self.kind())),
        };
        if self.secret.token_matches_any(&credentials) {
            return Ok(Proof::Secret);
        }
        if let Some(grant) = other_credential() {
            return Ok(Proof::Other(grant));
        }
        let address = bucket(address);
        // Held until the result is recorded: concurrent guesses get no more comparisons than sequential ones.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wait) = failures.wait(address, now) {
            return Err(AuthError::RateLimited { wait });
        }
        if self.secret.matches_any(&credentials) {
            return Ok(Proof::Secret);
        }
        let is_locked_out = failures.record(address, now);
        drop(failures);
        let record_audit =
            |kind| self.audit.note(AuditRecord::new(kind).actor(&address.to_string()).outcome(error.label()));
        record_audit(AuditKind::AuthFailed);
        if is_locked_out {
            record_audit(AuditKind::AuthLockedOut);
        }
        Err(error)
    }
}

/// Returns the prefix that an address is rate-limited by: an IPv4 address in either spelling, or the /64 of an IPv6
/// address, since one machine can choose freely within it.
pub(crate) fn ip_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Like [`ip_prefix`], with all loopback addresses as one: every local program can use each of them.
fn bucket(address: IpAddr) -> IpAddr {
    if address.to_canonical().is_loopback() { Ipv4Addr::LOCALHOST.into() } else { ip_prefix(address) }
}

impl Failures {
    /// Returns the time to wait before a secret from this address is compared, if any.
    fn wait(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        if let Some(wait) = self.by_address.get(&address).and_then(|record| record.lockout(now)) {
            return Some(wait);
        }
        if self.window_start.is_none_or(|window_start| now.saturating_duration_since(window_start) >= WINDOW) {
            (self.window_start, self.count, self.next_allowed) = (Some(now), 0, None);
        }
        if self.count < MAX_TOTAL_FAILURES {
            return None;
        }
        match self.next_allowed.filter(|next| *next > now) {
            Some(next) => Some(next - now),
            None => {
                self.next_allowed = Some(now + THROTTLE_INTERVAL);
                None
            }
        }
    }

    /// Records a failed attempt; returns true if it locks the address out.
    fn record(&mut self, address: IpAddr, now: Instant) -> bool {
        self.count += 1;
        if self.by_address.len() >= MAX_ADDRESSES && !self.by_address.contains_key(&address) {
            self.by_address.clear();
        }
        let record = self.by_address.entry(address).or_default();
        record.record(now);
        record.lockout(now).is_some()
    }
}

impl AddressFailures {
    /// Remaining time of the lockout, if any.
    fn lockout(&self, now: Instant) -> Option<Duration> {
        let wait = self.locked_until?.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Records a failed attempt.
    fn record(&mut self, now: Instant) {
        self.locked_until = None;
        self.failures.retain(|at| now.saturating_duration_since(*at) < WINDOW);
        self.failures.push(now);
        if self.failures.len() >= MAX_FAILURES {
            self.failures.clear();
            self.locked_until = Some(now + LOCKOUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn limiter(token: Option<&str>, password: Option<&str>) -> AuthLimiter {
        AuthLimiter::new(Secret::new(token.map(str::to_owned), password.map(str::to_owned)))
    }

    fn credentials(token: Option<&str>, password: Option<&str>) -> Auth {
        Auth { token: token.map(str::to_owned), password: password.map(str::to_owned), ..Auth::default() }
    }

    #[tokio::test]
    async fn the_secret_is_accepted_in_either_field() {
        let now = Instant::now();
        for limiter in [limiter(Some("s"), None), limiter(None, Some("s")), limiter(Some("x"), Some("s"))] {
            for auth in [credentials(Some("s"), None), credentials(None, Some("s")), credentials(Some("s"), Some("s"))]
            {
                assert_eq!(limiter.check(&auth, LOCAL, now), Ok(()));
            }
        }
    }

    #[tokio::test]
    async fn wrong_and_missing_secrets_are_distinguished() {
        let now = Instant::now();
        let (token, password) = (limiter(Some("s"), None), limiter(None, Some("s")));
        assert_eq!(token.check(&credentials(None, None), LOCAL, now), Err(AuthError::Missing(Kind::Token)));
        assert_eq!(token.check(&credentials(Some("t"), None), LOCAL, now), Err(AuthError::Mismatch(Kind::Token)));
        assert_eq!(token.check(&credentials(Some(""), None), LOCAL, now), Err(AuthError::Mismatch(Kind::Token)));
        assert_eq!(password.check(&credentials(Some("t"), None), LOCAL, now), Err(AuthError::Mismatch(Kind::Password)));
        let device = Auth { device_token: Some("d".to_owned()), ..Auth::default() };
        assert_eq!(token.check(&device, LOCAL, now), Err(AuthError::DeviceToken));
    }

    #[test]
    fn a_blank_secret_counts_as_absent() {
        assert!(Secret::new(Some(" ".to_owned()), Some(String::new())).is_empty());
        assert_eq!(format!("{:?}", Secret::new(Some("hunter2".to_owned()), None)), "Secret(…)");
    }

    #[tokio::test]
    async fn ten_wrong_secrets_in_a_minute_lock_an_address_out() {
        let limiter = limiter(Some("s"), None);
        let start = Instant::now();
        let wrong = credentials(Some("guess"), None);
        for second in 0..10 {
            let now = start + Duration::from_secs(second);
            assert_eq!(limiter.check(&wrong, LOCAL, now), Err(AuthError::Mismatch(Kind::Token)));
        }
        let now = start + Duration::from_secs(19);
        let locked = Err(AuthError::RateLimited { wait: Duration::from_secs(290) });
        assert_eq!(limiter.check(&wrong, LOCAL, now), locked);
        assert_eq!(limiter.check(&wrong, Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), now), locked);
        // R35: a guessable secret is not even compared.
        assert_eq!(limiter.check(&credentials(Some("s"), None), LOCAL, now), locked);
        let other_address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!(limiter.check(&wrong, other_address, now), Err(AuthError::Mismatch(Kind::Token)));
        assert_eq!(limiter.check(&credentials(Some("s"), None), other_address, now), Ok(()));
        let later = now + LOCKOUT;
        assert_eq!(limiter.check(&wrong, LOCAL, later), Err(AuthError::Mismatch(Kind::Token)));
        assert_eq!(limiter.check(&credentials(Some("s"), None), LOCAL, later), Ok(()));
    }

    #[test]
    fn r37_all_spellings_of_an_address_are_one_bucket() {
        let share_prefix = |addresses: &[&str]| {
            let mut prefixes: Vec<_> = addresses.iter().map(|address| ip_prefix(address.parse().unwrap())).collect();
            prefixes.dedup();
            prefixes.len() == 1
        };
        // Guesses spread over all spellings of one address count as guesses from one address.
        let limiter = limiter(Some("s"), None);
        let spellings = ["192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207", "0:0:0:0:0:ffff:192.0.2.7"];
        let network = ["2001:db8:1:2::1", "2001:db8:1:2:ffff::", "2001:0db8:0001:0002:0:0:0:9"];
        for spellings in [&spellings[..], &network[..]] {
            let now = Instant::now();
            let attempt = |at: usize| {
                limiter.check(&credentials(Some("x"), None), spellings[at % spellings.len()].parse().unwrap(), now)
            };
            assert_eq!(
                (0..1000).filter(|at| attempt(*at) == Err(AuthError::Mismatch(Kind::Token))).count(),
                MAX_FAILURES
            );
        }
        assert!(share_prefix(&["192.0.2.7", "::ffff:192.0.2.7", "::ffff:c000:207", "0:0:0:0:0:ffff:192.0.2.7"]));
        assert!(share_prefix(&["2001:db8:1:2::1", "2001:db8:1:2:ffff::", "2001:0db8:0001:0002:0:0:0:9"]));
        assert!(!share_prefix(&["2001:db8:1:2::1", "2001:db8:1:3::1"]));
        assert!(!share_prefix(&["192.0.2.7", "192.0.2.8"]));
    }

    /// Every combination of credential fields is counted as a failed attempt.
    #[tokio::test]
    async fn r36_failures_are_counted_for_every_credential_field() {
        for fields in 1_u8..16 {
            let field = |bit: u8, text: &str| (fields & bit != 0).then(|| text.to_owned());
            let guess = Auth {
                token: field(1, "x"),
                password: field(2, "y"),
                device_token: field(4, "d"),
                bootstrap_token: field(8, "b"),
            };
            let limiter = limiter(Some("s"), None);
            let now = Instant::now();
            let attempt = |auth: &Auth| limiter.authenticate(auth, LOCAL, now, || None::<()>);
            let evaluated = (0..100).filter(|_| !matches!(attempt(&guess), Err(AuthError::RateLimited { .. }))).count();
            assert_eq!(evaluated, MAX_FAILURES, "{guess:?}");
            // From here on guessable secrets are not compared. Device tokens still are.
            let correct = Auth { token: Some("s".to_owned()), ..Auth::default() };
            let locked = limiter.authenticate(&correct, LOCAL, now, || None::<()>);
            assert!(matches!(locked, Err(AuthError::RateLimited { .. })), "{locked:?}");
            assert_eq!(limiter.authenticate(&correct, LOCAL, now, || Some(())), Ok(Proof::Other(())));
        }
    }

    #[tokio::test]
    async fn guesses_of_others_never_lock_the_right_token_out() {
        let token = "0123456789abcdef0123456789abcdef";
        let limiter = limiter(Some(token), Some("password"));
        let now = Instant::now();
        let guesses: Vec<_> = (0..50).map(|_| limiter.check(&credentials(Some("guess"), None), LOCAL, now)).collect();
        assert_eq!(
            guesses.iter().filter(|guess| **guess == Err(AuthError::Mismatch(Kind::Token))).count(),
            MAX_FAILURES
        );
        assert!(matches!(guesses[49], Err(AuthError::RateLimited { .. })));
        assert_eq!(limiter.check(&credentials(Some(token), None), LOCAL, now), Ok(()));
        assert_eq!(limiter.check(&credentials(None, Some(token)), LOCAL, now), Ok(()));
        // Passwords are chosen by people and count as guessable.
        assert!(matches!(
            limiter.check(&credentials(None, Some("password")), LOCAL, now),
            Err(AuthError::RateLimited { .. })
        ));
    }

    #[tokio::test]
    async fn all_addresses_of_this_machine_are_one_bucket() {
        let limiter = limiter(None, Some("s"));
        let now = Instant::now();
        let addresses = (0..700_u16).map(|at| IpAddr::from([127, (at >> 8) as u8, at as u8, 2]));
        let addresses = addresses.chain(["::1".parse().unwrap(), "::ffff:127.0.0.9".parse().unwrap()]);
        let compared = addresses.filter(|address| {
            limiter.check(&credentials(Some("guess"), None), *address, now) == Err(AuthError::Mismatch(Kind::Password))
        });
        assert_eq!(compared.count(), MAX_FAILURES);
    }

    #[tokio::test]
    async fn guesses_from_all_addresses_are_throttled_globally() {
        let limiter = limiter(None, Some("s"));
        let start = Instant::now();
        let attempt = |at: u32, now: Instant| {
            let [_, a, b, c] = at.to_be_bytes();
            limiter.check(&credentials(Some("guess"), None), IpAddr::from([10, a, b, c]), now)
        };
        let count_compared = |attempts: std::ops::Range<u32>, now: Instant| {
            attempts.filter(|at| attempt(*at, now) == Err(AuthError::Mismatch(Kind::Password))).count()
        };
        assert_eq!(count_compared(0..1_000, start), 1_000);
        // From here on there is one comparison every 250 ms.
        assert_eq!(count_compared(1_000..2_000, start), 1);
        assert_eq!(count_compared(2_000..3_000, start + Duration::from_millis(249)), 0);
        assert_eq!(count_compared(3_000..4_000, start + Duration::from_millis(250)), 1);
        assert_eq!(
            attempt(5_000, start + Duration::from_millis(300)),
            Err(AuthError::RateLimited { wait: Duration::from_millis(200) })
        );
        assert_eq!(count_compared(6_000..6_100, start + WINDOW), 100);
    }

    #[tokio::test]
    async fn infrequent_failures_do_not_lock_an_address_out() {
        let limiter = limiter(Some("s"), None);
        let start = Instant::now();
        for minute in 0..30 {
            let now = start + WINDOW * minute / 5;
            assert_eq!(limiter.check(&credentials(Some("x"), None), LOCAL, now), Err(AuthError::Mismatch(Kind::Token)));
        }
    }

    #[test]
    fn each_protocol_version_gets_its_own_error_format() {
        let mismatch = AuthError::Mismatch(Kind::Token);
        let message = "unauthorized: gateway token mismatch (provide gateway auth token)";
        assert_eq!(mismatch.error(Generation::Three), ErrorShape::invalid(message));
        assert_eq!(
            mismatch.error(Generation::Four),
            ErrorShape::invalid(message).with_details(json!({
                "code": "AUTH_TOKEN_MISMATCH", "authReason": "token_mismatch", "canRetryWithDeviceToken": false,
                "recommendedNextStep": "update_auth_credentials",
            }))
        );
        let locked = AuthError::RateLimited { wait: Duration::from_secs(2) }.error(Generation::Four);
        assert_eq!(locked.message, "unauthorized: too many failed attempts (retry with the right secret in 2 seconds)");
        assert_eq!(
            [1, 1000, 299_001].map(|wait| format_wait(Duration::from_millis(wait))),
            ["1 second", "1 second", "300 seconds"]
        );
        assert_eq!((locked.retryable, locked.retry_after_ms), (Some(true), Some(2000)));
        assert_eq!(locked.details.unwrap()["code"], "AUTH_RATE_LIMITED");
    }
}
