//! Arguments that make an otherwise harmless program run other programs or write to arbitrary files.

/// Programs with subcommands, and their harmless subcommands. Any other subcommand may be an alias or an external
/// program.
pub(super) const HARMLESS_SUBCOMMANDS: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "add",
            "blame",
            "branch",
            "cat-file",
            "check-ignore",
            "describe",
            "diff",
            "grep",
            "log",
            "ls-files",
            "ls-tree",
            "merge-base",
            "name-rev",
            "rev-list",
            "rev-parse",
            "shortlog",
            "show",
            "show-ref",
            "status",
            "tag",
        ],
    ),
    ("cargo", &["build", "check", "clippy", "doc", "fmt", "metadata", "test", "tree"]),
    ("go", &["build", "doc", "fmt", "list", "test", "version", "vet"]),
];

/// Harmful options by program. A one-letter option is also found within a cluster; a long one may be abbreviated.
const HARMFUL_OPTIONS: &[(&[&str], &[&str])] = &[
    (&["find", "gfind"], &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fls", "-files0-from"]),
    (&["fd", "fdfind"], &["-x", "-X", "--exec", "--exec-batch"]),
    (&["rg"], &["--pre", "--pre-glob", "--hostname-bin", "-z", "--search-zip"]),
    (&["ag"], &["--pager"]),
    (&["sort", "gsort"], &["-o", "--output", "--compress-program", "-T", "--temporary-directory", "--files0-from"]),
    (&["split"], &["--filter"]),
    (&["date"], &["-f", "--file", "-s", "--set"]),
    (&["jq"], &["-f", "--from-file", "-L", "--rawfile", "--slurpfile", "--argfile"]),
    (&["yq"], &["-i", "--inplace", "--from-file", "-s", "--split-exp"]),
    (
        &["git"],
        &[
            "--output",
            "-O",
            "--open-files-in-pager",
            "--ext-diff",
            "--textconv",
            "--upload-pack",
            "--receive-pack",
            "--exec",
            "-x",
            "--exec-path",
            "--edit-description",
            "--no-index",
            "-c",
            "--config-env",
            "--git-dir",
            "--work-tree",
            "--paginate",
            "--contents",
            "--filters",
            "-F",
            "--file",
            "--edit",
            "--interactive",
            "--patch",
            "--pathspec-from-file",
        ],
    ),
    (&["cargo"], &["--config", "-C", "-Z", "--manifest-path", "--target-dir", "--out-dir", "--fix"]),
    (&["go"], &["-exec", "-toolexec", "-vettool", "-C", "-o", "-modfile", "-overlay", "-ldflags", "-gcflags"]),
    (
        &["cc", "gcc", "g++", "c++", "clang", "clang++", "cpp", "ld", "ar", "as"],
        &["-wrapper", "-fplugin", "-B", "-specs", "--specs", "-o", "--plugin", "-load", "-Xclang", "@"],
    ),
    (&["rustc"], &["-C", "--codegen", "-o", "--out-dir", "--sysroot", "-Z"]),
    (
        &["curl"],
        &[
            "-K",
            "--config",
            "-o",
            "--output",
            "-O",
            "--remote-name",
            "--output-dir",
            "-D",
            "--dump-header",
            "-c",
            "--cookie-jar",
            "--trace",
            "--stderr",
            "-T",
            "--upload-file",
            "-d",
            "--data",
            "-F",
            "--form",
            "--engine",
            "--libcurl",
            "--hsts",
            "--alt-svc",
            "--etag-save",
            "--create-dirs",
            "-X",
            "--request",
            "--json",
            "-x",
            "--proxy",
            "--unix-socket",
            "-E",
            "--next",
        ],
    ),
    (
        &["wget"],
        &[
            "-O",
            "--output-document",
            "-P",
            "--directory-prefix",
            "-e",
            "--execute",
            "-i",
            "--input-file",
            "--use-askpass",
            "--config",
            "-o",
            "--output-file",
            "-a",
            "--append-output",
            "--post-file",
            "--body-file",
            "--save-cookies",
            "--rejected-log",
            "--warc-file",
        ],
    ),
    (&["xxd"], &["-r"]),
    (&["tree"], &["-o", "-R"]),
    (&["dmesg", "hostname", "mount", "umount", "ip", "sysctl"], &["-b", "-batch", "-F", "--file", "-w", "--write"]),
    (&["dd"], &["of="]),
    (&["cp", "mv", "install"], &["--strip-program", "-t", "--target-directory"]),
    (&["rm"], &["-r", "-R", "--recursive", "--no-preserve-root"]),
    (&["chmod", "chown"], &["-R", "--recursive", "--reference"]),
];

/// Harmful options of one subcommand.
const HARMFUL_SUBCOMMAND_OPTIONS: &[(&str, &str, &[&str])] = &[("git", "add", &["-e", "-i", "-p"])];

/// Returns why the arguments are harmful, if they are.
pub(super) fn hazard(name: &str, arguments: &[String]) -> Option<String> {
    let hazard_text = |word: &str| Some(format!("{name} with {word} can run other programs or change files"));
    if let Some((_, harmless)) = HARMLESS_SUBCOMMANDS.iter().find(|(program, _)| *program == name) {
        match arguments.first() {
            Some(first) if harmless.contains(&first.as_str()) || matches!(first.as_str(), "--version" | "--help") => {}
            Some(first) => return hazard_text(first),
            None => {}
        }
    }
    let harmful_option =
        HARMFUL_OPTIONS.iter().filter(|(programs, _)| programs.contains(&name)).flat_map(|(_, options)| *options);
    let subcommand = arguments.first().map(String::as_str).unwrap_or_default();
    let after =
        HARMFUL_SUBCOMMAND_OPTIONS.iter().filter(|(program, first, _)| *program == name && *first == subcommand);
    let harmful_option = harmful_option.chain(after.flat_map(|(.., options)| *options));
    let found = harmful_option.flat_map(|option| arguments.iter().filter(move |word| is_option(option, word)));
    found.into_iter().next().and_then(|word| hazard_text(word))
}

/// True if a word is this option: alone, in a cluster, abbreviated or with a value.
fn is_option(option: &str, word: &str) -> bool {
    let name = word.split('=').next().unwrap_or(word);
    match option.strip_prefix("--") {
        Some(_) => name.len() > 2 && name.starts_with("--") && option.starts_with(name),
        None if option.len() == 2 && option.starts_with('-') => {
            word.starts_with('-') && !word.starts_with("--") && word.contains(&option[1..])
        }
        // Programs with single-dash long options accept two dashes, too.
        None => word.starts_with(option) || word.strip_prefix('-').is_some_and(|word| word.starts_with(option)),
    }
}
