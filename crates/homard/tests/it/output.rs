//! Consistency of what commands print: tables, durations and counts.

use crate::home::Home;

const COLUMNS: u16 = 60;

/// Creates a home in which one message was answered.
fn used_home() -> Home {
    let home = Home::new();
    assert_eq!(home.run(&["agent", "-m", "What time is it?"]).code, Some(0));
    home
}

/// Returns the texts that commands print about one message, with and without a gateway.
fn reports() -> String {
    let home = used_home();
    let commands = [&["trace", "last"][..], &["doctor"], &["audit", "verify"], &["usage"], &["models", "status"]];
    let mut text: String = commands.iter().map(|args| home.run(args).stdout).collect();
    let gateway = home.gateway();
    for args in [&["trace", "last"][..], &["health"]] {
        text.push_str(&gateway.run(args).stdout);
    }
    text
}

/// Returns the pairs of adjacent words, without punctuation around them.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let words: Vec<_> = text.split([' ', '\n']).map(|word| word.trim_matches(['(', ')', ',', ';', ':', '.'])).collect();
    words.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn tables_fit_a_terminal_of_sixty_columns() {
    let home = used_home();
    for args in [&["agents"][..], &["hooks"], &["hooks", "info", "session-memory"], &["doctor"], &["trace", "last"]] {
        let screen = home.on_terminal(COLUMNS, args);
        let table = screen.lines().skip_while(|line| args[0] == "trace" && !line.starts_with("AT "));
        for line in table {
            // Paths and commands are not broken, so that they can be copied.
            let longest = line.split(' ').map(|word| word.chars().count()).max().unwrap_or_default();
            let is_fit = line.chars().count() <= usize::from(COLUMNS);
            assert!(is_fit || longest > 30, "{args:?}: {line:?}\n{screen}");
        }
        assert!(!screen.is_empty(), "{args:?}");
    }
}

#[test]
fn a_pipe_gets_whole_tables() {
    let home = used_home();
    let workspace = home.state().join("workspace").display().to_string();
    assert!(home.run(&["agents"]).stdout.contains(&workspace));
    assert!(!home.on_terminal(COLUMNS, &["agents"]).contains(&workspace));
}

#[test]
fn durations_have_one_form() {
    let text = reports();
    let is_apart =
        |(number, unit): &(&str, &str)| number.parse::<f64>().is_ok() && ["ms", "s", "min", "h", "d"].contains(unit);
    let apart: Vec<_> = pairs(&text).into_iter().filter(is_apart).collect();
    assert!(apart.is_empty() && text.contains("ms  "), "{apart:?}\n{text}");
}

#[test]
fn counts_use_singular_and_plural() {
    let text = reports();
    let plurals = [
        "attempts",
        "characters",
        "files",
        "messages",
        "problems",
        "rows",
        "runs",
        "sessions",
        "steps",
        "tokens",
        "tools",
        "transcripts",
    ];
    let mismatches: Vec<_> =
        pairs(&text).into_iter().filter(|(number, noun)| *number == "1" && plurals.contains(noun)).collect();
    assert!(mismatches.is_empty() && text.contains(", 1 message;"), "{mismatches:?}\n{text}");
}
