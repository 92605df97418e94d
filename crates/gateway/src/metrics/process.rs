//! Process metrics from `/proc`.

use std::fs;

use super::text::MetricsPage;

/// Writes the available process metrics; values that the system does not provide are omitted.
pub(super) fn write(page: &mut MetricsPage) {
    let value_of = |text: &str, name: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = |name| value_of(&status, name).map(|kilobytes| (&[][..], kilobytes * 1024.0));
    page.gauge("process_resident_memory_bytes", "Resident memory size.", kilobytes("VmRSS:"));
    page.gauge("process_virtual_memory_bytes", "Virtual memory size.", kilobytes("VmSize:"));
    page.gauge("process_threads", "Threads.", value_of(&status, "Threads:").map(|count| (&[][..], count)));
    let open_files = fs::read_dir("/proc/self/fd").ok().map(|entries| (&[][..], entries.count() as f64));
    page.gauge("process_open_fds", "Open files and sockets.", open_files);
}
