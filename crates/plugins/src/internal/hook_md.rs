//! Parses `HOOK.md` and finds the handler of a hook.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use homard_workspace::skills::{
    FrontMatter, SkillRequirements, as_bool, as_list, as_text, lookup, manifest, on_one_line, requires,
};
use serde_json::Value;

use super::bundled::BundledHook;

/// File that makes a directory a hook.
pub(super) const FILE: &str = "HOOK.md";

/// Maximum size of a file that is parsed.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Maximum length of a name in characters.
const MAX_NAME_CHARS: usize = 128;

/// Maximum deadline that a hook may request.
const MAX_DEADLINE: Duration = Duration::from_secs(600);

/// Script handlers run by Node; the first that exists is used.
const SCRIPTS: [&str; 4] = ["handler.ts", "handler.js", "index.ts", "index.js"];

/// Program handlers, used if there is no script.
const PROGRAMS: [&str; 3] = ["handler", "handler.sh", "handler.py"];

/// Event types.
const EVENT_TYPES: [&str; 5] = ["command", "session", "agent", "gateway", "message"];

/// An internal hook as described by its file.
#[derive(Debug, Clone, PartialEq)]
pub struct InternalHook {
    /// Its name, on one line.
    pub name: String,
    /// Its description.
    pub description: String,
    /// URL for more information.
    pub homepage: Option<String>,
    /// Its name in `hooks.internal.entries`.
    pub key: String,
    /// Emoji for lists.
    pub emoji: Option<String>,
    /// Events it subscribes to: `command` for all commands, `command:new` for that one.
    pub events: Vec<String>,
    /// Supported operating systems, by their Node names; empty for all.
    pub os: Vec<String>,
    /// True if it is loaded even if `requires` is not met. Its operating system must be supported in any case.
    pub always: bool,
    /// Requirements on the machine and the config.
    pub requires: SkillRequirements,
    /// Installation instructions, as written.
    pub install: Vec<Value>,
    /// True if it is disabled by default.
    pub is_disabled_by_default: bool,
    /// Deadline; `None` for the default.
    pub deadline: Option<Duration>,
    /// Its directory.
    pub dir: PathBuf,
    /// Path of its `HOOK.md`.
    pub file: PathBuf,
    /// Kind of location it was found in.
    pub source: HookSource,
    /// Its handler.
    pub handler: HookHandler,
}

/// Kinds of locations, lowest precedence first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookSource {
    /// `hooks.internal.load.extraDirs`.
    Extra,
    /// Bundled with the program.
    Bundled,
    /// The state directory.
    Managed,
    /// The workspace. It can only add names, because agents can write there.
    Workspace,
}

impl HookSource {
    /// Returns its name as used by clients.
    pub fn name(self) -> &'static str {
        match self {
            Self::Extra => "openclaw-extra",
            Self::Bundled => "openclaw-bundled",
            Self::Managed => "openclaw-managed",
            Self::Workspace => "openclaw-workspace",
        }
    }
}

/// Handler of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookHandler {
    /// A module that Node loads.
    Script {
        /// Path of the module.
        path: PathBuf,
        /// Name of the exported function.
        export: String,
    },
    /// A program that is started for every event.
    Program(PathBuf),
    /// A bundled hook.
    Bundled(BundledHook),
}

impl HookHandler {
    /// Returns the file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Script { path, .. } | Self::Program(path) => Some(path),
            Self::Bundled(_) => None,
        }
    }
}

/// Parses the hook in a directory, given by its canonical path; also returns notes about harmless mistakes. An error is
/// the rest of a sentence that begins with the path of its file.
pub(super) fn read(dir: &Path, source: HookSource) -> Result<(InternalHook, Vec<String>), String> {
    let file = dir.join(FILE);
    let text = text_of(&file, dir)?;
    let front_matter = FrontMatter::read(&text)
        .ok_or("has no front matter: begin it with `---`, `name:` and `metadata:` lines, and `---` again")?;
    let text_field = |key: &str| front_matter.get(key).as_ref().and_then(as_text);
    let mut notes = Vec::new();
    let folder = dir.file_name().map(|name| on_one_line(&name.to_string_lossy())).unwrap_or_default();
    let name = text_field("name").map(|name| on_one_line(&name)).filter(|name| !name.is_empty()).unwrap_or(folder);
    let length = name.chars().count();
    if length > MAX_NAME_CHARS {
        return Err(format!("has a name of {length} characters; at most {MAX_NAME_CHARS} are allowed"));
    }
    let meta = manifest(front_matter.get("metadata"), &mut notes);
    let metadata_text = |key: &str| lookup(&meta, key).and_then(as_text);
    let list = |key: &str| lookup(&meta, key).map(as_list).unwrap_or_default();
    let events = list("events");
    notes.extend(event_notes(&events, front_matter.yaml_error()));
    let handler = handler(dir, metadata_text("export"))?;
    let deadline = lookup(&meta, "timeoutMs").and_then(Value::as_u64).filter(|ms| *ms > 0).map(Duration::from_millis);
    let hook = InternalHook {
        description: text_field("description").map(|text| on_one_line(&text)).unwrap_or_default(),
        homepage: metadata_text("homepage").or_else(|| text_field("homepage")),
        key: metadata_text("hookKey").unwrap_or_else(|| name.clone()),
        emoji: metadata_text("emoji"),
        events,
        os: list("os"),
        always: lookup(&meta, "always").and_then(as_bool).unwrap_or(false),
        requires: requires(lookup(&meta, "requires")),
        install: lookup(&meta, "install").and_then(Value::as_array).cloned().unwrap_or_default(),
        is_disabled_by_default: front_matter.get("enabled").as_ref().and_then(as_bool) == Some(false),
        deadline: deadline.map(|deadline| deadline.min(MAX_DEADLINE)),
        dir: dir.to_owned(),
        file,
        source,
        name,
        handler,
    };
    Ok((hook, notes))
}

