//! Checks that `data/openclaw-keys.txt` matches the recorded key lists of OpenClaw's versions, if those lists are
//! present.

use std::{collections::BTreeMap, fs, path::Path};

use homard_config::{LoadedConfig, ReadEnvironment, Sections, read};

const VERSIONS: [&str; 2] = ["2026.2.9", "2026.9.6"];

/// Keys below a key, by name.
#[derive(Default)]
struct Keys(BTreeMap<String, Self>);

impl Keys {
    fn add<'a>(&mut self, path: impl IntoIterator<Item = &'a str>) {
        path.into_iter().fold(self, |keys, name| keys.0.entry(name.to_owned()).or_default());
    }

    fn write(&self, depth: usize, text: &mut String) {
        for (name, keys) in &self.0 {
            text.push_str(&format!("{}{name}\n", " ".repeat(depth)));
            keys.write(depth + 1, text);
        }
    }
}

/// Builds the data file from lists with lines such as `models.providers.*.models[].id: string`.
fn data(lists: &[String]) -> String {
    let mut keys = Keys::default();
    let lines = || lists.iter().flat_map(|list| list.lines()).filter_map(|line| line.split_once(": "));
    for (path, _) in lines() {
        keys.add(path.replace("[]", ".[]").split('.'));
    }
    // An object that one version does not look into has free names, beside those that the other version has.
    let opaque: Vec<_> = lines().filter(|(_, kind)| *kind == "object").map(|(path, _)| path).collect();
    // The lists name the plugins that were installed; others are possible.
    for path in opaque.into_iter().chain(["plugins.entries"]) {
        let mut node = &mut keys;
        for name in path.split('.') {
            node = node.0.entry(name.to_owned()).or_default();
        }
        if !node.0.is_empty() {
            node.add(["*"]);
        }
    }
    let mut text = format!("# The config keys of OpenClaw {}.\n", VERSIONS.join(" and "));
    text.push_str("# A key without others beneath it may hold anything; * is a free name, [] an item of a list.\n");
    keys.write(0, &mut text);
    text
}

#[test]
fn the_data_file_matches_the_recorded_lists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lists: Result<Vec<_>, _> = VERSIONS
        .iter()
        .map(|version| fs::read_to_string(root.join(format!("../../../shared/samples/config-keys/{version}.txt"))))
        .collect();
    let Ok(lists) = lists else {
        std::io::Write::write_all(
            &mut std::io::stderr(),
            b"skipped: the recorded lists of keys: ../shared/samples is not here\n",
        )
        .unwrap();
        return;
    };
    let wanted = data(&lists);
    let committed = fs::read_to_string(root.join("data/openclaw-keys.txt")).unwrap_or_default();
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openclaw-keys.txt");
    fs::write(&fresh, &wanted).unwrap();
    assert!(committed == wanted, "copy {} to data/openclaw-keys.txt", fresh.display());
}

#[test]
fn lists_become_a_tree() {
    let lists = ["a.b: string\na.list[].id: string\nc: object\n", "c.d: {*:string}\nplugins.entries.x.on: boolean\n"];
    assert_eq!(
        data(&lists.map(str::to_owned)).lines().skip(2).collect::<Vec<_>>(),
        ["a", " b", " list", "  []", "   id", "c", " *", " d", "plugins", " entries", "  *", "  x", "   on"]
    );
}

/// Sections without keys, so that every key is looked up in the list.
#[derive(Default, serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

impl Sections for Nothing {}

#[test]
fn configs_that_openclaw_wrote_have_no_unknown_key() {
    let states = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples/state");
    for state in ["2026.2.9", "2026.2.9-onboarded"] {
        let path = states.join(state).join("openclaw.json");
        if !path.exists() {
            std::io::Write::write_all(
                &mut std::io::stderr(),
                b"skipped: the recorded configs: ../shared/samples is not here\n",
            )
            .unwrap();
            return;
        }
        let loaded: LoadedConfig<Nothing> = read(
            &path,
            &ReadEnvironment { variable: &|_| None, secret: &|_| Err("is not there".to_owned()), include_roots: &[] },
        );
        assert_eq!(loaded.problems, [], "{state}");
        let keys: Vec<_> = loaded.warnings.iter().map(|warning| warning.path.as_str()).collect();
        let sections = loaded.source.as_object().map(|sections| sections.keys().map(String::as_str).collect());
        assert_eq!(Some(keys), sections, "{state}");
    }
}
