//! Tests of commands that are plain, and of commands that only look plain.

use proptest::prelude::*;

use super::*;

fn words(command: &str) -> Result<Vec<Vec<String>>, NotPlain> {
    Ok(read(command)?.into_iter().map(|part| part.words).collect())
}

fn part(joint: Joint, words: &[&str]) -> Part {
    Part { joint, words: words.iter().map(|&word| word.to_owned()).collect() }
}

fn safe(command: &str) -> bool {
    read(command).unwrap().iter().all(only_filters)
}

#[test]
fn plain_words_and_simple_quotes_are_understood() {
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
fn chains_are_taken_apart() {
    let expected = [
        part(Joint::First, &["ls"]),
        part(Joint::And, &["wc", "-l"]),
        part(Joint::Or, &["echo", "a"]),
        part(Joint::Then, &["cat", "x"]),
        part(Joint::Pipe, &["sort"]),
    ];
    assert_eq!(read("ls&&wc -l || echo a;cat x|sort").unwrap(), expected);
    assert_eq!(script(&expected), "'ls' && 'wc' '-l' || 'echo' 'a'; 'cat' 'x' | 'sort'");
}

#[test]
fn what_is_not_plain_says_why() {
    for (command, why) in [
        ("", "a part of it is empty"),
        ("ls;", "a part of it is empty"),
        ("ls &", "it starts something in the background"),
        ("ls |& wc", "it has signs that are not understood"),
        ("ls > x", "it redirects input or output"),
        ("ls $HOME", "it has an expansion, $"),
        ("ls \"$HOME\"", "it has an expansion, $"),
        ("ls *.rs", "it has a pattern for file names, *"),
        ("ls ~", "it names a home directory, ~"),
        ("l\\s", "it has a backslash"),
        ("ls 'a", "a quote is not closed"),
        ("ls\nrm", "it has a control character, '\\n'"),
        ("A=1 ls", "it sets variables"),
        ("cd src && ls", "cd is a part of the shell"),
        ("'bash' x", "bash is a shell"),
        ("/usr/bin/env ls", "env can run any other program"),
        ("python3.12 x.py", "python3.12 runs programs that it is given"),
        ("git -c a=b log", "git with -c can run or change something else"),
        ("git st", "git with st can run or change something else"),
        ("find . -exec rm x", "find with -exec can run or change something else"),
        ("sort --outp=x", "sort with --outp=x can run or change something else"),
        ("ls \u{a0}x", "it has '\\u{a0}' outside quotes"),
    ] {
        assert_eq!(read(command), Err(NotPlain(why.to_owned())), "{command:?}");
    }
}

#[test]
fn m3_git_add_is_not_tame_where_it_starts_an_editor_or_reads_a_list() {
    for arguments in ["-e", "-i", "-p", "-vp", "--edit", "--interactive", "--patch", "--pathspec-from-file=/etc/passwd"]
    {
        assert!(read(&format!("git add {arguments}")).is_err(), "{arguments}");
    }
    assert!(read("git status --pathspec-from=x").is_err());
    for command in ["git add -A", "git add README", "git log -p", "git grep -i -e x", "git diff -i"] {
        assert!(read(command).is_ok(), "{command}");
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
        assert!(read(command).is_err() || !safe(command), "{command}");
    }
}

#[test]
fn everything_that_may_be_a_file_is_mentioned() {
    let found: Vec<_> = mentions("bash 'run me.sh' >out.log;A=x.py $(cat y)").collect();
    assert_eq!(found, ["bash", "run", "me.sh", "out.log", "A", "x.py", "cat", "y"]);
}

proptest! {
    #[test]
    fn a_script_reads_back_as_the_same_words(all in proptest::collection::vec("[ -~é]{0,12}", 1..5)) {
        let mut words = vec!["/bin/ls".to_owned()];
        // A quote inside a word is written with a backslash, which the parser rejects.
        words.extend(all.into_iter().map(|word| word.replace('\'', "")));
        let parts = vec![Part { joint: Joint::First, words }];
        prop_assert_eq!(read(&script(&parts)).unwrap(), parts);
    }

    #[test]
    fn no_text_breaks_the_reader(command in "\\PC{0,60}|[ -~\n\t]{0,60}") {
        if let Ok(parts) = read(&command) {
            prop_assert!(!parts.is_empty());
            prop_assert!(parts.iter().all(|part| !part.words.is_empty()));
        }
    }
}