/// Returns notes about suspicious event names.
fn event_notes(events: &[String], yaml_error: Option<&str>) -> Vec<String> {
    if events.is_empty() {
        let reason =
            yaml_error.map(|yaml_error| format!(" (its front matter is not YAML: {yaml_error})")).unwrap_or_default();
        let example = r#"write metadata: {"openclaw": {"events": ["command:new"]}}"#;
        return vec![format!("lists no events, so it is never called{reason}; {example}")];
    }
    let is_strange = |event: &&String| !EVENT_TYPES.contains(&event.split(':').next().unwrap_or_default());
    let note = |event: &String| {
        format!("subscribes to the unknown event {event:?}; events begin with {}", EVENT_TYPES.join(", "))
    };
    events.iter().filter(is_strange).map(note).collect()
}

/// Finds the handler.
fn handler(dir: &Path, export: Option<String>) -> Result<HookHandler, String> {
    let is_there = |name: &&str| dir.join(name).symlink_metadata().is_ok();
    if let Some(name) = SCRIPTS.into_iter().find(is_there) {
        let path = inside(&dir.join(name), dir)?;
        return Ok(HookHandler::Script { path, export: export.unwrap_or_else(|| "default".to_owned()) });
    }
    let Some(name) = PROGRAMS.into_iter().find(is_there) else {
        let (scripts, programs) = (SCRIPTS.join(", "), PROGRAMS.join(", "));
        return Err(format!("has no handler in its folder; add one of {scripts}, or a program: {programs}"));
    };
    let path = inside(&dir.join(name), dir)?;
    let mode = fs::metadata(&path).map_err(|error| format!("has a handler that cannot be read: {}", error.kind()))?;
    if mode.permissions().mode() & 0o111 == 0 {
        return Err(format!("has a handler that is not executable; fix it with: chmod +x {}", path.display()));
    }
    Ok(HookHandler::Program(path))
}

/// Returns the canonical path of a file, if it is a regular file in this directory, which is canonical.
fn inside(path: &Path, dir: &Path) -> Result<PathBuf, String> {
    let name = path.file_name().unwrap_or_default().display();
    let real = fs::canonicalize(path).map_err(|error| format!("has a {name} that cannot be read: {}", error.kind()))?;
    if !real.starts_with(dir) {
        return Err(format!(
            "has a {name} that is a link out of its folder, so it is not used; replace the link with the file"
        ));
    }
    if real.is_file() { Ok(real) } else { Err(format!("has a {name} that is not a file")) }
}

