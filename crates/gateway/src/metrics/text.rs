//! The Prometheus text format.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

/// Maximum number of rows per table. Further label sets count as `other`, so that external names cannot exhaust memory.
const MAX_ROWS: usize = 200;

/// Maximum length of a label value in characters.
const MAX_LABEL_CHARS: usize = 64;

/// Upper bounds of histogram buckets in seconds.
const BUCKETS: [f64; 15] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 600.0];

/// A metrics page under construction.
#[derive(Debug, Default)]
pub struct MetricsPage(String);

impl MetricsPage {
    /// Writes a counter.
    pub fn counter<'a>(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        self.family(name, help, "counter");
        self.rows(name, rows);
    }

    /// Writes a gauge.
    pub fn gauge<'a>(&mut self, name: &str, help: &str, rows: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        self.family(name, help, "gauge");
        self.rows(name, rows);
    }

    pub(super) fn table(&mut self, name: &str, help: &str, table: &LabelledTable<f64>) {
        self.family(name, help, "counter");
        for (values, number) in &table.rows {
            self.row(name, table.names.iter().copied().zip(values.iter().map(String::as_str)), number);
        }
    }

    pub(super) fn durations(&mut self, name: &str, help: &str, table: &LabelledTable<DurationHistogram>) {
        self.family(name, help, "histogram");
        for (values, durations) in &table.rows {
            let labels = || table.names.iter().copied().zip(values.iter().map(String::as_str));
            let mut count = 0;
            for (bound, in_bucket) in BUCKETS.iter().zip(durations.buckets) {
                count += in_bucket;
                let bound = bound.to_string();
                self.row(&format!("{name}_bucket"), labels().chain([("le", bound.as_str())]), count);
            }
            self.row(&format!("{name}_bucket"), labels().chain([("le", "+Inf")]), durations.count);
            self.row(&format!("{name}_sum"), labels(), durations.sum);
            self.row(&format!("{name}_count"), labels(), durations.count);
        }
    }

    fn rows<'a>(&mut self, name: &str, rows: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        for (labels, number) in rows {
            self.row(name, labels.iter().copied(), number);
        }
    }

    fn family(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn row<'a>(&mut self, name: &str, labels: impl Iterator<Item = (&'a str, &'a str)>, number: impl Display) {
        let labels: Vec<_> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        match labels.is_empty() {
            true => self.line(format_args!("{name} {number}\n")),
            false => self.line(format_args!("{name}{{{}}} {number}\n", labels.join(","))),
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        self.0.write_fmt(line).ok();
    }

    pub(super) fn text(self) -> String {
        self.0
    }
}

/// Label names and values of a row.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Escapes and truncates a label value.
fn escaped(value: &str) -> String {
    let truncated = value.chars().take(MAX_LABEL_CHARS);
    truncated.fold(String::new(), |mut text, char| {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            char if char.is_control() => text.push('\u{fffd}'),
            char => text.push(char),
        }
        text
    })
}

/// Values by label set.
#[derive(Debug)]
pub(super) struct LabelledTable<T> {
    names: &'static [&'static str],
    rows: BTreeMap<Vec<String>, T>,
}

impl<T: Default> LabelledTable<T> {
    pub(super) fn new(names: &'static [&'static str]) -> Self {
        Self { names, rows: BTreeMap::new() }
    }

    /// Returns the value for these labels, or for `other` if the table is full.
    pub(super) fn at(&mut self, values: &[&str]) -> &mut T {
        let mut row: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&row) {
            row = vec!["other".to_owned(); values.len()];
        }
        self.rows.entry(row).or_default()
    }
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DurationHistogram {
    /// Number of values per bucket, not cumulative.
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
}

impl DurationHistogram {
    pub(super) fn add_ms(&mut self, milliseconds: u64) {
        let seconds = milliseconds as f64 / 1000.0;
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at] += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_prometheus_reads() {
        let mut page = MetricsPage::default();
        page.gauge("up", "Whether it is.", [(&[][..], 1.0)]);
        page.counter("told_total", "Words.", [(&[("to", "a\"b\\c\nd\u{7}")][..], 2.5)]);
        let mut table = LabelledTable::new(&["tool"]);
        let took: &mut DurationHistogram = table.at(&["exec"]);
        took.add_ms(40);
        took.add_ms(700_000);
        page.durations("took_seconds", "How long.", &table);
        let text = page.text();
        assert!(text.starts_with(
            "# HELP up Whether it is.\n# TYPE up gauge\nup 1\n# HELP told_total Words.\n# TYPE told_total counter\n\
             told_total{to=\"a\\\"b\\\\c\\nd\u{fffd}\"} 2.5\n# HELP took_seconds How long.\n# TYPE took_seconds histogram\n\
             took_seconds_bucket{tool=\"exec\",le=\"0.005\"} 0\n"
        ));
        assert!(text.contains("took_seconds_bucket{tool=\"exec\",le=\"0.05\"} 1\n"));
        assert!(text.ends_with(
            "took_seconds_bucket{tool=\"exec\",le=\"600\"} 1\ntook_seconds_bucket{tool=\"exec\",le=\"+Inf\"} 2\n\
             took_seconds_sum{tool=\"exec\"} 700.04\ntook_seconds_count{tool=\"exec\"} 2\n"
        ));
    }

    #[test]
    fn a_table_has_a_limited_number_of_rows() {
        let mut table = LabelledTable::new(&["tool"]);
        for n in 0..10_000 {
            *table.at(&[&format!("made-up-{n}")]) += 1.0;
        }
        assert_eq!((table.rows.len(), table.at(&["other"])), (MAX_ROWS + 1, &mut 9800.0));
    }
}
