//! `system.info`: the machine that the gateway runs on, and the resources it uses. Values that the system does not
//! provide are omitted.

use std::{
    env::consts::{ARCH, OS},
    fs,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use homard_proto::{ErrorShape, method::queries::NothingParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::unavailable;
use crate::router::{RpcCall, RpcResult};

/// Minimum interval between two readings of the CPU time, whose resolution is 10 ms.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Clock ticks per second in `/proc`; Linux reports 100, independent of its internal clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures the CPU utilisation of the process between two queries.
#[derive(Debug)]
pub(crate) struct CpuMeter(Mutex<CpuReading>);

#[derive(Debug, Clone, Copy)]
struct CpuReading {
    at: Instant,
    /// CPU seconds used since the process started.
    cpu_seconds: Option<f64>,
    /// Length of the last interval, and average number of busy cores in it.
    utilisation: Option<(Duration, f64)>,
}

impl CpuMeter {
    /// Starts measuring.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(CpuReading { at: Instant::now(), cpu_seconds: process_cpu_seconds(), utilisation: None }))
    }

    /// Returns the length of the last interval and the average number of busy cores in it.
    fn utilisation(&self) -> Option<(Duration, f64)> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, elapsed) = (Instant::now(), last.at.elapsed());
        if elapsed >= MIN_INTERVAL {
            let process_cpu_seconds = process_cpu_seconds();
            let utilisation = process_cpu_seconds
                .zip(last.cpu_seconds)
                .map(|(now, before)| (elapsed, (now - before).max(0.0) / elapsed.as_secs_f64()));
            *last = CpuReading { at, cpu_seconds: process_cpu_seconds, utilisation };
        }
        last.utilisation
    }
}

fn process_cpu_seconds() -> Option<f64> {
    cpu_seconds(&fs::read_to_string("/proc/self/stat").ok()?)
}

/// Parses the CPU seconds from `/proc/self/stat`. The program name comes first and may contain any character, so
/// parsing starts after the last parenthesis.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// Returns the machine description and current utilisation.
pub(crate) async fn info(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let NothingParams {} = call.params()?;
    let server = call.server.clone();
    let report = tokio::task::spawn_blocking(move || {
        let mut info = machine();
        info["pid"] = std::process::id().into();
        info["uptimeMs"] = server.uptime_ms().into();
        if let Some(rss) = number(&read("/proc/self/status"), "VmRSS:") {
            info["processMemory"] = json!({"rssBytes": rss * 1024});
        }
        if let Some((interval, cores)) = server.monitoring.cpu_meter.utilisation() {
            info["eventLoop"] = json!({"intervalMs": interval.as_millis() as u64, "cpuCoreRatio": cores});
        }
        info
    });
    Ok(report.await.map_err(unavailable)?.into())
}

fn machine() -> Value {
    let name = read("/proc/sys/kernel/hostname").trim().to_owned();
    let (memory, processor) = (read("/proc/meminfo"), read("/proc/cpuinfo"));
    let bytes = |name| number(&memory, name).unwrap_or_default() * 1024;
    let mut info = json!({
        "machineName": name, "hostname": name, "platform": OS, "release": read("/proc/sys/kernel/osrelease").trim(),
        "arch": ARCH, "osLabel": label(&read("/etc/os-release")).unwrap_or_else(|| OS.to_owned()),
        // Clients show the Node.js version that the gateway runs on.
        "nodeVersion": format!("none (homard {})", env!("CARGO_PKG_VERSION")),
        "cpuCount": thread::available_parallelism().map_or(1, usize::from),
        "memoryTotalBytes": bytes("MemTotal:"), "memoryFreeBytes": bytes("MemAvailable:"),
    });
    let model = processor.lines().find(|line| line.starts_with("model name"));
    if let Some((_, model)) = model.and_then(|line| line.split_once(':')) {
        info["cpuModel"] = model.trim().into();
    }
    let load = read("/proc/loadavg");
    let load: Vec<f64> = load.split_ascii_whitespace().take(3).filter_map(|number| number.parse().ok()).collect();
    if load.len() == 3 {
        info["loadAverage"] = json!(load);
    }
    info
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number that follows a name at the start of a line.
fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the name of the operating system from `/etc/os-release`.
fn label(release: &str) -> Option<String> {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed_whatever_the_process_name_is() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 1 0 5 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!((cpu_seconds("7 (a) S 1"), cpu_seconds("")), (None, None));
        let memory = "MemTotal:       2048 kB\nMemFree: 1 kB\n";
        assert_eq!((number(memory, "MemTotal:"), number(memory, "MemAvailable:")), (Some(2048), None));
        assert_eq!(label("ID=debian\nPRETTY_NAME=\"Debian 13\"\n"), Some("Debian 13".to_owned()));
        assert_eq!(label("PRETTY_NAME=\"\"\n"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn cpu_utilisation_is_measured_over_an_interval() {
        let meter = CpuMeter::new();
        assert_eq!(meter.utilisation(), None);
        tokio::time::advance(MIN_INTERVAL).await;
        let measured = meter.utilisation();
        assert!(measured.is_some_and(|(interval, cores)| interval == MIN_INTERVAL && cores >= 0.0), "{measured:?}");
        tokio::time::advance(MIN_INTERVAL / 2).await;
        assert_eq!(meter.utilisation(), measured);
    }
}
