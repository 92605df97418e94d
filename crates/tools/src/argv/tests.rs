//! Tests of commands that are plain, and of commands that only look plain.

use proptest::prelude::*;

use super::*;

fn words(command: &str) -> Result<Vec<Vec<String>>, NotPlain> {
    Ok(parse(command)?.into_iter().map(|part| part.words).collect())
}

fn part(operator: Operator, words: &[&str]) -> ShellCommand {
    ShellCommand { operator, words: words.iter().map(|&word| word.to_owned()).collect() }
}

fn safe(command: &str) -> bool {
    parse(command).unwrap().iter().all(only_filters)
}

#[test]
fn plain_words_and_simple_quotes_are_parsed() {
    for (command, expected) in [
        ("ls", vec!["ls"]),
        ("  ls   -la  src/lib.rs ", vec!["ls", "-la", "src/lib.rs"]),
        ("echo 'a $b `c` \\d *' \"e 'f'\"", vec!["echo", "a $b `c` \\d *", "e 'f'"]),
        ("echo a'b'\"c\" ''", vec!["echo", "abc", ""]),
        ("ls --color=never naïve.txt", vec!["ls", "--color=never", "naïve.txt"]),
    ] {
        assert_eq!(words(command).unwrap(), [expected], "{command}");
    }
}

#[test]
fn chains_are_split() {
    let expected = [
        part(Operator::First, &["ls"]),
        part(Operator::And, &["wc", "-l"]),
        part(Operator::Or, &["echo", "a"]),
        part(Operator::Then, &["cat", "x"]),
        part(Operator::Pipe, &["sort"]),
    ];
    assert_eq!(parse("ls&&wc -l || echo a;cat x|sort").unwrap(), expected);
    assert_eq!(script(&expected), "'ls' && 'wc' '-l' || 'echo' 'a'; 'cat' 'x' | 'sort'");
}

#[test]
fn a_command_that_is_not_plain_has_a_reason() {
    for (command, reason) in [
        ("", "a part of the command is empty"),
        ("ls;", "a part of the command is empty"),
        ("ls &", "the command starts a background job"),
        ("ls |& wc", "the command contains an unknown operator"),
        ("ls > x", "the command redirects input or output"),
        ("ls $HOME", "the command contains a shell expansion ($)"),
        ("ls \"$HOME\"", "the command contains a shell expansion ($)"),
        ("ls *.rs", "the command contains a glob pattern (*)"),
        ("ls ~", "the command refers to a home directory (~)"),
        ("l\\s", "the command contains a backslash"),
        ("ls 'a", "a quote is not closed"),
        ("ls\nrm", "the command contains the control character '\\n'"),
        ("A=1 ls", "the command sets variables"),
        ("cd src && ls", "cd is a shell builtin"),
        ("'bash' x", "bash is a shell"),
        ("/usr/bin/env ls", "env can run any other program"),
        ("python3.12 x.py", "python3.12 is an interpreter"),
        ("git -c a=b log", "git with -c can run other programs or change files"),
        ("git st", "git with st can run other programs or change files"),
        ("find . -exec rm x", "find with -exec can run other programs or change files"),
        ("sort --outp=x", "sort with --outp=x can run other programs or change files"),
        ("ls \u{a0}x", "the command contains '\\u{a0}' outside quotes"),
    ] {
        assert_eq!(parse(command), Err(NotPlain(reason.to_owned())), "{command:?}");
    }
}

#[test]
fn git_add_is_harmful_if_it_starts_an_editor_or_reads_a_list() {
    for arguments in ["-e", "-i", "-p", "-vp", "--edit", "--interactive", "--patch", "--pathspec-from-file=/etc/passwd"]
    {
        assert!(parse(&format!("git add {arguments}")).is_err(), "{arguments}");
    }
    assert!(parse("git status --pathspec-from=x").is_err());
    for command in ["git add -A", "git add README", "git log -p", "git grep -i -e x", "git diff -i"] {
        assert!(parse(command).is_ok(), "{command}");
    }
}

#[test]
fn filters_are_safe_as_long_as_they_name_no_file() {
    for command in [
        "wc -l",
        "head -5",
        "head -n 5",
        "tail -n5",
        "grep -i needle",
        "grep -m 1 x",
        "cut -d , -f 1,2",
        "sort -rn -k 2",
        "tr a-z A-Z",
        "jq -r .name",
        "uniq -c",
    ] {
        assert!(safe(command), "{command}");
    }
    for command in [
        "wc /etc/passwd",
        "wc x",
        "head -n 5 x",
        "tail -f",
        "grep -r x",
        "grep -e x y",
        "grep x y",
        "grep --file=x",
        "cut -f 1 x",
        "sort x",
        "tr a b c",
        "jq -r env.HOME",
        "jq . x",
        "jq 'import \"a\" as a; 1'",
        "uniq a b",
        "wc --files0-from=x",
        "head -c /etc/passwd",
        "cat",
    ] {
        assert!(parse(command).is_err() || !safe(command), "{command}");
    }
}

#[test]
fn every_possible_file_name_is_mentioned() {
    let found: Vec<_> = mentions("bash 'run me.sh' >out.log;A=x.py $(cat y)").collect();
    assert_eq!(found, ["bash", "run", "me.sh", "out.log", "A", "x.py", "cat", "y"]);
}

proptest! {
    #[test]
    fn a_script_reads_back_as_the_same_words(all in proptest::collection::vec("[ -~é]{0,12}", 1..5)) {
        let mut words = vec!["/bin/ls".to_owned()];
        // A quote inside a word is written with a backslash, which the parser rejects.
        words.extend(all.into_iter().map(|word| word.replace('\'', "")));
        let parts = vec![ShellCommand { operator: Operator::First, words }];
        prop_assert_eq!(parse(&script(&parts)).unwrap(), parts);
    }

    #[test]
    fn no_text_breaks_the_parser(command in "\\PC{0,60}|[ -~\n\t]{0,60}") {
        if let Ok(parts) = parse(&command) {
            prop_assert!(!parts.is_empty());
            prop_assert!(parts.iter().all(|part| !part.words.is_empty()));
        }
    }
}

/// The words of an accepted command are the ones that a shell reads in its quoted form. `cargo xtask fuzz` runs it for
/// longer.
#[test]
fn fuzz_command_line() {
    let inputs = [
        "ls -la src/lib.rs",
        "echo 'a $b `c` \\d *' \"e 'f'\"",
        "git status && cargo test || true; cat x | sort",
        "grep -n \"a b\" 'c d'/e",
    ];
    let fragments =
        ["'", "\"", "\\", "$(", "`", "&", "&&", "|", ";", "<", ">", "*", "~", "#", "=", "{a,b}", "\u{a0}", " "];
    for seed in homard_stdx::fuzz::seeds(20_000) {
        let command = homard_stdx::fuzz::mutated_text(seed, &inputs, &fragments);
        let Ok(parts) = parse(&command) else { continue };
        let unquoted: String = command.split(['\'', '"']).step_by(2).collect();
        let is_simple = !command.contains('"');
        assert!(!is_simple || !unquoted.contains(['$', '`', '\\', '<', '>', '*', '\n']), "seed {seed}: {command}");
        if parts.iter().flat_map(|part| &part.words).all(|word| !word.contains('\'')) {
            assert_eq!(parse(&script(&parts)), Ok(parts), "seed {seed}: {command}");
        }
    }
}