/// Reads a file in a directory, or returns what is wrong with it.
pub(super) fn text_of(file: &Path, dir: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {}", error.kind());
    let real = fs::canonicalize(file).map_err(unreadable)?;
    if !real.starts_with(dir) {
        return Err("is a link out of its folder, so it is not read; replace the link with the file".to_owned());
    }
    // Checked before opening: opening a FIFO would block until it is written to.
    if !real.is_file() {
        return Err("is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    fs::File::open(real).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than the limit of {MAX_FILE_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| "is not UTF-8 text".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory with these files; those whose name ends in `*` are executable.
    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(temp.path()).unwrap().join("tide");
        fs::create_dir(&dir).unwrap();
        for (name, text) in files {
            let path = dir.join(name.trim_end_matches('*'));
            fs::write(&path, text).unwrap();
            let mode = if name.ends_with('*') { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        (temp, dir)
    }

    const MATTER: &str = "---\nname: tide\ndescription: \"Tell: it is high\"\nhomepage: https://x.example\nmetadata:\n  {\n    // JSON5\n    openclaw: {events: ['command:new', 'agent'], emoji: '🌊', hookKey: 'sea', os: 'linux,darwin', export: 'run',\n      requires: {bins: ['sh'], env: ['TIDE']}, timeoutMs: 900, install: [{id: 'x', kind: 'npm'}]},\n  }\n---\n# Tide\n";

    #[test]
    fn all_fields_of_a_hook_file_are_read() {
        let (_temp, dir) = folder(&[("HOOK.md", MATTER), ("handler.js", ""), ("index.ts", "")]);
        let (hook, notes) = read(&dir, HookSource::Managed).unwrap();
        let texts = |items: &[&str]| items.iter().map(|&item| item.to_owned()).collect::<Vec<_>>();
        let expected = InternalHook {
            name: "tide".to_owned(),
            description: "Tell: it is high".to_owned(),
            homepage: Some("https://x.example".to_owned()),
            key: "sea".to_owned(),
            emoji: Some("🌊".to_owned()),
            events: texts(&["command:new", "agent"]),
            os: texts(&["linux", "darwin"]),
            always: false,
            requires: SkillRequirements { bins: texts(&["sh"]), env: texts(&["TIDE"]), ..SkillRequirements::default() },
            install: vec![serde_json::json!({"id": "x", "kind": "npm"})],
            is_disabled_by_default: false,
            deadline: Some(Duration::from_millis(900)),
            file: dir.join("HOOK.md"),
            source: HookSource::Managed,
            handler: HookHandler::Script { path: dir.join("handler.js"), export: "run".to_owned() },
            dir,
        };
        assert_eq!((hook, notes), (expected, Vec::new()));
    }

    #[test]
    fn the_handler_is_the_first_script_or_a_program() {
        let chosen = |files: &[(&str, &str)]| {
            let files: Vec<_> = [("HOOK.md", MATTER)].iter().chain(files).copied().collect();
            let (_temp, dir) = folder(&files);
            let read = read(&dir, HookSource::Extra).map(|(hook, _)| hook.handler.path().unwrap().to_owned());
            read.map(|path| path.strip_prefix(&dir).unwrap().display().to_string())
                .map_err(|error| error.replace(dir.to_str().unwrap(), "$DIR"))
        };
        assert_eq!(chosen(&[("index.js", ""), ("handler.ts", "")]).unwrap(), "handler.ts");
        assert_eq!(chosen(&[("index.js", ""), ("handler*", "")]).unwrap(), "index.js");
        assert_eq!(chosen(&[("handler.py*", ""), ("handler.sh*", "")]).unwrap(), "handler.sh");
        assert_eq!(
            chosen(&[("handler.sh", "")]).unwrap_err(),
            "has a handler that is not executable; fix it with: chmod +x $DIR/handler.sh"
        );
        assert!(chosen(&[]).unwrap_err().starts_with("has no handler in its folder; add one of handler.ts, "));
    }

    #[test]
    fn links_out_of_the_directory_are_rejected() {
        let (temp, dir) = folder(&[("HOOK.md", MATTER)]);
        let outside_file = temp.path().join("outside.js");
        fs::write(&outside_file, "").unwrap();
        symlink(&outside_file, dir.join("handler.js")).unwrap();
        let refused = read(&dir, HookSource::Managed).unwrap_err();
        assert!(refused.starts_with("has a handler.js that is a link out of its folder"), "{refused}");
        fs::remove_file(dir.join("HOOK.md")).unwrap();
        symlink(&outside_file, dir.join("HOOK.md")).unwrap();
        assert!(read(&dir, HookSource::Managed).unwrap_err().starts_with("is a link out of its folder"));
    }

    #[test]
    fn invalid_fields_are_reported_and_the_rest_is_read() {
        let notes_of = |text: &str| {
            let (_temp, dir) = folder(&[("HOOK.md", text), ("index.js", "")]);
            read(&dir, HookSource::Managed).map(|(hook, notes)| (hook.name, hook.is_disabled_by_default, notes))
        };
        let (name, is_off, notes) = notes_of("---\nenabled: no\n---\n").unwrap();
        assert_eq!((name.as_str(), is_off, notes.len()), ("tide", true, 1));
        assert!(notes[0].starts_with("lists no events, so it is never called; write metadata: "), "{notes:?}");
        let unknown_event = "---\nmetadata: {openclaw: {events: [weather:rain, command]}}\n---\n";
        let expected = "subscribes to the unknown event \"weather:rain\"; events begin with command, session, agent, \
             gateway, message";
        assert_eq!(notes_of(unknown_event).unwrap(), ("tide".to_owned(), false, vec![expected.to_owned()]));
        assert!(notes_of("just text").unwrap_err().starts_with("has no front matter"));
        assert!(notes_of(&format!("---\nname: {}\n---\n", "x".repeat(200))).unwrap_err().contains("200 characters"));
        assert!(
            notes_of(&format!("---\nname: x\n---\n{}", "x".repeat(300_000))).unwrap_err().starts_with("is larger than")
        );
    }
}
