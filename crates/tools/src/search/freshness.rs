//! Maximum age of a page.

use std::fmt;

/// Maximum age of a page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PageAge {
    /// One day.
    Day,
    /// Seven days.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
    /// Between two dates, both as `2026-01-31`.
    Between(String, String),
}

impl PageAge {
    /// Parses `pd`, `pw`, `pm`, `py`, their full names, or `2026-01-01to2026-01-31`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "pd" | "day" => Some(Self::Day),
            "pw" | "week" => Some(Self::Week),
            "pm" | "month" => Some(Self::Month),
            "py" | "year" => Some(Self::Year),
            range => range.split_once("to").and_then(|(after, before)| Self::between(after, before)),
        }
    }

    /// Creates a range if both are dates and in order.
    pub(crate) fn between(after: &str, before: &str) -> Option<Self> {
        (is_day(after) && is_day(before) && after <= before).then(|| Self::Between(after.to_owned(), before.to_owned()))
    }
}

/// Formats it as Brave expects.
impl fmt::Display for PageAge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day => f.write_str("pd"),
            Self::Week => f.write_str("pw"),
            Self::Month => f.write_str("pm"),
            Self::Year => f.write_str("py"),
            Self::Between(after, before) => write!(f, "{after}to{before}"),
        }
    }
}

fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |part: &str, digits: usize| {
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<u16>().ok().filter(|_| is_number)
    };
    match parts.as_slice() {
        [year, month, day] => {
            number(year, 4).is_some()
                && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
                && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_freshness_is_parsed_and_normalized() {
        let read = ["pd", "Week", "pm", " year ", "2026-01-01to2026-01-31"].map(PageAge::parse);
        let formatted = read.map(|freshness| freshness.map(|freshness| freshness.to_string()));
        assert_eq!(formatted, ["pd", "pw", "pm", "py", "2026-01-01to2026-01-31"].map(|text| Some(text.to_owned())));
    }

    #[test]
    fn invalid_freshness_is_refused() {
        for text in
            ["", "hour", "2026-01-31to2026-01-01", "2026-1-1to2026-01-02", "2026-13-01to2026-13-02", "to", "x&y=1"]
        {
            assert_eq!(PageAge::parse(text), None, "{text}");
        }
    }
}
