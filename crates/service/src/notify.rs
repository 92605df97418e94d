//! The notification protocol of systemd (`sd_notify`): datagrams that tell the service manager how the service is.

use std::{
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    sync::Arc,
    time::Duration,
};

/// Sends notifications; without a service manager it sends none. Clones share the socket.
#[derive(Debug, Clone, Default)]
pub struct Notifier(Option<Arc<(UnixDatagram, SocketAddr)>>);

impl Notifier {
    /// Creates a notifier for the address in `NOTIFY_SOCKET`: a path, or a name in the abstract namespace after `@`.
    pub fn connect(address: &OsStr) -> io::Result<Self> {
        let bytes = address.as_bytes();
        let address = match bytes.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(OsStr::from_bytes(bytes))?,
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not block the gateway.
        socket.set_nonblocking(true)?;
        Ok(Self(Some(Arc::new((socket, address)))))
    }

    /// Reports that the service is ready.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the service prepares to be replaced by a new version of itself, at this monotonic time.
    pub fn reloading(&self, status: &str, since_boot: Duration) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}\nSTATUS={}", since_boot.as_micros(), one_line(status)));
    }

    /// Reports that the service is stopping.
    pub fn stopping(&self, status: &str) {
        self.send(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the service is alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, text: &str) {
        let Some(target) = &self.0 else { return };
        let (socket, address) = &**target;
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address) {
            tracing::warn!(%error, "failed to notify the service manager");
        }
    }
}

/// Returns the monotonic time, as systemd measures it.
pub fn monotonic_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns how often the service reports that it is alive: twice in the time of `WATCHDOG_USEC`. `None` if the service
/// manager does not watch this process, which `WATCHDOG_PID` names.
pub fn watchdog_interval(micros: Option<&str>, watched: Option<&str>, process: u32) -> Option<Duration> {
    if watched.is_some_and(|watched| watched.trim().parse() != Ok(process)) {
        return None;
    }
    let micros = micros?.trim().parse::<u64>().ok().filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros / 2).max(Duration::from_millis(1)))
}

/// Replaces line breaks: each line of a notification is an assignment.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_receives_each_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::connect(path.as_os_str()).unwrap();
        notifier.ready("serving\nMAINPID=1");
        notifier.alive();
        notifier.reloading("restarting", Duration::from_secs(7));
        notifier.stopping("stopping");
        let expected = [
            "READY=1\nSTATUS=serving MAINPID=1",
            "WATCHDOG=1",
            "RELOADING=1\nMONOTONIC_USEC=7000000\nSTATUS=restarting",
            "STOPPING=1\nSTATUS=stopping",
        ];
        assert_eq!(expected.map(|_| received(&manager)), expected);
    }

    #[test]
    fn a_name_in_the_abstract_namespace_is_reached() {
        let name = format!("homard-notify-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::connect(OsStr::new(&format!("@{name}"))).unwrap().alive();
        assert_eq!(received(&manager), "WATCHDOG=1");
    }

    #[test]
    fn a_manager_that_is_gone_does_not_disturb_the_service() {
        let folder = tempfile::tempdir().unwrap();
        Notifier::connect(folder.path().join("none").as_os_str()).unwrap().alive();
        Notifier::default().alive();
    }

    #[test]
    fn only_the_watched_process_reports() {
        let interval = |micros, pid| watchdog_interval(micros, pid, 7).map(|interval| interval.as_millis());
        assert_eq!(interval(Some("30000000"), None), Some(15_000));
        assert_eq!(interval(Some("30000000"), Some("7")), Some(15_000));
        assert_eq!(interval(Some("1"), Some("7")), Some(1));
        assert_eq!(
            (interval(Some("30000000"), Some("8")), interval(Some("0"), None), interval(None, None)),
            (None, None, None)
        );
        assert_eq!((interval(Some("soon"), None), interval(Some("5"), Some("x"))), (None, None));
    }
}
